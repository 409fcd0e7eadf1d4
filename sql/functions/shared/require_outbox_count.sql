-- require_outbox_count: refuse a missing, zero, negative or excessive size.
--
-- Moves    nothing
-- Caller   every public function with a batch size or a number of seconds
-- Locks    nothing
-- Refuses  P7005, naming the argument and its bounds
-- Why      everything has a bound; an unbounded claim or lease is a stuck queue later.
CREATE OR REPLACE FUNCTION symphony.require_outbox_count(p_argument TEXT, p_value BIGINT, p_limit BIGINT)
RETURNS VOID LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_value IS NULL OR p_value < 1 OR p_value > p_limit THEN
        RAISE EXCEPTION '% is %: it must be between 1 and %', p_argument, coalesce(p_value::TEXT, 'null'), p_limit
            USING ERRCODE = 'P7005';
    END IF;
END $$;
