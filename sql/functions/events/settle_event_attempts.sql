-- settle_event_attempts: outcomes that are not all plain publications, one lookup each.
--
-- Moves    as complete_event_outbox_attempts says
-- Caller   complete_event_outbox_attempts; nobody else may
-- Locks    nothing new: the caller holds the cursors p_held
-- Refuses  nothing; answers which of the given were not sent and are set aside
-- Why      held is what the lease covers: the window without what waits or has its outcome, and the waiting
--          events that carry its token.
CREATE OR REPLACE FUNCTION symphony.settle_event_attempts(
    p_worker_id TEXT, p_held SMALLINT[], p_buckets SMALLINT[], p_positions BIGINT[], p_lease_tokens UUID[], p_states TEXT[],
    p_destinations TEXT[], p_bus_references TEXT[], p_error_codes TEXT[], p_error_messages TEXT[], p_latencies_ms INT[],
    p_retry_delays_seconds INT[], p_unknowns BOOLEAN[], p_continues BOOLEAN[], p_spends_attempts BOOLEAN[],
    p_hasten_afters_seconds INT[], p_buses_away BOOLEAN[]
) RETURNS INT[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    v_now    TIMESTAMPTZ := clock_timestamp();
    v_items  INT[];
    v_nos    INT[];
BEGIN
    WITH held AS MATERIALIZED (
        SELECT t.*, c.claimed_at, l.event_id, l.event_key, coalesce(w.redrive_no, 0) AS redrive_no,
               coalesce((SELECT max(a.attempt_no) FROM symphony.event_outbox_attempts a
                          WHERE a.bucket = t.bucket AND a.position = t.log_position
                            AND a.redrive_no = coalesce(w.redrive_no, 0)), 0) AS attempts_before
          FROM unnest(p_buckets, p_positions, p_lease_tokens, p_states, p_destinations, p_bus_references, p_error_codes,
                      p_error_messages, p_latencies_ms, p_unknowns, p_spends_attempts, p_buses_away)
               WITH ORDINALITY t(bucket, log_position, token, outcome, destination, bus_reference, error_code, error_message,
                                 latency_ms, unknown, spends, away, ordinal)
         CROSS JOIN LATERAL (SELECT x.claimed_at, x.published_through, x.claimed_through FROM symphony.event_outbox_cursors x
                              WHERE x.bucket = t.bucket AND x.lease_token = t.token LIMIT 1) c
         CROSS JOIN LATERAL (SELECT x.event_id, x.event_key FROM symphony.event_outbox_log x
                              WHERE x.bucket = t.bucket AND x.position = t.log_position LIMIT 1) l
          LEFT JOIN LATERAL (SELECT x.redrive_no, x.lease_token FROM symphony.event_outbox_waiting x
                              WHERE x.bucket = t.bucket AND x.event_key = l.event_key AND x.position = t.log_position LIMIT 1) w ON true
         WHERE CASE WHEN w.redrive_no IS NOT NULL THEN w.lease_token IS NOT DISTINCT FROM t.token
                    ELSE t.log_position > c.published_through AND t.log_position <= c.claimed_through
                         AND (SELECT true FROM symphony.event_outbox_attempts a
                               WHERE a.bucket = t.bucket AND a.position = t.log_position AND a.outcome_no = 0 LIMIT 1) IS NULL END
           AND t.bucket = ANY (p_held)
           AND (t.outcome IS NULL OR t.outcome IN ('DISPATCHED', 'RETRYABLE', 'FAILED'))
           AND (t.outcome = 'RETRYABLE' OR t.unknown IS NOT TRUE)
    ), ledger AS (
        INSERT INTO symphony.event_outbox_attempts
            (bucket, position, redrive_no, outcome_no, attempt_no, state, event_id, event_key, outcome_unknown, spends_attempt, bus_away,
             claimed_at, completed_at, destination, bus_reference, error_code, error_message, latency_ms, worker_id, lease_token)
        SELECT h.bucket, h.log_position, h.redrive_no, CASE h.outcome WHEN 'RETRYABLE' THEN h.attempts_before + 1 ELSE 0 END,
               h.attempts_before + 1, h.outcome::symphony.outbox_attempt_state, h.event_id, h.event_key, h.unknown IS TRUE,
               h.outcome <> 'RETRYABLE' OR h.spends IS NOT FALSE,
               h.outcome = 'RETRYABLE' AND h.spends IS FALSE AND h.away IS TRUE, h.claimed_at,
               v_now, left(h.destination, 255), left(h.bus_reference, 255), left(h.error_code, 255), left(h.error_message, 2000),
               h.latency_ms, p_worker_id, h.token
          FROM held h WHERE h.outcome IS NOT NULL
    )
    SELECT array_agg(h.ordinal::INT), array_agg(CASE WHEN h.outcome IS NOT NULL THEN h.attempts_before + 1 END)
      INTO v_items, v_nos FROM held h;

    PERFORM symphony.settle_blocked_events(
        array_agg(p_buckets[t.item]), array_agg(p_positions[t.item]), array_agg(p_states[t.item]),
        array_agg(p_retry_delays_seconds[t.item]), array_agg(p_continues[t.item]), array_agg(t.attempt_no),
        array_agg(p_destinations[t.item]), array_agg(p_hasten_afters_seconds[t.item]))
       FROM unnest(v_items, v_nos) t(item, attempt_no);
    RETURN ARRAY(SELECT t.item FROM unnest(v_items, v_nos) t(item, attempt_no) WHERE t.attempt_no IS NULL);
END $$;
