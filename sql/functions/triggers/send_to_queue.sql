-- send_to_queue: a message for one consumer, inside the caller's own transaction.
--
-- Moves    nothing -> pending; without a consumer, nothing -> waiting until one is pushed
-- Caller   symphony_ingest
-- Locks    the queue, shared
-- Refuses  P7005 an undeclared queue or a bad message, P7007 no such app
-- Why      answers whether a consumer has it already.
CREATE OR REPLACE FUNCTION public.send_to_queue(p_app TEXT, p_queue TEXT, p_message JSONB, p_principal UUID DEFAULT NULL) RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN symphony_internal.send_message(symphony_internal.require_app(p_app), 'queue', p_queue, p_message, p_principal, 0, NULL, NULL, false) > 0;
END $$;
