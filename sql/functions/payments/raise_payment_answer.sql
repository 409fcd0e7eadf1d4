-- raise_payment_answer: turn a batch's answer about one item into the error of the single call.
--
-- Moves    nothing
-- Caller   the single forms of batch functions
-- Locks    nothing
-- Refuses  P7001, P7002, P7003, as the answer says; nothing for OK
-- Why      the words for an error exist once.
CREATE OR REPLACE FUNCTION symphony.raise_payment_answer(p_result TEXT, p_outbox_id UUID) RETURNS VOID
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    CASE p_result
        WHEN 'OK' THEN
            RETURN;
        WHEN 'P7001' THEN
            RAISE EXCEPTION 'item % has a terminal outcome already', p_outbox_id USING ERRCODE = 'P7001';
        WHEN 'P7003' THEN
            RAISE EXCEPTION 'invalid completion state for item %: use DISPATCHED, RETRYABLE or FAILED, and p_unknown only with RETRYABLE', p_outbox_id
                USING ERRCODE = 'P7003';
        ELSE
            RAISE EXCEPTION 'lease lost for item %: missing, expired, or held under another token or worker', p_outbox_id
                USING ERRCODE = 'P7002', HINT = 'Do not retry the completion. If the rail has answered, call record_late_outcome.';
    END CASE;
END $$;
