-- release_outbox: give a parked item back to the machine.
--
-- Moves    parked -> due at once
-- Caller   symphony_operator, symphony_approver
-- Locks    the pending row
-- Refuses  P7005 no actor or reason, P7006 not parked, P7007 no such item, P7008 approval, P7009 the rail never answered a try
-- Why      what must be inquired after is still inquired after first: releasing claims no knowledge.
--          Whoever knows the outcome uses resolve_outbox.
CREATE OR REPLACE FUNCTION symphony.release_outbox(
    p_outbox_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false,
    p_despite_unknown BOOLEAN DEFAULT false
) RETURNS TABLE (outbox_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN, tries JSONB, needs_despite_unknown BOOLEAN,
                 needs_approver BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_known RECORD;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    PERFORM symphony.require_parked_payment(p_outbox_id);
    v_known := symphony.judge_payment_tries(p_outbox_id, false, p_despite_unknown, p_approver, p_dry_run IS NOT FALSE);
    IF p_dry_run IS FALSE THEN
        UPDATE symphony.payment_outbox_pending p SET hold = NULL, only_ask = false, next_attempt_at = clock_timestamp() WHERE p.outbox_id = p_outbox_id;
        INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, actor, approver, reason, details)
        VALUES ('RELEASED', p_outbox_id, p_actor, p_approver, p_reason,
                jsonb_build_object('despite_unknown', v_known.needs_despite_unknown) || symphony.acting_token());
        PERFORM pg_notify(symphony.outbox_channel('outbox_pending'), 'new_work');
    END IF;
    RETURN QUERY SELECT p_outbox_id, 'PARKED', 'PENDING', p_dry_run IS NOT FALSE, v_known.tries, v_known.needs_despite_unknown, false;
END $$;
