-- outbox_position_lock: the first half of the advisory locks by which producers of events say since where they tell.
--
-- Moves    nothing
-- Caller   register_event_producer, registered_event_producers
-- Locks    nothing
-- Refuses  nothing
-- Why      the second half holds 31 bits of a position, the last ten of this one ten more: positions meet again after
--          2^41.
CREATE OR REPLACE FUNCTION symphony.outbox_position_lock() RETURNS INT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN symphony.outbox_epoch_lock() OPERATOR(pg_catalog.#) 1048576;
