-- handed_out_events: what is handed out under a lease and not answered yet.
--
-- Moves    nothing
-- Caller   claim, completion and repair functions; nobody else may
-- Locks    nothing: the caller holds the cursors
-- Refuses  nothing
-- Why      one place says what a lease covers: the window without what waits and what has its outcome, and the
--          waiting events that carry the lease's token. Each probe is a subquery with a LIMIT, which no plan turns
--          into a join: on statistics of an empty ledger NOT EXISTS read all of it for every window.
CREATE OR REPLACE FUNCTION symphony.handed_out_events(p_buckets SMALLINT[])
RETURNS TABLE (bucket SMALLINT, log_position BIGINT, event_key TEXT, redrive_no INT, last_attempt_no INT, attempt_count INT, in_window BOOLEAN,
               tried_seconds INT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT h.bucket, h.log_position, h.event_key, h.redrive_no,
           coalesce(tries.last_no, 0), coalesce(tries.retries, 0)::INT, h.in_window,
           -- Since the bus has been away without a break: what was wrong besides may be mended by now.
           CASE WHEN tries.away_at IS NULL THEN 0
                ELSE symphony.tried_seconds(ARRAY(SELECT t FROM unnest(tries.away_at) t WHERE tries.broken_at IS NULL OR t > tries.broken_at)) END
      FROM (SELECT c.bucket, l.position AS log_position, l.event_key, 0 AS redrive_no, true AS in_window
              FROM symphony.event_outbox_cursors c
             CROSS JOIN LATERAL (SELECT x.event_key, x.position FROM symphony.event_outbox_log x
                                  WHERE x.bucket = c.bucket AND x.position > c.published_through AND x.position <= c.claimed_through) l
             WHERE c.bucket = ANY (p_buckets) AND c.lease_token IS NOT NULL
               AND (SELECT true FROM symphony.event_outbox_waiting w
                     WHERE w.bucket = c.bucket AND w.event_key = l.event_key AND w.position = l.position LIMIT 1) IS NULL
               AND (SELECT true FROM symphony.event_outbox_attempts a
                     WHERE a.bucket = c.bucket AND a.position = l.position AND a.outcome_no = 0 LIMIT 1) IS NULL
            UNION ALL
            SELECT c.bucket, w.position, w.event_key, w.redrive_no, false
              FROM symphony.event_outbox_cursors c
             CROSS JOIN LATERAL (SELECT x.position, x.event_key, x.redrive_no FROM symphony.event_outbox_waiting x
                                  WHERE x.lease_token IS NOT NULL AND x.lease_token = c.lease_token AND x.bucket = c.bucket) w
             WHERE c.bucket = ANY (p_buckets)) h
      -- A lost worker is no try: whoever restarts a fleet ten times must not fail its events.
     CROSS JOIN LATERAL (SELECT max(a.attempt_no) AS last_no, count(*) FILTER (WHERE a.state = 'RETRYABLE' AND a.spends_attempt) AS retries,
                                array_agg(a.completed_at) FILTER (WHERE a.bus_away) AS away_at,
                                -- A lost worker says nothing of the bus, nor does an answer that never came.
                                max(a.completed_at) FILTER (WHERE NOT a.bus_away AND NOT a.outcome_unknown AND a.state <> 'ZOMBIE_REQUEUE') AS broken_at
                           FROM symphony.event_outbox_attempts a
                          WHERE a.bucket = h.bucket AND a.position = h.log_position AND a.redrive_no = h.redrive_no) tries;
END $$;
