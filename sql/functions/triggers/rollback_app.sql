-- rollback_app: make an app again what an earlier push has made it.
--
-- Moves    as push_app
-- Caller   symphony_operator, symphony_approver
-- Locks    as push_app
-- Refuses  P7005 no actor or reason, P7006 nothing to go back to, P7007 no such app or version, P7008 approval
-- Why      it is a push of what was pushed then, so that all that holds for pushes holds: what is in flight keeps its
--          version, and a script goes on counting. Entries and secrets are not the app's definition and stay.
CREATE OR REPLACE FUNCTION symphony.rollback_app(
    p_app TEXT, p_actor TEXT, p_reason TEXT, p_version INT DEFAULT NULL, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (version_before INT, restored_version INT, scripts_changed INT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id   UUID;
    v_manifest JSONB;
    v_current  JSONB;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    -- The strong lock first, as delete_app; it is push_app's, too.
    IF p_dry_run IS FALSE THEN
        PERFORM FROM symphony.apps a WHERE a.name = p_app FOR UPDATE;
    END IF;
    v_app_id := symphony.require_app(p_app);
    dry_run := p_dry_run IS NOT FALSE;
    SELECT p.version, p.manifest INTO version_before, v_current FROM symphony.app_pushes p
     WHERE p.app_id = v_app_id ORDER BY p.version DESC LIMIT 1;
    SELECT p.version, p.manifest INTO restored_version, v_manifest FROM symphony.app_pushes p
     WHERE p.app_id = v_app_id AND CASE WHEN p_version IS NULL THEN p.version < version_before ELSE p.version = p_version END
     ORDER BY p.version DESC LIMIT 1;
    IF NOT FOUND AND p_version IS NULL THEN
        RAISE EXCEPTION 'app % was pushed once: there is nothing to go back to', quote_ident(p_app) USING ERRCODE = 'P7006';
    ELSIF NOT FOUND THEN
        RAISE EXCEPTION 'p_version: app % has no version % any more, or not yet', quote_ident(p_app), p_version USING ERRCODE = 'P7007';
    ELSIF v_manifest = v_current THEN
        RAISE EXCEPTION 'app % is as version % already', quote_ident(p_app), restored_version USING ERRCODE = 'P7006';
    END IF;
    IF p_dry_run IS FALSE THEN
        SELECT p.scripts_changed INTO scripts_changed FROM symphony.push_app(p_app, v_manifest, p_actor) p;
        PERFORM symphony.record_outbox_act('triggers', 'ROLLED_BACK', NULL, p_actor, p_approver, p_reason,
            jsonb_build_object('app', p_app, 'from', version_before, 'to', restored_version), v_app_id);
    END IF;
    RETURN NEXT;
END $$;
