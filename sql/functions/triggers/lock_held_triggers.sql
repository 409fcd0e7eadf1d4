-- lock_held_triggers: lock those of the given items that this worker still holds.
--
-- Moves    nothing
-- Caller   renew_trigger_outbox_leases, return_unsent_trigger_outbox_leases
-- Locks    the pending rows, in the order of their ids
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED
-- Why      an expired lease is not held any more, even if nobody has taken it yet.
CREATE OR REPLACE FUNCTION symphony.lock_held_triggers(p_worker_id TEXT, p_ids UUID[], p_lease_tokens UUID[])
RETURNS SETOF UUID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    PERFORM symphony.require_outbox_count('p_ids', coalesce(cardinality(p_ids), 0), 4096);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_same_length(cardinality(p_ids), ARRAY['p_lease_tokens'], ARRAY[cardinality(p_lease_tokens)]);
    RETURN QUERY
    WITH locked AS MATERIALIZED (
        SELECT p.id, p.claimed_by, p.lease_token, p.lease_expires_at FROM symphony.trigger_outbox_pending p
         WHERE p.id = ANY (p_ids) ORDER BY p.id FOR UPDATE
    )
    SELECT l.id FROM locked l
     WHERE l.claimed_by = p_worker_id AND l.lease_expires_at > clock_timestamp()
       AND EXISTS (SELECT FROM unnest(p_ids, p_lease_tokens) t(id, token) WHERE t.id = l.id AND t.token = l.lease_token);
END $$;
