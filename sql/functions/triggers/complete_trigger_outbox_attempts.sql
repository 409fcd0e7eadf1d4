-- complete_trigger_outbox_attempts: runs ended; write each down, with what its script wants to have done.
--
-- Moves    leased -> terminal (row deleted) | leased -> scheduled
-- Caller   symphony_executor
-- Locks    the apps against deletion and pushes, the pending rows in the order of their ids, then what the effects need.
--          The app comes first everywhere: what an effect writes refers to it, and a push or a deletion has it already
-- Refuses  P7005 for arrays that do not fit together; P7004, P7005 or another's own code for an effect that is not right,
--          if the call completes more than one item; 55P03 if something is locked for longer than p_lock_wait_ms, or than
--          whoever waits first; per item, answered in `result` and never raised: P7001 a terminal outcome exists already,
--          P7002 lease lost, P7003 invalid state, P7011 what its run had read has changed: nothing was done, it is still held
-- Why      effects are applied here and nowhere else: a crashed or failed script leaves nothing behind, a retried one
--          applies once. The effects of a set are applied in one order for all of it, so no two calls lock entries in
--          opposite orders. One that is not right undoes the call: whoever calls completes each by itself then, and the
--          item of that one fails. What comes after its reply's deadline applies nothing and is FAILED. RETRYABLE with
--          p_spends_attempts false says that nobody was there to take it: no attempt is counted, for a day at most. What
--          ends is written in sets, the rest one by one. p_replies_here: whoever waits does so at the caller, who tells them.
--          p_reads: what each run has read, as it was then; compared under locks, so that what a script reads, changes and
--          writes is right. A run without effects need not have read what is still so. The deadline is looked at again
--          when all effects are applied, because they may have waited for locks; expire_trigger_reply sees to the rest.
CREATE OR REPLACE FUNCTION symphony.complete_trigger_outbox_attempts(
    p_worker_id TEXT, p_ids UUID[], p_lease_tokens UUID[], p_states TEXT[], p_results JSONB[] DEFAULT NULL, p_logs JSONB[] DEFAULT NULL,
    p_effects JSONB[] DEFAULT NULL, p_error_codes TEXT[] DEFAULT NULL, p_error_messages TEXT[] DEFAULT NULL,
    p_latencies_ms INT[] DEFAULT NULL, p_spends_attempts BOOLEAN[] DEFAULT NULL, p_replies_here BOOLEAN[] DEFAULT NULL,
    p_reads JSONB[] DEFAULT NULL, p_lock_wait_ms INT DEFAULT 1000
) RETURNS TABLE (item_no INT, result TEXT, attempt_no INT, state symphony.outbox_attempt_state, error_code TEXT, successor BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count    INT := cardinality(p_ids);
    v_now      TIMESTAMPTZ;
    v_item     symphony.trigger_outbox_pending;
    -- All that are still pending, locked.
    v_locked   symphony.trigger_outbox_pending[];
    -- What ends, in the order given.
    v_ended    INT[];
    v_items    symphony.trigger_outbox_pending[];
    v_states   TEXT[];
    v_results  JSONB[];
    v_logs     JSONB[];
    v_effects  JSONB[];
    v_reads    JSONB[];
    v_here     BOOLEAN[];
    v_codes    TEXT[];
    v_messages TEXT[];
    v_times    INT[];
    v_nos      INT[];
    v_next     INT := 1;
BEGIN
    -- One statement: each has a price.
    PERFORM symphony.require_outbox_count('p_ids', coalesce(v_count, 0), 4096),
            symphony.require_outbox_id('p_worker_id', p_worker_id),
            symphony.require_read_committed(),
            symphony.require_durable_commit(),
            symphony.require_same_length(v_count,
                ARRAY['p_lease_tokens', 'p_states', 'p_results', 'p_logs', 'p_effects', 'p_error_codes', 'p_error_messages', 'p_latencies_ms',
                      'p_spends_attempts', 'p_replies_here', 'p_reads'],
                ARRAY[cardinality(p_lease_tokens), cardinality(p_states), coalesce(cardinality(p_results), v_count),
                      coalesce(cardinality(p_logs), v_count), coalesce(cardinality(p_effects), v_count), coalesce(cardinality(p_error_codes), v_count),
                      coalesce(cardinality(p_error_messages), v_count), coalesce(cardinality(p_latencies_ms), v_count),
                      coalesce(cardinality(p_spends_attempts), v_count), coalesce(cardinality(p_replies_here), v_count),
                      coalesce(cardinality(p_reads), v_count)]),
            symphony.require_outbox_bytes(
                pg_column_size(p_states), pg_column_size(p_results), pg_column_size(p_logs), pg_column_size(p_effects),
                pg_column_size(p_error_codes), pg_column_size(p_error_messages), pg_column_size(p_reads)),
            symphony.require_outbox_count('p_lock_wait_ms', p_lock_wait_ms, 60000),
            set_config('lock_timeout', p_lock_wait_ms || 'ms', true);
    IF v_count <> (SELECT count(DISTINCT t.id) FROM unnest(p_ids) t(id)) THEN
        RAISE EXCEPTION 'p_ids names an item twice, or null: give each item''s outcome once' USING ERRCODE = 'P7005';
    END IF;
    -- Found by their ids and by nothing else: no other index may look better to a planner whose statistics are old.
    PERFORM FROM symphony.apps a
      WHERE a.id = ANY (ARRAY(SELECT DISTINCT p.app_id FROM symphony.trigger_outbox_pending p WHERE p.id = ANY (p_ids)))
      ORDER BY a.id FOR KEY SHARE;
    v_locked := ARRAY(SELECT p FROM symphony.trigger_outbox_pending p WHERE p.id = ANY (p_ids) ORDER BY p.id FOR UPDATE);
    v_now := clock_timestamp();
    SELECT array_agg(h.item_no), array_agg(h.item), array_agg(CASE WHEN h.late OR h.defect IS NOT NULL OR h.state = 'RETRYABLE' THEN 'FAILED' ELSE h.state END),
           array_agg(CASE WHEN NOT h.late AND h.defect IS NULL THEN h.result END),
           array_agg(CASE WHEN symphony.json_defect(h.logs) IS NULL THEN h.logs END),
           array_agg(CASE WHEN h.late THEN 'REPLY_DEADLINE' WHEN h.defect IS NOT NULL THEN 'RESULT_REFUSED'
                          WHEN h.state = 'RETRYABLE' AND h.spends IS FALSE THEN 'GIVEN_UP' ELSE h.error_code END),
           array_agg(CASE WHEN h.late THEN 'the answer came after whoever waited for it had gone: nothing of it was applied'
                          WHEN h.defect IS NOT NULL THEN 'the result ' || h.defect || ': nothing of it was applied'
                          ELSE h.error_message END),
           array_agg(h.latency_ms), array_agg(CASE WHEN h.state = 'DISPATCHED' AND NOT h.late AND h.defect IS NULL AND h.effects <> '[]' THEN h.effects END),
           array_agg(h.here), array_agg(h.reads)
      INTO v_ended, v_items, v_states, v_results, v_logs, v_codes, v_messages, v_times, v_effects, v_here, v_reads
      FROM (SELECT t.*, p::symphony.trigger_outbox_pending AS item, coalesce(p.reply_deadline_at <= v_now, false) AS late,
                   CASE WHEN t.spends IS FALSE
                        THEN symphony.tried_seconds(ARRAY(SELECT a.completed_at FROM symphony.trigger_outbox_attempts a WHERE a.id = p.id)) >= 86400
                        ELSE p.attempt_count + 1 >= p.attempts_max END AS last,
                   symphony.json_defect(t.result) AS defect
              FROM unnest(p_ids, p_lease_tokens, p_states, p_results, p_logs, p_error_codes, p_error_messages, p_latencies_ms, p_spends_attempts,
                          p_effects, p_replies_here, p_reads)
                   WITH ORDINALITY t(id, lease_token, state, result, logs, error_code, error_message, latency_ms, spends, effects, here, reads, item_no)
              JOIN unnest(v_locked) p ON p.id = t.id
             WHERE p.claimed_by = p_worker_id AND p.lease_token = t.lease_token AND p.lease_expires_at > v_now
             ORDER BY t.item_no) h
     WHERE h.state IN ('DISPATCHED', 'FAILED') OR h.state = 'RETRYABLE' AND (h.late OR h.last);
    IF cardinality(v_ended) > 0 THEN
        SELECT s.nos, s.states, s.error_codes INTO v_nos, v_states, v_codes
          FROM symphony.settle_triggers(p_worker_id, v_items, v_states, v_results, v_logs, v_effects, CASE WHEN p_reads IS NOT NULL THEN v_reads END,
                                        v_codes, v_messages, v_times, v_here, v_count = 1, p_lock_wait_ms, true) s;
    END IF;
    FOR i IN 1 .. v_count LOOP
        item_no := i;
        result := 'OK';
        IF i = v_ended[v_next] THEN
            attempt_no := v_nos[v_next];
            -- Without a number it was not written.
            result := CASE WHEN attempt_no IS NULL THEN 'P7011' ELSE 'OK' END;
            state := CASE WHEN attempt_no IS NOT NULL THEN v_states[v_next]::symphony.outbox_attempt_state END;
            error_code := CASE WHEN attempt_no IS NOT NULL THEN v_codes[v_next] END;
            successor := attempt_no IS NOT NULL AND (v_items[v_next]).order_key IS NOT NULL;
            v_next := v_next + 1;
            RETURN NEXT;
            CONTINUE;
        END IF;
        attempt_no := NULL;
        state := NULL;
        error_code := NULL;
        successor := false;
        SELECT p.* INTO v_item FROM unnest(v_locked) p
         WHERE p.id = p_ids[i] AND p.claimed_by = p_worker_id AND p.lease_token = p_lease_tokens[i] AND p.lease_expires_at > v_now;
        IF NOT FOUND THEN
            -- A repeated call is answered as the first. What ended by the repair or with its app was no call of this worker's.
            SELECT a.attempt_no, a.state, a.error_code INTO attempt_no, state, error_code FROM symphony.trigger_outbox_attempts a
             WHERE a.id = p_ids[i] AND a.lease_token = p_lease_tokens[i] AND a.worker_id = p_worker_id AND a.state <> 'ZOMBIE_REQUEUE'
               AND (a.error_code IN ('WORKER_LOST', 'APP_DELETED')) IS NOT TRUE
             ORDER BY a.attempt_no DESC LIMIT 1;
            IF NOT FOUND THEN
                result := CASE WHEN EXISTS (SELECT FROM symphony.trigger_outbox_attempts a
                                             WHERE a.id = p_ids[i] AND a.state IN ('DISPATCHED', 'FAILED')) THEN 'P7001' ELSE 'P7002' END;
            END IF;
        ELSIF p_states[i] IS DISTINCT FROM 'RETRYABLE' THEN
            result := 'P7003';
        ELSE
            attempt_no := coalesce((SELECT max(a.attempt_no) FROM symphony.trigger_outbox_attempts a WHERE a.id = v_item.id), 0) + 1;
            state := 'RETRYABLE';
            error_code := p_error_codes[i];
            INSERT INTO symphony.trigger_outbox_attempts
                (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, spends_attempt, error_code,
                 error_message, latency_ms, worker_id, lease_token, claimed_at)
            VALUES (v_item.id, attempt_no, v_item.app_id, v_item.source_kind, v_item.trigger_id, v_item.script_id, v_item.root_execution_id,
                    state, p_spends_attempts[i] IS NOT FALSE, left(error_code, 255), left(p_error_messages[i], 2000), p_latencies_ms[i], p_worker_id, v_item.lease_token,
                    v_item.claimed_at);
            PERFORM symphony.reschedule_trigger(v_item, CASE WHEN p_spends_attempts[i] IS FALSE THEN attempt_no END);
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
