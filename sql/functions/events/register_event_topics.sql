-- register_event_topics: a worker says which topics its routes lead to.
--
-- Moves    nothing
-- Caller   symphony_executor
-- Locks    the new topics' rows
-- Refuses  P7005 invalid argument
-- Why      routes are configuration of workers. Known here, a topic can be paused by its name, and a mistyped one be refused.
CREATE OR REPLACE FUNCTION symphony.register_event_topics(p_topics TEXT[]) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
BEGIN
    PERFORM symphony.require_outbox_count('p_topics', coalesce(cardinality(p_topics), 0), 1000);
    PERFORM symphony.require_outbox_id('p_topics', t.topic) FROM unnest(p_topics) t(topic);
    INSERT INTO symphony.event_outbox_topics (topic) SELECT DISTINCT t.topic FROM unnest(p_topics) t(topic) ORDER BY t.topic
    ON CONFLICT DO NOTHING;
END $$;
