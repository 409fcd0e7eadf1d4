-- pause_event_topic: stop publishing to one topic.
--
-- Moves    topic: running -> paused
-- Caller   symphony_operator, symphony_approver
-- Locks    as switch_event_topic
-- Refuses  P7005 no actor, reason or topic, P7007 no such topic
-- Why      its keys wait, each with its events in order; other keys and topics go on. What is under way ends.
CREATE OR REPLACE FUNCTION symphony.pause_event_topic(p_topic TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.switch_event_topic(true, p_topic, p_actor, p_reason, p_dry_run) s;
END $$;
