-- publish_topic: a message for every subscriber, inside the caller's own transaction.
--
-- Moves    nothing -> pending, one item per subscribed trigger
-- Caller   symphony_ingest
-- Locks    nothing
-- Refuses  P7005 an undeclared topic or a bad message, P7007 no such app
-- Why      answers how many there were.
CREATE OR REPLACE FUNCTION symphony.publish_topic(p_app TEXT, p_topic TEXT, p_message JSONB, p_principal UUID DEFAULT NULL) RETURNS INT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (symphony.send_message(symphony.require_app(p_app), 'pubsub', p_topic, p_message, coalesce(p_principal, symphony.acting_principal()), 0, NULL, NULL, false)).fired;
END $$;
