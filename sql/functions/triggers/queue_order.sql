-- queue_order: which messages of an app go one after another with this one; NULL if none.
--
-- Moves    nothing
-- Caller   send_message, apply_trigger_effects, replay_trigger_execution; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      a serial queue is one order, whatever the messages' keys; otherwise each key is, and a message without one has none. A queue's name has no slash.
CREATE OR REPLACE FUNCTION symphony.queue_order(p_app_id UUID, p_queue TEXT, p_key TEXT) RETURNS TEXT
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
    IF (SELECT q.serial FROM symphony.queues q WHERE q.app_id = p_app_id AND q.name = p_queue) THEN
        RETURN p_queue || '/';
    END IF;
    RETURN p_queue || '/' || p_key;
END $$;
