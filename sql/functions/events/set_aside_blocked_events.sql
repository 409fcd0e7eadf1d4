-- set_aside_blocked_events: let windows go on without their blocked keys, and hand out the keys whose time has come.
--
-- Moves    in the window -> waiting behind its key | waiting -> handed out; a bucket with nothing to hand out is freed
-- Caller   claim_event_outbox_batch; nobody else may
-- Locks    nothing new: the caller holds the cursors
-- Refuses  nothing
-- Why      what waits is found by its key from then on, so fifty thousand events behind a blocked key cost the
--          others nothing: they are passed once, as positions, and not looked at again.
CREATE OR REPLACE FUNCTION symphony.set_aside_blocked_events(p_buckets SMALLINT[], p_token UUID, p_run INT) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_now TIMESTAMPTZ := clock_timestamp();
BEGIN
    INSERT INTO symphony.event_outbox_waiting (bucket, event_key, position)
    SELECT c.bucket, l.event_key, l.position
      FROM symphony.event_outbox_cursors c
     CROSS JOIN LATERAL (SELECT x.event_key, x.position FROM symphony.event_outbox_log x
                          WHERE x.bucket = c.bucket AND x.position > c.published_through AND x.position <= c.claimed_through) l
     WHERE c.bucket = ANY (p_buckets)
       AND (SELECT true FROM symphony.event_outbox_blocked k WHERE k.bucket = c.bucket AND k.event_key = l.event_key LIMIT 1)
       AND (l.position > c.ragged_through
            OR (SELECT true FROM symphony.event_outbox_attempts a
                 WHERE a.bucket = c.bucket AND a.position = l.position AND a.outcome_no = 0 LIMIT 1) IS NULL)
    ON CONFLICT (bucket, event_key, position) DO NOTHING;

    UPDATE symphony.event_outbox_waiting w SET lease_token = p_token
      FROM (SELECT d.bucket, d.event_key, q.position
              FROM unnest(p_buckets) t(bucket)
             CROSS JOIN LATERAL (
                 -- Those that have waited longest; what a claim hands out is bounded, and shared among them.
                 SELECT k.bucket, k.event_key, GREATEST(1, p_run / count(*) OVER ()) AS share
                   FROM (SELECT x.bucket, x.event_key FROM symphony.event_outbox_blocked x
                          WHERE x.bucket = t.bucket AND x.due_at <= v_now ORDER BY x.due_at LIMIT p_run) k) d
             CROSS JOIN LATERAL (SELECT x.position FROM symphony.event_outbox_waiting x
                                  WHERE x.bucket = d.bucket AND x.event_key = d.event_key
                                    -- A redriven event in the line must not go out while the bus would swallow it.
                                    AND NOT EXISTS (SELECT FROM symphony.event_outbox_waiting y
                                                     WHERE y.bucket = d.bucket AND y.event_key = d.event_key
                                                       AND y.position <= x.position AND y.not_before > v_now)
                                  ORDER BY x.position LIMIT d.share) q
           ) due
     WHERE w.bucket = due.bucket AND w.event_key = due.event_key AND w.position = due.position;

    UPDATE symphony.event_outbox_cursors c
       SET unanswered = h.events,
           published_through = CASE WHEN h.events = 0 THEN c.claimed_through ELSE c.published_through END,
           -- Until here c.unanswered is the window's length.
           ragged_through = CASE WHEN h.events = 0 OR h.in_window = c.unanswered THEN c.ragged_through
                                 ELSE GREATEST(c.ragged_through, c.claimed_through) END,
           claimed_by = CASE WHEN h.events > 0 THEN c.claimed_by END,
           lease_token = CASE WHEN h.events > 0 THEN c.lease_token END,
           lease_expires_at = CASE WHEN h.events > 0 THEN c.lease_expires_at END,
           claimed_at = CASE WHEN h.events > 0 THEN c.claimed_at END
      FROM (SELECT t.bucket, count(x.bucket) AS events, count(*) FILTER (WHERE x.in_window) AS in_window
              FROM unnest(p_buckets) t(bucket)
              LEFT JOIN symphony.handed_out_events(p_buckets) x ON x.bucket = t.bucket
             GROUP BY t.bucket) h
     WHERE c.bucket = h.bucket;
END $$;
