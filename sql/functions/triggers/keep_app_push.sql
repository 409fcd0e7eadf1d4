-- keep_app_push: what an app was made, to be gone back to.
--
-- Moves    nothing -> kept; the oldest beyond twenty -> gone
-- Caller   push_app; nobody else may
-- Locks    nothing: the caller holds the app
-- Refuses  nothing
-- Why      a push that changes nothing is no version. Twenty are enough to go back, and an app of 16 MiB that is pushed by a
--          machine all day does not fill the disk.
CREATE OR REPLACE FUNCTION symphony.keep_app_push(p_app_id UUID, p_manifest JSONB, p_actor TEXT, p_principal UUID) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_last symphony.app_pushes;
BEGIN
    SELECT p.* INTO v_last FROM symphony.app_pushes p WHERE p.app_id = p_app_id ORDER BY p.version DESC LIMIT 1;
    IF v_last.manifest = p_manifest THEN
        RETURN;
    END IF;
    INSERT INTO symphony.app_pushes (app_id, version, manifest, manifest_digest, pushed_by, principal)
    VALUES (p_app_id, coalesce(v_last.version, 0) + 1, p_manifest, encode(sha256(convert_to(p_manifest::TEXT, 'UTF8')), 'hex'), p_actor, p_principal);
    DELETE FROM symphony.app_pushes p WHERE p.app_id = p_app_id AND p.version <= coalesce(v_last.version, 0) + 1 - 20;
END $$;
