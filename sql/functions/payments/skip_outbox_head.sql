-- skip_outbox_head: let a FIFO lane go on past its head.
--
-- Moves    lane: blocked -> running | head: scheduled, due or parked -> parked, outside the lane
-- Caller   symphony_operator, symphony_approver
-- Locks    the lane's block, or the head's pending row, and the next head
-- Refuses  P7005 no actor or reason, P7006 nothing to skip, or the head is in flight, P7008 approval
-- Why      a skipped item is not FAILED: nobody has said that its money did not move. It is parked and has
--          left the lane for good; what becomes of it later happens outside the order, as recorded here.
CREATE OR REPLACE FUNCTION symphony.skip_outbox_head(
    p_participant_id TEXT, p_rail_type TEXT, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL,
    p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (outbox_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_skipped UUID;
    v_head    symphony.payment_outbox_pending;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    PERFORM symphony.require_outbox_id('p_participant_id', p_participant_id);
    PERFORM symphony.require_outbox_id('p_rail_type', p_rail_type);
    SELECT b.outbox_id INTO v_skipped FROM symphony.payment_outbox_blocked_lanes b
     WHERE b.participant_id = p_participant_id AND b.rail_type = p_rail_type
       AND NOT EXISTS (SELECT FROM symphony.payment_outbox_pending h
                        WHERE h.participant_id = p_participant_id AND h.rail_type = p_rail_type
                          AND h.lane_position > 0 AND h.lane_position < b.lane_position)
     ORDER BY b.lane_position LIMIT 1 FOR UPDATE;
    IF FOUND THEN
        state_before := 'FAILED';
        state_after := 'FAILED';
        IF p_dry_run IS FALSE THEN
            DELETE FROM symphony.payment_outbox_blocked_lanes b
             WHERE b.participant_id = p_participant_id AND b.rail_type = p_rail_type AND b.outbox_id = v_skipped;
        END IF;
    ELSE
        SELECT h.outbox_id INTO v_skipped FROM symphony.payment_outbox_pending h
         WHERE h.participant_id = p_participant_id AND h.rail_type = p_rail_type AND h.lane_position > 0
         ORDER BY h.lane_position LIMIT 1;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'participant and rail have no FIFO lane with an item in it: nothing to skip' USING ERRCODE = 'P7006';
        END IF;
        v_head := symphony.lock_payment_for_act(v_skipped);
        IF v_skipped IS DISTINCT FROM (SELECT h.outbox_id FROM symphony.payment_outbox_pending h
                                        WHERE h.participant_id = p_participant_id AND h.rail_type = p_rail_type
                                          AND h.lane_position > 0 ORDER BY h.lane_position LIMIT 1) THEN
            RAISE EXCEPTION 'the head of the lane has just changed: look again' USING ERRCODE = 'P7006';
        END IF;
        state_before := CASE v_head.hold WHEN 'PARKED' THEN 'PARKED' ELSE 'PENDING' END;
        state_after := 'PARKED';
        IF p_dry_run IS FALSE THEN
            UPDATE symphony.payment_outbox_pending p SET hold = 'PARKED', lane_position = 0 WHERE p.outbox_id = v_skipped;
        END IF;
    END IF;
    IF p_dry_run IS FALSE THEN
        PERFORM symphony.promote_payment_heads(ARRAY[p_participant_id], ARRAY[p_rail_type]);
        INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, actor, approver, reason, details)
        VALUES ('SKIPPED', v_skipped, p_actor, p_approver, p_reason,
                jsonb_build_object('participant_id', p_participant_id, 'rail_type', p_rail_type) || symphony.acting_token());
        PERFORM pg_notify(symphony.outbox_channel('outbox_pending'), 'new_work');
    END IF;
    outbox_id := v_skipped;
    dry_run := p_dry_run IS NOT FALSE;
    RETURN NEXT;
END $$;
