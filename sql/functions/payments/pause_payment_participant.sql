-- pause_payment_participant: stop paying for one participant.
--
-- Moves    participant: running -> paused
-- Caller   symphony_operator, symphony_approver
-- Locks    as switch_payment_participant
-- Refuses  P7005 no actor, reason or participant, P7007 no such participant
-- Why      other participants go on; what is under way ends.
CREATE OR REPLACE FUNCTION symphony.pause_payment_participant(
    p_participant_id TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.switch_payment_participant(true, p_participant_id, p_actor, p_reason, p_dry_run) s;
END $$;
