-- send_to_queue: a message for one consumer, inside the caller's own transaction.
--
-- Moves    nothing -> pending; without a consumer, nothing -> waiting until one is pushed
-- Caller   symphony_ingest
-- Locks    the queue, shared; with a key, or if the queue is serial, the order the message goes in
-- Refuses  P7005 an undeclared queue, a bad message or key, P7007 no such app
-- Why      answers whether a consumer has it already. Messages with one key run one after another, in the order in which
--          they were sent; keys side by side.
CREATE OR REPLACE FUNCTION symphony.send_to_queue(
    p_app TEXT, p_queue TEXT, p_message JSONB, p_principal UUID DEFAULT NULL, p_key TEXT DEFAULT NULL
) RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (symphony.send_message(symphony.require_app(p_app), 'queue', p_queue, p_message, coalesce(p_principal, symphony.acting_principal()), 0, NULL, NULL, false, p_key)).fired > 0;
END $$;
