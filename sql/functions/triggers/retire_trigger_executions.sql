-- retire_trigger_executions: forget executions that are older than their app wants, and empty the logs of younger ones.
--
-- Moves    ended -> forgotten, logs -> empty, the oldest first; at most p_batch_size rows are looked at for each
-- Caller   symphony_executor (its running process)
-- Locks    the rows, skipping those others hold; an advisory lock of the installation, tried and never waited for
-- Refuses  P7005 invalid argument
-- Why      payloads and logs grow without end, and hold what people wrote. The ledger stays. What a dead letter, a tree that
--          still runs, a message that waits for a consumer or an answer to our mail needs is kept, however old.
--          One process at a time: the others are told that nothing is left. A pass goes from app to app: it ends where
--          next_app is NULL, and what it has kept is not looked at again in it.
CREATE OR REPLACE FUNCTION symphony.retire_trigger_executions(
    p_executions_days INT, p_logs_days INT, p_batch_size INT, p_app UUID DEFAULT NULL, p_after TIMESTAMPTZ DEFAULT NULL
) RETURNS TABLE (retired INT, logs_emptied INT, next_app UUID, next_after TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    -- Who answers our mail later than this begins a conversation of its own.
    v_mail_kept CONSTANT INTERVAL := INTERVAL '7 days';
    v_apps_max  CONSTANT INT := 200;
    v_now   TIMESTAMPTZ := clock_timestamp();
    v_app   UUID := p_app;
    v_from  TIMESTAMPTZ := p_after;
    v_own   symphony.trigger_retention;
    v_before TIMESTAMPTZ;
    v_logs   TIMESTAMPTZ;
    v_room  INT := p_batch_size;
    v_ids   UUID[];
    v_last  TIMESTAMPTZ;
    v_count INT;
BEGIN
    PERFORM symphony.require_outbox_count('p_executions_days', p_executions_days, 36500);
    PERFORM symphony.require_outbox_count('p_logs_days', p_logs_days, 36500);
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 10000);
    PERFORM symphony.require_read_committed();
    retired := 0;
    logs_emptied := 0;
    IF NOT pg_try_advisory_xact_lock(1398362190, hashtext('symphony'::TEXT || '.trigger retention')) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    DELETE FROM symphony.mail_counts c
     USING (SELECT m.address, m.sender FROM symphony.mail_counts m WHERE m.since < v_now - INTERVAL '1 hour'
             ORDER BY m.since LIMIT p_batch_size FOR UPDATE SKIP LOCKED) old
     WHERE c.address = old.address AND c.sender = old.sender;
    FOR i IN 1 .. v_apps_max LOOP
        IF v_from IS NULL THEN
            SELECT e.app_id INTO v_app FROM symphony.trigger_outbox_executions e
             WHERE e.app_id > coalesce(v_app, '00000000-0000-0000-0000-000000000000') ORDER BY e.app_id LIMIT 1;
            EXIT WHEN NOT FOUND;
            v_from := '-infinity';
        END IF;
        SELECT r.* INTO v_own FROM symphony.trigger_retention r WHERE r.app_id = v_app;
        v_before := v_now - make_interval(days => coalesce(v_own.executions_days, p_executions_days));
        v_logs := v_now - make_interval(days => coalesce(v_own.logs_days, p_logs_days));

        SELECT coalesce(array_agg(o.id), '{}'), max(o.completed_at), count(*) INTO v_ids, v_last, v_count
          FROM (SELECT e.id, e.completed_at FROM symphony.trigger_outbox_executions e
                 WHERE e.app_id = v_app AND e.completed_at > v_from AND e.completed_at < v_before
                 ORDER BY e.completed_at LIMIT v_room FOR UPDATE SKIP LOCKED) o;
        v_room := v_room - v_count;
        v_from := CASE WHEN v_room = 0 THEN v_last END;
        DELETE FROM symphony.trigger_outbox_executions e
         WHERE e.id = ANY (v_ids)
           AND (e.state <> 'FAILED' OR EXISTS (SELECT FROM symphony.trigger_outbox_events c
                                                WHERE c.id = e.id AND c.event_type IN ('REPLAYED', 'DEAD_LETTER_CLOSED')))
           AND NOT EXISTS (SELECT FROM symphony.trigger_outbox_pending p WHERE p.id = e.root_execution_id)
           AND NOT EXISTS (SELECT FROM symphony.trigger_outbox_pending p
                            WHERE p.root_execution_id = e.root_execution_id AND p.root_execution_id <> p.id)
           AND NOT EXISTS (SELECT FROM symphony.queue_messages m WHERE m.root_execution_id = e.root_execution_id)
           AND NOT (e.source_kind = 'email' AND e.script_id IS NULL AND e.completed_at > v_now - v_mail_kept);
        GET DIAGNOSTICS v_count = ROW_COUNT;
        IF v_count > 0 THEN
            retired := retired + v_count;
            INSERT INTO symphony.trigger_retention AS r (app_id, executions_retired_before) VALUES (v_app, v_before)
            ON CONFLICT (app_id) DO UPDATE SET executions_retired_before = GREATEST(r.executions_retired_before, excluded.executions_retired_before);
        END IF;
        EXIT WHEN v_room = 0;

        -- From where the last call has come to: what it has kept for a dead letter goes with its execution.
        SELECT coalesce(array_agg(o.id), '{}'), max(o.completed_at), count(*) INTO v_ids, v_last, v_count
          FROM (SELECT e.id, e.completed_at FROM symphony.trigger_outbox_executions e
                 WHERE e.app_id = v_app AND e.completed_at > coalesce(v_own.logs_retired_before, '-infinity') AND e.completed_at < v_logs
                 ORDER BY e.completed_at LIMIT v_room FOR UPDATE SKIP LOCKED) o;
        CONTINUE WHEN v_count = 0;
        v_room := v_room - v_count;
        UPDATE symphony.trigger_outbox_executions e SET logs = '[]'
         WHERE e.id = ANY (v_ids) AND e.logs <> '[]'
           AND (e.state <> 'FAILED' OR EXISTS (SELECT FROM symphony.trigger_outbox_events c
                                                WHERE c.id = e.id AND c.event_type IN ('REPLAYED', 'DEAD_LETTER_CLOSED')));
        GET DIAGNOSTICS v_count = ROW_COUNT;
        logs_emptied := logs_emptied + v_count;
        INSERT INTO symphony.trigger_retention AS r (app_id, logs_retired_before) VALUES (v_app, v_last)
        ON CONFLICT (app_id) DO UPDATE SET logs_retired_before = excluded.logs_retired_before;
        IF v_room = 0 THEN
            -- The same app again: its executions are gone through, its logs perhaps not.
            v_from := v_before;
            EXIT;
        END IF;
    END LOOP;
    IF v_app IS NOT NULL THEN
        next_app := v_app;
        next_after := v_from;
    END IF;
    RETURN NEXT;
END $$;
