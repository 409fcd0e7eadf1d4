-- revoke_app_mail: an app has no more mail than that of its own addresses.
--
-- Moves    granted -> nothing
-- Caller   symphony_operator, symphony_approver
-- Locks    the app, shared, and the lane's settings
-- Refuses  P7005 invalid argument, P7007 no such app, or no such grant
-- Why      it stops something, and so one person may do it alone. It holds from the next message on, whatever the app has
--          pushed: who may have a message is decided when it comes.
CREATE OR REPLACE FUNCTION symphony.revoke_app_mail(p_app TEXT, p_filter TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (app_id UUID, filter TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, NULL, false);
    PERFORM symphony.require_outbox_id('p_filter', p_filter, 512);
    app_id := symphony.require_app(p_app);
    filter := lower(p_filter COLLATE "C");
    dry_run := p_dry_run IS NOT FALSE;
    PERFORM FROM symphony.trigger_outbox_settings s FOR NO KEY UPDATE;
    IF NOT EXISTS (SELECT FROM symphony.mail_grants g WHERE g.app_id = revoke_app_mail.app_id AND g.filter = revoke_app_mail.filter) THEN
        RAISE EXCEPTION 'p_filter: app % was not granted the mail of it', quote_ident(p_app) USING ERRCODE = 'P7007';
    END IF;
    IF p_dry_run IS FALSE THEN
        DELETE FROM symphony.mail_grants g WHERE g.app_id = revoke_app_mail.app_id AND g.filter = revoke_app_mail.filter;
        PERFORM symphony.record_outbox_act('triggers', 'MAIL_REVOKED', NULL, p_actor, NULL, p_reason,
                                           jsonb_build_object('app', p_app, 'filter', revoke_app_mail.filter), revoke_app_mail.app_id);
    END IF;
    RETURN NEXT;
END $$;
