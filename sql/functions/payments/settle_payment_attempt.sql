-- settle_payment_attempt: the outcome of one dispatch, raising where the form for many answers.
--
-- Moves    as settle_payment_attempts
-- Caller   complete_outbox_attempt, park_unknown_outbox; nobody else may
-- Locks    the pending row
-- Refuses  P7001 a terminal outcome exists already, P7002 lease lost, P7003 invalid state, P7005 invalid argument
-- Why      one item is many with one element: the two cannot disagree.
CREATE OR REPLACE FUNCTION symphony.settle_payment_attempt(
    p_outbox_id UUID, p_lease_token UUID, p_worker_id TEXT, p_state TEXT, p_rail_reference TEXT, p_rail_code TEXT, p_error_code TEXT,
    p_error_message TEXT, p_latency_ms INT, p_retry_delay_seconds INT, p_unknown BOOLEAN, p_park BOOLEAN, p_spends_attempt BOOLEAN,
    p_asked_only BOOLEAN, p_retry_after_seconds INT
) RETURNS TABLE (attempt_no INT, state symphony.outbox_attempt_state, parked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_answer RECORD;
BEGIN
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    SELECT * INTO v_answer FROM symphony.settle_payment_attempts(
        p_worker_id, ARRAY[p_outbox_id], ARRAY[p_lease_token], ARRAY[p_state], ARRAY[p_rail_reference], ARRAY[p_rail_code],
        ARRAY[p_error_code], ARRAY[p_error_message], ARRAY[p_latency_ms], ARRAY[p_retry_delay_seconds], ARRAY[p_unknown],
        p_park, ARRAY[p_spends_attempt], ARRAY[p_asked_only], ARRAY[p_retry_after_seconds]);
    PERFORM symphony.raise_payment_answer(v_answer.result, p_outbox_id);
    RETURN QUERY SELECT v_answer.attempt_no, v_answer.state, v_answer.parked;
END $$;
