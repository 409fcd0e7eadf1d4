-- complete_outbox_attempt: one dispatch ended; write it down and move the item on.
--
-- Moves    leased -> terminal (row deleted) | leased -> scheduled | leased -> parked (unknown at the ceiling)
-- Caller   symphony_executor
-- Locks    the pending row
-- Refuses  P7001 a terminal outcome exists already, P7002 lease lost, P7003 invalid state, P7005 invalid argument
-- Why      the batch form for one item, raising where that one answers: the two cannot disagree. With RETRYABLE:
--          p_spends_attempt false says that the rail was busy or away, p_asked_only that nothing was sent, and
--          p_retry_after_seconds is what the rail asked for, which never shortens the pause. The state
--          may be text or an outbox_attempt_state, in one function: of two, a literal would fit both.
CREATE OR REPLACE FUNCTION symphony.complete_outbox_attempt(
    p_outbox_id UUID, p_lease_token UUID, p_worker_id TEXT, p_state ANYCOMPATIBLE, p_rail_reference TEXT DEFAULT NULL,
    p_rail_code TEXT DEFAULT NULL, p_error_code TEXT DEFAULT NULL, p_error_message TEXT DEFAULT NULL,
    p_latency_ms INT DEFAULT NULL, p_retry_delay_seconds INT DEFAULT NULL, p_unknown BOOLEAN DEFAULT false,
    p_spends_attempt BOOLEAN DEFAULT true, p_asked_only BOOLEAN DEFAULT false, p_retry_after_seconds INT DEFAULT NULL
) RETURNS TABLE (attempt_no INT, state symphony.outbox_attempt_state, parked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.settle_payment_attempt(
        p_outbox_id, p_lease_token, p_worker_id, p_state::TEXT, p_rail_reference, p_rail_code, p_error_code, p_error_message, p_latency_ms,
        p_retry_delay_seconds, p_unknown, false, p_spends_attempt, p_asked_only, p_retry_after_seconds) s;
END $$;
