-- present_api_token: the token that this transaction acts for; NULL if it is nobody's.
--
-- Moves    nothing
-- Caller   request_outbox_approval, approve_outbox_request, decide_outbox_request, acting_principal, acting_token; nobody else may
-- Locks    nothing
-- Refuses  P7010 an unknown, expired or revoked token, 42501 one without the scope; with NULL any scope does
-- Why      all clients of the API share its login. The transaction carries the secret itself (symphony.token), so a token is
--          proved and not named here either.
CREATE OR REPLACE FUNCTION symphony.present_api_token(p_scope TEXT) RETURNS symphony.api_tokens
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_secret TEXT := current_setting('symphony.token', true);
    v_token  symphony.api_tokens;
BEGIN
    IF coalesce(v_secret, '') <> '' THEN
        SELECT t.* INTO STRICT v_token FROM symphony.authenticate_api_token(v_secret) a JOIN symphony.api_tokens t ON t.token_id = a.token_id;
        IF p_scope <> ALL (v_token.scopes) THEN
            RAISE EXCEPTION 'the access token lacks scope %', p_scope USING ERRCODE = '42501';
        END IF;
    END IF;
    RETURN v_token;
END $$;
