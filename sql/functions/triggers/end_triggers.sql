-- end_triggers: the one place where items end: their ledger rows, executions, replies and dead letters.
--
-- Moves    any -> terminal; the caller has locked and deleted the pending rows, if there are any; the next of an order -> due
-- Caller   place_trigger, complete_trigger_outbox_attempts, repair_trigger_outbox_leases, delete_app
-- Locks    the orders that the items went in
-- Refuses  23505 if one has a terminal outcome already
-- Why      answers the attempts' numbers, in the order given. A failed item fires the app's dead-letter triggers, unless
--          a dead letter is among its ancestors: a dead letter of a dead letter ends there, and nothing goes round in a
--          circle. A wake-up carries the replies' names only (many in one, because each costs every listener a
--          message); the answers are read from the executions. None for p_replies_here, because NOTIFY makes commits
--          wait for each other. The next of an order is found by its number, and nobody adds one meanwhile.
CREATE OR REPLACE FUNCTION symphony.end_triggers(
    p_items symphony.trigger_outbox_pending[], p_worker_id TEXT, p_states TEXT[], p_results JSONB[] DEFAULT NULL, p_logs JSONB[] DEFAULT NULL,
    p_error_codes TEXT[] DEFAULT NULL, p_error_messages TEXT[] DEFAULT NULL, p_latencies_ms INT[] DEFAULT NULL,
    p_replies_here BOOLEAN[] DEFAULT NULL
) RETURNS INT[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_nestloop = off SET enable_hashjoin = on SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
DECLARE
    v_nos        INT[];
    v_names      TEXT[];
    v_in_order   BOOLEAN;
    v_any_failed BOOLEAN;
    v_item       symphony.trigger_outbox_pending;
    v_script     TEXT;
BEGIN
    -- One statement for all of it: a second one costs as much as eight items.
    WITH ended AS MATERIALIZED (
        SELECT i.*, o.state, o.result, o.logs, left(o.error_code, 255) AS error_code, left(o.error_message, 2000) AS error_message, o.latency_ms,
               o.reply_here, o.item_no,
               coalesce((SELECT max(a.attempt_no) FROM symphony.trigger_outbox_attempts a WHERE a.id = i.id), 0) + 1 AS attempt_no
          FROM unnest(p_items) WITH ORDINALITY i
          JOIN unnest(p_states::symphony.outbox_attempt_state[], p_results, p_logs, p_error_codes, p_error_messages, p_latencies_ms, p_replies_here)
               WITH ORDINALITY o(state, result, logs, error_code, error_message, latency_ms, reply_here, item_no) ON o.item_no = i.ordinality
    ), outcomes AS (
        INSERT INTO symphony.trigger_outbox_attempts
            (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, error_code, error_message, latency_ms,
             worker_id, lease_token, claimed_at)
        SELECT e.id, e.attempt_no, e.app_id, e.source_kind, e.trigger_id, e.script_id, e.root_execution_id, e.state, e.error_code,
               e.error_message, e.latency_ms, p_worker_id, e.lease_token, e.claimed_at
          FROM ended e
    ), executions AS (
        INSERT INTO symphony.trigger_outbox_executions
            (id, app_id, app_name, source_kind, trigger_id, script_id, script_name, script_version, parent_execution_id, root_execution_id,
             trigger_depth, reply_to, origin_principal, principal, payload, state, result, error_code, error_message, logs, attempts, created_at,
             traceparent)
        SELECT e.id, e.app_id, (SELECT a.name FROM symphony.apps a WHERE a.id = e.app_id), e.source_kind, e.trigger_id, e.script_id,
               (SELECT s.name FROM symphony.scripts s WHERE s.id = e.script_id), (SELECT s.version FROM symphony.scripts s WHERE s.id = e.script_id),
               e.parent_execution_id, e.root_execution_id, e.trigger_depth, e.reply_to, e.origin_principal, e.principal, e.payload, e.state,
               e.result, e.error_code, e.error_message, coalesce(e.logs, '[]'), e.attempt_no, e.created_at, e.traceparent
          FROM ended e
    )
    SELECT array_agg(e.attempt_no ORDER BY e.item_no), array_agg(e.reply_to::TEXT) FILTER (WHERE e.reply_to IS NOT NULL AND e.reply_here IS NOT TRUE),
           bool_or(e.order_key IS NOT NULL), bool_or(e.state = 'FAILED')
      INTO v_nos, v_names, v_in_order, v_any_failed
      FROM ended e;
    -- Two hundred names are less than the 8,000 bytes a wake-up may have.
    FOR i IN 0 .. (coalesce(cardinality(v_names), 0) - 1) / 200 LOOP
        EXIT WHEN v_names IS NULL;
        PERFORM pg_notify(symphony.outbox_channel('trigger_reply'), array_to_string(v_names[i * 200 + 1 : i * 200 + 200], ','));
    END LOOP;
    IF v_in_order THEN
        PERFORM symphony.lock_trigger_orders(array_agg(i.app_id), array_agg(i.order_key)) FROM unnest(p_items) i WHERE i.order_key IS NOT NULL;
        FOR v_item IN SELECT i.* FROM unnest(p_items) i WHERE i.order_key IS NOT NULL LOOP
            UPDATE symphony.trigger_outbox_pending p SET awaits_turn = false, next_attempt_at = clock_timestamp()
             WHERE p.awaits_turn AND p.id = (SELECT n.id FROM symphony.trigger_outbox_pending n
                                              WHERE n.app_id = v_item.app_id AND n.order_key = v_item.order_key ORDER BY n.order_no LIMIT 1);
        END LOOP;
    END IF;
    FOR i IN 1 .. CASE WHEN v_any_failed THEN cardinality(p_items) ELSE 0 END LOOP
        CONTINUE WHEN p_states[i] <> 'FAILED';
        v_item := p_items[i];
        CONTINUE WHEN v_item.after_dead_letter;
        v_script := (SELECT s.name FROM symphony.scripts s WHERE s.id = v_item.script_id);
        PERFORM symphony.fire_triggers(
            v_item.app_id, 'dead_letter', coalesce(v_script, ''),
            jsonb_build_object('executionId', v_item.id, 'sourceKind', v_item.source_kind, 'script', v_script, 'payload', v_item.payload,
                               'errorCode', p_error_codes[i], 'errorMessage', p_error_messages[i], 'attempts', v_nos[i]),
            v_item.origin_principal, v_item.trigger_depth, v_item.id, v_item.root_execution_id, true);
    END LOOP;
    RETURN v_nos;
END $$;
