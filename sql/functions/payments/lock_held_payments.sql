-- lock_held_payments: of these items, those the worker holds under a live lease, locked.
--
-- Moves    nothing
-- Caller   renew, return and mark functions; nobody else may
-- Locks    the pending rows, in outbox_id order
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED
-- Why      the rule "owner, token and expiry, under the lock" is the same for all of them.
CREATE OR REPLACE FUNCTION symphony.lock_held_payments(p_worker_id TEXT, p_outbox_ids UUID[], p_lease_tokens UUID[])
RETURNS TABLE (outbox_id UUID, sending_marked_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_outbox_count('p_outbox_ids', coalesce(cardinality(p_outbox_ids), 0), 4096);
    PERFORM symphony.require_same_length(cardinality(p_outbox_ids), ARRAY['p_lease_tokens'], ARRAY[cardinality(p_lease_tokens)]);
    PERFORM symphony.require_read_committed();
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT t.id, t.token FROM unnest(p_outbox_ids, p_lease_tokens) t(id, token) ORDER BY t.id
    ), locked AS MATERIALIZED (
        SELECT p.* FROM asked a
         CROSS JOIN LATERAL (
             SELECT q.outbox_id, q.sending_marked_at, q.lease_expires_at FROM symphony.payment_outbox_pending q
              WHERE q.outbox_id = a.id AND q.claimed_by = p_worker_id AND q.lease_token = a.token
              LIMIT 1 FOR UPDATE) p
    )
    SELECT l.outbox_id, l.sending_marked_at FROM locked l WHERE l.lease_expires_at > clock_timestamp();
END $$;
