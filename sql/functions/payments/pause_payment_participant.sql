-- pause_payment_participant: stop paying for one participant.
--
-- Moves    participant: running -> paused
-- Caller   symphony_operator, symphony_approver
-- Locks    the participant's pause
-- Refuses  P7005 no actor, reason or participant, P7007 no such participant
-- Why      the items are set aside by the claims that meet them, not here: pausing is instant.
CREATE OR REPLACE FUNCTION public.pause_payment_participant(
    p_participant_id TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony_internal.require_payment_act(p_actor, p_reason, NULL, false);
    PERFORM symphony_internal.require_payment_participant(p_participant_id);
    v_paused := EXISTS (SELECT FROM public.payment_outbox_paused_participants s WHERE s.participant_id = p_participant_id);
    IF NOT p_dry_run THEN
        -- Waits for a resume that is about to remove the pause.
        INSERT INTO public.payment_outbox_paused_participants (participant_id) VALUES (p_participant_id) ON CONFLICT DO NOTHING;
        v_paused := NOT FOUND;
    END IF;
    IF NOT p_dry_run AND NOT v_paused THEN
        PERFORM symphony_internal.record_payment_switch('PAUSED', p_actor, p_reason, jsonb_build_object('participant_id', p_participant_id));
    END IF;
    RETURN QUERY SELECT p_participant_id, CASE WHEN v_paused THEN 'PAUSED' ELSE 'RUNNING' END, 'PAUSED', p_dry_run;
END $$;
