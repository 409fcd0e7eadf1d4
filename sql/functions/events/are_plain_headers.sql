-- are_plain_headers: one quick look at the envelopes and keys of many events, a line each.
--
-- Moves    nothing
-- Caller   enqueue_event_outbox_batch
-- Locks    nothing
-- Refuses  nothing
-- Why      one regular expression over the whole batch: its automaton is built once, and a line costs about a
--          microsecond instead of the six of is_plain_header. JSONB writes members in an order of its own (the shorter
--          name first), so an envelope has one form only, and a line break never stands in it. Lengths are left to the
--          caller: a bounded repetition makes the automaton large. Never true for a bad event, false for some good
--          ones (an offset other than Z, a trace that begins with 0, the 29th of February in years like 2000).
CREATE OR REPLACE FUNCTION symphony.are_plain_headers(p_lines TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_lines ~ ('^(?:\{"v": 1, "type": "[a-z0-9_-]+(?:\.[a-z0-9_-]+)+"'
    ', "eventId": "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "tenantId": "[!#-\[\]-~]+"'
    ', "occurredAt": "(?:[1-9][0-9]{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)'
    '|[1-9][0-9](?:0[48]|[2468][048]|[13579][26])-02-29)'
    'T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?Z"'
    '(?:, "traceparent": "00-[1-9a-f][0-9a-f]{31}-[1-9a-f][0-9a-f]{15}-[0-9a-f]{2}")?\}'
    '\{"[A-Za-z0-9_]+": "[!#-\[\]-~]+"\}\n)+$');
