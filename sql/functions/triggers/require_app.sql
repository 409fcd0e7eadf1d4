-- require_app: the app's id, or one clear line.
--
-- Moves    nothing
-- Caller   functions that name an app
-- Locks    the app against deletion, until the caller's transaction ends
-- Refuses  P7007 no such app
-- Why      a name is what people and services know.
CREATE OR REPLACE FUNCTION symphony.require_app(p_app TEXT) RETURNS UUID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_id UUID;
BEGIN
    SELECT a.id INTO v_id FROM symphony.apps a WHERE a.name = p_app FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_app: there is no app %', coalesce(quote_ident(left(p_app, 100)), 'null') USING ERRCODE = 'P7007';
    END IF;
    RETURN v_id;
END $$;
