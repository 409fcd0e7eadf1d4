-- record_late_event_outcome: a worker lost its lease, but the bus had answered; keep what it learnt.
--
-- Moves    nothing
-- Caller   symphony_executor
-- Locks    nothing
-- Refuses  P7003 invalid state, P7005 blank worker, P7007 no such event
-- Why      nothing learnt is thrown away, but evidence is not an outcome: only a live lease may write the ledger.
--          A bus is at-least-once, so a second yes is a repeat that consumers absorb; `conflict` says that the
--          ledger has FAILED where the bus has the event.
CREATE OR REPLACE FUNCTION symphony.record_late_event_outcome(
    p_bucket SMALLINT, p_position BIGINT, p_lease_token UUID, p_worker_id TEXT, p_state TEXT, p_bus_reference TEXT DEFAULT NULL,
    p_error_code TEXT DEFAULT NULL, p_error_message TEXT DEFAULT NULL
) RETURNS TABLE (event_no BIGINT, conflict BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_event_id UUID;
    v_recorded symphony.outbox_attempt_state;
BEGIN
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    IF p_state IS NULL OR p_state NOT IN ('DISPATCHED', 'RETRYABLE', 'FAILED') THEN
        RAISE EXCEPTION 'invalid completion state: use DISPATCHED, RETRYABLE or FAILED' USING ERRCODE = 'P7003';
    END IF;
    SELECT l.event_id INTO v_event_id FROM symphony.event_outbox_log l WHERE l.bucket = p_bucket AND l.position = p_position;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no event stands at this place of the log' USING ERRCODE = 'P7007';
    END IF;
    IF EXISTS (SELECT FROM symphony.event_outbox_attempts a WHERE a.bucket = p_bucket AND a.position = p_position
                  AND a.lease_token = p_lease_token AND a.state::TEXT = p_state) THEN
        conflict := false; -- it was written in time after all
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT a.state INTO v_recorded FROM symphony.event_outbox_attempts a
     WHERE a.bucket = p_bucket AND a.position = p_position AND a.outcome_no = 0 ORDER BY a.redrive_no DESC LIMIT 1;
    conflict := FOUND AND v_recorded = 'FAILED' AND p_state = 'DISPATCHED';
    INSERT INTO symphony.event_outbox_events AS e (event_type, outbox_event, worker_id, reason, details)
    VALUES ('LATE_OUTCOME', v_event_id, p_worker_id,
            CASE WHEN conflict THEN 'contradicts the recorded outcome' ELSE 'arrived after the lease was lost' END,
            jsonb_build_object('state', p_state, 'lease_token', p_lease_token, 'bus_reference', left(p_bus_reference, 255),
                               'error_code', left(p_error_code, 255), 'error_message', left(p_error_message, 2000), 'conflict', conflict,
                               'recorded_state', v_recorded))
    RETURNING e.event_no INTO event_no;
    RETURN NEXT;
END $$;
