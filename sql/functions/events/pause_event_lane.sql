-- pause_event_lane: stop publishing.
--
-- Moves    lane: running -> paused
-- Caller   symphony_operator, symphony_approver
-- Locks    as switch_outbox_lane
-- Refuses  P7005 no actor or reason
-- Why      what is under way ends; nothing more is claimed.
CREATE OR REPLACE FUNCTION symphony.pause_event_lane(p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.switch_outbox_lane('events', true, p_actor, p_reason, p_dry_run) s;
END $$;
