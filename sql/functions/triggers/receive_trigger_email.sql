-- receive_trigger_email: mail came in; fire every trigger for its recipient.
--
-- Moves    nothing -> pending, for each matching trigger of any app
-- Caller   symphony_ingest
-- Locks    nothing
-- Refuses  P7005 for mail that is no JSON object or too large
-- Why      answers how many wanted it: with p_mail NULL, how many would. Nobody: the listener refuses the recipient.
CREATE OR REPLACE FUNCTION public.receive_trigger_email(p_recipient TEXT, p_mail JSONB) RETURNS INT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_app   UUID;
    v_count INT := 0;
BEGIN
    PERFORM symphony_internal.require_outbox_id('p_recipient', p_recipient);
    IF p_mail IS NULL THEN
        RETURN (SELECT count(*) FROM public.triggers t
                 WHERE t.source_kind = 'email' AND symphony_internal.trigger_matches(lower(t.filter), lower(p_recipient)));
    ELSIF jsonb_typeof(p_mail) <> 'object' THEN
        RAISE EXCEPTION 'p_mail must be a JSON object of at most 4 MiB' USING ERRCODE = 'P7005';
    END IF;
    PERFORM symphony_internal.require_plain_json('p_mail', p_mail, 4096);
    FOR v_app IN SELECT DISTINCT t.app_id FROM public.triggers t
                  WHERE t.source_kind = 'email' AND symphony_internal.trigger_matches(lower(t.filter), lower(p_recipient)) ORDER BY 1
    LOOP
        v_count := v_count + symphony_internal.fire_triggers(
            v_app, 'email', p_recipient, jsonb_build_object('direction', 'in', 'recipient', p_recipient, 'mail', p_mail), NULL, 0, NULL, NULL, false);
    END LOOP;
    RETURN v_count;
END $$;
