-- require_durable_commit: this transaction's commit waits for the disk, and for the standby where there is a synchronous one.
--
-- Moves    nothing
-- Caller   the functions after whose commit something may leave the process: claims, renewals, completions
-- Locks    nothing
-- Refuses  nothing
-- Why      a login or a database may have synchronous_commit off, and a commit that a crash takes back was told to others.
CREATE OR REPLACE FUNCTION symphony.require_durable_commit() RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local', 'remote_write') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;
