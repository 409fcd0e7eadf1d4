-- shared_outbox_figures: every lane at a glance, counted at most every few seconds for all processes together.
--
-- Moves    the figures on record, if they are older than that and nobody else is counting
-- Caller   symphony_executor, for its /metrics, its console's charts and /v1/status
-- Locks    the row of the figures, if they are counted; whoever finds it locked takes what is on record
-- Refuses  P7005 invalid argument
-- Why      the figures are the same for everybody, and counting costs as much as there is to do: a hundred scraped workers
--          shall cost the database what one does. A row and not an advisory lock, which anybody may take. Figures older than
--          a minute are told to nobody: unknown is not a figure.
CREATE OR REPLACE FUNCTION symphony.shared_outbox_figures(p_age_ms_max INT) RETURNS TABLE (
    lane TEXT, pending BIGINT, due_unleased_count BIGINT, leased_count BIGINT, expired_lease_count BIGINT, parked_count BIGINT,
    scheduled_count BIGINT, waiting_count BIGINT, oldest_pending_age_seconds BIGINT, dlq_count BIGINT, paused BOOLEAN,
    incident_count BIGINT, approval_waiting_count BIGINT, oldest_approval_age_seconds BIGINT,
    oldest_parked_age_seconds BIGINT, live_worker_count BIGINT, calls_per_minute BIGINT, latency_ms BIGINT, breakers_open BIGINT,
    dispatched_per_minute BIGINT, retryable_per_minute BIGINT, failed_per_minute BIGINT, oldest_stopped_age_seconds BIGINT
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now TIMESTAMPTZ := clock_timestamp();
BEGIN
    PERFORM symphony.require_outbox_count('p_age_ms_max', p_age_ms_max, 60000);
    -- A time to come is a clock that was put back.
    PERFORM FROM symphony.outbox_shared_figures f
      WHERE f.counted_at NOT BETWEEN v_now - make_interval(secs => p_age_ms_max / 1000.0) AND v_now
        FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE symphony.outbox_shared_figures f
           SET figures = (
                   SELECT jsonb_agg(to_jsonb(o) || to_jsonb(served) || to_jsonb(written))
                     FROM symphony.outbox_figures() o
                    CROSS JOIN LATERAL (
                        SELECT coalesce(sum(d.calls_per_minute), 0)::BIGINT AS calls_per_minute,
                               (sum(d.latency_ms * d.calls_per_minute)
                                / NULLIF(sum(d.calls_per_minute) FILTER (WHERE d.latency_ms IS NOT NULL), 0))::BIGINT AS latency_ms,
                               count(*) FILTER (WHERE d.breaker <> 'CLOSED') AS breakers_open
                          FROM symphony.outbox_destination_status d WHERE d.lane = o.lane) served
                    CROSS JOIN LATERAL (
                        SELECT coalesce(sum(w.dispatched * 60000::BIGINT / w.window_ms), 0)::BIGINT AS dispatched_per_minute,
                               coalesce(sum(w.retryable * 60000::BIGINT / w.window_ms), 0)::BIGINT AS retryable_per_minute,
                               coalesce(sum(w.failed * 60000::BIGINT / w.window_ms), 0)::BIGINT AS failed_per_minute
                          -- A worker says the same of its lane on each of its rows.
                          FROM (SELECT DISTINCT ON (r.worker_id) r.dispatched, r.retryable, r.failed, GREATEST(r.window_ms, 1) AS window_ms
                                  FROM symphony.outbox_destinations r
                                 WHERE r.lane = o.lane AND r.reported_at > v_now - INTERVAL '20 seconds'
                                 ORDER BY r.worker_id, r.reported_at DESC) w) written),
               counted_at = clock_timestamp(), counted_times = f.counted_times + 1;
    END IF;
    RETURN QUERY
    SELECT r.lane, r.pending, r.due_unleased_count, r.leased_count, r.expired_lease_count, r.parked_count, r.scheduled_count,
           r.waiting_count, r.oldest_pending_age_seconds, r.dlq_count, r.paused, r.incident_count,
           r.approval_waiting_count, r.oldest_approval_age_seconds, r.oldest_parked_age_seconds, r.live_worker_count,
           r.calls_per_minute, r.latency_ms, r.breakers_open, r.dispatched_per_minute, r.retryable_per_minute, r.failed_per_minute,
           r.oldest_stopped_age_seconds
      FROM symphony.outbox_shared_figures f
     CROSS JOIN LATERAL jsonb_to_recordset(f.figures) r(
           lane TEXT, pending BIGINT, due_unleased_count BIGINT, leased_count BIGINT, expired_lease_count BIGINT,
           parked_count BIGINT, scheduled_count BIGINT, waiting_count BIGINT, oldest_pending_age_seconds BIGINT, dlq_count BIGINT,
           paused BOOLEAN, incident_count BIGINT, approval_waiting_count BIGINT, oldest_approval_age_seconds BIGINT,
           oldest_parked_age_seconds BIGINT, live_worker_count BIGINT, calls_per_minute BIGINT, latency_ms BIGINT,
           breakers_open BIGINT, dispatched_per_minute BIGINT, retryable_per_minute BIGINT, failed_per_minute BIGINT,
           oldest_stopped_age_seconds BIGINT)
     WHERE f.counted_at > v_now - INTERVAL '1 minute';
END $$;
