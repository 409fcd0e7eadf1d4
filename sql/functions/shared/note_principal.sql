-- note_principal: the id of whoever has this name, known from now on.
--
-- Moves    nothing -> known
-- Caller   acting_principal, fire_cron_tick; symphony_executor, for the callers it has authenticated
-- Locks    nothing; two who note the same new one at once wait for each other
-- Refuses  P7005 an unknown kind or a bad name
-- Why      the id is derived, so that it is the same after a restore, and whoever knows the name can compute it.
CREATE OR REPLACE FUNCTION symphony.note_principal(p_kind TEXT, p_name TEXT) RETURNS UUID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_id UUID;
BEGIN
    SELECT p.principal_id INTO v_id FROM symphony.principals p WHERE p.kind = p_kind AND p.name = p_name;
    IF FOUND THEN
        RETURN v_id;
    END IF;
    PERFORM symphony.require_outbox_id('p_name', p_name, 600);
    IF p_kind IS NULL OR p_kind NOT IN ('login', 'token', 'app', 'mail', 'webhook') THEN
        RAISE EXCEPTION 'p_kind must be login, token, app, mail or webhook' USING ERRCODE = 'P7005';
    END IF;
    SELECT symphony.derive_key(s.installation_id, p_kind, p_name, 0) INTO STRICT v_id FROM symphony.symphony_installation s;
    INSERT INTO symphony.principals (principal_id, kind, name) VALUES (v_id, p_kind, p_name) ON CONFLICT DO NOTHING;
    RETURN v_id;
END $$;
