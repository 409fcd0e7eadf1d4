-- record_event_inbox: a consumer is about to apply an event; say whether it is the first time.
--
-- Moves    nothing -> applied, when the caller's transaction commits
-- Caller   symphony_consumer, first thing in the transaction that holds the effects
-- Locks    the inbox row until the caller commits: a second delivery of the event waits for the first one's end
-- Refuses  P7005 blank or oversized argument; 40001 above READ COMMITTED, if another transaction applied it meanwhile
-- Why      the primary key decides and no read before it, so it is right at every isolation level: true is said to one
--          committed transaction only. With a dedupe key both must be new: the event id keeps a repeated delivery
--          out even where the way of making the key was changed between two releases.
CREATE OR REPLACE FUNCTION symphony.record_event_inbox(p_consumer TEXT, p_event_id UUID, p_dedupe_key TEXT DEFAULT NULL)
RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM symphony.require_outbox_id('p_consumer', p_consumer);
    IF p_event_id IS NULL THEN
        RAISE EXCEPTION 'p_event_id is null: it must be the event''s id' USING ERRCODE = 'P7005';
    END IF;
    IF p_dedupe_key IS NOT NULL THEN
        PERFORM symphony.require_outbox_id('p_dedupe_key', p_dedupe_key);
    END IF;
    INSERT INTO symphony.event_inbox (consumer, event_id, processed_at)
    VALUES (p_consumer, p_event_id, clock_timestamp())
    ON CONFLICT (consumer, event_id) DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF p_dedupe_key IS NOT NULL THEN
        INSERT INTO symphony.event_inbox_keys (consumer, dedupe_key, event_id, processed_at)
        VALUES (p_consumer, p_dedupe_key, p_event_id, clock_timestamp())
        ON CONFLICT (consumer, dedupe_key) DO NOTHING;
        RETURN FOUND;
    END IF;
    RETURN true;
END $$;
