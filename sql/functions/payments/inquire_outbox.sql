-- inquire_outbox: have a rail asked now what became of a payment whose outcome is unknown.
--
-- Moves    scheduled -> due at once | parked -> due at once, to be asked about only
-- Caller   symphony_operator, symphony_approver
-- Locks    the pending row
-- Refuses  P7005 no actor or reason, P7006 in flight, ended, waiting or nothing to ask about, P7007 no such item
-- Why      a worker asks, under a lease, and what it hears enters the ledger like any answer. What was parked is never sent by
--          this: only_ask tells the worker to park it again unless the rail says what became of it. So it claims no
--          knowledge, needs no approval, and is safe whatever the rail answers.
CREATE OR REPLACE FUNCTION symphony.inquire_outbox(p_outbox_id UUID, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (outbox_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN, attempts_before INT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_row symphony.payment_outbox_pending;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, NULL, false);
    v_row := symphony.lock_payment_for_act(p_outbox_id);
    IF NOT v_row.must_inquire THEN
        RAISE EXCEPTION 'item % has no try whose outcome is unknown: there is nothing to ask the rail about', p_outbox_id USING ERRCODE = 'P7006';
    ELSIF EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = v_row.rail_type AND r.marks_sending) THEN
        RAISE EXCEPTION 'rail % of item % can neither deduplicate nor be asked', v_row.rail_type, p_outbox_id USING ERRCODE = 'P7006';
    ELSIF v_row.hold IN ('BEHIND_HEAD', 'PARTICIPANT_PAUSED') THEN
        RAISE EXCEPTION 'item % waits behind another one or for its participant: it is asked about when its turn comes', p_outbox_id
            USING ERRCODE = 'P7006';
    ELSIF v_row.hold = 'PARKED' AND v_row.lane_position > 0 AND EXISTS (
        SELECT FROM symphony.payment_outbox_pending h WHERE h.participant_id = v_row.participant_id AND h.rail_type = v_row.rail_type
           AND h.lane_position > 0 AND h.lane_position < v_row.lane_position) THEN
        RAISE EXCEPTION 'item % stands behind another one of its FIFO lane: settle that one first', p_outbox_id USING ERRCODE = 'P7006';
    END IF;
    IF p_dry_run IS FALSE THEN
        UPDATE symphony.payment_outbox_pending p
           SET hold = NULL, only_ask = p.only_ask OR v_row.hold IS NOT NULL, next_attempt_at = clock_timestamp()
         WHERE p.outbox_id = p_outbox_id;
        INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, actor, reason, details)
        VALUES ('INQUIRY_ASKED', p_outbox_id, p_actor, p_reason, symphony.acting_token());
        PERFORM pg_notify(symphony.outbox_channel('outbox_pending'), 'new_work');
    END IF;
    RETURN QUERY SELECT p_outbox_id, CASE WHEN v_row.hold = 'PARKED' THEN 'PARKED' ELSE 'PENDING' END, 'PENDING', p_dry_run IS NOT FALSE,
        (SELECT coalesce(max(a.attempt_no), 0) FROM symphony.payment_outbox_attempts a WHERE a.outbox_id = p_outbox_id);
END $$;
