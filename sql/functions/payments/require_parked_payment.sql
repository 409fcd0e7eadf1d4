-- require_parked_payment: the pending row of a parked item, locked.
--
-- Moves    nothing
-- Caller   release_outbox, resolve_outbox
-- Locks    the pending row
-- Refuses  P7006 not parked, in flight or ended, P7007 no such item
-- Why      only what the machine has let go may be settled by hand.
CREATE OR REPLACE FUNCTION symphony.require_parked_payment(p_outbox_id UUID) RETURNS symphony.payment_outbox_pending
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_row symphony.payment_outbox_pending := symphony.lock_payment_for_act(p_outbox_id);
BEGIN
    IF v_row.hold IS DISTINCT FROM 'PARKED' THEN
        RAISE EXCEPTION 'item % is not parked: the machine still has it', p_outbox_id
            USING ERRCODE = 'P7006', HINT = 'Park it first.';
    END IF;
    RETURN v_row;
END $$;
