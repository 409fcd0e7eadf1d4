-- require_outbox_id: refuse a missing, blank or oversized text argument.
--
-- Moves    nothing
-- Caller   every public function with a text argument that names something
-- Locks    nothing
-- Refuses  P7005, naming the argument
-- Why      one wording for one mistake; and no value is repeated in the error, because errors are logged.
CREATE OR REPLACE FUNCTION symphony.require_outbox_id(p_argument TEXT, p_value TEXT, p_limit INT DEFAULT 255)
RETURNS VOID LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_value IS NULL OR btrim(p_value, E' \t\n\r\f\x0B') = '' THEN
        RAISE EXCEPTION '% is blank: it must name something', p_argument USING ERRCODE = 'P7005';
    ELSIF length(p_value) > p_limit THEN
        RAISE EXCEPTION '% has % characters: at most % are allowed', p_argument, length(p_value), p_limit
            USING ERRCODE = 'P7005';
    END IF;
END $$;
