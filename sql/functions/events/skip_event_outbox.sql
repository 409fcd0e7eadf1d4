-- skip_event_outbox: let a key go on past the FAILED event that blocks it.
--
-- Moves    key: blocked -> going on; the event stays FAILED
-- Caller   symphony_operator, symphony_approver
-- Locks    the bucket's cursor
-- Refuses  P7005 no actor or reason, P7006 it blocks nothing, P7007 no such event
-- Why      consumers will never see the event, unless it is redriven later, out of its turn: so a person decides
--          it and the narrative says who.
CREATE OR REPLACE FUNCTION symphony.skip_event_outbox(
    p_event_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (event_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN, waiting BIGINT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_event symphony.event_outbox_log := symphony.lock_event_for_act(p_event_id, p_actor, p_reason, p_approver, p_dry_run);
BEGIN
    IF NOT EXISTS (SELECT FROM symphony.event_outbox_blocked k WHERE k.bucket = v_event.bucket AND k.event_key = v_event.event_key
                      AND k.failed_position = v_event.position) THEN
        RAISE EXCEPTION 'event % is % and blocks nothing: only a FAILED event that blocks its key can be skipped',
            p_event_id, symphony.event_state(p_event_id) USING ERRCODE = 'P7006';
    END IF;
    waiting := (SELECT count(*) FROM symphony.event_outbox_waiting w WHERE w.bucket = v_event.bucket AND w.event_key = v_event.event_key);
    IF p_dry_run IS FALSE THEN
        IF waiting = 0 THEN
            DELETE FROM symphony.event_outbox_blocked k WHERE k.bucket = v_event.bucket AND k.event_key = v_event.event_key;
        ELSE
            UPDATE symphony.event_outbox_blocked k
               SET failed_position = NULL,
                   due_at = GREATEST(clock_timestamp(), (SELECT w.not_before FROM symphony.event_outbox_waiting w
                                                          WHERE w.bucket = v_event.bucket AND w.event_key = v_event.event_key
                                                          ORDER BY w.position LIMIT 1))
             WHERE k.bucket = v_event.bucket AND k.event_key = v_event.event_key;
        END IF;
        PERFORM symphony.record_outbox_act('events', 'SKIPPED', p_event_id, p_actor, p_approver, p_reason,
                                           jsonb_build_object('waiting', waiting));
    END IF;
    event_id := p_event_id;
    state_before := 'FAILED';
    state_after := 'FAILED';
    dry_run := p_dry_run IS NOT FALSE;
    RETURN NEXT;
END $$;
