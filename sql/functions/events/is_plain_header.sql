-- is_plain_header: a quick yes for an event's envelope and key as nearly all are; others are looked at by event_defect.
--
-- Moves    nothing
-- Caller   enqueue_event_outbox_batch, for a few events; are_plain_headers is for many
-- Locks    nothing
-- Refuses  22P02, 22007, 22008 for what cannot be an id or a time: the caller falls back to event_defect
-- Why      never true for a bad event, but false for some good ones. A long regular expression costs 50 to 190
--          microseconds here (its automaton is built anew for each text), these together about six. An id or a
--          date is plain if reading it and writing it again changes nothing. No subquery in here: with one it
--          would not be inlined.
CREATE OR REPLACE FUNCTION symphony.is_plain_header(
    p_envelope JSONB, p_key_text TEXT, p_event_id TEXT, p_occurred_at TEXT, p_type TEXT, p_traceparent TEXT
) RETURNS BOOLEAN LANGUAGE sql STABLE
RETURN p_envelope - '{v,eventId,occurredAt,tenantId,type,traceparent}'::TEXT[] = '{}'::JSONB
   AND p_envelope->'v' = '1'::JSONB
   AND pg_catalog.length(p_event_id) = 36 AND p_event_id::UUID::TEXT = p_event_id
   AND pg_catalog.substr(p_occurred_at, 1, 10)::DATE::TEXT = pg_catalog.substr(p_occurred_at, 1, 10)
   AND pg_catalog.substr(p_occurred_at, 11, 1) = 'T'
   AND pg_catalog.substr(p_occurred_at, 12, 8)::TIME::TEXT = pg_catalog.substr(p_occurred_at, 12, 8)
   AND pg_catalog.substr(p_occurred_at, 12, 8) < '24'
   AND (pg_catalog.substr(p_occurred_at, 20) = 'Z'
        OR pg_catalog.substr(p_occurred_at, 20) ~ '^\.[0-9]+Z$' AND pg_catalog.length(p_occurred_at) <= 30)
   AND p_envelope->'tenantId' IS NOT NULL AND (p_envelope->'tenantId')::TEXT ~ '^"[!#-\[\]-~]+"$'
   AND pg_catalog.length(p_envelope->>'tenantId') <= 255
   -- Quoted: a number is no name.
   AND (p_envelope->'type')::TEXT ~ '^"[a-z0-9_-]+(?:\.[a-z0-9_-]+)+"$' AND pg_catalog.length(p_type) <= 255
   AND (p_traceparent IS NULL AND NOT p_envelope ? 'traceparent'
        OR pg_catalog.length(p_traceparent) = 55 AND p_traceparent ~ '^[0-9a-f-]+$'
           AND pg_catalog.length(pg_catalog.replace(p_traceparent, '-', '')) = 52
           AND p_traceparent LIKE '00-%' AND pg_catalog.substr(p_traceparent, 36, 1) = '-' AND pg_catalog.substr(p_traceparent, 53, 1) = '-'
           AND pg_catalog.substr(p_traceparent, 4, 32) <> '00000000000000000000000000000000'
           AND pg_catalog.substr(p_traceparent, 37, 16) <> '0000000000000000')
   AND p_key_text ~ '^\{"[A-Za-z0-9_]+": "[!#-\[\]-~]+"\}$' AND pg_catalog.length(p_key_text) <= 255;
