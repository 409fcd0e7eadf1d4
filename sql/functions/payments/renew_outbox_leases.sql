-- renew_outbox_leases: a worker is still at it; extend what it still holds.
--
-- Moves    leased -> leased, for longer
-- Caller   symphony_executor
-- Locks    the pending rows, in outbox_id order
-- Refuses  P7005 invalid argument; a lost lease is answered, not raised
-- Why      an expired lease is not revived: between its end and this call another may have looked at it.
CREATE OR REPLACE FUNCTION symphony.renew_outbox_leases(
    p_worker_id TEXT, p_outbox_ids UUID[], p_lease_tokens UUID[], p_lease_seconds INT
) RETURNS TABLE (outbox_id UUID, renewed BOOLEAN, lease_expires_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_count('p_lease_seconds', p_lease_seconds, 3600);
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT l.outbox_id FROM symphony.lock_held_payments(p_worker_id, p_outbox_ids, p_lease_tokens) l
    ), renewed AS (
        -- GREATEST: a renewal never shortens what was promised.
        UPDATE symphony.payment_outbox_pending p
           SET lease_expires_at = GREATEST(p.lease_expires_at, clock_timestamp() + make_interval(secs => p_lease_seconds))
         WHERE p.outbox_id = ANY (ARRAY(SELECT h.outbox_id FROM held h))
        RETURNING p.outbox_id, p.lease_expires_at
    )
    SELECT t.id, r.outbox_id IS NOT NULL, r.lease_expires_at
      FROM unnest(p_outbox_ids) WITH ORDINALITY t(id, ordinal) LEFT JOIN renewed r ON r.outbox_id = t.id
     ORDER BY t.ordinal;
END $$;
