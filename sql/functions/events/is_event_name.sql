-- is_event_name: whether a tenant or a key's value names something.
--
-- Moves    nothing
-- Caller   enqueue functions
-- Locks    nothing
-- Refuses  nothing
-- Why      the quick check and the one that finds the words must agree.
CREATE OR REPLACE FUNCTION symphony_internal.is_event_name(p_name TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pg_catalog.length(p_name) <= 255 AND pg_catalog.btrim(p_name, E' \t\n\r\f\v') <> '';
