-- set_app_secret: keep a secret of an app, sealed by whoever sets it.
--
-- Moves    the secret
-- Caller   symphony_operator, symphony_approver
-- Locks    the app against deletion, the secret
-- Refuses  P7005 a bad name, key id or sealed text, no actor or reason, P7007 no such app, P7008 approval
-- Why      the database never sees the value, nor the key that opens it: a dump, a backup or a replica gives nothing away.
CREATE OR REPLACE FUNCTION symphony.set_app_secret(
    p_app TEXT, p_name TEXT, p_key_id TEXT, p_sealed TEXT, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL,
    p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (name TEXT, existed BOOLEAN, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id UUID;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    IF p_name IS NULL OR p_name !~ '^[A-Za-z][A-Za-z0-9_-]{0,99}$' THEN
        RAISE EXCEPTION 'p_name must be letters, digits, hyphens and underscores, a letter first, at most 100' USING ERRCODE = 'P7005';
    ELSIF p_key_id IS NULL OR p_key_id !~ '^[0-9a-f]{16}$' THEN
        RAISE EXCEPTION 'p_key_id must be 16 hexadecimal digits' USING ERRCODE = 'P7005';
    ELSIF p_sealed IS NULL OR length(p_sealed) NOT BETWEEN 40 AND 32768 OR p_sealed !~ '^[A-Za-z0-9+/]+={0,2}$' THEN
        RAISE EXCEPTION 'p_sealed must be base64 of at most 32 KiB' USING ERRCODE = 'P7005';
    END IF;
    v_app_id := symphony.require_app(p_app);
    name := p_name;
    dry_run := p_dry_run IS NOT FALSE;
    existed := EXISTS (SELECT FROM symphony.app_secrets s WHERE s.app_id = v_app_id AND s.name = p_name);
    IF p_dry_run IS FALSE THEN
        INSERT INTO symphony.app_secrets (app_id, name, key_id, sealed, set_by) VALUES (v_app_id, p_name, p_key_id, p_sealed, p_actor)
        ON CONFLICT (app_id, name) DO UPDATE
           SET key_id = excluded.key_id, sealed = excluded.sealed, set_by = excluded.set_by, set_at = clock_timestamp();
        PERFORM symphony.record_outbox_act('triggers', 'SECRET_SET', NULL, p_actor, p_approver, p_reason,
            jsonb_build_object('app', p_app, 'secret', p_name), v_app_id);
    END IF;
    RETURN NEXT;
END $$;
