-- create_api_token: let a client of the HTTP API act, within scopes and until a time.
--
-- Moves    nothing -> a valid token
-- Caller   symphony_auth
-- Locks    nothing
-- Refuses  P7005 invalid argument
-- Why      the secret is drawn where it is shown and never comes here: only its SHA-256 does. 256 random bits need no slow hash.
CREATE OR REPLACE FUNCTION symphony.create_api_token(
    p_name TEXT, p_person TEXT, p_scopes TEXT[], p_token_hash BYTEA, p_actor TEXT, p_expires_in_seconds INT DEFAULT 2592000
) RETURNS TABLE (token_id UUID, expires_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_id('p_name', p_name);
    PERFORM symphony.require_outbox_id('p_person', p_person);
    PERFORM symphony.require_outbox_id('p_actor', p_actor);
    PERFORM symphony.require_outbox_count('p_expires_in_seconds', p_expires_in_seconds, 31536000);
    IF p_person !~ '^[ -~]*[A-Za-z0-9][ -~]*$' THEN
        RAISE EXCEPTION 'p_person must be printable ASCII with a letter or digit: letters that look alike would be two people' USING ERRCODE = 'P7005';
    ELSIF coalesce(cardinality(p_scopes), 0) = 0 OR NOT p_scopes <@ '{ingest,operate,approve,read,audit,call}' THEN
        RAISE EXCEPTION 'p_scopes must be some of ingest, operate, approve, read, audit and call' USING ERRCODE = 'P7005';
    ELSIF octet_length(p_token_hash) IS DISTINCT FROM 32 THEN
        RAISE EXCEPTION 'p_token_hash must be the SHA-256 of the token, 32 bytes' USING ERRCODE = 'P7005';
    END IF;
    RETURN QUERY
    INSERT INTO symphony.api_tokens AS t (name, person, scopes, token_hash, created_by, expires_at)
    VALUES (p_name, p_person, ARRAY(SELECT DISTINCT s FROM unnest(p_scopes) s ORDER BY s), p_token_hash, p_actor,
            clock_timestamp() + make_interval(secs => p_expires_in_seconds))
    RETURNING t.token_id, t.expires_at;
END $$;
