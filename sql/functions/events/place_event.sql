-- place_event: write one checked event, or say what it collides with.
--
-- Moves    nothing -> the end of its bucket's log
-- Caller   enqueue_event_outbox_batch; nobody else may
-- Locks    its identity; the caller has locked the bucket
-- Refuses  nothing: it answers
-- Why      the constraint decides, not a look before it: two producers with one event id make one event.
CREATE OR REPLACE FUNCTION symphony_internal.place_event(p_event JSONB, p_event_id UUID, p_event_key TEXT)
RETURNS TABLE (log_position BIGINT, created_at TIMESTAMPTZ, duplicate BOOLEAN, conflict BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_bucket SMALLINT := symphony_internal.event_bucket(p_event_key);
    v_known  public.event_outbox_identities;
    v_event  JSONB;
BEGIN
    log_position := nextval('public.event_outbox_position');
    created_at := clock_timestamp();
    INSERT INTO public.event_outbox_identities (event_id, bucket, position)
    VALUES (p_event_id, v_bucket, log_position) ON CONFLICT (event_id) DO NOTHING;
    IF FOUND THEN
        INSERT INTO public.event_outbox_log (bucket, position, event_id, event_key, event, created_at)
        VALUES (v_bucket, log_position, p_event_id, p_event_key, to_json(p_event), created_at);
        duplicate := false;
        conflict := false;
    ELSE
        SELECT i.* INTO STRICT v_known FROM public.event_outbox_identities i WHERE i.event_id = p_event_id;
        SELECT l.event::JSONB, l.created_at INTO STRICT v_event, created_at
          FROM public.event_outbox_log l WHERE l.bucket = v_known.bucket AND l.position = v_known.position;
        log_position := v_known.position;
        duplicate := true;
        conflict := v_event <> p_event;
    END IF;
    RETURN NEXT;
END $$;
