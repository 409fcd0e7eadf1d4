-- outbox_epoch_lock: the first half of the advisory locks by which producers of events say that they are open.
--
-- Moves    nothing
-- Caller   register_event_producer, registered_event_producers, advance_event_horizon
-- Locks    nothing
-- Refuses  nothing
-- Why      two installations in one database must not wait for each other's producers.
CREATE OR REPLACE FUNCTION symphony.outbox_epoch_lock() RETURNS INT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 1398362190 OPERATOR(pg_catalog.#) pg_catalog.hashtext(symphony.outbox_channel('event_outbox_pending'));
