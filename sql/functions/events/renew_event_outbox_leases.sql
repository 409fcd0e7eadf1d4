-- renew_event_outbox_leases: a worker is still at it; extend the buckets it still holds.
--
-- Moves    leased -> leased, for longer
-- Caller   symphony_executor
-- Locks    the cursors, in bucket order
-- Refuses  P7005 invalid argument; a lost lease is answered, not raised
-- Why      an expired lease is not revived: between its end and this call another may have looked at it.
CREATE OR REPLACE FUNCTION symphony.renew_event_outbox_leases(
    p_worker_id TEXT, p_buckets SMALLINT[], p_lease_tokens UUID[], p_lease_seconds INT
) RETURNS TABLE (bucket SMALLINT, renewed BOOLEAN, lease_expires_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_held SMALLINT[];
BEGIN
    PERFORM symphony.require_outbox_count('p_lease_seconds', p_lease_seconds, 3600);
    v_held := symphony.lock_held_buckets(p_worker_id, p_buckets, p_lease_tokens);
    -- GREATEST: a renewal never shortens what was promised.
    UPDATE symphony.event_outbox_cursors c
       SET lease_expires_at = GREATEST(c.lease_expires_at, clock_timestamp() + make_interval(secs => p_lease_seconds))
     WHERE c.bucket = ANY (v_held);
    RETURN QUERY
    SELECT t.bucket, c.bucket IS NOT NULL, c.lease_expires_at
      FROM unnest(p_buckets, p_lease_tokens) WITH ORDINALITY t(bucket, token, ordinal)
      LEFT JOIN symphony.event_outbox_cursors c ON c.bucket = t.bucket AND c.bucket = ANY (v_held) AND c.lease_token = t.token
     ORDER BY t.ordinal;
END $$;
