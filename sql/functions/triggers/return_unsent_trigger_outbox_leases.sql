-- return_unsent_trigger_outbox_leases: a worker shuts down; give back what it never started.
--
-- Moves    leased -> due at once
-- Caller   symphony_executor
-- Locks    the pending rows, in the order of their ids
-- Refuses  P7005 invalid argument; a lost lease is answered with returned = false
-- Why      nothing happened, so nothing goes into the ledger and no attempt is counted.
CREATE OR REPLACE FUNCTION symphony.return_unsent_trigger_outbox_leases(p_worker_id TEXT, p_ids UUID[], p_lease_tokens UUID[])
RETURNS TABLE (id UUID, returned BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_held UUID[] := ARRAY(SELECT h FROM symphony.lock_held_triggers(p_worker_id, p_ids, p_lease_tokens) h);
BEGIN
    UPDATE symphony.trigger_outbox_pending p
       SET claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL, next_attempt_at = clock_timestamp()
     WHERE p.id = ANY (v_held);
    PERFORM pg_notify(symphony.outbox_channel('trigger_outbox_pending'), 'new_work') WHERE cardinality(v_held) > 0;
    RETURN QUERY SELECT t.id, t.id = ANY (v_held) FROM unnest(p_ids) WITH ORDINALITY t(id, ordinal) ORDER BY t.ordinal;
END $$;
