-- repair_event_outbox_leases: workers were lost; make what they held claimable again.
--
-- Moves    bucket: leased -> free, its unanswered events due at once
-- Caller   symphony_executor
-- Locks    the cursors, skipping those others hold
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED
-- Why      a lost worker's events may have been published: each gets a row in the ledger that says so, and is
--          published again under the same event id.
CREATE OR REPLACE FUNCTION symphony.repair_event_outbox_leases(p_batch_size INT, p_worker_id TEXT)
RETURNS TABLE (bucket SMALLINT, event_id UUID, attempt_no INT, worker_id TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    RETURN QUERY SELECT r.* FROM symphony.requeue_expired_events(ARRAY(
        SELECT c.bucket FROM symphony.event_outbox_cursors c WHERE c.lease_expires_at <= clock_timestamp()
         ORDER BY c.bucket LIMIT LEAST(p_batch_size, 256) FOR UPDATE SKIP LOCKED), p_worker_id) r;
END $$;
