-- reject_outbox_request: a second person does not agree.
--
-- Moves    request: waiting -> REJECTED
-- Caller   symphony_approver
-- Locks    as decide_outbox_request
-- Refuses  P7005 no actor or reason, P7006 decided already, or expired, P7007 no such request
-- Why      the reason tells whoever asked what to do instead; they can ask again.
CREATE OR REPLACE FUNCTION symphony.reject_outbox_request(
    p_request_no BIGINT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (request_no BIGINT, lane TEXT, act TEXT, state TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT d.* FROM symphony.decide_outbox_request(p_request_no, 'REJECTED', p_actor, p_reason, p_dry_run) d;
END $$;
