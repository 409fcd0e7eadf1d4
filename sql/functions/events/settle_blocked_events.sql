-- settle_blocked_events: what outcomes mean for the keys they belong to.
--
-- Moves    key: going on -> blocked until its retry, or until an operator acts | blocked -> going on
-- Caller   settle_event_attempts; nobody else may
-- Locks    nothing new: the caller holds the cursors
-- Refuses  nothing
-- Why      a later event never overtakes an earlier one that waits: with a key's head, everything of the key that
--          the lease had handed out is set aside with it. What was not sent because its topic is paused waits for the resume,
--          whatever seconds are given: it is looked at again after an hour, in case its route has changed since.
CREATE OR REPLACE FUNCTION symphony.settle_blocked_events(
    p_buckets SMALLINT[], p_positions BIGINT[], p_states TEXT[], p_retry_delays_seconds INT[], p_continues BOOLEAN[],
    p_attempt_nos INT[], p_destinations TEXT[], p_hasten_afters_seconds INT[]
) RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now   TIMESTAMPTZ := clock_timestamp();
    v_item  RECORD;
    v_keys  TEXT[];
    v_paused TEXT[];
BEGIN
    v_keys := ARRAY(SELECT l.event_key FROM unnest(p_buckets, p_positions) WITH ORDINALITY t(bucket, log_position, ordinal)
                     CROSS JOIN LATERAL (SELECT x.event_key FROM symphony.event_outbox_log x
                                          WHERE x.bucket = t.bucket AND x.position = t.log_position LIMIT 1) l
                     ORDER BY t.ordinal);
    -- What has its terminal outcome waits no more.
    DELETE FROM symphony.event_outbox_waiting w
     USING unnest(p_buckets, v_keys, p_positions, p_states) t(bucket, event_key, log_position, outcome)
     WHERE t.outcome IN ('DISPATCHED', 'FAILED')
       AND w.bucket = t.bucket AND w.event_key = t.event_key AND w.position = t.log_position;

    IF array_position(p_states, NULL) IS NOT NULL THEN
        v_paused := ARRAY(SELECT t.topic FROM symphony.event_outbox_topics t WHERE t.paused AND t.topic = ANY (p_destinations));
    END IF;

    FOR v_item IN
        SELECT t.*, c.published_through, c.claimed_through,
               CASE WHEN t.outcome IS NULL AND t.destination = ANY (v_paused) THEN t.destination END AS paused_topic
          FROM unnest(p_buckets, v_keys, p_positions, p_states, p_retry_delays_seconds, p_continues, p_attempt_nos,
                      p_destinations, p_hasten_afters_seconds)
               t(bucket, event_key, log_position, outcome, retry_delay_seconds, continues, attempt_no, destination, hasten_after_seconds)
          JOIN symphony.event_outbox_cursors c ON c.bucket = t.bucket
         WHERE t.outcome IS NULL OR t.outcome = 'RETRYABLE' OR t.outcome = 'FAILED' AND t.continues IS NOT TRUE
         -- The earliest of a key last: its time is the key's.
         ORDER BY t.bucket, t.event_key, t.log_position DESC
    LOOP
        INSERT INTO symphony.event_outbox_waiting (bucket, event_key, position)
        SELECT v_item.bucket, v_item.event_key, l.position FROM symphony.event_outbox_log l
         WHERE l.bucket = v_item.bucket AND l.position > v_item.published_through AND l.position <= v_item.claimed_through
           AND l.event_key = v_item.event_key AND l.position >= v_item.log_position
           AND (SELECT true FROM symphony.event_outbox_attempts a
                 WHERE a.bucket = l.bucket AND a.position = l.position AND a.outcome_no = 0 LIMIT 1) IS NULL
        ON CONFLICT (bucket, event_key, position) DO NOTHING;
        UPDATE symphony.event_outbox_waiting w SET lease_token = NULL
         WHERE w.bucket = v_item.bucket AND w.event_key = v_item.event_key AND w.position >= v_item.log_position
           AND w.lease_token IS NOT NULL;
        INSERT INTO symphony.event_outbox_blocked AS k (bucket, event_key, due_at, failed_position, destination, hasten_from, paused_topic)
        SELECT v_item.bucket, v_item.event_key,
               CASE WHEN v_item.outcome = 'FAILED' THEN 'infinity'
                    WHEN v_item.paused_topic IS NOT NULL THEN v_now + INTERVAL '1 hour'
                    ELSE v_now + make_interval(secs => LEAST(604800, GREATEST(0, coalesce(v_item.retry_delay_seconds,
                                                     symphony.event_backoff(v_item.attempt_no))))) END,
               CASE WHEN v_item.outcome = 'FAILED' THEN v_item.log_position END,
               CASE WHEN v_item.paused_topic IS NULL AND v_item.hasten_after_seconds IS NOT NULL THEN left(v_item.destination, 255) END,
               CASE WHEN v_item.paused_topic IS NULL AND v_item.outcome IS DISTINCT FROM 'FAILED'
                    THEN v_now + make_interval(secs => LEAST(604800, GREATEST(0, v_item.hasten_after_seconds))) END,
               v_item.paused_topic
        ON CONFLICT (bucket, event_key) DO UPDATE
           SET due_at = excluded.due_at, failed_position = excluded.failed_position, destination = excluded.destination,
               hasten_from = excluded.hasten_from, paused_topic = excluded.paused_topic;
    END LOOP;

    -- A key is not due before its first event may go.
    UPDATE symphony.event_outbox_blocked k SET due_at = h.not_before
      FROM (SELECT DISTINCT t.bucket, t.event_key FROM unnest(p_buckets, v_keys) t(bucket, event_key)) t
     CROSS JOIN LATERAL (SELECT w.not_before FROM symphony.event_outbox_waiting w
                          WHERE w.bucket = t.bucket AND w.event_key = t.event_key ORDER BY w.position LIMIT 1) h
     WHERE k.bucket = t.bucket AND k.event_key = t.event_key AND k.failed_position IS NULL AND h.not_before > k.due_at;

    -- Keys with nothing left to wait for go on.
    DELETE FROM symphony.event_outbox_blocked k
     USING (SELECT DISTINCT t.bucket, t.event_key FROM unnest(p_buckets, v_keys) t(bucket, event_key)) t
     WHERE k.bucket = t.bucket AND k.event_key = t.event_key AND k.failed_position IS NULL
       AND (SELECT true FROM symphony.event_outbox_waiting w WHERE w.bucket = k.bucket AND w.event_key = k.event_key LIMIT 1) IS NULL;
END $$;
