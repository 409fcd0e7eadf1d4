-- authenticate_api_token: whose token this is, and what it may do.
--
-- Moves    nothing
-- Caller   symphony_executor: the process that serves the API
-- Locks    nothing
-- Refuses  P7010 an unknown, expired or revoked token
-- Why      whoever knows the secret is told what it is good for, and nobody learns anything about another. One refusal for all
--          three: which of them it is helps only who guesses.
CREATE OR REPLACE FUNCTION symphony.authenticate_api_token(p_token TEXT)
RETURNS TABLE (token_id UUID, name TEXT, person TEXT, scopes TEXT[], expires_at TIMESTAMPTZ)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT t.token_id, t.name, t.person, t.scopes, t.expires_at FROM symphony.api_tokens t
     WHERE t.token_hash = sha256(convert_to(p_token, 'UTF8')) AND t.revoked_at IS NULL AND t.expires_at > clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the access token is unknown, expired or revoked' USING ERRCODE = 'P7010';
    END IF;
END $$;
