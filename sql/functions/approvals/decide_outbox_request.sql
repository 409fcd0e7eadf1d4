-- decide_outbox_request: a request is not carried out, for the reason given.
--
-- Moves    request: waiting -> REJECTED | waiting -> WITHDRAWN
-- Caller   reject_outbox_request, withdraw_outbox_request; nobody else may
-- Locks    the request
-- Refuses  P7005 no actor or reason, P7006 decided already, or expired, P7007 no such request, P7008 to withdraw what another
--          login asked for
-- Why      one way to end a request without its act.
CREATE OR REPLACE FUNCTION symphony.decide_outbox_request(
    p_request_no BIGINT, p_decision TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN
) RETURNS TABLE (request_no BIGINT, lane TEXT, act TEXT, state TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_request symphony.outbox_approval_requests := symphony.lock_outbox_request(p_request_no, p_actor, p_reason);
    v_token   symphony.api_tokens := symphony.present_api_token(CASE p_decision WHEN 'WITHDRAWN' THEN 'operate' ELSE 'approve' END);
BEGIN
    IF p_decision = 'WITHDRAWN' AND (v_request.session_role <> session_user
                                     OR v_request.token_id IS DISTINCT FROM v_token.token_id) THEN
        RAISE EXCEPTION 'request % was made from login %, or with a token of its own: only from there it can be withdrawn', p_request_no, v_request.session_role
            USING ERRCODE = 'P7008', HINT = 'A member of symphony_approver can reject it.';
    END IF;
    IF p_dry_run IS FALSE THEN
        PERFORM symphony.record_outbox_approval(
            CASE p_decision WHEN 'REJECTED' THEN 'APPROVAL_REFUSED' ELSE 'APPROVAL_WITHDRAWN' END, v_request, p_actor, p_reason);
        INSERT INTO symphony.outbox_approval_decisions (request_no, decision, actor, reason, token_id)
        VALUES (p_request_no, p_decision, p_actor, p_reason, v_token.token_id);
    END IF;
    RETURN QUERY SELECT p_request_no, v_request.lane, v_request.act, p_decision, p_dry_run IS NOT FALSE;
END $$;
