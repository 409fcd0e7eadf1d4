-- hasten_waiting_events: a topic is well again, or one key shall find out: what waits only for it is due now.
--
-- Moves    key: blocked until its retry -> due, no earlier than the topic asked for
-- Caller   symphony_executor
-- Locks    the blocked keys' rows, skipping those others hold
-- Refuses  P7005 invalid argument
-- Why      as hasten_waiting_payments. A key behind a FAILED event has no such time and stays where it is, and so does one
--          whose head was redriven and must not go out yet.
CREATE OR REPLACE FUNCTION symphony.hasten_waiting_events(p_topic TEXT, p_batch_size INT) RETURNS INT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_now   TIMESTAMPTZ := clock_timestamp();
    v_moved INT;
BEGIN
    PERFORM symphony.require_outbox_id('p_topic', p_topic);
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony.require_read_committed();
    WITH waiting AS MATERIALIZED (
        SELECT k.bucket, k.event_key FROM symphony.event_outbox_blocked k
         WHERE k.failed_position IS NULL AND k.due_at > v_now AND k.hasten_from < k.due_at
           AND k.destination = p_topic
           AND NOT EXISTS (SELECT FROM symphony.event_outbox_waiting w
                            WHERE w.bucket = k.bucket AND w.event_key = k.event_key AND w.not_before > v_now)
         ORDER BY GREATEST(k.hasten_from, v_now), k.due_at LIMIT p_batch_size
           FOR UPDATE SKIP LOCKED
    )
    UPDATE symphony.event_outbox_blocked k SET due_at = GREATEST(k.hasten_from, v_now), hasten_from = NULL
      FROM waiting w WHERE k.bucket = w.bucket AND k.event_key = w.event_key;
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    RETURN v_moved;
END $$;
