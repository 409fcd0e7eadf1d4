-- settle_payment_attempts: the one place where a dispatch becomes a ledger row.
--
-- Moves    leased -> terminal (row deleted) | leased -> scheduled | leased -> parked
-- Caller   complete_outbox_attempts, park_unknown_outbox; nobody else may
-- Locks    the pending rows, in outbox_id order
-- Refuses  nothing: answers per item; 23505 if an item has a terminal row already
-- Why      RETRYABLE means surely not executed, so at the ceiling it may become FAILED. But where this or
--          an earlier try is unknown, FAILED would claim to know that no money moved: it is parked. So is a
--          FAILED outcome where a rail has told a lost worker that the money moved. An outcome that says nothing
--          of the item (the rail is busy or away) does not count towards the ceiling: it is bounded by the time since the
--          first try, and its pause grows whatever the rail asks for. That pause alone may be cut short once the rail is
--          well again, but not before the time the rail asked for (hasten_from). A worker may name the pause itself only
--          where it has asked and not sent: it waits for the rail to settle.
CREATE OR REPLACE FUNCTION symphony.settle_payment_attempts(
    p_worker_id TEXT, p_outbox_ids UUID[], p_lease_tokens UUID[], p_states TEXT[],
    p_rail_references TEXT[], p_rail_codes TEXT[], p_error_codes TEXT[], p_error_messages TEXT[], p_latencies_ms INT[],
    p_retry_delays_seconds INT[], p_unknowns BOOLEAN[], p_park BOOLEAN DEFAULT false,
    p_spends_attempts BOOLEAN[] DEFAULT NULL, p_asked_only BOOLEAN[] DEFAULT NULL, p_retry_afters_seconds INT[] DEFAULT NULL
) RETURNS TABLE (item_no INT, outbox_id UUID, result TEXT, attempt_no INT, state symphony.outbox_attempt_state, parked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now       TIMESTAMPTZ := clock_timestamp();
    v_routine   BOOLEAN := (SELECT s.record_routine_events FROM symphony.payment_outbox_settings s);
    v_item_nos  INT[];
    v_ids       UUID[];
    v_nos       INT[];
    v_states    symphony.outbox_attempt_state[];
    v_parked    BOOLEAN[];
    v_lanes     INT;
    v_lane_participants TEXT[];
    v_lane_rails        TEXT[];
    v_lane_positions    BIGINT[];
    v_late_yes          UUID[] := '{}'::UUID[];
BEGIN
    IF 'FAILED' = ANY (p_states) THEN
        -- FAILED would claim that no money moved, but a rail has told a lost worker that it did: for a person.
        SELECT coalesce(array_agg(DISTINCT e.outbox_id), '{}'::UUID[]) INTO v_late_yes
          FROM unnest(p_outbox_ids, p_states) t(id, outcome)
          JOIN symphony.payment_outbox_events e ON e.outbox_id = t.id
         WHERE t.outcome = 'FAILED' AND e.event_type = 'LATE_OUTCOME' AND e.details->>'state' = 'DISPATCHED';
    END IF;
    WITH answered AS MATERIALIZED (
        SELECT t.id, t.token, CASE WHEN t.id = ANY (v_late_yes) THEN 'RETRYABLE' ELSE t.outcome END AS outcome, t.rail_reference,
               t.rail_code, t.error_code, t.error_message, t.latency_ms, t.retry_delay_seconds,
               t.unknown IS TRUE OR t.id = ANY (v_late_yes) AS unknown, t.ordinal, t.retry_after_seconds,
               t.asked_only IS TRUE AS asked_only,
               coalesce(t.spends, true) OR (t.retry_delay_seconds IS NOT NULL AND t.asked_only IS NOT TRUE) AS spends
          FROM unnest(p_outbox_ids, p_lease_tokens, p_states, p_rail_references, p_rail_codes, p_error_codes,
                               p_error_messages, p_latencies_ms, p_retry_delays_seconds, p_unknowns, p_spends_attempts, p_asked_only,
                               p_retry_afters_seconds)
               WITH ORDINALITY t(id, token, outcome, rail_reference, rail_code, error_code, error_message, latency_ms,
                                 retry_delay_seconds, unknown, spends, asked_only, retry_after_seconds, ordinal)
         WHERE t.outcome IN ('DISPATCHED', 'RETRYABLE', 'FAILED') AND (t.outcome = 'RETRYABLE' OR t.unknown IS NOT TRUE)
         ORDER BY t.id
    ), ended AS MATERIALIZED (
        -- The common case in one step: the deletion is the lock, and finds the row again only if the lease is still this one.
        DELETE FROM symphony.payment_outbox_pending p USING answered a
         WHERE p.outbox_id = a.id AND a.outcome <> 'RETRYABLE'
           AND p.claimed_by = p_worker_id AND p.lease_token = a.token AND p.lease_expires_at > clock_timestamp()
        RETURNING a.id, a.token, a.rail_reference, a.rail_code, a.error_code, a.error_message, a.latency_ms, a.ordinal,
                  p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type, p.claimed_at, p.lane_position,
                  p.endpoint, a.outcome::symphony.outbox_attempt_state AS new_state
    ), retried AS MATERIALIZED (
        SELECT a.*, p.*, e.spent + a.spends::INT AS now_spent, e.too_often, e.too_long,
               (p.must_inquire OR a.unknown) AS maybe_moved,
               p_park OR a.id = ANY (v_late_yes) OR ((e.too_often OR e.too_long) AND (p.must_inquire OR a.unknown)) AS parks,
               (e.too_often OR e.too_long) AND NOT (p.must_inquire OR a.unknown OR p_park) AS gives_up
          FROM answered a
         CROSS JOIN LATERAL (
             SELECT q.instruction_id, q.participant_id, q.sequence_id, q.idempotency_key, q.rail_type, q.attempt_count,
                    q.lane_position, q.must_inquire, q.claimed_at, q.lease_expires_at, q.endpoint
               FROM symphony.payment_outbox_pending q
              WHERE q.outbox_id = a.id AND q.claimed_by = p_worker_id AND q.lease_token = a.token
              LIMIT 1 FOR UPDATE) p
         CROSS JOIN LATERAL (
             SELECT s.spent, a.spends AND GREATEST(p.attempt_count, s.spent) >= 20 AS too_often,
                    -- A pause of the worker's own is until the rail has settled, and ends by itself.
                    NOT a.spends AND a.retry_delay_seconds IS NULL
                    AND t.since <= v_now - make_interval(secs => r.seconds)
                    -- What may have been sent is not failed but parked, for a person to look at.
                    AND (p.must_inquire OR a.unknown OR r.seconds <= symphony.tried_seconds(ARRAY(
                            SELECT l.completed_at FROM symphony.payment_outbox_attempts l
                             WHERE l.outbox_id = a.id AND l.completed_at >= t.since))) AS too_long
               FROM (SELECT count(*)::INT AS spent FROM symphony.payment_outbox_attempts l WHERE l.outbox_id = a.id AND l.spends_attempt) s,
                    (SELECT symphony.payment_tried_since(a.id, p.claimed_at) AS since) t,
                    (SELECT coalesce((SELECT x.give_up_after_seconds FROM symphony.payment_outbox_rails x WHERE x.rail_type = p.rail_type),
                                     86400) AS seconds) r) e
         WHERE a.outcome = 'RETRYABLE' AND p.lease_expires_at > clock_timestamp()
    ), decided AS MATERIALIZED (
        SELECT x.*, coalesce((SELECT l.attempt_no FROM symphony.payment_outbox_attempts l
                               WHERE l.outbox_id = x.id ORDER BY l.attempt_no DESC LIMIT 1), 0) + 1 AS new_no
          FROM (SELECT e.id, e.token, e.rail_reference, e.rail_code, e.error_code, e.error_message, e.latency_ms, e.ordinal,
                       e.instruction_id, e.participant_id, e.sequence_id, e.idempotency_key, e.rail_type, e.claimed_at,
                       e.lane_position, e.endpoint, e.new_state, false AS unknown, false AS maybe_moved, false AS parks, false AS gives_up,
                       NULL::INT AS retry_delay_seconds, NULL::INT AS retry_after_seconds, true AS spends, false AS asked_only,
                       NULL::INT AS now_spent, false AS too_often, false AS too_long
                  FROM ended e
                UNION ALL
                SELECT r.id, r.token, r.rail_reference, r.rail_code, r.error_code, r.error_message, r.latency_ms, r.ordinal,
                       r.instruction_id, r.participant_id, r.sequence_id, r.idempotency_key, r.rail_type, r.claimed_at,
                       r.lane_position, r.endpoint,
                       CASE WHEN r.gives_up THEN 'FAILED' ELSE 'RETRYABLE' END::symphony.outbox_attempt_state,
                       r.unknown, r.maybe_moved, r.parks, r.gives_up, r.retry_delay_seconds, r.retry_after_seconds, r.spends, r.asked_only,
                       r.now_spent, r.too_often, r.too_long
                  FROM retried r) x
    ), ledger AS (
        INSERT INTO symphony.payment_outbox_attempts
            (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state,
             outcome_unknown, spends_attempt, asked_only, claimed_at, completed_at, rail_reference, rail_code, error_code, error_message, latency_ms,
             worker_id, lease_token, endpoint, created_at)
        SELECT d.id, d.instruction_id, d.participant_id, d.sequence_id, d.idempotency_key, d.rail_type, d.new_no, d.new_state,
               d.unknown, d.spends, d.asked_only, d.claimed_at, v_now, left(d.rail_reference, 255), left(d.rail_code, 255),
               CASE WHEN NOT d.gives_up THEN left(d.error_code, 255) WHEN d.too_long THEN 'GIVEN_UP' ELSE 'RETRY_CEILING' END,
               CASE WHEN NOT d.gives_up THEN left(d.error_message, 2000)
                    ELSE concat_ws(': ', CASE WHEN d.too_long THEN 'the rail was busy or away for longer than give_up_after_seconds'
                                              ELSE 'no more retries after attempt ' || d.new_no END,
                                   left(d.error_code, 255), left(d.error_message, 2000)) END,
               d.latency_ms, p_worker_id, d.token, d.endpoint, v_now
          FROM decided d
    ), given_up AS (
        DELETE FROM symphony.payment_outbox_pending p
         WHERE p.outbox_id = ANY (ARRAY(SELECT r.id FROM retried r WHERE r.gives_up))
    ), rescheduled AS (
        UPDATE symphony.payment_outbox_pending p
           SET claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL, sending_marked_at = NULL,
               attempt_count = LEAST(20, GREATEST(p.attempt_count, d.now_spent)),
               next_attempt_at = v_now + make_interval(secs => LEAST(604800, GREATEST(0, coalesce(d.retry_delay_seconds, GREATEST(
                   d.retry_after_seconds,
                   CASE WHEN d.spends THEN symphony.backoff(d.now_spent) ELSE LEAST(300, symphony.backoff(d.new_no - d.now_spent)) END))))),
               must_inquire = d.maybe_moved,
               endpoint = CASE WHEN d.maybe_moved THEN p.endpoint END,
               hasten_from = CASE WHEN NOT d.spends AND d.retry_delay_seconds IS NULL AND NOT d.parks
                                  THEN v_now + make_interval(secs => LEAST(604800, GREATEST(0, coalesce(d.retry_after_seconds, 0)))) END,
               only_ask = p.only_ask AND NOT d.parks,
               hold = CASE WHEN d.parks THEN 'PARKED'::symphony.outbox_hold END
          FROM decided d WHERE p.outbox_id = d.id AND d.new_state = 'RETRYABLE'
    ), narrative AS (
        INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, worker_id, reason, details)
        SELECT 'PARKED', d.id, p_worker_id,
               CASE WHEN p_park THEN 'the outcome is unknown and cannot be settled by asking'
                    WHEN d.id = ANY (v_late_yes) THEN 'the rail refuses it, but has told a lost worker that it was executed'
                    WHEN d.too_long THEN 'the rail was busy or away for too long, and an outcome is unknown'
                    ELSE 'no more retries, and an outcome is unknown' END,
               jsonb_build_object('attempt_no', d.new_no, 'error_code', d.error_code, 'rail_code', d.rail_code,
                                  'rail_reference', d.rail_reference)
          FROM decided d WHERE d.parks
        UNION ALL
        SELECT 'ATTEMPT_COMPLETED', d.id, p_worker_id, NULL, jsonb_build_object('attempt_no', d.new_no, 'state', d.new_state)
          FROM decided d WHERE v_routine
    )
    SELECT array_agg(d.ordinal), array_agg(d.id), array_agg(d.new_no), array_agg(d.new_state), array_agg(d.parks),
           array_agg(d.participant_id), array_agg(d.rail_type), array_agg(d.lane_position),
           count(*) FILTER (WHERE d.lane_position > 0)
      INTO v_item_nos, v_ids, v_nos, v_states, v_parked, v_lane_participants, v_lane_rails, v_lane_positions, v_lanes
      FROM decided d;

    IF v_lanes > 0 THEN
        PERFORM symphony.leave_payment_lanes(array_agg(t.id), array_agg(t.participant_id), array_agg(t.rail_type),
                                           array_agg(t.lane_position), array_agg(t.state = 'FAILED'))
           FROM unnest(v_ids, v_lane_participants, v_lane_rails, v_lane_positions, v_states)
                t(id, participant_id, rail_type, lane_position, state)
          WHERE t.lane_position > 0;
    END IF;

    IF cardinality(v_ids) = cardinality(p_outbox_ids) THEN
        RETURN QUERY SELECT t.item_no, t.outbox_id, 'OK', t.attempt_no, t.state, t.parked
                       FROM unnest(v_item_nos, v_ids, v_nos, v_states, v_parked) t(item_no, outbox_id, attempt_no, state, parked)
                      ORDER BY t.item_no;
        RETURN;
    END IF;
    RETURN QUERY
    SELECT t.ordinal::INT, t.id,
           CASE WHEN ok.outbox_id IS NOT NULL THEN 'OK'
                WHEN coalesce(t.outcome NOT IN ('DISPATCHED', 'RETRYABLE', 'FAILED')
                              OR (t.outcome <> 'RETRYABLE' AND t.unknown IS TRUE), true) THEN 'P7003'
                WHEN EXISTS (SELECT FROM symphony.payment_outbox_attempts a
                              WHERE a.outbox_id = t.id AND a.state IN ('DISPATCHED', 'FAILED')) THEN 'P7001'
                ELSE 'P7002' END,
           ok.attempt_no, ok.state, coalesce(ok.parked, false)
      FROM unnest(p_outbox_ids, p_states, p_unknowns) WITH ORDINALITY t(id, outcome, unknown, ordinal)
      LEFT JOIN unnest(v_ids, v_nos, v_states, v_parked) ok(outbox_id, attempt_no, state, parked) ON ok.outbox_id = t.id
     ORDER BY t.ordinal;
END $$;
