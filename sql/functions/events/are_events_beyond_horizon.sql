-- are_events_beyond_horizon: whether positions are taken that may not be claimed yet, because a producer is open.
--
-- Moves    nothing
-- Caller   symphony_executor
-- Locks    nothing
-- Refuses  nothing
-- Why      nobody is notified when a producer that delayed others ends without an event of its own: a worker that found
--          little looks again soon instead of at its next poll.
CREATE OR REPLACE FUNCTION symphony.are_events_beyond_horizon() RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN coalesce(pg_sequence_last_value('symphony.event_outbox_position'), 0)
         > coalesce(pg_sequence_last_value('symphony.event_outbox_horizon'), 0)
        OR coalesce(pg_sequence_last_value('symphony.event_outbox_passed_epoch'), 0) > 0;
END $$;
