-- withdraw_outbox_request: whoever asked does not want it any more.
--
-- Moves    request: waiting -> WITHDRAWN
-- Caller   symphony_operator, symphony_approver
-- Locks    as decide_outbox_request
-- Refuses  P7005 no actor or reason, P7006 decided already, or expired, P7007 no such request, P7008 another login asked
-- Why      a request that has become wrong must not wait to be approved by somebody who does not know that.
CREATE OR REPLACE FUNCTION symphony.withdraw_outbox_request(
    p_request_no BIGINT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (request_no BIGINT, lane TEXT, act TEXT, state TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT d.* FROM symphony.decide_outbox_request(p_request_no, 'WITHDRAWN', p_actor, p_reason, p_dry_run) d;
END $$;
