-- any_wide_number: whether a number in a JSON value has more digits than any double has.
--
-- Moves    nothing
-- Caller   bulky_json_defect, for values that have numbers
-- Locks    nothing
-- Refuses  nothing
-- Why      the largest double has 309 digits before the point, the smallest 324 zeros after it. The scale is asked for and
--          not only the size: 0e-16383 is zero, and 16 KB of text.
CREATE OR REPLACE FUNCTION symphony.any_wide_number(p_value JSONB) RETURNS BOOLEAN
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (SELECT FROM jsonb_path_query(p_value, '$.** ? (@.type() == "number")') n
                    WHERE scale(n::NUMERIC) > 350 OR abs(n::NUMERIC) >= 1e350);
END $$;
