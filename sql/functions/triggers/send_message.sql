-- send_message: a message for every subscriber of a topic, or for one consumer of a queue.
--
-- Moves    nothing -> pending; for a queue without a consumer, nothing -> waiting
-- Caller   publish_topic, send_to_queue, apply_trigger_effects, push_app; nobody else may
-- Locks    the queue's row against a push that changes its consumers; the order a message goes in
-- Refuses  P7005 for a topic or queue the app has not declared, a message that is too large, or more than p_rows_left
--          and p_bytes_left
-- Why      one consumer per message is decided here, once: of several triggers on a queue a random one gets it.
CREATE OR REPLACE FUNCTION symphony.send_message(
    p_app_id UUID, p_source_kind TEXT, p_name TEXT, p_message JSONB, p_origin_principal UUID, p_depth INT, p_parent UUID, p_root UUID,
    p_after_dead_letter BOOLEAN, p_key TEXT DEFAULT NULL, INOUT p_rows_left INT DEFAULT NULL, INOUT p_bytes_left BIGINT DEFAULT NULL,
    OUT fired INT
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_trigger symphony.triggers;
    v_fired   RECORD;
    v_payload JSONB := jsonb_build_object(CASE p_source_kind WHEN 'queue' THEN 'queue' ELSE 'topic' END, p_name, 'message', p_message);
BEGIN
    PERFORM symphony.require_outbox_id('p_' || CASE p_source_kind WHEN 'queue' THEN 'queue' ELSE 'topic' END, p_name);
    IF p_message IS NULL THEN
        RAISE EXCEPTION 'p_message is missing: give a JSON value' USING ERRCODE = 'P7005';
    END IF;
    PERFORM symphony.require_plain_json('p_message', p_message, 256);
    IF p_source_kind = 'pubsub' THEN
        IF NOT EXISTS (SELECT FROM symphony.topics t WHERE t.app_id = p_app_id AND t.name = p_name) THEN
            RAISE EXCEPTION 'the app has no topic %: declare it in app.json under topics', quote_ident(p_name) USING ERRCODE = 'P7005';
        END IF;
        v_fired := symphony.fire_triggers(p_app_id, 'pubsub', p_name, v_payload, p_origin_principal, p_depth, p_parent, p_root,
                                          p_after_dead_letter, p_rows_left, p_bytes_left);
        p_rows_left := v_fired.p_rows_left;
        p_bytes_left := v_fired.p_bytes_left;
        fired := v_fired.fired;
        RETURN;
    END IF;
    IF p_rows_left IS NOT NULL THEN
        p_rows_left := p_rows_left - 1;
        p_bytes_left := p_bytes_left - pg_column_size(v_payload);
        PERFORM symphony.require_fan_out(p_rows_left, p_bytes_left);
    END IF;
    IF p_key IS NOT NULL THEN
        PERFORM symphony.require_outbox_id('p_key', p_key, 512);
    END IF;
    PERFORM FROM symphony.queues q WHERE q.app_id = p_app_id AND q.name = p_name FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the app has no queue %: declare it in app.json under queues', quote_ident(p_name) USING ERRCODE = 'P7005';
    END IF;
    SELECT t.* INTO v_trigger FROM symphony.triggers t
     WHERE t.app_id = p_app_id AND t.source_kind = 'queue' AND symphony.trigger_matches(t.filter, p_name)
     ORDER BY random() LIMIT 1;
    IF NOT FOUND THEN
        INSERT INTO symphony.queue_messages
            (app_id, queue, payload, message_key, origin_principal, trigger_depth, parent_execution_id, root_execution_id, after_dead_letter)
        VALUES (p_app_id, p_name, p_message, p_key, p_origin_principal, p_depth, p_parent, p_root, p_after_dead_letter);
        fired := 0;
        RETURN;
    END IF;
    PERFORM symphony.place_trigger(
        p_app_id, 'queue', v_trigger.id, v_trigger.script_name, v_payload, p_origin_principal, v_trigger.registered_by_principal,
        p_depth, p_parent, p_root, p_after_dead_letter, v_trigger.attempts_max, v_trigger.backoff_seconds,
        p_order_key => symphony.queue_order(p_app_id, p_name, p_key));
    fired := 1;
END $$;
