-- claim_event_outbox_batch: lease buckets with something to publish to one worker, and hand out their next events.
--
-- Moves    bucket: free -> leased | expired lease -> leased (with the trace of a repair)
-- Caller   symphony_executor
-- Locks    the cursors of the claimed buckets, skipping those others hold; see advance_event_horizon
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED, P7020 another server than on record
-- Why      a bucket is leased whole, so within a key only one worker publishes at a time, and no row is written
--          per event. Events of blocked keys are set aside by their place and the window goes on without them;
--          a blocked key whose time has come is handed out from where it stopped. The look starts at a random
--          bucket and ends when it has enough: every bucket gets its turn, and a busy claim looks at few. It looks no
--          further than the horizon, below which nobody can commit late: advance_event_horizon.
CREATE OR REPLACE FUNCTION symphony.claim_event_outbox_batch(
    p_batch_size INT, p_worker_id TEXT, p_lease_seconds INT, p_buckets_max INT DEFAULT 16,
    p_window_max INT DEFAULT 50
) RETURNS TABLE (bucket SMALLINT, lease_token UUID, log_position BIGINT, event_id UUID, event_key TEXT, event JSON,
                 created_at TIMESTAMPTZ, attempt_count INT, redrive_no INT, last_attempt_no INT, tried_seconds INT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now     TIMESTAMPTZ := clock_timestamp();
    v_token   UUID := gen_random_uuid();
    v_horizon BIGINT;
    v_group_horizons BIGINT[];
    v_start   INT := floor(random() * 256);
    v_seen    SMALLINT[] := '{}'::SMALLINT[];
    v_buckets SMALLINT[];
    v_concerned SMALLINT[];
    v_run     INT;
    v_handed  BOOLEAN := false;
BEGIN
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony.require_outbox_count('p_lease_seconds', p_lease_seconds, 3600);
    PERFORM symphony.require_outbox_count('p_buckets_max', p_buckets_max, 256);
    PERFORM symphony.require_outbox_count('p_window_max', p_window_max, 4096);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_known_server();
    IF (SELECT s.paused FROM symphony.event_outbox_settings s) THEN
        RETURN;
    END IF;

    SELECT h.horizon, h.group_horizons INTO v_horizon, v_group_horizons FROM symphony.advance_event_horizon() h;

    -- Again if all that was found had to be set aside; each round takes other buckets, so it ends.
    WHILE NOT v_handed LOOP
        v_buckets := symphony.pick_ready_buckets(v_start, 255, v_now, v_horizon, v_group_horizons, v_seen, p_buckets_max);
        IF cardinality(v_buckets) < p_buckets_max THEN
            v_buckets := v_buckets || symphony.pick_ready_buckets(
                0, v_start - 1, v_now, v_horizon, v_group_horizons, v_seen, p_buckets_max - cardinality(v_buckets));
        END IF;
        IF cardinality(v_buckets) = 0 THEN
            RETURN;
        END IF;
        v_seen := v_seen || v_buckets;
        PERFORM symphony.requeue_expired_events(array_agg(c.bucket), p_worker_id)
           FROM symphony.event_outbox_cursors c WHERE c.bucket = ANY (v_buckets) AND c.lease_token IS NOT NULL HAVING count(*) > 0;

        v_run := GREATEST(1, LEAST(p_window_max, p_batch_size / cardinality(v_buckets)));
        v_now := clock_timestamp();
        UPDATE symphony.event_outbox_cursors c
           SET claimed_by = p_worker_id, lease_token = v_token, claimed_at = v_now,
               lease_expires_at = v_now + make_interval(secs => p_lease_seconds),
               claimed_through = coalesce(w.last, c.published_through), unanswered = w.events
          FROM unnest(v_buckets) t(bucket)
         CROSS JOIN LATERAL (
             SELECT max(x.position) AS last, count(*) AS events
               FROM (SELECT l.position FROM symphony.event_outbox_log l
                      WHERE l.bucket = t.bucket
                        AND l.position > (SELECT u.published_through FROM symphony.event_outbox_cursors u WHERE u.bucket = t.bucket)
                        AND l.position <= coalesce(v_group_horizons[t.bucket / 8 + 1], v_horizon)
                      ORDER BY l.position LIMIT v_run) x) w
         WHERE c.bucket = t.bucket;

        -- Only buckets with a blocked key, or answers out of turn, are looked at event by event.
        v_concerned := ARRAY(
            SELECT c.bucket FROM symphony.event_outbox_cursors c
             WHERE c.bucket = ANY (v_buckets)
               AND (c.ragged_through > c.published_through
                    OR (SELECT true FROM symphony.event_outbox_blocked k WHERE k.bucket = c.bucket LIMIT 1)));
        RETURN QUERY
        SELECT l.bucket, v_token, l.position, l.event_id, l.event_key, l.event, l.created_at, 0, 0, 0, 0
          FROM unnest(v_buckets) t(bucket)
         CROSS JOIN LATERAL (SELECT c.published_through, c.claimed_through FROM symphony.event_outbox_cursors c
                              WHERE c.bucket = t.bucket LIMIT 1) c
         CROSS JOIN LATERAL (SELECT x.* FROM symphony.event_outbox_log x
                              WHERE x.bucket = t.bucket AND x.position > c.published_through AND x.position <= c.claimed_through
                              ORDER BY x.position) l
         WHERE t.bucket <> ALL (v_concerned);
        v_handed := FOUND;
        IF cardinality(v_concerned) > 0 THEN
            PERFORM symphony.set_aside_blocked_events(v_concerned, v_token, v_run);
            RETURN QUERY
            SELECT h.bucket, v_token, l.position, l.event_id, l.event_key, l.event, l.created_at, h.attempt_count, h.redrive_no, h.last_attempt_no,
                   h.tried_seconds
              FROM symphony.handed_out_events(v_concerned) h
             CROSS JOIN LATERAL (SELECT x.* FROM symphony.event_outbox_log x WHERE x.bucket = h.bucket AND x.position = h.log_position LIMIT 1) l
             ORDER BY h.bucket, l.position;
            v_handed := v_handed OR FOUND;
        END IF;
        -- Emptied between the look and the lock: leave no lease on them.
        UPDATE symphony.event_outbox_cursors c
           SET claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL
         WHERE c.bucket = ANY (v_buckets) AND c.unanswered = 0;
    END LOOP;
END $$;
