-- repair_trigger_outbox_leases: end the leases of lost workers, what nobody waits for any more, and entries whose time is over.
--
-- Moves    expired lease -> scheduled | expired lease -> FAILED (WORKER_LOST: somebody waited, or it was the last attempt)
--          | past its reply's deadline -> FAILED (REPLY_DEADLINE); expired entries are removed
-- Caller   symphony_executor
-- Locks    their apps against deletion, then the rows, skipping those others hold
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED
-- Why      a lost run has applied nothing, for effects are applied with the completion; but it may have fetched. What
--          somebody waits for is never run twice. An expired entry is not there for anybody: its removal fires nothing.
CREATE OR REPLACE FUNCTION symphony.repair_trigger_outbox_leases(p_batch_size INT, p_worker_id TEXT)
RETURNS TABLE (id UUID, worker_id TEXT, failed BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_item symphony.trigger_outbox_pending;
    v_now  TIMESTAMPTZ := clock_timestamp();
    v_apps UUID[];
BEGIN
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    v_apps := ARRAY(
        SELECT a.id FROM symphony.apps a
         WHERE a.id IN (SELECT p.app_id FROM symphony.trigger_outbox_pending p WHERE p.lease_token IS NOT NULL AND p.lease_expires_at <= v_now
                        UNION ALL
                        SELECT p.app_id FROM symphony.trigger_outbox_pending p
                         WHERE p.reply_to IS NOT NULL AND p.reply_deadline_at <= v_now AND p.lease_token IS NULL)
         ORDER BY a.id FOR KEY SHARE OF a SKIP LOCKED);
    -- By time, and never by app: an app's whole backlog could be read.
    FOR v_item IN SELECT p.* FROM symphony.trigger_outbox_pending p
                   WHERE p.lease_token IS NOT NULL AND p.lease_expires_at <= v_now AND array_position(v_apps, p.app_id) IS NOT NULL
                   ORDER BY p.lease_expires_at LIMIT p_batch_size FOR UPDATE SKIP LOCKED
    LOOP
        id := v_item.id;
        worker_id := v_item.claimed_by;
        failed := v_item.reply_to IS NOT NULL OR v_item.attempt_count + 1 >= v_item.attempts_max;
        INSERT INTO symphony.trigger_outbox_events (event_type, id, app_id, worker_id, details)
        VALUES ('LEASE_EXPIRED_REPAIRED', v_item.id, v_item.app_id, p_worker_id,
                jsonb_build_object('lease_token', v_item.lease_token, 'claimed_by', v_item.claimed_by, 'failed', failed));
        IF failed THEN
            DELETE FROM symphony.trigger_outbox_pending p WHERE p.id = v_item.id;
            PERFORM symphony.end_triggers(ARRAY[v_item], v_item.claimed_by, '{FAILED}', p_error_codes => '{WORKER_LOST}',
                p_error_messages => '{"the worker was lost while it ran this: nothing of it was applied"}');
        ELSE
            INSERT INTO symphony.trigger_outbox_attempts
                (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, error_code, error_message, worker_id,
                 lease_token, claimed_at)
            VALUES (v_item.id, coalesce((SELECT max(a.attempt_no) FROM symphony.trigger_outbox_attempts a WHERE a.id = v_item.id), 0) + 1,
                    v_item.app_id, v_item.source_kind, v_item.trigger_id, v_item.script_id, v_item.root_execution_id, 'ZOMBIE_REQUEUE',
                    'WORKER_LOST', 'the worker was lost while it ran this: nothing of it was applied', v_item.claimed_by,
                    v_item.lease_token, v_item.claimed_at);
            PERFORM symphony.reschedule_trigger(v_item);
        END IF;
        RETURN NEXT;
    END LOOP;
    FOR v_item IN SELECT p.* FROM symphony.trigger_outbox_pending p
                   WHERE p.reply_to IS NOT NULL AND p.reply_deadline_at <= v_now AND p.lease_token IS NULL AND array_position(v_apps, p.app_id) IS NOT NULL
                   ORDER BY p.reply_deadline_at LIMIT p_batch_size FOR UPDATE SKIP LOCKED
    LOOP
        id := v_item.id;
        worker_id := NULL;
        failed := true;
        DELETE FROM symphony.trigger_outbox_pending p WHERE p.id = v_item.id;
        PERFORM symphony.end_triggers(ARRAY[v_item], p_worker_id, '{FAILED}', p_error_codes => '{REPLY_DEADLINE}',
            p_error_messages => '{"nobody ran it before whoever waited for it had gone"}');
        RETURN NEXT;
    END LOOP;
    -- Last: whoever waits for one of these waits for nothing else of this call.
    DELETE FROM symphony.kv_entries e
     WHERE e.ctid = ANY (ARRAY(SELECT x.ctid FROM symphony.kv_entries x WHERE x.expires_at <= v_now
                                ORDER BY x.expires_at LIMIT p_batch_size FOR UPDATE SKIP LOCKED));
END $$;
