-- register_event_producer: say that this transaction is open until it ends, and since which position it tells events.
--
-- Moves    nothing
-- Caller   enqueue_event_outbox_batch, once a transaction; nobody else may
-- Locks    the last position and the present epoch, shared with all other producers
-- Refuses  nothing
-- Why      whoever looks for open producers must never see one without its position or its buckets: so these come
--          first. The epoch is refused only while a claim looks whether it is empty, so it is asked again under the
--          lock. One epoch is enough however long the transaction lasts: until it ends, that one is not empty. One more
--          for each call filled the server's lock table. symphony.event_producer says that it is done; a savepoint
--          takes the setting back with the locks.
CREATE OR REPLACE FUNCTION symphony.register_event_producer() RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_position BIGINT := coalesce(pg_sequence_last_value('symphony.event_outbox_position'), 0);
    v_epoch    BIGINT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(symphony.outbox_position_lock() # (v_position >> 31 & 1023)::INT, (v_position & 2147483647)::INT);
    LOOP
        v_epoch := coalesce(pg_sequence_last_value('symphony.event_outbox_epoch'), 0);
        EXIT WHEN pg_try_advisory_xact_lock_shared(symphony.outbox_epoch_lock(), (v_epoch % 2147483647)::INT)
              AND v_epoch = coalesce(pg_sequence_last_value('symphony.event_outbox_epoch'), 0);
    END LOOP;
    PERFORM set_config('symphony.event_producer', pg_current_xact_id()::TEXT, true);
END $$;
