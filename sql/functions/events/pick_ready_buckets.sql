-- pick_ready_buckets: lock free buckets in a range that have something to publish.
--
-- Moves    nothing
-- Caller   claim_event_outbox_batch; nobody else may
-- Locks    the cursors it answers, skipping those others hold
-- Refuses  nothing
-- Why      a claim looks twice, from a random bucket to the last and from the first to there. In bucket order, so
--          that two claims never wait for each other.
CREATE OR REPLACE FUNCTION symphony.pick_ready_buckets(
    p_from INT, p_to INT, p_now TIMESTAMPTZ, p_horizon BIGINT, p_group_horizons BIGINT[], p_seen SMALLINT[], p_limit INT
) RETURNS SMALLINT[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.bucket FROM symphony.event_outbox_cursors c
         WHERE c.bucket BETWEEN p_from AND p_to AND c.bucket <> ALL (p_seen)
           AND (c.lease_expires_at IS NULL OR c.lease_expires_at <= p_now)
           AND (EXISTS (SELECT FROM symphony.event_outbox_log l WHERE l.bucket = c.bucket AND l.position > c.published_through
                         AND l.position <= coalesce(p_group_horizons[c.bucket / 8 + 1], p_horizon))
                OR EXISTS (SELECT FROM symphony.event_outbox_blocked k WHERE k.bucket = c.bucket AND k.due_at <= p_now))
         ORDER BY c.bucket LIMIT p_limit FOR UPDATE SKIP LOCKED);
END $$;
