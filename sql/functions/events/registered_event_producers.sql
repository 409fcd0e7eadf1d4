-- registered_event_producers: who has told events and is open still, since which epochs and position, in which groups.
--
-- Moves    nothing
-- Caller   advance_event_horizon, open_event_producers; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      the server's own list of locks is the truth: nobody has to write down that it is open, nor that it has ended. The
--          numbers of epochs go round in the locks, and so do positions; each is the nearest before the present one.
--          pid is NULL for a prepared transaction.
CREATE OR REPLACE FUNCTION symphony.registered_event_producers(p_epoch BIGINT)
RETURNS TABLE (pid INT, epochs BIGINT[], since BIGINT, groups INT[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_epoch_lock BIGINT := symphony.outbox_epoch_lock()::BIGINT & 4294967295;
    v_group_lock BIGINT := symphony.outbox_group_lock()::BIGINT & 4294967295;
    v_position_lock BIGINT := symphony.outbox_position_lock()::BIGINT & 4294967295;
    c_positions CONSTANT BIGINT := 2199023255552;
    v_position   BIGINT := coalesce(pg_sequence_last_value('symphony.event_outbox_position'), 0);
    v_database   OID := (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
BEGIN
    RETURN QUERY
    SELECT x.pid,
           array_agg(p_epoch - (p_epoch - x.objid::BIGINT + 2147483647) % 2147483647) FILTER (WHERE x.classid::BIGINT = v_epoch_lock),
           -- Each of its events stands beyond it; none, if it cannot be told.
           coalesce(min(v_position - (v_position - ((x.classid::BIGINT # v_position_lock) << 31 | x.objid::BIGINT) + c_positions) % c_positions)
                        FILTER (WHERE x.classid::BIGINT # v_position_lock < 1024), 0),
           array_agg(x.objid::INT) FILTER (WHERE x.classid::BIGINT = v_group_lock)
      FROM pg_locks x
     WHERE x.locktype = 'advisory' AND x.mode = 'ShareLock' AND x.granted AND x.objsubid = 2 AND x.database = v_database
       AND (x.classid::BIGINT IN (v_epoch_lock, v_group_lock) OR x.classid::BIGINT # v_position_lock < 1024)
     GROUP BY x.pid, x.virtualtransaction
    HAVING bool_or(x.classid::BIGINT = v_epoch_lock);
END $$;
