-- resume_payment_participant: pay for a participant again.
--
-- Moves    participant: paused -> running; what was set aside for the pause -> due at once
-- Caller   symphony_operator, symphony_approver
-- Locks    the participant's pause and its set-aside rows
-- Refuses  P7005 no actor, reason or participant, P7007 no such participant
-- Why      the pause is deleted first, which waits for every claim that is setting items aside under it;
--          the next statement then sees all of them.
CREATE OR REPLACE FUNCTION public.resume_payment_participant(
    p_participant_id TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony_internal.require_payment_act(p_actor, p_reason, NULL, false);
    PERFORM symphony_internal.require_payment_participant(p_participant_id);
    v_paused := EXISTS (SELECT FROM public.payment_outbox_paused_participants s WHERE s.participant_id = p_participant_id);
    IF NOT p_dry_run AND v_paused THEN
        DELETE FROM public.payment_outbox_paused_participants s WHERE s.participant_id = p_participant_id;
        UPDATE public.payment_outbox_pending p SET hold = NULL, next_attempt_at = GREATEST(p.next_attempt_at, clock_timestamp())
         WHERE p.participant_id = p_participant_id AND p.hold = 'PARTICIPANT_PAUSED';
        PERFORM symphony_internal.record_payment_switch('RESUMED', p_actor, p_reason, jsonb_build_object('participant_id', p_participant_id));
    END IF;
    RETURN QUERY SELECT p_participant_id, CASE WHEN v_paused THEN 'PAUSED' ELSE 'RUNNING' END, 'RUNNING', p_dry_run;
END $$;
