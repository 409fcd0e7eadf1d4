-- skip_event_outbox: let a key go on past the FAILED event that blocks it.
--
-- Moves    key: blocked -> going on; the event stays FAILED
-- Caller   symphony_operator, symphony_approver
-- Locks    the bucket's cursor
-- Refuses  P7005 no actor or reason, P7006 it blocks nothing, P7007 no such event
-- Why      consumers will never see the event, unless it is redriven later, out of its turn: so a person decides
--          it and the narrative says who.
CREATE OR REPLACE FUNCTION public.skip_event_outbox(
    p_event_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (event_id UUID, state_before TEXT, state_after TEXT, dry_run BOOLEAN, waiting BIGINT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_event public.event_outbox_log := symphony_internal.lock_event_for_act(p_event_id, p_actor, p_reason, p_approver);
BEGIN
    IF NOT EXISTS (SELECT FROM public.event_outbox_blocked k WHERE k.bucket = v_event.bucket AND k.event_key = v_event.event_key
                      AND k.failed_position = v_event.position) THEN
        RAISE EXCEPTION 'event % is % and blocks nothing: only a FAILED event that blocks its key can be skipped',
            p_event_id, symphony_internal.event_state(p_event_id) USING ERRCODE = 'P7006';
    END IF;
    waiting := (SELECT count(*) FROM public.event_outbox_waiting w WHERE w.bucket = v_event.bucket AND w.event_key = v_event.event_key);
    IF p_dry_run IS FALSE THEN
        IF waiting = 0 THEN
            DELETE FROM public.event_outbox_blocked k WHERE k.bucket = v_event.bucket AND k.event_key = v_event.event_key;
        ELSE
            UPDATE public.event_outbox_blocked k
               SET failed_position = NULL,
                   due_at = GREATEST(clock_timestamp(), (SELECT w.not_before FROM public.event_outbox_waiting w
                                                          WHERE w.bucket = v_event.bucket AND w.event_key = v_event.event_key
                                                          ORDER BY w.position LIMIT 1))
             WHERE k.bucket = v_event.bucket AND k.event_key = v_event.event_key;
        END IF;
        INSERT INTO public.event_outbox_events (event_type, outbox_event, actor, approver, reason, details)
        VALUES ('SKIPPED', p_event_id, p_actor, p_approver, p_reason, jsonb_build_object('waiting', waiting));
        PERFORM pg_notify('event_outbox_pending', 'new_work');
    END IF;
    event_id := p_event_id;
    state_before := 'FAILED';
    state_after := 'FAILED';
    dry_run := p_dry_run IS NOT FALSE;
    RETURN NEXT;
END $$;
