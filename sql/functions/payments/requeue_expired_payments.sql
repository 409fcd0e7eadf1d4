-- requeue_expired_payments: end the expired leases of items the caller has locked.
--
-- Moves    leased -> scheduled | leased -> parked
-- Caller   repair_expired_leases and pick_due_payments (takeover); nobody else may
-- Locks    nothing new: the caller holds the rows
-- Refuses  nothing
-- Why      repair and takeover are one code, so both leave the same ledger trace and park alike. A dead
--          worker may have sent: the item must be inquired after, unless the rail marks before sending
--          and this one was not marked (provably unsent) or was (nobody can tell: parked). The third
--          zombie in a row is parked: something about this item kills workers. What was claimed in a life of this
--          database that was partly lost may have been marked there.
CREATE OR REPLACE FUNCTION symphony.requeue_expired_payments(p_outbox_ids UUID[], p_repaired_by TEXT, p_delay INTERVAL)
RETURNS TABLE (outbox_id UUID, attempt_no INT, worker_id TEXT, parked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now TIMESTAMPTZ := clock_timestamp();
    v_decided_at TIMESTAMPTZ := (SELECT i.decided_at FROM symphony.symphony_installation i);
    v_participants TEXT[];
    v_rails TEXT[];
    v_ended BIGINT;
BEGIN
    RETURN QUERY
    WITH expired AS MATERIALIZED (
        SELECT p.*, coalesce(rail.marks_sending, false) AS marks_sending,
               (SELECT count(*)::INT FROM symphony.payment_outbox_attempts a WHERE a.outbox_id = p.outbox_id AND a.spends_attempt) + 1 AS now_spent,
               coalesce(trace.last_no, 0) + 1 AS attempt_no, coalesce(trace.zombies, 0) + 1 AS zombies_in_a_row,
               EXISTS (SELECT FROM symphony.payment_outbox_attempts a
                        WHERE a.outbox_id = p.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')) AS ended
          FROM symphony.payment_outbox_pending p
          LEFT JOIN symphony.payment_outbox_rails rail ON rail.rail_type = p.rail_type
          LEFT JOIN LATERAL (
              SELECT max(a.attempt_no) AS last_no,
                     count(*) FILTER (WHERE a.state = 'ZOMBIE_REQUEUE') AS zombies
                FROM (SELECT t.attempt_no, t.state FROM symphony.payment_outbox_attempts t
                       WHERE t.outbox_id = p.outbox_id ORDER BY t.attempt_no DESC LIMIT 2) a) trace ON true
         WHERE p.outbox_id = ANY (p_outbox_ids)
    ), judged AS MATERIALIZED (
        SELECT e.*,
               (e.zombies_in_a_row >= 3 OR e.sending_marked_at IS NOT NULL OR e.ended) AS parked,
               (e.must_inquire OR NOT e.marks_sending OR e.sending_marked_at IS NOT NULL OR e.claimed_at < v_decided_at) AS now_must_inquire
          FROM expired e
    ), ledger AS (
        INSERT INTO symphony.payment_outbox_attempts
            (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state,
             claimed_at, completed_at, error_code, error_message, worker_id, lease_token, endpoint)
        SELECT j.outbox_id, j.instruction_id, j.participant_id, j.sequence_id, j.idempotency_key, j.rail_type,
               j.attempt_no, 'ZOMBIE_REQUEUE', j.claimed_at, v_now, 'LEASE_EXPIRED',
               'the worker did not report before its lease ended', j.claimed_by, j.lease_token, j.endpoint
          FROM judged j
    ), narrative AS (
        INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, worker_id, reason, details)
        SELECT e.event_type, j.outbox_id, p_repaired_by, e.reason,
               jsonb_build_object('attempt_no', j.attempt_no, 'expired_worker', j.claimed_by,
                                  'expired_token', j.lease_token, 'lease_expired_at', j.lease_expires_at,
                                  'marked_sending_at', j.sending_marked_at)
          FROM judged j CROSS JOIN LATERAL (
              SELECT 'LEASE_EXPIRED_REPAIRED' AS event_type, 'lease expired' AS reason
              UNION ALL
              SELECT 'PARKED', CASE WHEN j.ended THEN 'the ledger has a terminal outcome of this item already'
                                    WHEN j.zombies_in_a_row >= 3 THEN 'three workers in a row were lost on this item'
                                    ELSE 'a worker was lost after it marked the item as sending' END
               WHERE j.parked) e
    ), requeued AS (
        UPDATE symphony.payment_outbox_pending p
           SET claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL, sending_marked_at = NULL,
               must_inquire = j.now_must_inquire,
               endpoint = CASE WHEN j.now_must_inquire THEN p.endpoint END,
               attempt_count = LEAST(20, GREATEST(p.attempt_count, j.now_spent)),
               hasten_from = NULL, only_ask = p.only_ask AND NOT j.parked,
               next_attempt_at = CASE WHEN p_delay IS NULL THEN p.next_attempt_at ELSE v_now + p_delay END,
               hold = CASE WHEN j.parked THEN 'PARKED'::symphony.outbox_hold END
          FROM judged j WHERE p.outbox_id = j.outbox_id
    )
    SELECT j.outbox_id, j.attempt_no, j.claimed_by, j.parked FROM judged j ORDER BY j.outbox_id;
    GET DIAGNOSTICS v_ended = ROW_COUNT;
    PERFORM symphony.note_ended_leases(v_ended, count(*))
       FROM symphony.payment_outbox_pending p WHERE p.outbox_id = ANY (p_outbox_ids) AND p.hold = 'PARKED';

    SELECT array_agg(p.participant_id), array_agg(p.rail_type) INTO v_participants, v_rails
      FROM symphony.payment_outbox_pending p WHERE p.outbox_id = ANY (p_outbox_ids) AND p.lane_position > 0;
    IF v_participants IS NOT NULL THEN
        PERFORM symphony.promote_payment_heads(v_participants, v_rails);
    END IF;
END $$;
