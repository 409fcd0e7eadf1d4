-- require_same_length: the arrays of a batch call describe the same items.
--
-- Moves    nothing
-- Caller   every batch function
-- Locks    nothing
-- Refuses  P7005, naming the array that differs
-- Why      unnest() pads a short array with NULL: one item's reference would silently become another's.
CREATE OR REPLACE FUNCTION symphony.require_same_length(p_expected INT, p_names TEXT[], p_lengths INT[])
RETURNS VOID LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    FOR i IN 1 .. cardinality(p_names) LOOP
        IF p_lengths[i] IS DISTINCT FROM p_expected THEN
            RAISE EXCEPTION '% has % elements, expected %: give one per item',
                p_names[i], coalesce(p_lengths[i]::TEXT, 'no'), p_expected USING ERRCODE = 'P7005';
        END IF;
    END LOOP;
END $$;
