-- place_trigger: write one item, or its failure if it stands too deep.
--
-- Moves    nothing -> pending (due at once, or when its turn in its order comes) | nothing -> FAILED (TRIGGER_DEPTH_EXCEEDED, SCRIPT_MISSING)
-- Caller   the functions that fire; nobody else may
-- Locks    the order it goes in, if any
-- Refuses  nothing
-- Why      the limit is enforced where rows are born, so that no executor can get round it. The script's version is
--          fixed here: a push does not change what was already fired. Its place in an order is given under the order's
--          lock, so that numbers are in the order of commits and none is missed by whoever ends the one before. What a run
--          fires is of its trace; the run may have ended already, where a message waited for its queue's consumer.
CREATE OR REPLACE FUNCTION symphony.place_trigger(
    p_app_id UUID, p_source_kind TEXT, p_trigger_id UUID, p_script_name TEXT, p_payload JSONB, p_origin_principal UUID,
    p_principal UUID, p_depth INT, p_parent UUID, p_root UUID, p_after_dead_letter BOOLEAN, p_attempts_max INT,
    p_backoff_seconds INT[], p_reply_to UUID DEFAULT NULL, p_reply_deadline_at TIMESTAMPTZ DEFAULT NULL, p_script_id UUID DEFAULT NULL,
    p_order_key TEXT DEFAULT NULL, p_traceparent TEXT DEFAULT NULL, OUT id UUID
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_item  symphony.trigger_outbox_pending;
    v_email BOOLEAN := p_source_kind = 'email' AND p_script_name IS NULL AND p_script_id IS NULL;
BEGIN
    v_item.id := symphony.time_ordered_id();
    v_item.app_id := p_app_id;
    v_item.source_kind := p_source_kind;
    v_item.trigger_id := p_trigger_id;
    v_item.script_id := coalesce(p_script_id, (SELECT s.id FROM symphony.scripts s WHERE s.app_id = p_app_id AND s.name = p_script_name
                                                ORDER BY s.version DESC LIMIT 1));
    v_item.reply_to := p_reply_to;
    v_item.reply_deadline_at := p_reply_deadline_at;
    v_item.payload := p_payload;
    v_item.origin_principal := p_origin_principal;
    v_item.principal := p_principal;
    v_item.trigger_depth := p_depth;
    v_item.parent_execution_id := p_parent;
    v_item.root_execution_id := coalesce(p_root, v_item.id);
    v_item.after_dead_letter := p_after_dead_letter OR p_source_kind = 'dead_letter';
    v_item.attempt_count := 0;
    v_item.attempts_max := CASE WHEN p_reply_to IS NULL THEN p_attempts_max ELSE 1 END;
    v_item.backoff_seconds := p_backoff_seconds;
    v_item.awaits_turn := false;
    v_item.traceparent := p_traceparent;
    IF p_parent IS NOT NULL THEN
        SELECT p.traceparent INTO v_item.traceparent FROM symphony.trigger_outbox_pending p WHERE p.id = p_parent;
        IF NOT FOUND THEN
            SELECT e.traceparent INTO v_item.traceparent FROM symphony.trigger_outbox_executions e WHERE e.id = p_parent;
        END IF;
    END IF;
    v_item.created_at := clock_timestamp();
    v_item.next_attempt_at := v_item.created_at;
    -- A dead letter stands no deeper than what failed.
    IF p_depth > (SELECT s.depth_max FROM symphony.trigger_outbox_settings s WHERE s.only_row) AND p_source_kind <> 'dead_letter' THEN
        PERFORM symphony.end_triggers(ARRAY[v_item], 'symphony', '{FAILED}', p_error_codes => '{TRIGGER_DEPTH_EXCEEDED}',
            p_error_messages => ARRAY[format(
                'fired at depth %s: triggers of the app fire each other in a circle, or depth_max is too low', p_depth)]);
    ELSIF v_item.script_id IS NULL AND NOT v_email THEN
        PERFORM symphony.end_triggers(ARRAY[v_item], 'symphony', '{FAILED}', p_error_codes => '{SCRIPT_MISSING}',
            p_error_messages => ARRAY[format('the app has no script %s', quote_ident(left(p_script_name, 100)))]);
    ELSE
        IF p_order_key IS NOT NULL THEN
            PERFORM symphony.lock_trigger_orders(ARRAY[p_app_id], ARRAY[p_order_key]);
            v_item.order_key := p_order_key;
            v_item.order_no := coalesce((SELECT p.order_no FROM symphony.trigger_outbox_pending p
                                          WHERE p.app_id = p_app_id AND p.order_key = p_order_key ORDER BY p.order_no DESC LIMIT 1), 0) + 1;
            v_item.awaits_turn := v_item.order_no > 1;
        END IF;
        INSERT INTO symphony.trigger_outbox_pending SELECT v_item.*;
    END IF;
    id := v_item.id;
END $$;
