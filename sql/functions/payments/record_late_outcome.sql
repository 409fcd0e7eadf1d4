-- record_late_outcome: a worker lost its lease, but the rail had answered; keep what it learnt.
--
-- Moves    nothing; a pending item is marked must-inquire if the rail may have executed it
-- Caller   symphony_executor
-- Locks    the pending row, if there still is one, and the instruction's
-- Refuses  P7002 the token was never issued for this item (unless p_claim_lost), P7003 invalid state, P7005 blank worker, P7007 no such item
-- Why      nothing learnt is thrown away, but evidence is not an outcome: only a live lease may write the
--          ledger. `conflict` says that it contradicts the ledger: money may have moved twice, or moved
--          although FAILED says it did not.
CREATE OR REPLACE FUNCTION symphony.record_late_outcome(
    p_outbox_id UUID, p_lease_token UUID, p_worker_id TEXT, p_state TEXT, p_rail_reference TEXT DEFAULT NULL,
    p_rail_code TEXT DEFAULT NULL, p_error_code TEXT DEFAULT NULL, p_error_message TEXT DEFAULT NULL,
    p_latency_ms INT DEFAULT NULL, p_claim_lost BOOLEAN DEFAULT false
) RETURNS TABLE (event_no BIGINT, conflict BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_terminal symphony.payment_outbox_attempts;
BEGIN
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    IF p_state IS NULL OR p_state NOT IN ('DISPATCHED', 'RETRYABLE', 'FAILED') THEN
        PERFORM symphony.raise_payment_answer('P7003', p_outbox_id);
    END IF;
    PERFORM symphony.require_payment_item(p_outbox_id);
    PERFORM FROM symphony.payment_outbox_pending p WHERE p.outbox_id = p_outbox_id FOR UPDATE;
    -- After a failover or a restore the claim itself may be lost: the worker says so, and its word is evidence.
    IF NOT p_claim_lost
       AND NOT EXISTS (SELECT FROM symphony.payment_outbox_pending p WHERE p.outbox_id = p_outbox_id AND p.lease_token = p_lease_token)
       AND NOT EXISTS (SELECT FROM symphony.payment_outbox_attempts a WHERE a.outbox_id = p_outbox_id AND a.lease_token = p_lease_token)
    THEN
        RAISE EXCEPTION 'p_lease_token was never issued for item %', p_outbox_id USING ERRCODE = 'P7002';
    END IF;
    -- A worker that has not heard the answer repeats itself, maybe while its first call still runs: kept once.
    PERFORM FROM symphony.payment_outbox_instructions i WHERE i.outbox_id = p_outbox_id FOR NO KEY UPDATE;
    SELECT e.event_no, (e.details->>'conflict')::BOOLEAN INTO event_no, conflict FROM symphony.payment_outbox_events e
     WHERE e.outbox_id = p_outbox_id AND e.event_type = 'LATE_OUTCOME'
       AND e.details @> jsonb_build_object('state', p_state, 'lease_token', p_lease_token, 'rail_reference', left(p_rail_reference, 255))
       AND NOT EXISTS (SELECT FROM symphony.payment_outbox_events c WHERE c.outbox_id = p_outbox_id AND c.event_type = 'INCIDENT_CLOSED'
                          AND c.event_no > e.event_no)
     ORDER BY e.event_no LIMIT 1;
    IF FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT a.* INTO v_terminal FROM symphony.payment_outbox_attempts a
     WHERE a.outbox_id = p_outbox_id AND a.state IN ('DISPATCHED', 'FAILED');
    conflict := FOUND AND (v_terminal.state::TEXT <> p_state AND 'DISPATCHED' IN (v_terminal.state::TEXT, p_state) AND p_state <> 'RETRYABLE'
                           OR v_terminal.state = 'DISPATCHED' AND p_state = 'DISPATCHED'
                              AND v_terminal.rail_reference IS DISTINCT FROM left(p_rail_reference, 255));
    UPDATE symphony.payment_outbox_pending p SET must_inquire = true
     WHERE p.outbox_id = p_outbox_id AND p_state = 'DISPATCHED' AND NOT p.must_inquire;
    INSERT INTO symphony.payment_outbox_events AS e (event_type, outbox_id, worker_id, reason, details)
    VALUES ('LATE_OUTCOME', p_outbox_id, p_worker_id,
            CASE WHEN conflict THEN 'contradicts the recorded outcome' ELSE 'arrived after the lease was lost' END,
            jsonb_build_object('state', p_state, 'lease_token', p_lease_token, 'rail_reference', left(p_rail_reference, 255),
                               'rail_code', left(p_rail_code, 255), 'error_code', left(p_error_code, 255), 'error_message', left(p_error_message, 2000),
                               'latency_ms', p_latency_ms, 'conflict', conflict, 'claim_lost', p_claim_lost, 'recorded_state', v_terminal.state,
                               'recorded_reference', v_terminal.rail_reference))
    RETURNING e.event_no INTO event_no;
    RETURN NEXT;
END $$;
