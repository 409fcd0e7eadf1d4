-- record_late_trigger_outcome: a worker lost its lease, but the run had ended; keep what it learnt.
--
-- Moves    nothing
-- Caller   symphony_executor
-- Locks    nothing
-- Refuses  P7002 the token was never issued for this item, P7003 invalid state, P7005 blank worker
-- Why      evidence is not an outcome: its effects are not applied, and the item runs again or has run.
CREATE OR REPLACE FUNCTION symphony.record_late_trigger_outcome(
    p_id UUID, p_lease_token UUID, p_worker_id TEXT, p_state TEXT, p_error_code TEXT DEFAULT NULL, p_error_message TEXT DEFAULT NULL
) RETURNS TABLE (event_no BIGINT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app UUID;
BEGIN
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    IF p_state IS NULL OR p_state NOT IN ('DISPATCHED', 'RETRYABLE', 'FAILED') THEN
        RAISE EXCEPTION 'p_state must be DISPATCHED, RETRYABLE or FAILED' USING ERRCODE = 'P7003';
    END IF;
    SELECT a.app_id INTO v_app FROM symphony.trigger_outbox_attempts a WHERE a.id = p_id AND a.lease_token = p_lease_token LIMIT 1;
    IF NOT FOUND THEN
        SELECT p.app_id INTO v_app FROM symphony.trigger_outbox_pending p WHERE p.id = p_id AND p.lease_token = p_lease_token;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'p_lease_token was never issued for item %', p_id USING ERRCODE = 'P7002';
        END IF;
    END IF;
    INSERT INTO symphony.trigger_outbox_events AS e (event_type, id, app_id, worker_id, reason, details)
    VALUES ('LATE_OUTCOME', p_id, v_app, p_worker_id, 'arrived after the lease was lost: its effects were not applied',
            jsonb_build_object('state', p_state, 'lease_token', p_lease_token, 'error_code', p_error_code,
                               'error_message', left(p_error_message, 2000)))
    RETURNING e.event_no INTO event_no;
    RETURN NEXT;
END $$;
