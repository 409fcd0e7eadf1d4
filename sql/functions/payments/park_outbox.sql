-- park_outbox: take a pending item out of the machine's hands.
--
-- Moves    scheduled or due -> parked
-- Caller   symphony_operator, symphony_approver
-- Locks    the pending row
-- Refuses  P7005 no actor or reason, P7006 in flight, ended or parked already, P7007 no such item
-- Why      a parked head still stands in its FIFO lane: parking stops, it does not reorder.
CREATE OR REPLACE FUNCTION symphony.park_outbox(
    p_outbox_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (outbox_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_row symphony.payment_outbox_pending;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, p_approver, false);
    v_row := symphony.lock_payment_for_act(p_outbox_id);
    IF v_row.hold = 'PARKED' THEN
        RAISE EXCEPTION 'item % is parked already', p_outbox_id USING ERRCODE = 'P7006';
    END IF;
    IF p_dry_run IS FALSE THEN
        UPDATE symphony.payment_outbox_pending p SET hold = 'PARKED' WHERE p.outbox_id = p_outbox_id;
        INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, actor, approver, reason, details)
        VALUES ('PARKED', p_outbox_id, p_actor, p_approver, p_reason, symphony.acting_token());
    END IF;
    RETURN QUERY SELECT p_outbox_id, 'PENDING', 'PARKED', p_dry_run IS NOT FALSE;
END $$;
