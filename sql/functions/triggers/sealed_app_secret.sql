-- sealed_app_secret: a secret of an app as it is stored; no row if there is none.
--
-- Moves    nothing
-- Caller   symphony_executor
-- Locks    nothing
-- Refuses  nothing
-- Why      only the processes that run scripts open it, and they have the key. One is read at a time: a script gets what it
--          asks for and nothing else.
CREATE OR REPLACE FUNCTION symphony.sealed_app_secret(p_app TEXT, p_name TEXT) RETURNS TABLE (key_id TEXT, sealed TEXT)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
    SELECT s.key_id, s.sealed FROM symphony.apps a JOIN symphony.app_secrets s ON s.app_id = a.id WHERE a.name = p_app AND s.name = p_name
$$;
