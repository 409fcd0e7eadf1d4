-- close_payment_dead_letter: a person says that a FAILED payment needs nothing more.
--
-- Moves    nothing; the dead letter is not listed any more
-- Caller   symphony_operator, symphony_approver
-- Locks    the payment's instruction
-- Refuses  P7005 no actor or reason, P7006 not FAILED, redriven, closed already, or it blocks its lane, P7007 no such item,
--          P7008 approval
-- Why      a list that is never empty is read by nobody. The item stays FAILED and can still be redriven; the reason is what
--          an auditor reads. What blocks a FIFO lane is first skipped or redriven: closing must not hide that others wait.
CREATE OR REPLACE FUNCTION symphony.close_payment_dead_letter(
    p_outbox_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (item_id UUID, state TEXT, error_code TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_letter RECORD;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    PERFORM symphony.require_payment_item(p_outbox_id);
    PERFORM FROM symphony.payment_outbox_instructions i WHERE i.outbox_id = p_outbox_id FOR UPDATE;
    SELECT d.* INTO v_letter FROM symphony.payment_outbox_dead_letters d WHERE d.outbox_id = p_outbox_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'item % is no open dead letter: it is %', p_outbox_id,
            CASE WHEN symphony.payment_item_state(p_outbox_id) = 'FAILED' THEN 'closed already'
                 ELSE symphony.payment_item_state(p_outbox_id) END USING ERRCODE = 'P7006';
    ELSIF v_letter.blocks_its_lane THEN
        RAISE EXCEPTION 'item % blocks its FIFO lane: redrive it, or skip it, first', p_outbox_id USING ERRCODE = 'P7006';
    END IF;
    IF p_dry_run IS FALSE THEN
        PERFORM symphony.record_outbox_act('payments', 'DEAD_LETTER_CLOSED', p_outbox_id, p_actor, p_approver, p_reason);
    END IF;
    RETURN QUERY SELECT p_outbox_id, 'FAILED', v_letter.error_code, p_dry_run IS NOT FALSE;
END $$;
