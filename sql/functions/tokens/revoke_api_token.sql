-- revoke_api_token: a token is of no use any more.
--
-- Moves    valid -> revoked
-- Caller   symphony_auth
-- Locks    the token
-- Refuses  P7005 no actor or reason, P7006 revoked already, P7007 no such token
-- Why      it holds from the next request on: every request asks. The row stays, because requests for approval name it.
CREATE OR REPLACE FUNCTION symphony.revoke_api_token(p_token_id UUID, p_actor TEXT, p_reason TEXT)
RETURNS TABLE (token_id UUID, name TEXT, revoked_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_token symphony.api_tokens;
BEGIN
    PERFORM symphony.require_outbox_act(NULL, p_actor, p_reason, NULL, false);
    SELECT t.* INTO v_token FROM symphony.api_tokens t WHERE t.token_id = p_token_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_token_id names no token: %', coalesce(p_token_id::TEXT, 'null') USING ERRCODE = 'P7007';
    ELSIF v_token.revoked_at IS NOT NULL THEN
        RAISE EXCEPTION 'token % is revoked already', p_token_id USING ERRCODE = 'P7006';
    END IF;
    RETURN QUERY
    UPDATE symphony.api_tokens t SET revoked_at = clock_timestamp(), revoked_by = p_actor, revoked_why = p_reason
     WHERE t.token_id = p_token_id RETURNING t.token_id, t.name, t.revoked_at;
END $$;
