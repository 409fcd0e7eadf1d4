-- receive_trigger_email: mail came in; fire every trigger for its recipient.
--
-- Moves    nothing -> pending, for each matching trigger of an app that holds the address
-- Caller   symphony_ingest
-- Locks    the counts of what was sent there, by all and by this sender
-- Refuses  P7005 for mail that is no JSON object or too large, P7012 if the sender has sent, or the address has got, as
--          much as it may
-- Why      answers how many wanted it: with p_mail NULL, how many would. Nobody: the listener refuses the recipient.
--          An app has the mail of the addresses it has claimed and was granted, whatever its triggers say.
--          p_principal is the sender if verified, or who handed the message in; what nobody vouches for has none.
--          p_answers_to: ids of mail that it answers. It stands one deeper than those of ours, so that two programs that
--          answer each other end at depth_max; also while the relay's answer is on its way, because a robot is faster.
--          p_per_hour_max bounds those that do not say what they answer; counted here, it holds for all processes together.
--          p_address_per_hour_max bounds those that name another sender with each message, as lists do. The address is
--          counted under the sender '', who sends nothing; a bounce, which has none, is counted as '<>'.
CREATE OR REPLACE FUNCTION symphony.receive_trigger_email(
    p_recipient TEXT, p_mail JSONB, p_principal UUID DEFAULT NULL, p_answers_to UUID[] DEFAULT NULL, p_sender TEXT DEFAULT NULL,
    p_per_hour_max INT DEFAULT NULL, p_address_per_hour_max INT DEFAULT NULL
) RETURNS INT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_filters TEXT[];
    v_apps    UUID[];
    v_trigger symphony.triggers;
    v_count   INT := 0;
    v_depth   INT := 0;
BEGIN
    PERFORM symphony.require_outbox_id('p_recipient', p_recipient);
    IF p_mail IS NOT NULL AND jsonb_typeof(p_mail) <> 'object' THEN
        RAISE EXCEPTION 'p_mail must be a JSON object of at most 4 MiB' USING ERRCODE = 'P7005';
    ELSIF p_mail IS NOT NULL THEN
        PERFORM symphony.require_plain_json('p_mail', p_mail, 4096);
    END IF;
    v_filters := symphony.mail_filters(p_recipient);
    v_apps := ARRAY(SELECT m.app_id FROM symphony.mail_addresses m WHERE m.address = v_filters[1]
                    UNION SELECT g.app_id FROM symphony.mail_grants g WHERE g.filter = ANY (v_filters));
    SELECT count(*) INTO v_count FROM symphony.triggers t
     WHERE t.source_kind = 'email' AND t.app_id = ANY (v_apps) AND lower(t.filter) = ANY (v_filters);
    IF p_mail IS NULL OR v_count = 0 THEN
        RETURN v_count;
    END IF;
    IF p_address_per_hour_max IS NOT NULL AND symphony.count_mail(v_filters[1], '') > p_address_per_hour_max THEN
        RAISE EXCEPTION 'p_address_per_hour_max: this address has got as many messages as it may in an hour' USING ERRCODE = 'P7012';
    ELSIF p_per_hour_max IS NOT NULL
          AND symphony.count_mail(v_filters[1], coalesce(nullif(lower(left(p_sender, 512) COLLATE "C"), ''), '<>')) > p_per_hour_max THEN
        RAISE EXCEPTION 'p_per_hour_max: this sender has sent as many messages to this address as it may in an hour' USING ERRCODE = 'P7012';
    END IF;
    IF cardinality(p_answers_to) > 0 THEN
        v_depth := coalesce(
            (SELECT max(o.trigger_depth) + 1
               FROM (SELECT e.trigger_depth FROM symphony.trigger_outbox_executions e
                      WHERE e.source_kind = 'email' AND e.script_id IS NULL AND e.payload->>'messageKey' = ANY (p_answers_to::TEXT[])
                     UNION ALL
                     SELECT p.trigger_depth FROM symphony.trigger_outbox_pending p
                      WHERE p.source_kind = 'email' AND p.script_id IS NULL AND p.payload->>'messageKey' = ANY (p_answers_to::TEXT[])) o), 0);
    END IF;
    FOR v_trigger IN SELECT t.* FROM symphony.triggers t
                      WHERE t.source_kind = 'email' AND t.app_id = ANY (v_apps) AND lower(t.filter) = ANY (v_filters)
                      ORDER BY t.app_id, t.id
    LOOP
        PERFORM symphony.place_trigger(
            v_trigger.app_id, 'email', v_trigger.id, v_trigger.script_name,
            jsonb_build_object('direction', 'in', 'recipient', p_recipient, 'mail', p_mail), p_principal, v_trigger.registered_by_principal,
            v_depth, NULL, NULL, false, v_trigger.attempts_max, v_trigger.backoff_seconds);
    END LOOP;
    RETURN v_count;
END $$;
