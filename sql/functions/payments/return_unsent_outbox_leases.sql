-- return_unsent_outbox_leases: a worker shuts down; give back what it never sent.
--
-- Moves    leased -> due at once
-- Caller   symphony_executor
-- Locks    the pending rows, in outbox_id order
-- Refuses  P7005 invalid argument; a lost lease, or one marked as sending, is answered with returned = false
-- Why      nothing happened, so nothing goes into the ledger and no attempt is counted. What was marked as
--          sending may have left: it cannot be returned as unsent.
CREATE OR REPLACE FUNCTION symphony.return_unsent_outbox_leases(p_worker_id TEXT, p_outbox_ids UUID[], p_lease_tokens UUID[])
RETURNS TABLE (outbox_id UUID, returned BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_returned UUID[];
BEGIN
    SELECT array_agg(l.outbox_id) INTO v_returned
      FROM symphony.lock_held_payments(p_worker_id, p_outbox_ids, p_lease_tokens) l WHERE l.sending_marked_at IS NULL;
    UPDATE symphony.payment_outbox_pending p
       SET claimed_by = NULL, lease_token = NULL, lease_expires_at = NULL, claimed_at = NULL, next_attempt_at = clock_timestamp()
     WHERE p.outbox_id = ANY (v_returned);
    PERFORM symphony.promote_payment_heads(array_agg(p.participant_id), array_agg(p.rail_type))
       FROM symphony.payment_outbox_pending p WHERE p.outbox_id = ANY (v_returned) AND p.lane_position > 0
     HAVING count(*) > 0;
    PERFORM pg_notify(symphony.outbox_channel('outbox_pending'), 'new_work') WHERE v_returned IS NOT NULL;
    RETURN QUERY
    SELECT t.id, t.id = ANY (coalesce(v_returned, '{}'))
      FROM unnest(p_outbox_ids) WITH ORDINALITY t(id, ordinal) ORDER BY t.ordinal;
END $$;
