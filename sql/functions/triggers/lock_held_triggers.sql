-- lock_held_triggers: lock those of the given items that this worker still holds.
--
-- Moves    nothing
-- Caller   renew_trigger_outbox_leases, return_unsent_trigger_outbox_leases
-- Locks    the pending rows, in the order of their ids
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED
-- Why      an expired lease is not held any more, even if nobody has taken it yet.
CREATE OR REPLACE FUNCTION symphony_internal.lock_held_triggers(p_worker_id TEXT, p_ids UUID[], p_lease_tokens UUID[])
RETURNS SETOF UUID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM symphony_internal.require_outbox_count('p_ids', coalesce(cardinality(p_ids), 0), 4096);
    PERFORM symphony_internal.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony_internal.require_read_committed();
    PERFORM symphony_internal.require_same_length(cardinality(p_ids), ARRAY['p_lease_tokens'], ARRAY[cardinality(p_lease_tokens)]);
    RETURN QUERY
    SELECT p.id FROM public.trigger_outbox_pending p
     WHERE p.id = ANY (p_ids) AND p.claimed_by = p_worker_id AND p.lease_token = ANY (p_lease_tokens) AND p.lease_expires_at > clock_timestamp()
       AND EXISTS (SELECT FROM unnest(p_ids, p_lease_tokens) t(id, token) WHERE t.id = p.id AND t.token = p.lease_token)
     ORDER BY p.id FOR UPDATE OF p;
END $$;
