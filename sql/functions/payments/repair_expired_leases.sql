-- repair_expired_leases: workers were lost; make what they held claimable again.
--
-- Moves    leased -> scheduled in one second | leased -> parked
-- Caller   symphony_executor
-- Locks    the pending rows, skipping those others hold
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED
-- Why      every leased row is due at or before the furthest point any worker has claimed to on its rail,
--          and claims go in due order: so the look stops there and does not walk the backlog, and no index
--          over the lease columns has to be paid for by every claim.
CREATE OR REPLACE FUNCTION symphony.repair_expired_leases(p_batch_size INT, p_worker_id TEXT)
RETURNS TABLE (outbox_id UUID, attempt_no INT, worker_id TEXT, parked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now     TIMESTAMPTZ := clock_timestamp();
    v_ids     UUID[];
BEGIN
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    WITH expired AS MATERIALIZED (
        SELECT p.outbox_id
          -- Where nobody has ever claimed, nobody holds anything: rails that nobody serves cost nothing here.
          FROM (SELECT w.rail_type FROM symphony.payment_outbox_workers w UNION SELECT t.rail_type FROM symphony.payment_outbox_rails t) r
         CROSS JOIN LATERAL (
             -- Where no claim is on record (a restored database), the first thousand are looked at.
             SELECT coalesce(
                 (SELECT max(w.claimed_through) FROM symphony.payment_outbox_workers w WHERE w.rail_type = r.rail_type),
                 (SELECT x.next_attempt_at FROM symphony.payment_outbox_pending x WHERE x.hold IS NULL AND x.rail_type = r.rail_type
                   ORDER BY x.next_attempt_at, x.created_at, x.outbox_id OFFSET 1000 LIMIT 1),
                 'infinity') AS through) furthest
         CROSS JOIN LATERAL (
             SELECT q.outbox_id FROM symphony.payment_outbox_pending q
              WHERE q.hold IS NULL AND q.rail_type = r.rail_type AND q.next_attempt_at <= furthest.through
                AND q.lease_expires_at <= v_now
              LIMIT p_batch_size FOR UPDATE SKIP LOCKED) p
         LIMIT p_batch_size
    )
    SELECT array_agg(e.outbox_id) INTO v_ids FROM expired e;
    IF v_ids IS NOT NULL THEN
        RETURN QUERY SELECT * FROM symphony.requeue_expired_payments(v_ids, p_worker_id, INTERVAL '1 second');
    END IF;
    -- A lease lasts an hour at most between renewals; a worker silent for a day holds none.
    DELETE FROM symphony.payment_outbox_workers w
     WHERE w.last_claim_at < v_now - INTERVAL '1 day'
       AND w.claimed_through < (SELECT max(f.claimed_through) FROM symphony.payment_outbox_workers f WHERE f.rail_type = w.rail_type);
END $$;
