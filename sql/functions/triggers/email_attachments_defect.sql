-- email_attachments_defect: what is wrong with the attachments of an email to be sent, or NULL.
--
-- Moves    nothing
-- Caller   outbound_email
-- Locks    nothing
-- Refuses  nothing: it answers, naming the field
-- Why      a file that no relay takes, or that breaks out of its part, fails the script that attached it.
CREATE OR REPLACE FUNCTION symphony.email_attachments_defect(p_attachments JSONB) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_file  JSONB;
    v_at    TEXT;
    v_bytes BIGINT := 0;
BEGIN
    IF jsonb_typeof(p_attachments) <> 'array' OR jsonb_array_length(p_attachments) > 10 THEN
        RETURN 'email.attachments must be a list of at most 10';
    END IF;
    FOR v_file, v_at IN SELECT a.file, format('email.attachments[%s]', a.ordinal - 1)
                          FROM jsonb_array_elements(p_attachments) WITH ORDINALITY a(file, ordinal)
    LOOP
        IF jsonb_typeof(v_file) <> 'object' OR (SELECT count(*) FROM jsonb_object_keys(v_file) f WHERE f NOT IN ('name', 'contentType', 'contentBase64')) > 0 THEN
            RETURN v_at || ' must be an object with name, contentType and contentBase64';
        ELSIF (jsonb_typeof(v_file->'name') = 'string' AND length(v_file->>'name') BETWEEN 1 AND 200 AND v_file->>'name' !~ '[[:cntrl:]]') IS NOT TRUE THEN
            RETURN v_at || '.name must be one line of 1 to 200 characters';
        ELSIF v_file ? 'contentType' AND (jsonb_typeof(v_file->'contentType') = 'string' AND length(v_file->>'contentType') <= 100
                AND v_file->>'contentType' ~ '^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+$'
                AND v_file->>'contentType' !~* '^(multipart|message)/') IS NOT TRUE THEN
            RETURN v_at || '.contentType must be a type such as application/pdf';
        ELSIF (jsonb_typeof(v_file->'contentBase64') = 'string' AND length(v_file->>'contentBase64') % 4 = 0
                AND v_file->>'contentBase64' ~ '^[A-Za-z0-9+/]*={0,2}$') IS NOT TRUE THEN
            RETURN v_at || '.contentBase64 must be base64 with padding';
        END IF;
        v_bytes := v_bytes + length(v_file->>'contentBase64') / 4 * 3;
    END LOOP;
    RETURN CASE WHEN v_bytes > 524288 THEN 'email.attachments must be at most 512 KiB together' END;
END $$;
