-- lock_payment_for_act: the pending row of an item that nobody is working on, locked.
--
-- Moves    nothing
-- Caller   the acts on pending items
-- Locks    the pending row
-- Refuses  P7006 the item is in flight or ended, P7007 no such item
-- Why      an act on an item in flight would race its worker. A lease that has expired but is not repaired
--          yet counts as in flight: its trace belongs into the ledger first.
CREATE OR REPLACE FUNCTION symphony.lock_payment_for_act(p_outbox_id UUID) RETURNS symphony.payment_outbox_pending
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_row symphony.payment_outbox_pending;
BEGIN
    PERFORM symphony.require_payment_item(p_outbox_id);
    SELECT p.* INTO v_row FROM symphony.payment_outbox_pending p WHERE p.outbox_id = p_outbox_id FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'item % has ended (%): there is nothing pending to act on', p_outbox_id, symphony.payment_item_state(p_outbox_id)
            USING ERRCODE = 'P7006';
    ELSIF v_row.lease_token IS NOT NULL THEN
        RAISE EXCEPTION 'item % is in flight: wait for its outcome, or for the repair of its lease', p_outbox_id
            USING ERRCODE = 'P7006';
    END IF;
    RETURN v_row;
END $$;
