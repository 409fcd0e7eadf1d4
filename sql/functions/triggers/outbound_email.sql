-- outbound_email: an email to be sent, checked, as the payload of its item.
--
-- Moves    nothing
-- Caller   apply_trigger_effects
-- Locks    nothing
-- Refuses  P7005, naming the field
-- Why      checked where it is written, so that a bad one fails the script that wrote it and not a run hours later.
CREATE OR REPLACE FUNCTION symphony_internal.outbound_email(p_message JSONB) RETURNS JSONB
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_to JSONB := CASE jsonb_typeof(p_message->'to') WHEN 'string' THEN jsonb_build_array(p_message->'to') ELSE p_message->'to' END;
BEGIN
    IF jsonb_typeof(v_to) IS DISTINCT FROM 'array' OR jsonb_array_length(v_to) NOT BETWEEN 1 AND 50
       OR EXISTS (SELECT FROM jsonb_array_elements(v_to) a(address)
                   WHERE jsonb_typeof(a.address) <> 'string' OR a.address #>> '{}' !~ '^[^@[:space:][:cntrl:]<>,;]+@[^@[:space:][:cntrl:]<>,;]+$'
                      OR length(a.address #>> '{}') > 254) THEN
        RAISE EXCEPTION 'email.to must be an address or 1 to 50 of them' USING ERRCODE = 'P7005';
    ELSIF jsonb_typeof(p_message->'subject') IS DISTINCT FROM 'string' OR length(p_message->>'subject') > 998
          OR p_message->>'subject' ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'email.subject must be one line of text' USING ERRCODE = 'P7005';
    ELSIF jsonb_typeof(p_message->'text') IS DISTINCT FROM 'string' OR octet_length(p_message->>'text') > 262144 THEN
        RAISE EXCEPTION 'email.text must be text of at most 256 KiB' USING ERRCODE = 'P7005';
    END IF;
    RETURN jsonb_build_object('direction', 'out', 'to', v_to, 'subject', p_message->'subject', 'text', p_message->'text');
END $$;
