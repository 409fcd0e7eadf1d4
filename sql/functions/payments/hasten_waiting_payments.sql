-- hasten_waiting_payments: the rail is well again, or one item shall find out: what waits only for it is due now.
--
-- Moves    scheduled -> due, no earlier than the rail asked for
-- Caller   symphony_executor
-- Locks    the pending rows, skipping those others hold
-- Refuses  P7005 invalid argument
-- Why      after an hour's trouble an item's next try may be five minutes away. Only pauses that say nothing of the item are cut
--          short. Whether it is asked about or sent is decided as ever, by must_inquire and the ledger's times: neither
--          is touched here. Those that may go first come first; so one asked for is one that can be tried.
CREATE OR REPLACE FUNCTION symphony.hasten_waiting_payments(p_rail_type TEXT, p_batch_size INT) RETURNS INT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_now   TIMESTAMPTZ := clock_timestamp();
    v_moved INT;
BEGIN
    PERFORM symphony.require_outbox_id('p_rail_type', p_rail_type);
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony.require_read_committed();
    WITH waiting AS MATERIALIZED (
        SELECT p.outbox_id FROM symphony.payment_outbox_pending p
         WHERE p.hold IS NULL AND p.rail_type = p_rail_type AND p.next_attempt_at > v_now AND p.lease_token IS NULL
           AND p.hasten_from < p.next_attempt_at
         ORDER BY GREATEST(p.hasten_from, v_now), p.next_attempt_at, p.outbox_id LIMIT p_batch_size
           FOR UPDATE SKIP LOCKED
    )
    UPDATE symphony.payment_outbox_pending p SET next_attempt_at = GREATEST(p.hasten_from, v_now), hasten_from = NULL
      FROM waiting w WHERE p.outbox_id = w.outbox_id;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END $$;
