-- report_outbox_destinations: a worker says which rails or buses it serves, and how they are.
--
-- Moves    nothing of any item; the worker's rows of this lane are replaced, rows of workers that are long gone go
-- Caller   symphony_executor
-- Locks    the worker's own rows
-- Refuses  P7005 invalid argument
-- Why      a circuit breaker lives in a process, and a person asks the database. Times come as ages, because the database's
--          clock decides. The answer is when a person last asked for each to be tried at once. Without names: it stops.
CREATE OR REPLACE FUNCTION symphony.report_outbox_destinations(
    p_worker_id TEXT, p_lane TEXT, p_names TEXT[], p_breakers TEXT[], p_open_for_ms BIGINT[], p_next_probes_ms BIGINT[],
    p_troubles INT[], p_last_troubles TEXT[], p_last_trouble_ages_ms BIGINT[], p_calls INT[], p_latencies_ms INT[],
    p_window_ms INT, p_rates_per_second INT[], p_dispatched INT, p_retryable INT, p_failed INT
) RETURNS TABLE (name TEXT, reset_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now   TIMESTAMPTZ := clock_timestamp();
    v_count INT := coalesce(cardinality(p_names), 0);
BEGIN
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    IF p_lane IS NULL OR p_lane NOT IN ('payments', 'events', 'triggers') THEN
        RAISE EXCEPTION 'p_lane must be payments, events or triggers' USING ERRCODE = 'P7005';
    ELSIF v_count > 1000 THEN
        RAISE EXCEPTION 'p_names has more than 1000 elements: a worker serves fewer' USING ERRCODE = 'P7005';
    END IF;
    PERFORM symphony.require_outbox_id('p_names', n) FROM unnest(p_names) n;
    PERFORM symphony.require_same_length(v_count,
        ARRAY['p_breakers', 'p_open_for_ms', 'p_next_probes_ms', 'p_troubles', 'p_last_troubles', 'p_last_trouble_ages_ms', 'p_calls',
              'p_latencies_ms', 'p_rates_per_second'],
        ARRAY[cardinality(p_breakers), cardinality(p_open_for_ms), cardinality(p_next_probes_ms), cardinality(p_troubles),
              cardinality(p_last_troubles), cardinality(p_last_trouble_ages_ms), cardinality(p_calls), cardinality(p_latencies_ms),
              cardinality(p_rates_per_second)]);
    IF EXISTS (SELECT FROM unnest(p_breakers) b WHERE b IS NULL OR b NOT IN ('CLOSED', 'OPEN', 'HALF_OPEN')) THEN
        RAISE EXCEPTION 'p_breakers must be CLOSED, OPEN or HALF_OPEN' USING ERRCODE = 'P7005';
    END IF;
    DELETE FROM symphony.outbox_destinations d
     WHERE d.worker_id = p_worker_id AND d.lane = p_lane AND d.name <> ALL (coalesce(p_names, '{}'));
    DELETE FROM symphony.outbox_destinations d WHERE d.ctid = ANY (ARRAY(
        SELECT o.ctid FROM symphony.outbox_destinations o WHERE o.reported_at < v_now - INTERVAL '10 minutes' FOR UPDATE SKIP LOCKED));
    INSERT INTO symphony.outbox_destinations AS d
        (worker_id, lane, name, breaker, open_since, next_probe_at, troubles, last_trouble, last_trouble_at, calls, latency_ms,
         window_ms, rate_per_second, dispatched, retryable, failed, reported_at)
    SELECT p_worker_id, p_lane, t.name, t.breaker, v_now - make_interval(secs => t.open_for_ms / 1000.0),
           v_now + make_interval(secs => t.next_probe_ms / 1000.0), coalesce(t.troubles, 0), left(t.last_trouble, 255),
           v_now - make_interval(secs => t.trouble_age_ms / 1000.0), coalesce(t.calls, 0), t.latency_ms, coalesce(p_window_ms, 0),
           t.rate, coalesce(p_dispatched, 0), coalesce(p_retryable, 0), coalesce(p_failed, 0), v_now
      FROM unnest(p_names, p_breakers, p_open_for_ms, p_next_probes_ms, p_troubles, p_last_troubles, p_last_trouble_ages_ms, p_calls,
                  p_latencies_ms, p_rates_per_second)
           t(name, breaker, open_for_ms, next_probe_ms, troubles, last_trouble, trouble_age_ms, calls, latency_ms, rate)
     ORDER BY t.name
    ON CONFLICT (worker_id, lane, name) DO UPDATE
       SET breaker = excluded.breaker, open_since = excluded.open_since, next_probe_at = excluded.next_probe_at,
           troubles = excluded.troubles, last_trouble = excluded.last_trouble, last_trouble_at = excluded.last_trouble_at,
           calls = excluded.calls, latency_ms = excluded.latency_ms, window_ms = excluded.window_ms,
           rate_per_second = excluded.rate_per_second, dispatched = excluded.dispatched, retryable = excluded.retryable,
           failed = excluded.failed, reported_at = excluded.reported_at;
    RETURN QUERY SELECT r.name, r.reset_at FROM symphony.outbox_destination_resets r WHERE r.lane = p_lane AND r.name = ANY (p_names);
END $$;
