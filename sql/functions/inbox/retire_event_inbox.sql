-- retire_event_inbox: forget what a consumer applied so long ago that no bus can repeat it.
--
-- Moves    applied -> forgotten, the oldest first, at most p_batch_size of each kind
-- Caller   symphony_consumer (its running process), symphony_operator
-- Locks    the rows, skipping those others hold; an advisory lock per consumer of the installation, tried and never waited for
-- Refuses  P7005 invalid argument, or a retention shorter than 15 days
-- Why      SQS keeps a message for 14 days at most, and a row forgotten before its last redelivery means the effects
--          happen twice: so the floor is here, and not in a setting somebody can get wrong. One process at a time:
--          the others get 0 and have nothing to do. Fewer than asked for means that nothing older is left.
CREATE OR REPLACE FUNCTION symphony.retire_event_inbox(p_consumer TEXT, p_older_than_seconds BIGINT, p_batch_size INT)
RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_floor  CONSTANT BIGINT := 15 * 86400;
    v_before TIMESTAMPTZ;
    v_events BIGINT;
    v_keys   BIGINT;
BEGIN
    PERFORM symphony.require_outbox_id('p_consumer', p_consumer);
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 10000);
    PERFORM symphony.require_outbox_count('p_older_than_seconds', p_older_than_seconds, 3650::BIGINT * 86400);
    IF p_older_than_seconds < v_floor THEN
        RAISE EXCEPTION 'p_older_than_seconds is %: it must be at least % (15 days), longer than any bus can repeat an event',
            p_older_than_seconds, v_floor USING ERRCODE = 'P7005';
    END IF;
    IF NOT pg_try_advisory_xact_lock(1398362190, hashtext('symphony'::TEXT || '.' || p_consumer)) THEN
        RETURN 0;
    END IF;
    v_before := clock_timestamp() - make_interval(secs => p_older_than_seconds);
    WITH old AS MATERIALIZED (
        SELECT i.event_id FROM symphony.event_inbox i
         WHERE i.consumer = p_consumer AND i.processed_at < v_before
         ORDER BY i.processed_at LIMIT p_batch_size FOR UPDATE SKIP LOCKED
    )
    DELETE FROM symphony.event_inbox i USING old WHERE i.consumer = p_consumer AND i.event_id = old.event_id;
    GET DIAGNOSTICS v_events = ROW_COUNT;
    WITH old AS MATERIALIZED (
        SELECT k.dedupe_key FROM symphony.event_inbox_keys k
         WHERE k.consumer = p_consumer AND k.processed_at < v_before
         ORDER BY k.processed_at LIMIT p_batch_size FOR UPDATE SKIP LOCKED
    )
    DELETE FROM symphony.event_inbox_keys k USING old WHERE k.consumer = p_consumer AND k.dedupe_key = old.dedupe_key;
    GET DIAGNOSTICS v_keys = ROW_COUNT;
    RETURN v_events + v_keys;
END $$;
