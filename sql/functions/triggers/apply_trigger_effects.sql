-- apply_trigger_effects: what a script wants to have done, in the transaction that completes its item.
--
-- Moves    entries and messages of its app; nothing -> pending at its depth plus one
-- Caller   complete_trigger_outbox_attempts; nobody else may
-- Locks    the entries in the order of their keys, then the rest in the order given
-- Refuses  P7004, P7005 for an effect that is not right: the caller undoes all of them and fails the item
-- Why      keys are locked in sorted order, so that two scripts never wait for each other in a circle; of several
--          writes to one key the last counts, since only that is ever committed. Messages last: a queue's row is
--          shared, and an event's bucket is locked until the end.
CREATE OR REPLACE FUNCTION symphony_internal.apply_trigger_effects(p_item public.trigger_outbox_pending, p_effects JSONB) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_effect JSONB;
    v_number INT;
    v_events JSONB[];
    v_bad    TEXT;
    -- A tick that a failover or a restore has lost is fired again under another id: it is known by its time. A replay of
    -- one (it has no trigger) is meant to be another.
    v_source TEXT := CASE WHEN p_item.source_kind = 'cron' AND p_item.trigger_id IS NOT NULL
                          THEN jsonb_build_array((SELECT a.name FROM public.apps a WHERE a.id = p_item.app_id),
                                                 p_item.payload->'trigger', p_item.payload->'tickAt')::TEXT
                          ELSE p_item.id::TEXT END;
BEGIN
    IF jsonb_typeof(p_effects) <> 'array' THEN
        RAISE EXCEPTION 'effects must be an array' USING ERRCODE = 'P7005';
    END IF;
    SELECT e.effect->>'kind' INTO v_bad FROM jsonb_array_elements(p_effects) e(effect)
     WHERE (e.effect->>'kind' IN ('kv_set', 'kv_delete', 'queue_send', 'pubsub_publish', 'event_publish', 'email_send')) IS NOT TRUE LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'there is no effect %', quote_ident(left(coalesce(v_bad, 'null'), 100)) USING ERRCODE = 'P7005';
    END IF;
    FOR v_effect IN SELECT DISTINCT ON (e.effect->>'key') e.effect
                      FROM jsonb_array_elements(p_effects) WITH ORDINALITY e(effect, ordinal)
                     WHERE e.effect->>'kind' IN ('kv_set', 'kv_delete')
                     ORDER BY e.effect->>'key', e.ordinal DESC
    LOOP
        PERFORM symphony_internal.write_kv(
            p_item.app_id, v_effect->>'key', CASE v_effect->>'kind' WHEN 'kv_set' THEN coalesce(v_effect->'value', 'null') END,
            p_item.origin_principal, p_item.trigger_depth + 1, p_item.id, p_item.root_execution_id, p_item.after_dead_letter);
    END LOOP;
    FOR v_effect, v_number IN SELECT e.effect, e.ordinal::INT FROM jsonb_array_elements(p_effects) WITH ORDINALITY e(effect, ordinal)
                     WHERE e.effect->>'kind' IN ('queue_send', 'pubsub_publish', 'email_send') ORDER BY e.ordinal
    LOOP
        IF v_effect->>'kind' = 'email_send' THEN
            PERFORM symphony_internal.place_trigger(
                p_item.app_id, 'email', NULL, NULL,
                -- The same if this completion is lost and the script runs again: readers know a mail by it.
                symphony_internal.outbound_email(v_effect->'message') || jsonb_build_object('messageKey',
                    (SELECT symphony_internal.derive_key(s.installation_id, v_source, 'email', v_number) FROM public.symphony_installation s)),
                p_item.origin_principal,
                p_item.principal, p_item.trigger_depth + 1, p_item.id, p_item.root_execution_id, p_item.after_dead_letter, 8, '{5,30,120,600,3600}');
        ELSE
            PERFORM symphony_internal.send_message(
                p_item.app_id, CASE v_effect->>'kind' WHEN 'queue_send' THEN 'queue' ELSE 'pubsub' END,
                coalesce(v_effect->>'queue', v_effect->>'topic'), v_effect->'message', p_item.origin_principal,
                p_item.trigger_depth + 1, p_item.id, p_item.root_execution_id, p_item.after_dead_letter);
        END IF;
    END LOOP;
    v_events := ARRAY(SELECT e.effect->'event' FROM jsonb_array_elements(p_effects) WITH ORDINALITY e(effect, ordinal)
                       WHERE e.effect->>'kind' = 'event_publish' ORDER BY e.ordinal);
    IF cardinality(v_events) > 0 THEN
        SELECT a.error_code || ' ' || a.error_message INTO v_bad FROM public.enqueue_event_outbox_batch(v_events) a
         WHERE a.error_code IS NOT NULL ORDER BY a.item_no LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '%', substr(v_bad, 7) USING ERRCODE = left(v_bad, 5);
        END IF;
    END IF;
END $$;
