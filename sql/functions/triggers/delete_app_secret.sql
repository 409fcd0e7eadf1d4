-- delete_app_secret: forget a secret of an app.
--
-- Moves    the secret -> gone
-- Caller   symphony_operator, symphony_approver
-- Locks    the app against deletion, the secret
-- Refuses  P7005 no actor or reason, P7007 no such app or secret, P7008 approval
-- Why      scripts that read it fail from then on, with its name.
CREATE OR REPLACE FUNCTION symphony.delete_app_secret(
    p_app TEXT, p_name TEXT, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (name TEXT, existed BOOLEAN, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id UUID;
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    v_app_id := symphony.require_app(p_app);
    IF NOT EXISTS (SELECT FROM symphony.app_secrets s WHERE s.app_id = v_app_id AND s.name = p_name) THEN
        RAISE EXCEPTION 'p_name: app % has no such secret', quote_ident(p_app) USING ERRCODE = 'P7007';
    END IF;
    name := p_name;
    existed := true;
    dry_run := p_dry_run IS NOT FALSE;
    IF p_dry_run IS FALSE THEN
        DELETE FROM symphony.app_secrets s WHERE s.app_id = v_app_id AND s.name = p_name;
        PERFORM symphony.record_outbox_act('triggers', 'SECRET_DELETED', NULL, p_actor, p_approver, p_reason,
            jsonb_build_object('app', p_app, 'secret', p_name), v_app_id);
    END IF;
    RETURN NEXT;
END $$;
