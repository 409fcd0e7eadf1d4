-- resume_event_topic: publish to a topic again.
--
-- Moves    topic: paused -> running; the keys that wait for it -> due at once
-- Caller   symphony_operator, symphony_approver
-- Locks    as switch_event_topic
-- Refuses  P7005 no actor, reason or topic, P7007 no such topic
-- Why      workers are woken, so that what has gathered goes out at once.
CREATE OR REPLACE FUNCTION symphony.resume_event_topic(p_topic TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.switch_event_topic(false, p_topic, p_actor, p_reason, p_dry_run) s;
END $$;
