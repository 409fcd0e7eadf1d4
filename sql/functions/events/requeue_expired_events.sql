-- requeue_expired_events: end the expired leases of buckets the caller has locked.
--
-- Moves    bucket: leased -> free, its unanswered events due at once
-- Caller   repair_event_outbox_leases and claim_event_outbox_batch (takeover); nobody else may
-- Locks    nothing new: the caller holds the cursors
-- Refuses  nothing
-- Why      repair and takeover are one code, so both leave the same trace: one ledger row per event that nobody
--          answered, one line of narrative per lease.
CREATE OR REPLACE FUNCTION symphony.requeue_expired_events(p_buckets SMALLINT[], p_repaired_by TEXT)
RETURNS TABLE (bucket SMALLINT, event_id UUID, attempt_no INT, worker_id TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now TIMESTAMPTZ := clock_timestamp();
    v_ended BIGINT;
BEGIN
    IF coalesce(cardinality(p_buckets), 0) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH lost AS MATERIALIZED (
        SELECT c.bucket, c.claimed_by, c.lease_token, c.claimed_at, c.lease_expires_at, h.log_position, h.event_key, h.redrive_no,
               h.last_attempt_no + 1 AS attempt_no, l.event_id
          FROM symphony.handed_out_events(p_buckets) h
         CROSS JOIN LATERAL (SELECT x.* FROM symphony.event_outbox_cursors x WHERE x.bucket = h.bucket LIMIT 1) c
         CROSS JOIN LATERAL (SELECT x.event_id FROM symphony.event_outbox_log x WHERE x.bucket = h.bucket AND x.position = h.log_position LIMIT 1) l
    ), ledger AS (
        INSERT INTO symphony.event_outbox_attempts
            (bucket, position, redrive_no, outcome_no, attempt_no, state, event_id, event_key, claimed_at, completed_at, error_code,
             error_message, worker_id, lease_token)
        SELECT l.bucket, l.log_position, l.redrive_no, l.attempt_no, l.attempt_no, 'ZOMBIE_REQUEUE', l.event_id, l.event_key, l.claimed_at,
               v_now, 'LEASE_EXPIRED', 'the worker did not report before its lease ended', l.claimed_by, l.lease_token
          FROM lost l
    ), narrative AS (
        INSERT INTO symphony.event_outbox_events (event_type, worker_id, reason, details)
        SELECT 'LEASE_EXPIRED_REPAIRED', p_repaired_by, 'lease expired',
               jsonb_build_object('bucket', l.bucket, 'expired_worker', l.claimed_by, 'expired_token', l.lease_token,
                                  'lease_expired_at', l.lease_expires_at, 'events', count(*))
          FROM lost l GROUP BY l.bucket, l.claimed_by, l.lease_token, l.lease_expires_at
    )
    SELECT l.bucket, l.event_id, l.attempt_no, l.claimed_by FROM lost l ORDER BY l.log_position;
    GET DIAGNOSTICS v_ended = ROW_COUNT;
    PERFORM symphony.note_ended_leases(v_ended, 0);
    PERFORM symphony.free_event_buckets(p_buckets);
END $$;
