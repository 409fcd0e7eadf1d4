-- mark_outbox_sending: these items are about to leave; commit this before the first byte does.
--
-- Moves    leased -> leased and marked as sending
-- Caller   symphony_executor
-- Locks    the pending rows, in outbox_id order
-- Refuses  P7005 invalid argument, P7020 another server than on record; a lost lease is answered with marked = false, and then do not send
-- Why      for rails that can neither deduplicate nor be asked: after a crash, what was not marked is
--          provably unsent and simply requeued; what was marked is parked for a person.
CREATE OR REPLACE FUNCTION symphony.mark_outbox_sending(p_worker_id TEXT, p_outbox_ids UUID[], p_lease_tokens UUID[])
RETURNS TABLE (outbox_id UUID, marked BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_known_server();
    RETURN QUERY
    WITH held AS MATERIALIZED (
        SELECT l.outbox_id FROM symphony.lock_held_payments(p_worker_id, p_outbox_ids, p_lease_tokens) l
    ), marked AS (
        UPDATE symphony.payment_outbox_pending p SET sending_marked_at = coalesce(p.sending_marked_at, clock_timestamp())
         WHERE p.outbox_id = ANY (ARRAY(SELECT h.outbox_id FROM held h))
        RETURNING p.outbox_id
    )
    SELECT t.id, m.outbox_id IS NOT NULL
      FROM unnest(p_outbox_ids) WITH ORDINALITY t(id, ordinal) LEFT JOIN marked m ON m.outbox_id = t.id
     ORDER BY t.ordinal;
END $$;
