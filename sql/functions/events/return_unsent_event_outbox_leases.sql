-- return_unsent_event_outbox_leases: a worker shuts down; give back what of its leases was not answered.
--
-- Moves    bucket: leased -> free, its unanswered events due at once
-- Caller   symphony_executor
-- Locks    the cursors, in bucket order
-- Refuses  P7005 invalid argument; a lost lease is answered with returned = false
-- Why      nothing was sent, so nothing goes into the ledger and no attempt is counted.
CREATE OR REPLACE FUNCTION symphony.return_unsent_event_outbox_leases(p_worker_id TEXT, p_buckets SMALLINT[], p_lease_tokens UUID[])
RETURNS TABLE (bucket SMALLINT, returned BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_held SMALLINT[] := symphony.lock_held_buckets(p_worker_id, p_buckets, p_lease_tokens);
BEGIN
    PERFORM symphony.free_event_buckets(v_held);
    PERFORM pg_notify(symphony.outbox_channel('event_outbox_pending'), 'new_work') WHERE cardinality(v_held) > 0;
    RETURN QUERY
    SELECT t.bucket, t.bucket = ANY (v_held) FROM unnest(p_buckets) WITH ORDINALITY t(bucket, ordinal) ORDER BY t.ordinal;
END $$;
