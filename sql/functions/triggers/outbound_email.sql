-- outbound_email: an email to be sent, checked, as the payload of its item.
--
-- Moves    nothing
-- Caller   apply_trigger_effects
-- Locks    nothing
-- Refuses  P7005, naming the field
-- Why      checked where it is written, so that a bad one fails the script that wrote it and not a run hours later.
CREATE OR REPLACE FUNCTION symphony.outbound_email(p_message JSONB) RETURNS JSONB
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_mail       JSONB := jsonb_build_object('direction', 'out', 'subject', p_message->'subject', 'text', p_message->'text');
    v_field      TEXT;
    v_addresses  JSONB;
    v_recipients INT := 0;
    v_defect     TEXT;
BEGIN
    FOREACH v_field IN ARRAY ARRAY['to', 'cc', 'bcc', 'replyTo'] LOOP
        CONTINUE WHEN v_field <> 'to' AND NOT p_message ? v_field;
        v_addresses := CASE jsonb_typeof(p_message->v_field) WHEN 'string' THEN jsonb_build_array(p_message->v_field) ELSE p_message->v_field END;
        IF jsonb_typeof(v_addresses) IS DISTINCT FROM 'array' OR jsonb_array_length(v_addresses) NOT BETWEEN 1 AND 50
           OR (v_field = 'replyTo' AND jsonb_array_length(v_addresses) <> 1)
           OR EXISTS (SELECT FROM jsonb_array_elements(v_addresses) a(address)
                       WHERE jsonb_typeof(a.address) <> 'string' OR a.address #>> '{}' !~ '^[^@[:space:][:cntrl:]<>,;]+@[^@[:space:][:cntrl:]<>,;]+$'
                          OR length(a.address #>> '{}') > 254) THEN
            RAISE EXCEPTION 'email.% must be an address%', v_field, CASE WHEN v_field = 'replyTo' THEN '' ELSE ' or 1 to 50 of them' END
                USING ERRCODE = 'P7005';
        END IF;
        IF v_field = 'replyTo' THEN
            v_mail := v_mail || jsonb_build_object('replyTo', v_addresses->0);
        ELSE
            v_mail := v_mail || jsonb_build_object(v_field, v_addresses);
            v_recipients := v_recipients + jsonb_array_length(v_addresses);
        END IF;
    END LOOP;
    IF v_recipients > 50 THEN
        RAISE EXCEPTION 'email.to, cc and bcc must have at most 50 addresses together' USING ERRCODE = 'P7005';
    ELSIF jsonb_typeof(p_message->'subject') IS DISTINCT FROM 'string' OR length(p_message->>'subject') > 998
          OR p_message->>'subject' ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'email.subject must be one line of text' USING ERRCODE = 'P7005';
    ELSIF jsonb_typeof(p_message->'text') IS DISTINCT FROM 'string' OR octet_length(p_message->>'text') > 262144 THEN
        RAISE EXCEPTION 'email.text must be text of at most 256 KiB' USING ERRCODE = 'P7005';
    ELSIF p_message ? 'html' AND (jsonb_typeof(p_message->'html') <> 'string' OR octet_length(p_message->>'html') > 262144) THEN
        RAISE EXCEPTION 'email.html must be text of at most 256 KiB' USING ERRCODE = 'P7005';
    ELSIF p_message ? 'attachments' THEN
        v_defect := symphony.email_attachments_defect(p_message->'attachments');
        IF v_defect IS NOT NULL THEN
            RAISE EXCEPTION '%', v_defect USING ERRCODE = 'P7005';
        END IF;
        v_mail := v_mail || jsonb_build_object('attachments', p_message->'attachments');
    END IF;
    RETURN v_mail || CASE WHEN p_message ? 'html' THEN jsonb_build_object('html', p_message->'html') ELSE '{}' END;
END $$;
