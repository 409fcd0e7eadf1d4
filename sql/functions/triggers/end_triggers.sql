-- end_triggers: the one place where items end: their ledger rows, executions, replies and dead letters.
--
-- Moves    any -> terminal; the caller has locked and deletes the pending rows, if there are any
-- Caller   place_trigger, complete_trigger_outbox_attempts, repair_trigger_outbox_leases, delete_app
-- Locks    nothing
-- Refuses  23505 if one has a terminal outcome already
-- Why      answers the attempts' numbers, in the order given. A failed item fires the app's dead-letter triggers, unless
--          a dead letter is among its ancestors: a dead letter of a dead letter ends there, and nothing goes round in a
--          circle. A wake-up carries the replies' names only (many in one, because each costs every listener a
--          message); the answers are read from the executions.
CREATE OR REPLACE FUNCTION symphony_internal.end_triggers(
    p_items public.trigger_outbox_pending[], p_worker_id TEXT, p_states TEXT[], p_results JSONB[] DEFAULT NULL, p_logs JSONB[] DEFAULT NULL,
    p_error_codes TEXT[] DEFAULT NULL, p_error_messages TEXT[] DEFAULT NULL, p_latencies_ms INT[] DEFAULT NULL
) RETURNS INT[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off SET enable_hashjoin = on SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
DECLARE
    v_nos    INT[];
    v_names  TEXT;
    v_item   public.trigger_outbox_pending;
    v_script TEXT;
BEGIN
    v_nos := ARRAY(SELECT coalesce((SELECT max(a.attempt_no) FROM public.trigger_outbox_attempts a WHERE a.id = i.id), 0) + 1
                     FROM unnest(p_items) WITH ORDINALITY i ORDER BY i.ordinality);
    INSERT INTO public.trigger_outbox_attempts
        (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, error_code, error_message, latency_ms,
         worker_id, lease_token, claimed_at)
    SELECT i.id, o.attempt_no, i.app_id, i.source_kind, i.trigger_id, i.script_id, i.root_execution_id,
           o.state::public.outbox_attempt_state, left(o.error_code, 255), left(o.error_message, 2000), o.latency_ms, p_worker_id,
           i.lease_token, i.claimed_at
      FROM unnest(p_items) WITH ORDINALITY i
      JOIN unnest(v_nos, p_states, p_error_codes, p_error_messages, p_latencies_ms) WITH ORDINALITY
           o(attempt_no, state, error_code, error_message, latency_ms, item_no) ON o.item_no = i.ordinality;
    INSERT INTO public.trigger_outbox_executions
        (id, app_id, app_name, source_kind, trigger_id, script_id, script_name, script_version, parent_execution_id, root_execution_id,
         trigger_depth, reply_to, origin_principal, payload, state, result, error_code, error_message, logs, attempts, created_at)
    SELECT i.id, i.app_id, (SELECT a.name FROM public.apps a WHERE a.id = i.app_id), i.source_kind, i.trigger_id, i.script_id,
           (SELECT s.name FROM public.scripts s WHERE s.id = i.script_id), (SELECT s.version FROM public.scripts s WHERE s.id = i.script_id),
           i.parent_execution_id, i.root_execution_id, i.trigger_depth, i.reply_to, i.origin_principal, i.payload,
           o.state::public.outbox_attempt_state, o.result, left(o.error_code, 255), left(o.error_message, 2000), coalesce(o.logs, '[]'),
           o.attempt_no, i.created_at
      FROM unnest(p_items) WITH ORDINALITY i
      JOIN unnest(v_nos, p_states, p_results, p_logs, p_error_codes, p_error_messages) WITH ORDINALITY
           o(attempt_no, state, result, logs, error_code, error_message, item_no) ON o.item_no = i.ordinality;
    -- Two hundred names are less than the 8,000 bytes a wake-up may have.
    FOR v_names IN SELECT string_agg(i.reply_to::TEXT, ',') FROM unnest(p_items) WITH ORDINALITY i WHERE i.reply_to IS NOT NULL
                    GROUP BY i.ordinality / 200
    LOOP
        PERFORM pg_notify('trigger_reply', v_names);
    END LOOP;
    FOR i IN 1 .. cardinality(p_items) LOOP
        CONTINUE WHEN p_states[i] <> 'FAILED';
        v_item := p_items[i];
        CONTINUE WHEN v_item.after_dead_letter;
        v_script := (SELECT s.name FROM public.scripts s WHERE s.id = v_item.script_id);
        PERFORM symphony_internal.fire_triggers(
            v_item.app_id, 'dead_letter', coalesce(v_script, ''),
            jsonb_build_object('executionId', v_item.id, 'sourceKind', v_item.source_kind, 'script', v_script, 'payload', v_item.payload,
                               'errorCode', p_error_codes[i], 'errorMessage', p_error_messages[i], 'attempts', v_nos[i]),
            v_item.origin_principal, v_item.trigger_depth, v_item.id, v_item.root_execution_id, true);
    END LOOP;
    RETURN v_nos;
END $$;
