-- find_app: the app's id, or one clear line, for whoever only reads.
--
-- Moves    nothing
-- Caller   list_kv_entries, read_kv_entry, list_app_secrets
-- Locks    nothing
-- Refuses  P7007 no such app
-- Why      require_app locks the app, which neither a reader nor a standby can.
CREATE OR REPLACE FUNCTION symphony.find_app(p_app TEXT) RETURNS UUID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_id UUID;
BEGIN
    SELECT a.id INTO v_id FROM symphony.apps a WHERE a.name = p_app;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_app: there is no app %', coalesce(quote_ident(left(p_app, 100)), 'null') USING ERRCODE = 'P7007';
    END IF;
    RETURN v_id;
END $$;
