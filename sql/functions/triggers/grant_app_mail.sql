-- grant_app_mail: an app may have the mail of addresses that are not its own.
--
-- Moves    nothing -> granted
-- Caller   symphony_operator, symphony_approver
-- Locks    the app, shared, and the lane's settings
-- Refuses  P7005 invalid argument, P7007 no such app, P7008 approval
-- Why      a filter with a *, or another app's address, reads what was written to somebody else: a person says that it may.
--          The answer says how many addresses other apps have claimed within it: they stay theirs, and both get the mail.
CREATE OR REPLACE FUNCTION symphony.grant_app_mail(p_app TEXT, p_filter TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (app_id UUID, filter TEXT, granted_before BOOLEAN, addresses_of_others INT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_act('triggers', p_actor, p_reason, NULL, p_dry_run IS FALSE);
    IF symphony.is_mail_filter(p_filter) IS NOT TRUE THEN
        RAISE EXCEPTION 'p_filter must be an address, the beginning of one and *, or *@ and a domain' USING ERRCODE = 'P7005';
    END IF;
    app_id := symphony.require_app(p_app);
    filter := lower(p_filter COLLATE "C");
    dry_run := p_dry_run IS NOT FALSE;
    -- A push that is under way claims before or after it, not beside it.
    PERFORM FROM symphony.trigger_outbox_settings s FOR NO KEY UPDATE;
    SELECT EXISTS (SELECT FROM symphony.mail_grants g WHERE g.app_id = grant_app_mail.app_id AND g.filter = grant_app_mail.filter) INTO granted_before;
    SELECT count(*) INTO addresses_of_others FROM symphony.mail_addresses m
     WHERE m.app_id <> grant_app_mail.app_id
       AND CASE WHEN right(grant_app_mail.filter, 1) = '*' THEN starts_with(m.address, left(grant_app_mail.filter, -1))
                WHEN left(grant_app_mail.filter, 1) = '*' THEN substring(m.address FROM '@[^@]*$') = substr(grant_app_mail.filter, 2)
                ELSE m.address = grant_app_mail.filter END;
    IF p_dry_run IS FALSE AND NOT granted_before THEN
        INSERT INTO symphony.mail_grants (filter, app_id) VALUES (grant_app_mail.filter, grant_app_mail.app_id);
        PERFORM symphony.record_outbox_act('triggers', 'MAIL_GRANTED', NULL, p_actor, NULL, p_reason,
                                           jsonb_build_object('app', p_app, 'filter', grant_app_mail.filter), grant_app_mail.app_id);
    END IF;
    RETURN NEXT;
END $$;
