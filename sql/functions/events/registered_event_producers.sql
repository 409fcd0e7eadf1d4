-- registered_event_producers: who has told events and is still open, since which epochs, in which groups of buckets.
--
-- Moves    nothing
-- Caller   advance_event_horizon, open_event_producers; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      the server's own list of locks is the truth: nobody has to write down that it is open, nor that it has ended. The
--          numbers of epochs go round in the locks; each is the nearest before the present one. pid is NULL for a
--          prepared transaction.
CREATE OR REPLACE FUNCTION symphony.registered_event_producers(p_epoch BIGINT)
RETURNS TABLE (pid INT, epochs BIGINT[], groups INT[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_epoch_lock BIGINT := symphony.outbox_epoch_lock()::BIGINT & 4294967295;
    v_group_lock BIGINT := symphony.outbox_group_lock()::BIGINT & 4294967295;
    v_database   OID := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
    RETURN QUERY
    SELECT x.pid,
           array_agg(p_epoch - (p_epoch - x.objid::BIGINT + 2147483647) % 2147483647) FILTER (WHERE x.classid::BIGINT = v_epoch_lock),
           array_agg(x.objid::INT) FILTER (WHERE x.classid::BIGINT = v_group_lock)
      FROM pg_locks x
     WHERE x.locktype = 'advisory' AND x.mode = 'ShareLock' AND x.granted AND x.objsubid = 2 AND x.database = v_database
       AND x.classid::BIGINT IN (v_epoch_lock, v_group_lock)
     GROUP BY x.pid, x.virtualtransaction
    HAVING bool_or(x.classid::BIGINT = v_epoch_lock);
END $$;
