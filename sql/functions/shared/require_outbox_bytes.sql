-- require_outbox_bytes: refuse a call whose arguments together are too large.
--
-- Moves    nothing
-- Caller   every batch function, first of all
-- Locks    nothing
-- Refuses  P7005 for more than 16 MiB
-- Why      a batch is copied several times on its way into the tables: 600 payloads of 1 MB took 4.1 GB in one backend.
CREATE OR REPLACE FUNCTION symphony.require_outbox_bytes(VARIADIC p_sizes INT[]) RETURNS VOID
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_bytes BIGINT := 0;
    v_size  INT;
BEGIN
    FOREACH v_size IN ARRAY p_sizes LOOP
        v_bytes := v_bytes + coalesce(v_size, 0);
    END LOOP;
    IF v_bytes > 16777216 THEN
        RAISE EXCEPTION 'the arguments have % bytes: at most 16777216 (16 MiB) in one call, send them in parts', v_bytes USING ERRCODE = 'P7005';
    END IF;
END $$;
