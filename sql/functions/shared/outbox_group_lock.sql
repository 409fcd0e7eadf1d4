-- outbox_group_lock: the first half of the advisory locks by which producers of events say for which buckets they are open.
--
-- Moves    nothing
-- Caller   enqueue_event_outbox_batch, registered_event_producers
-- Locks    nothing
-- Refuses  nothing
-- Why      the second half is a group of eight buckets, or 32 for all: a bucket each would fill the server's lock table.
CREATE OR REPLACE FUNCTION symphony.outbox_group_lock() RETURNS INT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN symphony.outbox_epoch_lock() OPERATOR(pg_catalog.#) 1;
