-- register_event_producer: say that this transaction is open, and for which buckets, until it ends.
--
-- Moves    nothing
-- Caller   the careful path of enqueue_event_outbox_batch; nobody else may
-- Locks    the groups of the buckets and the present epoch, shared with all other producers
-- Refuses  nothing
-- Why      whoever looks for open producers must never see one without its buckets: so the groups come first. The epoch
--          is refused only while a claim looks whether it is empty, so it is asked again under the lock.
CREATE OR REPLACE FUNCTION symphony.register_event_producer(p_buckets SMALLINT[]) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_epoch BIGINT;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(symphony.outbox_group_lock(), g) FROM unnest(symphony.event_groups(p_buckets)) g;
    LOOP
        v_epoch := coalesce(pg_sequence_last_value('symphony.event_outbox_epoch'), 0);
        EXIT WHEN pg_try_advisory_xact_lock_shared(symphony.outbox_epoch_lock(), (v_epoch % 2147483647)::INT)
              AND v_epoch = coalesce(pg_sequence_last_value('symphony.event_outbox_epoch'), 0);
    END LOOP;
END $$;
