-- switch_payment_participant: pause or resume one participant.
--
-- Moves    participant: running <-> paused; with a resume, what was set aside for the pause -> due at once
-- Caller   pause_payment_participant, resume_payment_participant
-- Locks    the participant's pause; to resume, its set-aside rows
-- Refuses  P7005 no actor, reason or participant, P7007 no such participant
-- Why      the items are set aside by the claims that meet them, not here: pausing is instant. To resume, the pause is deleted
--          first, which waits for every claim that is setting items aside under it; the next statement then sees all of them.
CREATE OR REPLACE FUNCTION symphony.switch_payment_participant(
    p_paused BOOLEAN, p_participant_id TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, NULL, NOT p_paused AND p_dry_run IS FALSE);
    PERFORM symphony.require_payment_participant(p_participant_id);
    v_paused := EXISTS (SELECT FROM symphony.payment_outbox_paused_participants s WHERE s.participant_id = p_participant_id);
    IF p_dry_run IS FALSE AND p_paused THEN
        -- Waits for a resume that is about to remove the pause.
        INSERT INTO symphony.payment_outbox_paused_participants (participant_id) VALUES (p_participant_id) ON CONFLICT DO NOTHING;
        v_paused := NOT FOUND;
    ELSIF p_dry_run IS FALSE THEN
        DELETE FROM symphony.payment_outbox_paused_participants s WHERE s.participant_id = p_participant_id;
        v_paused := FOUND;
        UPDATE symphony.payment_outbox_pending p SET hold = NULL, next_attempt_at = GREATEST(p.next_attempt_at, clock_timestamp())
         WHERE v_paused AND p.participant_id = p_participant_id AND p.hold = 'PARTICIPANT_PAUSED';
    END IF;
    RETURN QUERY SELECT s.* FROM symphony.answer_outbox_switch(
        'payments', p_participant_id, v_paused, p_paused, p_actor, p_reason, p_dry_run,
        jsonb_build_object('participant_id', p_participant_id)) s;
END $$;
