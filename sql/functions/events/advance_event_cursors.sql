-- advance_event_cursors: move cursors over what is answered, and end the leases that cover nothing more.
--
-- Moves    cursor: over the contiguous prefix of answered or waiting positions; bucket: leased -> free
-- Caller   completion, return and repair functions; nobody else may
-- Locks    nothing new: the caller holds the cursors
-- Refuses  nothing; answers the freed buckets that have more to publish now
-- Why      p_recount: buckets whose own count of unanswered events cannot be trusted, because keys were blocked or
--          part of a window was answered out of turn: what the lease covers is looked at again.
CREATE OR REPLACE FUNCTION symphony.advance_event_cursors(p_buckets SMALLINT[], p_recount SMALLINT[]) RETURNS SMALLINT[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_now    TIMESTAMPTZ := clock_timestamp();
    v_partly SMALLINT[];
BEGIN
    v_partly := ARRAY(SELECT c.bucket FROM symphony.event_outbox_cursors c
                       WHERE c.bucket = ANY (p_buckets) AND (c.bucket = ANY (p_recount) OR c.unanswered > 0));
    IF cardinality(v_partly) > 0 THEN
        UPDATE symphony.event_outbox_cursors c
           SET unanswered = coalesce(h.events, 0),
               published_through = coalesce(h.first_in_window - 1, c.claimed_through),
               -- Never lowered: the next window may be shorter than the one whose answers came out of turn.
               ragged_through = CASE WHEN h.first_in_window IS NULL THEN c.ragged_through ELSE GREATEST(c.ragged_through, c.claimed_through) END
          FROM unnest(v_partly) t(bucket)
          LEFT JOIN (SELECT x.bucket, count(*) AS events, min(x.log_position) FILTER (WHERE x.in_window) AS first_in_window
                       FROM symphony.handed_out_events(v_partly) x GROUP BY x.bucket) h ON h.bucket = t.bucket
         WHERE c.bucket = t.bucket;
    END IF;
    UPDATE symphony.event_outbox_cursors c
       SET published_through = c.claimed_through,
           claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL
     WHERE c.bucket = ANY (p_buckets) AND c.unanswered = 0;
    RETURN ARRAY(
        SELECT c.bucket FROM symphony.event_outbox_cursors c
         WHERE c.bucket = ANY (p_buckets) AND c.lease_token IS NULL
           AND (EXISTS (SELECT FROM symphony.event_outbox_log l WHERE l.bucket = c.bucket AND l.position > c.published_through)
                OR EXISTS (SELECT FROM symphony.event_outbox_blocked k WHERE k.bucket = c.bucket AND k.due_at <= v_now)));
END $$;
