-- lock_held_buckets: lock those of the given buckets that this worker still holds.
--
-- Moves    nothing
-- Caller   renew and return functions; nobody else may
-- Locks    the cursors, in bucket order
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED
-- Why      the token is compared under the lock: a paused worker can wake after its lease has passed to another.
CREATE OR REPLACE FUNCTION symphony.lock_held_buckets(p_worker_id TEXT, p_buckets SMALLINT[], p_lease_tokens UUID[])
RETURNS SMALLINT[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    PERFORM symphony.require_outbox_count('p_buckets', coalesce(cardinality(p_buckets), 0), 256);
    PERFORM symphony.require_same_length(cardinality(p_buckets), ARRAY['p_lease_tokens'], ARRAY[cardinality(p_lease_tokens)]);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    RETURN ARRAY(
        SELECT c.bucket FROM symphony.event_outbox_cursors c
         WHERE c.bucket = ANY (p_buckets) AND c.claimed_by = p_worker_id AND c.lease_expires_at > clock_timestamp()
           AND EXISTS (SELECT FROM unnest(p_buckets, p_lease_tokens) t(bucket, token) WHERE t.bucket = c.bucket AND t.token = c.lease_token)
         ORDER BY c.bucket FOR UPDATE);
END $$;
