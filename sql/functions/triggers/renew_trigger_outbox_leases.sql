-- renew_trigger_outbox_leases: a worker is still at it; extend what it still holds.
--
-- Moves    leased -> leased, for longer
-- Caller   symphony_executor
-- Locks    the pending rows, in the order of their ids
-- Refuses  P7005 invalid argument; a lost lease is answered, not raised
-- Why      an expired lease is not revived: between its end and this call another may have looked at it. Durable, because
--          a request that was written without waiting for the disk is renewed before anything of its run leaves the process.
CREATE OR REPLACE FUNCTION symphony.renew_trigger_outbox_leases(p_worker_id TEXT, p_ids UUID[], p_lease_tokens UUID[], p_lease_seconds INT)
RETURNS TABLE (id UUID, renewed BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_held UUID[];
BEGIN
    PERFORM symphony.require_outbox_count('p_lease_seconds', p_lease_seconds, 3600);
    PERFORM symphony.require_durable_commit();
    v_held := ARRAY(SELECT h FROM symphony.lock_held_triggers(p_worker_id, p_ids, p_lease_tokens) h);
    UPDATE symphony.trigger_outbox_pending p
       SET lease_expires_at = GREATEST(p.lease_expires_at, clock_timestamp() + make_interval(secs => p_lease_seconds))
     WHERE p.id = ANY (v_held);
    RETURN QUERY SELECT t.id, t.id = ANY (v_held) FROM unnest(p_ids) WITH ORDINALITY t(id, ordinal) ORDER BY t.ordinal;
END $$;
