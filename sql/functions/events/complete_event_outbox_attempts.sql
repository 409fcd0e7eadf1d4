-- complete_event_outbox_attempts: publishing ended for some events; write each outcome down and move on.
--
-- Moves    handed out -> terminal | handed out -> waiting for its retry, with all behind it in its key; the cursor over
--          the contiguous prefix of answered positions; the lease ends when nothing it covers is unanswered
-- Caller   symphony_executor
-- Locks    the cursors, in bucket order
-- Refuses  P7005 for arrays that do not fit together; per event, answered in `result` and never raised:
--          P7001 a terminal outcome exists already, P7002 not held under this lease, P7003 invalid state
-- Why      outcomes come in any order and in parts. A NULL state means that it was not sent: it waits the given
--          seconds and no attempt is counted. RETRYABLE with p_spends_attempts false is in the ledger, but not one of
--          its tries. Where p_hasten_afters_seconds is given, the event waits only for its bus: once that is well again, it
--          may be tried that long from now. p_buses_away, with p_spends_attempts false: it was away by itself, which is
--          what tried_seconds counts; an operator need not mend anything. In buckets where nothing is blocked and all
--          was published, the windows are read once and one insert does it all; the others are done with care, by
--          settle_event_attempts. A repeated call is answered as the first: the ledger has this lease's outcome.
CREATE OR REPLACE FUNCTION symphony.complete_event_outbox_attempts(
    p_worker_id TEXT, p_buckets SMALLINT[], p_positions BIGINT[], p_lease_tokens UUID[], p_states TEXT[],
    p_destinations TEXT[] DEFAULT NULL, p_bus_references TEXT[] DEFAULT NULL, p_error_codes TEXT[] DEFAULT NULL,
    p_error_messages TEXT[] DEFAULT NULL, p_latencies_ms INT[] DEFAULT NULL, p_retry_delays_seconds INT[] DEFAULT NULL,
    p_unknowns BOOLEAN[] DEFAULT NULL, p_continues BOOLEAN[] DEFAULT NULL, p_spends_attempts BOOLEAN[] DEFAULT NULL,
    p_hasten_afters_seconds INT[] DEFAULT NULL, p_buses_away BOOLEAN[] DEFAULT NULL
) RETURNS TABLE (item_no INT, result TEXT, attempt_no INT, state symphony.outbox_attempt_state, more BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now     TIMESTAMPTZ := clock_timestamp();
    v_count   INT := cardinality(p_positions);
    v_buckets SMALLINT[];
    v_troubled SMALLINT[];
    v_concerned SMALLINT[];
    v_plain   SMALLINT[];
    v_unsent  INT[];
    v_written INT;
    v_more    SMALLINT[];
BEGIN
    PERFORM symphony.require_outbox_count('p_positions', coalesce(v_count, 0), 4096);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_same_length(v_count,
        ARRAY['p_buckets', 'p_lease_tokens', 'p_states', 'p_destinations', 'p_bus_references', 'p_error_codes', 'p_error_messages',
              'p_latencies_ms', 'p_retry_delays_seconds', 'p_unknowns', 'p_continues', 'p_spends_attempts', 'p_hasten_afters_seconds',
              'p_buses_away'],
        ARRAY[cardinality(p_buckets), cardinality(p_lease_tokens), cardinality(p_states),
              coalesce(cardinality(p_destinations), v_count), coalesce(cardinality(p_bus_references), v_count),
              coalesce(cardinality(p_error_codes), v_count), coalesce(cardinality(p_error_messages), v_count),
              coalesce(cardinality(p_latencies_ms), v_count), coalesce(cardinality(p_retry_delays_seconds), v_count),
              coalesce(cardinality(p_unknowns), v_count), coalesce(cardinality(p_continues), v_count),
              coalesce(cardinality(p_spends_attempts), v_count), coalesce(cardinality(p_hasten_afters_seconds), v_count),
              coalesce(cardinality(p_buses_away), v_count)]);
    PERFORM symphony.require_outbox_bytes(
        pg_column_size(p_states), pg_column_size(p_destinations), pg_column_size(p_bus_references), pg_column_size(p_error_codes),
        pg_column_size(p_error_messages));
    IF v_count <> (SELECT count(DISTINCT t.log_position) FROM unnest(p_positions) t(log_position)) THEN
        RAISE EXCEPTION 'p_positions names an event twice, or null: give each event''s outcome once' USING ERRCODE = 'P7005';
    END IF;

    -- Buckets with an outcome that is not a plain publication.
    v_troubled := ARRAY(SELECT DISTINCT t.bucket FROM unnest(p_buckets, p_states, p_unknowns) t(bucket, outcome, unknown)
                         WHERE t.outcome IS DISTINCT FROM 'DISPATCHED' OR t.unknown);
    -- The leases that are still held, from here on locked.
    v_buckets := ARRAY(
        SELECT c.bucket FROM symphony.event_outbox_cursors c
         WHERE c.bucket = ANY (p_buckets) AND c.claimed_by = p_worker_id AND c.lease_expires_at > clock_timestamp()
         ORDER BY c.bucket FOR UPDATE);
    v_concerned := ARRAY(
        SELECT c.bucket FROM symphony.event_outbox_cursors c
         WHERE c.bucket = ANY (v_buckets)
           AND (c.ragged_through > c.published_through OR c.bucket = ANY (v_troubled)
                OR (SELECT true FROM symphony.event_outbox_blocked k WHERE k.bucket = c.bucket LIMIT 1)));
    v_plain := ARRAY(SELECT b FROM unnest(v_buckets) b WHERE b <> ALL (v_concerned));

    IF cardinality(v_concerned) > 0 THEN
        v_unsent := symphony.settle_event_attempts(
            p_worker_id, v_concerned, p_buckets, p_positions, p_lease_tokens, p_states, p_destinations, p_bus_references,
            p_error_codes, p_error_messages, p_latencies_ms, p_retry_delays_seconds, p_unknowns, p_continues,
            p_spends_attempts, p_hasten_afters_seconds, p_buses_away);
    END IF;
    IF cardinality(v_plain) > 0 THEN
        WITH written AS (
            INSERT INTO symphony.event_outbox_attempts
                (bucket, position, redrive_no, outcome_no, attempt_no, state, event_id, event_key, claimed_at, completed_at,
                 destination, bus_reference, latency_ms, worker_id, lease_token)
            SELECT h.bucket, h.position, 0, 0, 1, 'DISPATCHED', h.event_id, h.event_key, h.claimed_at, v_now,
                   left(p_destinations[t.ordinal], 255), left(p_bus_references[t.ordinal], 255), p_latencies_ms[t.ordinal],
                   p_worker_id, h.lease_token
              FROM unnest(p_buckets, p_positions, p_lease_tokens) WITH ORDINALITY t(bucket, log_position, token, ordinal)
              JOIN (SELECT c.bucket, c.lease_token, c.claimed_at, l.position, l.event_id, l.event_key
                      FROM unnest(v_plain) b(bucket)
                     CROSS JOIN LATERAL (SELECT x.* FROM symphony.event_outbox_cursors x WHERE x.bucket = b.bucket LIMIT 1) c
                     CROSS JOIN LATERAL (SELECT x.position, x.event_id, x.event_key FROM symphony.event_outbox_log x
                                          WHERE x.bucket = c.bucket AND x.position > c.published_through AND x.position <= c.claimed_through
                                          OFFSET 0) l OFFSET 0) h
                ON h.position = t.log_position AND h.bucket = t.bucket AND h.lease_token = t.token
            RETURNING bucket
        ), counted AS (
            SELECT w.bucket, count(*) AS answered FROM written w GROUP BY w.bucket
        ), updated AS (
            UPDATE symphony.event_outbox_cursors c SET unanswered = c.unanswered - a.answered
              FROM counted a WHERE c.bucket = a.bucket
        )
        SELECT sum(a.answered) INTO v_written FROM counted a;
    END IF;
    v_more := symphony.advance_event_cursors(v_buckets, v_concerned);

    IF v_written = v_count THEN
        RETURN QUERY SELECT t.ordinal::INT, 'OK', 1, 'DISPATCHED'::symphony.outbox_attempt_state, t.bucket = ANY (v_more)
                       FROM unnest(p_buckets) WITH ORDINALITY t(bucket, ordinal);
        RETURN;
    END IF;
    RETURN QUERY
    SELECT t.ordinal::INT,
           CASE WHEN ok.attempt_no IS NOT NULL OR t.ordinal = ANY (v_unsent) THEN 'OK'
                WHEN t.outcome IS NOT NULL AND t.outcome NOT IN ('DISPATCHED', 'RETRYABLE', 'FAILED')
                     OR t.outcome IS DISTINCT FROM 'RETRYABLE' AND t.unknown IS TRUE THEN 'P7003'
                WHEN (SELECT true FROM symphony.event_outbox_attempts a
                       WHERE a.bucket = t.bucket AND a.position = t.log_position AND a.outcome_no = 0 LIMIT 1) THEN 'P7001'
                ELSE 'P7002' END,
           ok.attempt_no, ok.state, t.bucket = ANY (v_more)
      FROM unnest(p_buckets, p_positions, p_lease_tokens, p_states, p_unknowns)
           WITH ORDINALITY t(bucket, log_position, token, outcome, unknown, ordinal)
      LEFT JOIN LATERAL (SELECT a.attempt_no, a.state FROM symphony.event_outbox_attempts a
                          WHERE a.bucket = t.bucket AND a.position = t.log_position AND a.lease_token = t.token
                            AND a.worker_id = p_worker_id AND a.state::TEXT = t.outcome LIMIT 1) ok ON true
     ORDER BY t.ordinal;
END $$;
