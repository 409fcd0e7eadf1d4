-- switch_event_topic: pause or resume one topic.
--
-- Moves    topic: running <-> paused; with a resume, the keys that wait for it: blocked -> due
-- Caller   pause_event_topic, resume_event_topic
-- Locks    the topic's row; to resume, first every cursor in bucket order, and the waiting keys' rows
-- Refuses  P7005 no actor, reason or topic, P7007 no such topic
-- Why      a key is set aside by whoever holds its cursor. With all cursors held, each has either seen the resume or is seen
--          by it, so no key waits on for a topic that runs. The lane stands still meanwhile: about 10 microseconds a key.
CREATE OR REPLACE FUNCTION symphony.switch_event_topic(
    p_paused BOOLEAN, p_topic TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony.require_outbox_act('events', p_actor, p_reason, NULL, NOT p_paused AND p_dry_run IS FALSE);
    PERFORM symphony.require_event_topic(p_topic);
    IF p_dry_run IS FALSE AND NOT p_paused THEN
        PERFORM FROM symphony.event_outbox_cursors c ORDER BY c.bucket FOR UPDATE;
    END IF;
    SELECT t.paused INTO v_paused FROM symphony.event_outbox_topics t WHERE t.topic = p_topic FOR UPDATE;
    IF p_dry_run IS FALSE AND v_paused <> p_paused THEN
        UPDATE symphony.event_outbox_topics t SET paused = p_paused WHERE t.topic = p_topic;
        -- A redriven head must not go out while the bus would swallow it.
        UPDATE symphony.event_outbox_blocked k
           SET paused_topic = NULL,
               due_at = GREATEST(clock_timestamp(), (SELECT w.not_before FROM symphony.event_outbox_waiting w
                                                      WHERE w.bucket = k.bucket AND w.event_key = k.event_key
                                                      ORDER BY w.position LIMIT 1))
         WHERE NOT p_paused AND k.paused_topic = p_topic;
    END IF;
    RETURN QUERY SELECT s.* FROM symphony.answer_outbox_switch(
        'events', p_topic, v_paused, p_paused, p_actor, p_reason, p_dry_run, jsonb_build_object('topic', p_topic)) s;
END $$;
