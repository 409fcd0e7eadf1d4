-- is_traceparent: whether a text is a W3C trace context of version 00.
--
-- Moves    nothing
-- Caller   event_defect, place_trigger_request, place_trigger_requests
-- Locks    nothing
-- Refuses  nothing
-- Why      the quick check and the one that finds the words must agree. All zeros mean "none" and are refused.
CREATE OR REPLACE FUNCTION symphony.is_traceparent(p_traceparent TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
   AND pg_catalog.substr(p_traceparent, 4, 32) <> '00000000000000000000000000000000'
   AND pg_catalog.substr(p_traceparent, 37, 16) <> '0000000000000000';
