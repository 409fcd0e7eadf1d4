-- event_defect: what is wrong with an event, or NULL.
--
-- Moves    nothing
-- Caller   enqueue_event_outbox_batch, once the quick check has failed
-- Locks    nothing
-- Refuses  nothing: it answers, naming the field and never its value
-- Why      the same rules as schemas/event.schema.json and the library's Event::parse; one corpus
--          (tests/fixtures/events.json) holds all three to it.
CREATE OR REPLACE FUNCTION symphony.event_defect(p_event JSONB, p_denied_keys TEXT[]) RETURNS TEXT
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_envelope JSONB := p_event->'envelope';
    v_key      JSONB := p_event->'key';
    v_field    TEXT;
BEGIN
    IF jsonb_typeof(p_event) IS DISTINCT FROM 'object' THEN
        RETURN 'event must be a JSON object with envelope, key and payload';
    END IF;
    v_field := symphony.json_defect(p_event);
    IF v_field IS NOT NULL THEN
        RETURN 'event ' || v_field;
    END IF;
    -- With its attributes, in whichever envelope, it must fit into the 256 KiB of SNS.
    IF octet_length(p_event::TEXT) > 256000 THEN
        RETURN 'event is larger than 256000 bytes';
    END IF;
    SELECT f INTO v_field FROM jsonb_object_keys(p_event) f WHERE f NOT IN ('envelope', 'key', 'payload') LIMIT 1;
    IF FOUND THEN
        RETURN format('event has the unknown field %s: it has envelope, key and payload', quote_ident(left(v_field, 100)));
    END IF;
    IF jsonb_typeof(v_envelope) IS DISTINCT FROM 'object' THEN
        RETURN 'envelope must be an object';
    END IF;
    SELECT f INTO v_field FROM jsonb_object_keys(v_envelope) f
     WHERE f NOT IN ('v', 'eventId', 'occurredAt', 'tenantId', 'traceparent', 'type') LIMIT 1;
    IF FOUND THEN
        RETURN format('envelope has the unknown field %s', quote_ident(left(v_field, 100)));
    END IF;
    IF (v_envelope->'v' = '1') IS NOT TRUE THEN
        RETURN 'envelope.v must be the number 1';
    END IF;
    FOREACH v_field IN ARRAY ARRAY['eventId', 'occurredAt', 'tenantId', 'type'] LOOP
        IF jsonb_typeof(v_envelope->v_field) IS DISTINCT FROM 'string' THEN
            RETURN format('envelope.%s must be a string', v_field);
        END IF;
    END LOOP;
    IF v_envelope->>'eventId' !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN
        RETURN 'envelope.eventId must be a UUID, as in 0190b6e0-7c4e-7cc0-8000-0123456789ab';
    END IF;
    IF NOT symphony.is_event_time(v_envelope->>'occurredAt') THEN
        RETURN 'envelope.occurredAt must be a time of RFC 3339, as in 2026-11-15T12:00:00Z';
    END IF;
    IF NOT symphony.is_event_name(v_envelope->>'tenantId') THEN
        RETURN 'envelope.tenantId must have 1 to 255 characters, not all of them blank';
    END IF;
    IF v_envelope->>'type' !~ '^[a-z0-9_-]+(\.[a-z0-9_-]+)+$' OR length(v_envelope->>'type') > 255 THEN
        RETURN 'envelope.type must be a dotted lowercase name of at most 255 characters, as in events.transfers.submitted';
    END IF;
    IF v_envelope ? 'traceparent' AND (jsonb_typeof(v_envelope->'traceparent') <> 'string'
                                       OR NOT symphony.is_traceparent(v_envelope->>'traceparent')) THEN
        RETURN 'envelope.traceparent must be a W3C trace context of version 00, or be left out';
    END IF;
    IF jsonb_typeof(v_key) IS DISTINCT FROM 'object' OR (SELECT count(*) FROM jsonb_object_keys(v_key)) <> 1 THEN
        RETURN 'key must be an object with exactly one member';
    END IF;
    IF (SELECT length(k) > 255 FROM jsonb_object_keys(v_key) k) THEN
        RETURN 'key must have a name of at most 255 characters';
    END IF;
    IF v_key ? '' OR (SELECT jsonb_typeof(v.value) <> 'string' OR NOT symphony.is_event_name(v.value #>> '{}')
                        FROM jsonb_each(v_key) v) THEN
        RETURN 'key must have a named member whose value is a string of 1 to 255 characters, not all of them blank';
    END IF;
    IF jsonb_typeof(p_event->'payload') IS DISTINCT FROM 'object' THEN
        RETURN 'payload must be an object';
    END IF;
    IF NOT symphony.has_denied_member(p_event->'payload', p_denied_keys) THEN
        RETURN NULL;
    END IF;
    -- Somewhere there is one: only now is every place looked at.
    WITH RECURSIVE inside(path, value) AS (
        SELECT 'payload', p_event->'payload'
        UNION ALL
        -- Cut: a path as deep as an event can be would not fit into memory.
        SELECT left(i.path || m.step, 150), m.value
          FROM inside i CROSS JOIN LATERAL (
              SELECT '.' || o.key, o.value FROM jsonb_each(CASE jsonb_typeof(i.value) WHEN 'object' THEN i.value ELSE '{}' END) o
              UNION ALL
              SELECT '[' || (a.ordinal - 1) || ']', a.value
                FROM jsonb_array_elements(CASE jsonb_typeof(i.value) WHEN 'array' THEN i.value ELSE '[]' END) WITH ORDINALITY a(value, ordinal)
          ) m(step, value)
    )
    SELECT left(i.path || '.' || o.name, 200) INTO v_field
      FROM inside i CROSS JOIN LATERAL jsonb_object_keys(CASE jsonb_typeof(i.value) WHEN 'object' THEN i.value ELSE '{}' END) o(name)
     WHERE o.name = ANY (p_denied_keys)
     ORDER BY 1 LIMIT 1;
    IF FOUND THEN
        RETURN format('%s is a denied field: events carry ids, not personal data', v_field);
    END IF;
    RETURN NULL;
END $$;
