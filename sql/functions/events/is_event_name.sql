-- is_event_name: whether a tenant or a key's value names something.
--
-- Moves    nothing
-- Caller   event_defect
-- Locks    nothing
-- Refuses  nothing
-- Why      blank is what the library's pattern says, character by character: every language has its own idea of it.
CREATE OR REPLACE FUNCTION symphony.is_event_name(p_name TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pg_catalog.length(p_name) <= 255
   AND p_name ~ '[^\t\n\v\f\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]';
