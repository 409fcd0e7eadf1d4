-- require_plain_json: refuse a JSON value that is too large, too deep or has a number that expands.
--
-- Moves    nothing
-- Caller   whatever stores one JSON value somebody gave
-- Locks    nothing
-- Refuses  P7005, naming the argument
-- Why      one wording for one mistake; the size is asked for last, because to ask makes the value text.
CREATE OR REPLACE FUNCTION symphony.require_plain_json(p_argument TEXT, p_value JSONB, p_kib_max INT) RETURNS VOID
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_defect TEXT := symphony.json_defect(p_value);
BEGIN
    IF v_defect IS NOT NULL THEN
        RAISE EXCEPTION '% %', p_argument, v_defect USING ERRCODE = 'P7005';
    ELSIF octet_length(p_value::TEXT) > p_kib_max * 1024 THEN
        RAISE EXCEPTION '% is larger than %', p_argument,
            CASE WHEN p_kib_max < 1024 THEN p_kib_max || ' KiB' ELSE p_kib_max / 1024 || ' MiB' END USING ERRCODE = 'P7005';
    END IF;
END $$;
