-- lead_outbox_hints: become, or stay, the worker that follows a group's hints at once.
--
-- Moves    the group's lead, if nobody has it or whoever had it is silent; with 0 seconds it is given up
-- Caller   symphony_executor
-- Locks    the group's row, if it is written
-- Refuses  P7005 invalid argument
-- Why      an enqueue shall wake one idle worker and not all of them. Nothing depends on it but the first second of a
--          new item's life: polling decides. Whoever does not lead only reads.
CREATE OR REPLACE FUNCTION symphony.lead_outbox_hints(p_group TEXT, p_worker_id TEXT, p_lease_seconds INT) RETURNS BOOLEAN
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
    v_now TIMESTAMPTZ := clock_timestamp();
BEGIN
    PERFORM symphony.require_outbox_id('p_group', p_group, 512);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    IF p_lease_seconds IS NULL OR p_lease_seconds NOT BETWEEN 0 AND 300 THEN
        RAISE EXCEPTION 'p_lease_seconds must be between 0 and 300' USING ERRCODE = 'P7005';
    END IF;
    IF p_lease_seconds = 0 THEN
        DELETE FROM symphony.outbox_hint_leaders l WHERE l.hint_group = p_group AND l.worker_id = p_worker_id;
        RETURN false;
    END IF;
    UPDATE symphony.outbox_hint_leaders l
       SET worker_id = p_worker_id, lease_expires_at = v_now + make_interval(secs => p_lease_seconds)
     WHERE l.hint_group = p_group AND (l.worker_id = p_worker_id OR l.lease_expires_at <= v_now);
    IF FOUND THEN
        RETURN true;
    ELSIF EXISTS (SELECT FROM symphony.outbox_hint_leaders l WHERE l.hint_group = p_group) THEN
        RETURN false;
    END IF;
    INSERT INTO symphony.outbox_hint_leaders (hint_group, worker_id, lease_expires_at)
    VALUES (p_group, p_worker_id, v_now + make_interval(secs => p_lease_seconds)) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
