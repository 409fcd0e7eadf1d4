-- park_unknown_outbox: this dispatch's outcome is unknown and cannot be settled by asking; leave it to a person.
--
-- Moves    leased -> parked
-- Caller   symphony_executor
-- Locks    the pending row
-- Refuses  P7001 a terminal outcome exists already, P7002 lease lost, P7005 invalid argument
-- Why      unknown is neither success nor failure: the ledger gets a RETRYABLE row marked unknown with the
--          evidence, and the item waits for resolve_outbox.
CREATE OR REPLACE FUNCTION public.park_unknown_outbox(
    p_outbox_id UUID, p_lease_token UUID, p_worker_id TEXT, p_rail_reference TEXT DEFAULT NULL,
    p_rail_code TEXT DEFAULT NULL, p_error_code TEXT DEFAULT NULL, p_error_message TEXT DEFAULT NULL,
    p_latency_ms INT DEFAULT NULL, p_asked_only BOOLEAN DEFAULT false
) RETURNS TABLE (attempt_no INT, state public.outbox_attempt_state, parked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_answer RECORD;
BEGIN
    PERFORM symphony_internal.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony_internal.require_read_committed();
    SELECT * INTO v_answer FROM symphony_internal.settle_payment_attempts(
        p_worker_id, ARRAY[p_outbox_id], ARRAY[p_lease_token], ARRAY['RETRYABLE'], ARRAY[p_rail_reference], ARRAY[p_rail_code],
        ARRAY[p_error_code], ARRAY[p_error_message], ARRAY[p_latency_ms], ARRAY[0], ARRAY[true], true,
        NULL, ARRAY[p_asked_only]);
    PERFORM symphony_internal.raise_payment_answer(v_answer.result, p_outbox_id);
    RETURN QUERY SELECT v_answer.attempt_no, v_answer.state, v_answer.parked;
END $$;
