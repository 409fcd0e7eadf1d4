-- require_event_topic: refuse a topic that no worker has ever had a route to.
--
-- Moves    nothing
-- Caller   pause_event_topic, resume_event_topic
-- Locks    nothing
-- Refuses  P7005 no name, P7007 no such topic
-- Why      as require_payment_rail: a mistyped name must not look like success.
CREATE OR REPLACE FUNCTION symphony.require_event_topic(p_topic TEXT) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
BEGIN
    PERFORM symphony.require_outbox_id('p_topic', p_topic);
    IF NOT EXISTS (SELECT FROM symphony.event_outbox_topics t WHERE t.topic = p_topic) THEN
        RAISE EXCEPTION 'p_topic names no topic that a worker has had a route to, as bus/topic: %', p_topic USING ERRCODE = 'P7007';
    END IF;
END $$;
