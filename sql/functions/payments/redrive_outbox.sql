-- redrive_outbox: try a FAILED payment again, as a new instruction that names the old one.
--
-- Moves    nothing -> pending, beside the FAILED item, which stays as it is
-- Caller   symphony_operator, symphony_approver
-- Locks    the participant's row; on a FIFO rail the lane's block, or its present head
-- Refuses  P7005 no actor or reason, P7006 not FAILED, or redriven already, P7007 no such item, P7008 approval,
--          P7009 the rail never answered a try
-- Why      a new outbox_id is a new key to the rail: the old key would be answered with the old refusal. In
--          a FIFO lane the new item takes the place of the first of its line. If the lane has moved on and
--          one of it is in flight, the next claim sets the new item aside until that one ends, so that never
--          two of a lane are in flight.
CREATE OR REPLACE FUNCTION symphony.redrive_outbox(
    p_outbox_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false,
    p_despite_unknown BOOLEAN DEFAULT false
) RETURNS TABLE (outbox_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN, redriven_as UUID, sequence_id BIGINT, tries JSONB,
                 needs_despite_unknown BOOLEAN, needs_approver BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_old      symphony.payment_outbox_instructions;
    v_head     symphony.payment_outbox_pending;
    v_place    BIGINT;
    v_new_id   UUID;
    v_sequence BIGINT;
    v_constraint TEXT;
    v_known    RECORD;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    PERFORM symphony.require_payment_item(p_outbox_id);
    SELECT i.* INTO STRICT v_old FROM symphony.payment_outbox_instructions i WHERE i.outbox_id = p_outbox_id;
    IF symphony.payment_item_state(p_outbox_id) <> 'FAILED' THEN
        RAISE EXCEPTION 'item % is %: only a FAILED item can be redriven, and only once', p_outbox_id, symphony.payment_item_state(p_outbox_id)
            USING ERRCODE = 'P7006';
    END IF;
    v_known := symphony.judge_payment_tries(p_outbox_id, true, p_despite_unknown, p_approver, p_dry_run IS NOT FALSE);
    IF p_dry_run IS NOT FALSE THEN
        RETURN QUERY SELECT p_outbox_id, 'FAILED', 'REDRIVEN', true, NULL::UUID, NULL::BIGINT, v_known.tries, v_known.needs_despite_unknown,
            v_known.needs_approver;
        RETURN;
    END IF;

    v_sequence := symphony.bump_participant_outbox_seq(v_old.participant_id);
    -- From here on the rail's order cannot change.
    LOCK TABLE symphony.payment_outbox_pending IN ROW EXCLUSIVE MODE;
    IF EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = v_old.rail_type AND r.fifo) THEN
        DELETE FROM symphony.payment_outbox_blocked_lanes b
         WHERE b.participant_id = v_old.participant_id AND b.rail_type = v_old.rail_type AND b.outbox_id = p_outbox_id
        RETURNING b.lane_position INTO v_place;
        IF v_place IS NULL THEN
            -- The lane has moved on. The present head is locked before it is judged, so that no claim is
            -- leasing it meanwhile; if it ended while we waited, look for its successor.
            WITH RECURSIVE origin AS (
                SELECT v_old.sequence_id AS sequence_id, v_old.redrive_of AS redrive_of
                UNION ALL
                SELECT i.sequence_id, i.redrive_of FROM origin o JOIN symphony.payment_outbox_instructions i ON i.outbox_id = o.redrive_of
            ) SELECT o.sequence_id INTO v_place FROM origin o WHERE o.redrive_of IS NULL;
            LOOP
                SELECT p.* INTO v_head FROM symphony.payment_outbox_pending p
                 WHERE p.outbox_id = (SELECT h.outbox_id FROM symphony.payment_outbox_pending h
                                       WHERE h.participant_id = v_old.participant_id AND h.rail_type = v_old.rail_type
                                         AND h.lane_position > 0 ORDER BY h.lane_position LIMIT 1)
                   FOR UPDATE;
                EXIT WHEN FOUND AND v_head.outbox_id = (
                    SELECT h.outbox_id FROM symphony.payment_outbox_pending h
                     WHERE h.participant_id = v_old.participant_id AND h.rail_type = v_old.rail_type
                       AND h.lane_position > 0 ORDER BY h.lane_position LIMIT 1);
                EXIT WHEN NOT EXISTS (SELECT FROM symphony.payment_outbox_pending h
                                       WHERE h.participant_id = v_old.participant_id AND h.rail_type = v_old.rail_type
                                         AND h.lane_position > 0);
            END LOOP;
        END IF;
    END IF;

    BEGIN
        INSERT INTO symphony.payment_outbox_instructions AS i
            (instruction_id, idempotency_key, participant_id, sequence_id, rail_type, payload, request_hash, redrive_of,
             redrive_no, traceparent)
        VALUES (v_old.instruction_id, v_old.idempotency_key, v_old.participant_id, v_sequence, v_old.rail_type, v_old.payload,
                v_old.request_hash, p_outbox_id, v_old.redrive_no + 1, v_old.traceparent)
        RETURNING i.outbox_id INTO v_new_id;
    EXCEPTION WHEN unique_violation THEN
        GET STACKED DIAGNOSTICS v_constraint = CONSTRAINT_NAME;
        IF v_constraint NOT IN ('payment_outbox_instructions_redriven_once', 'payment_outbox_instructions_are_idempotent') THEN
            RAISE;
        END IF;
        RAISE EXCEPTION 'item % has just been redriven by somebody else', p_outbox_id USING ERRCODE = 'P7006';
    END;
    INSERT INTO symphony.payment_outbox_pending
        (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, lane_position)
    VALUES (v_new_id, v_old.instruction_id, v_old.participant_id, v_sequence, v_old.idempotency_key, v_old.rail_type, v_place);
    IF v_place IS NOT NULL THEN
        PERFORM symphony.promote_payment_heads(ARRAY[v_old.participant_id], ARRAY[v_old.rail_type]);
    END IF;
    INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, actor, approver, reason, details)
    VALUES ('REDRIVEN', p_outbox_id, p_actor, p_approver, p_reason, jsonb_build_object('redriven_as', v_new_id, 'despite_unknown', v_known.needs_despite_unknown) || symphony.acting_token());
    RETURN QUERY SELECT p_outbox_id, 'FAILED', 'REDRIVEN', false, v_new_id, v_sequence, v_known.tries, v_known.needs_despite_unknown,
        v_known.needs_approver;
END $$;
