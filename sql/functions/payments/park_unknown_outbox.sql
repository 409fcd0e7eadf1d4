-- park_unknown_outbox: this dispatch's outcome is unknown and cannot be settled by asking; leave it to a person.
--
-- Moves    leased -> parked
-- Caller   symphony_executor
-- Locks    the pending row
-- Refuses  P7001 a terminal outcome exists already, P7002 lease lost, P7005 invalid argument
-- Why      unknown is neither success nor failure: the ledger gets a RETRYABLE row marked unknown with the
--          evidence, and the item waits for resolve_outbox.
CREATE OR REPLACE FUNCTION symphony.park_unknown_outbox(
    p_outbox_id UUID, p_lease_token UUID, p_worker_id TEXT, p_rail_reference TEXT DEFAULT NULL,
    p_rail_code TEXT DEFAULT NULL, p_error_code TEXT DEFAULT NULL, p_error_message TEXT DEFAULT NULL,
    p_latency_ms INT DEFAULT NULL, p_asked_only BOOLEAN DEFAULT false
) RETURNS TABLE (attempt_no INT, state symphony.outbox_attempt_state, parked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.settle_payment_attempt(
        p_outbox_id, p_lease_token, p_worker_id, 'RETRYABLE', p_rail_reference, p_rail_code, p_error_code, p_error_message, p_latency_ms,
        0, true, true, NULL, p_asked_only, NULL) s;
END $$;
