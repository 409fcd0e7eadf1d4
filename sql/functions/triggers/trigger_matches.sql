-- trigger_matches: whether a trigger's filter is for this subject.
--
-- Moves    nothing
-- Caller   fire_triggers
-- Locks    nothing
-- Refuses  nothing
-- Why      one rule for keys, topics, queues and scripts: the whole name, or all that begin like it.
CREATE OR REPLACE FUNCTION symphony.trigger_matches(p_filter TEXT, p_subject TEXT) RETURNS BOOLEAN
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN p_filter = p_subject OR pg_catalog.right(p_filter, 1) = '*' AND pg_catalog.starts_with(p_subject, pg_catalog.left(p_filter, -1));
