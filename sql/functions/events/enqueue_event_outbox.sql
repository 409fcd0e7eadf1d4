-- enqueue_event_outbox: tell one fact, inside the caller's own transaction.
--
-- Moves    nothing -> the end of its bucket's log
-- Caller   symphony_ingest
-- Locks    the event's key, until the caller's transaction ends
-- Refuses  P7004 the event id belongs to another event, P7005 invalid event, naming the field
-- Why      new and known look the same to a producer that retries: both answer with the one event.
CREATE OR REPLACE FUNCTION symphony.enqueue_event_outbox(p_event JSONB)
RETURNS TABLE (event_id UUID, log_position BIGINT, created_at TIMESTAMPTZ, state TEXT, duplicate BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_error_code    TEXT;
    v_error_message TEXT;
BEGIN
    SELECT e.event_id, e.log_position, e.created_at, e.state, e.duplicate, e.error_code, e.error_message
      INTO event_id, log_position, created_at, state, duplicate, v_error_code, v_error_message
      FROM symphony.enqueue_event_outbox_batch(ARRAY[p_event]) e;
    IF v_error_code IS NOT NULL THEN
        RAISE EXCEPTION '%', v_error_message USING ERRCODE = v_error_code,
            HINT = CASE v_error_code WHEN 'P7004' THEN 'Repeat the first event unchanged, or give a new event an id of its own.'
                                     ELSE 'schemas/event.schema.json describes an event.' END;
    END IF;
    RETURN NEXT;
END $$;
