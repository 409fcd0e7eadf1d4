-- place_event: write one valid event, or find the one it already is.
--
-- Moves    nothing -> the end of its bucket's log
-- Caller   the careful path of enqueue_event_outbox_batch; nobody else may
-- Locks    its identity; the caller has registered and locked the key
-- Refuses  nothing: a reused event id is answered as a conflict
-- Why      the constraint decides, not a look before it: two producers with one event id make one event.
CREATE OR REPLACE FUNCTION symphony.place_event(
    p_event_id UUID, p_event_key TEXT, p_event JSONB,
    OUT log_position BIGINT, OUT created_at TIMESTAMPTZ, OUT duplicate BOOLEAN, OUT conflict BOOLEAN
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_bucket SMALLINT := symphony.event_bucket(p_event_key);
    v_known  symphony.event_outbox_identities;
    v_event  JSONB;
BEGIN
    log_position := nextval('symphony.event_outbox_position');
    created_at := clock_timestamp();
    INSERT INTO symphony.event_outbox_identities (event_id, bucket, position)
    VALUES (p_event_id, v_bucket, log_position) ON CONFLICT (event_id) DO NOTHING;
    IF FOUND THEN
        INSERT INTO symphony.event_outbox_log (bucket, position, event_id, event_key, event, created_at)
        VALUES (v_bucket, log_position, p_event_id, p_event_key, to_json(p_event), created_at);
        duplicate := false;
        conflict := false;
    ELSE
        SELECT i.* INTO STRICT v_known FROM symphony.event_outbox_identities i WHERE i.event_id = p_event_id;
        SELECT l.event::JSONB, l.created_at INTO STRICT v_event, created_at
          FROM symphony.event_outbox_log l WHERE l.bucket = v_known.bucket AND l.position = v_known.position;
        log_position := v_known.position;
        duplicate := true;
        conflict := v_event <> p_event;
    END IF;
END $$;
