-- close_event_dead_letter: a person says that a FAILED event needs nothing more.
--
-- Moves    nothing; the dead letter is not listed any more
-- Caller   symphony_operator, symphony_approver
-- Locks    the bucket's cursor
-- Refuses  P7005 no actor or reason, P7006 not FAILED, closed already, or it blocks its key, P7007 no such event, P7008 approval
-- Why      as close_payment_dead_letter. One that is redriven and fails again is a new dead letter.
CREATE OR REPLACE FUNCTION symphony.close_event_dead_letter(
    p_event_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (item_id UUID, state TEXT, error_code TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_event  symphony.event_outbox_log := symphony.lock_event_for_act(p_event_id, p_actor, p_reason, p_approver, p_dry_run);
    v_letter RECORD;
BEGIN
    SELECT d.* INTO v_letter FROM symphony.event_outbox_dead_letters d WHERE d.bucket = v_event.bucket AND d.log_position = v_event.position;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'event % is no open dead letter: it is %', p_event_id,
            CASE WHEN symphony.event_state(p_event_id) = 'FAILED' THEN 'closed already' ELSE symphony.event_state(p_event_id) END
            USING ERRCODE = 'P7006';
    ELSIF v_letter.blocks_its_key THEN
        RAISE EXCEPTION 'event % blocks its key: redrive it, or skip it, first', p_event_id USING ERRCODE = 'P7006';
    END IF;
    IF p_dry_run IS FALSE THEN
        PERFORM symphony.record_outbox_act('events', 'DEAD_LETTER_CLOSED', p_event_id, p_actor, p_approver, p_reason,
                                           jsonb_build_object('redrive_no', v_letter.redrive_no));
    END IF;
    RETURN QUERY SELECT p_event_id, 'FAILED', v_letter.error_code, p_dry_run IS NOT FALSE;
END $$;
