-- resolve_outbox: a person has found out what became of a parked item.
--
-- Moves    parked -> DISPATCHED | parked -> FAILED | parked -> due at once (RETRY)
-- Caller   symphony_operator, symphony_approver
-- Locks    the pending row; on a FIFO rail its lane
-- Refuses  P7003 unknown resolution, P7005 no actor, reason or reference, P7006 not parked, P7007 no such item, P7008 approval,
--          P7009 the rail never answered a try (not for DISPATCHED)
-- Why      the outcome enters the ledger under the person's name. DISPATCHED needs the rail's reference:
--          it is the proof. RETRY states that the money has not moved, so the inquiry is dropped too.
CREATE OR REPLACE FUNCTION symphony.resolve_outbox(
    p_outbox_id UUID, p_resolution TEXT, p_actor TEXT, p_reason TEXT, p_rail_reference TEXT DEFAULT NULL,
    p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false, p_despite_unknown BOOLEAN DEFAULT false
) RETURNS TABLE (outbox_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN, tries JSONB, needs_despite_unknown BOOLEAN,
                 needs_approver BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_row   symphony.payment_outbox_pending;
    v_known RECORD;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    IF p_resolution IS NULL OR p_resolution NOT IN ('DISPATCHED', 'FAILED', 'RETRY') THEN
        RAISE EXCEPTION 'p_resolution must be DISPATCHED, FAILED or RETRY' USING ERRCODE = 'P7003';
    END IF;
    IF p_resolution = 'DISPATCHED' THEN
        PERFORM symphony.require_outbox_id('p_rail_reference', p_rail_reference);
    END IF;
    v_row := symphony.require_parked_payment(p_outbox_id);
    -- Whoever has the reference knows the outcome.
    v_known := symphony.judge_payment_tries(p_outbox_id, true, p_despite_unknown, p_approver, p_dry_run IS NOT FALSE OR p_resolution = 'DISPATCHED');
    IF p_dry_run IS FALSE THEN
        IF p_resolution = 'RETRY' THEN
            UPDATE symphony.payment_outbox_pending p
               SET hold = NULL, must_inquire = false, only_ask = false, endpoint = NULL, cleared_at = GREATEST(clock_timestamp(), (SELECT s.decided_at FROM symphony.symphony_installation s)),
                   next_attempt_at = clock_timestamp() WHERE p.outbox_id = p_outbox_id;
            PERFORM pg_notify(symphony.outbox_channel('outbox_pending'), 'new_work');
        ELSE
            INSERT INTO symphony.payment_outbox_attempts
                (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, state,
                 completed_at, rail_reference, error_code, error_message, worker_id)
            SELECT v_row.outbox_id, v_row.instruction_id, v_row.participant_id, v_row.sequence_id, v_row.idempotency_key,
                   v_row.rail_type, coalesce(max(a.attempt_no), 0) + 1, p_resolution::symphony.outbox_attempt_state,
                   clock_timestamp(), p_rail_reference, CASE p_resolution WHEN 'FAILED' THEN 'RESOLVED_FAILED' END,
                   CASE p_resolution WHEN 'FAILED' THEN 'a person found that the money did not move' END, 'operator:' || p_actor
              FROM symphony.payment_outbox_attempts a WHERE a.outbox_id = p_outbox_id;
            DELETE FROM symphony.payment_outbox_pending p WHERE p.outbox_id = p_outbox_id;
            IF v_row.lane_position > 0 THEN
                PERFORM symphony.leave_payment_lanes(ARRAY[p_outbox_id], ARRAY[v_row.participant_id], ARRAY[v_row.rail_type],
                                                   ARRAY[v_row.lane_position], ARRAY[p_resolution = 'FAILED']);
                PERFORM pg_notify(symphony.outbox_channel('outbox_pending'), 'new_work');
            END IF;
        END IF;
        INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, actor, approver, reason, details)
        VALUES ('RESOLVED', p_outbox_id, p_actor, p_approver, p_reason,
                jsonb_build_object('resolution', p_resolution, 'rail_reference', p_rail_reference,
                                   'despite_unknown', p_resolution <> 'DISPATCHED' AND v_known.needs_despite_unknown) || symphony.acting_token());
    END IF;
    RETURN QUERY SELECT p_outbox_id, 'PARKED', CASE p_resolution WHEN 'RETRY' THEN 'PENDING' ELSE p_resolution END, p_dry_run IS NOT FALSE, v_known.tries,
        p_resolution <> 'DISPATCHED' AND v_known.needs_despite_unknown, p_resolution <> 'DISPATCHED' AND v_known.needs_approver;
END $$;
