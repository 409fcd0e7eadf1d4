-- end_trigger: the one place where an item ends: its ledger row, its execution, its reply, its dead letter.
--
-- Moves    any -> terminal; the caller has locked and deletes the pending row, if there is one
-- Caller   place_trigger, complete_trigger_outbox_attempts, repair_trigger_outbox_leases, delete_app
-- Locks    nothing
-- Refuses  23505 if it has a terminal outcome already
-- Why      a failed item fires the app's dead-letter triggers, unless a dead letter is among its ancestors: a dead
--          letter of a dead letter ends there, and nothing goes round in a circle. The wake-up carries the
--          reply's name only; the answer is read from the execution.
CREATE OR REPLACE FUNCTION symphony_internal.end_trigger(
    p_item public.trigger_outbox_pending, p_state TEXT, p_worker_id TEXT, p_result JSONB, p_logs JSONB, p_error_code TEXT,
    p_error_message TEXT, p_latency_ms INT, p_lease_token UUID
) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_no     INT := coalesce((SELECT max(a.attempt_no) FROM public.trigger_outbox_attempts a WHERE a.id = p_item.id), 0) + 1;
    v_script public.scripts;
    v_app    TEXT := (SELECT a.name FROM public.apps a WHERE a.id = p_item.app_id);
BEGIN
    SELECT s.* INTO v_script FROM public.scripts s WHERE s.id = p_item.script_id;
    INSERT INTO public.trigger_outbox_attempts
        (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, error_code, error_message, latency_ms,
         worker_id, lease_token, claimed_at)
    VALUES (p_item.id, v_no, p_item.app_id, p_item.source_kind, p_item.trigger_id, p_item.script_id, p_item.root_execution_id,
            p_state::public.outbox_attempt_state, left(p_error_code, 255), left(p_error_message, 2000), p_latency_ms, p_worker_id,
            p_lease_token, p_item.claimed_at);
    INSERT INTO public.trigger_outbox_executions
        (id, app_id, app_name, source_kind, trigger_id, script_id, script_name, script_version, parent_execution_id, root_execution_id,
         trigger_depth, reply_to, origin_principal, payload, state, result, error_code, error_message, logs, attempts, created_at)
    VALUES (p_item.id, p_item.app_id, v_app, p_item.source_kind, p_item.trigger_id, p_item.script_id, v_script.name, v_script.version,
            p_item.parent_execution_id, p_item.root_execution_id, p_item.trigger_depth, p_item.reply_to, p_item.origin_principal,
            p_item.payload, p_state::public.outbox_attempt_state, p_result, left(p_error_code, 255), left(p_error_message, 2000),
            coalesce(p_logs, '[]'), v_no, p_item.created_at);
    IF p_item.reply_to IS NOT NULL THEN
        PERFORM pg_notify('trigger_reply', p_item.reply_to::TEXT);
    END IF;
    IF p_state = 'FAILED' AND NOT p_item.after_dead_letter THEN
        PERFORM symphony_internal.fire_triggers(
            p_item.app_id, 'dead_letter', coalesce(v_script.name, ''),
            jsonb_build_object('executionId', p_item.id, 'sourceKind', p_item.source_kind, 'script', v_script.name,
                               'payload', p_item.payload, 'errorCode', p_error_code, 'errorMessage', p_error_message, 'attempts', v_no),
            p_item.origin_principal, p_item.trigger_depth, p_item.id, p_item.root_execution_id, true);
    END IF;
END $$;
