-- require_fan_out: refuse what a run's effects fire beyond what one run may.
--
-- Moves    nothing
-- Caller   fire_triggers, apply_trigger_effects; nobody else may
-- Locks    nothing
-- Refuses  P7005 if none is left
-- Why      a thousand effects and a thousand triggers would be a million items in one call, which would never end in time.
CREATE OR REPLACE FUNCTION symphony.require_fan_out(p_rows_left INT, p_bytes_left BIGINT) RETURNS VOID
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_rows_left < 0 OR p_bytes_left < 0 THEN
        RAISE EXCEPTION 'its effects fire more than %: write fewer entries or messages in one run, or make the triggers'' filters narrower',
            CASE WHEN p_rows_left < 0 THEN '10000 triggers' ELSE '64 MB' END USING ERRCODE = 'P7005';
    END IF;
END $$;
