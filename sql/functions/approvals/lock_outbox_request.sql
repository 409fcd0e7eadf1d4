-- lock_outbox_request: a request that can still be decided, held against everybody else who decides.
--
-- Moves    nothing
-- Caller   approve_outbox_request, decide_outbox_request; nobody else may
-- Locks    the request
-- Refuses  P7005 no actor or reason, P7006 decided already, or expired, P7007 no such request
-- Why      of those who decide at the same moment one goes first, and the others see what it has decided.
CREATE OR REPLACE FUNCTION symphony.lock_outbox_request(p_request_no BIGINT, p_actor TEXT, p_reason TEXT)
RETURNS symphony.outbox_approval_requests
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_request  symphony.outbox_approval_requests;
    v_decision TEXT;
BEGIN
    PERFORM symphony.require_outbox_act(NULL, p_actor, p_reason, NULL, false);
    SELECT r.* INTO v_request FROM symphony.outbox_approval_requests r WHERE r.request_no = p_request_no FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_request_no names no request for approval: %', coalesce(p_request_no::TEXT, 'null') USING ERRCODE = 'P7007';
    END IF;
    SELECT d.decision INTO v_decision FROM symphony.outbox_approval_decisions d WHERE d.request_no = p_request_no;
    IF FOUND THEN
        RAISE EXCEPTION 'request % is % already', p_request_no, v_decision USING ERRCODE = 'P7006';
    ELSIF v_request.expires_at <= clock_timestamp() THEN
        RAISE EXCEPTION 'request % expired at %: it has to be asked for again', p_request_no, v_request.expires_at USING ERRCODE = 'P7006';
    END IF;
    RETURN v_request;
END $$;
