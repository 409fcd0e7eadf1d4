-- open_event_producers: whose transactions have told events and have not ended, and which of them others wait for.
--
-- Moves    nothing
-- Caller   whoever reads the lanes
-- Locks    nothing
-- Refuses  nothing
-- Why      events beyond the horizon wait for whoever is open in the epoch that has ended, so a person must be able to
--          find them. By the age of what waits and not of the transaction, which only few logins may see. pid is NULL
--          for a prepared transaction.
CREATE OR REPLACE FUNCTION symphony.open_event_producers()
RETURNS TABLE (pid INT, login TEXT, application TEXT, delays_since TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_epoch  BIGINT := coalesce(pg_sequence_last_value('symphony.event_outbox_epoch'), 0);
    v_passed BIGINT := coalesce(pg_sequence_last_value('symphony.event_outbox_passed_epoch'), 0);
    v_horizon BIGINT := coalesce(pg_sequence_last_value('symphony.event_outbox_horizon'), 0);
BEGIN
    RETURN QUERY
    SELECT p.pid, a.usename::TEXT, a.application_name,
           CASE WHEN v_epoch > ANY (p.epochs) THEN
               (SELECT min(w.created_at)
                  FROM symphony.event_outbox_cursors c
                 CROSS JOIN LATERAL (SELECT l.created_at FROM symphony.event_outbox_log l
                                      WHERE l.bucket = c.bucket AND l.position > c.published_through
                                        AND l.position > CASE WHEN v_passed > ANY (p.epochs) THEN p.since ELSE v_horizon END
                                      ORDER BY l.position LIMIT 1) w
                 -- Once it is passed it delays its own groups only.
                 WHERE v_passed <= ALL (p.epochs) OR p.groups IS NULL OR c.bucket / 8 = ANY (p.groups) OR 32 = ANY (p.groups)) END
      FROM symphony.registered_event_producers(v_epoch) p
      LEFT JOIN pg_stat_activity a ON a.pid = p.pid
     ORDER BY p.pid;
END $$;
