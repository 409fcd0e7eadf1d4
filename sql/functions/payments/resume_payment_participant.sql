-- resume_payment_participant: pay for a participant again.
--
-- Moves    participant: paused -> running; what was set aside for the pause -> due at once
-- Caller   symphony_operator, symphony_approver
-- Locks    as switch_payment_participant
-- Refuses  P7005 no actor, reason or participant, P7007 no such participant
-- Why      workers are woken, so that what has gathered goes out at once.
CREATE OR REPLACE FUNCTION symphony.resume_payment_participant(
    p_participant_id TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.switch_payment_participant(false, p_participant_id, p_actor, p_reason, p_dry_run) s;
END $$;
