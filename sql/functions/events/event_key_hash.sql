-- event_key_hash: the number under which a key is locked.
--
-- Moves    nothing
-- Caller   enqueue functions
-- Locks    nothing
-- Refuses  nothing
-- Why      only says who waits for whom: if another version of PostgreSQL hashed differently, keys would get new rows
--          and nothing else. Which bucket an event is in must never change: event_bucket.
CREATE OR REPLACE FUNCTION symphony.event_key_hash(p_event_key TEXT) RETURNS BIGINT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pg_catalog.hashtextextended(p_event_key COLLATE pg_catalog."C", 0);
