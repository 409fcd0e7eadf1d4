-- complete_trigger_outbox_attempts: runs ended; write each down, with what its script wants to have done.
--
-- Moves    leased -> terminal (row deleted) | leased -> scheduled
-- Caller   symphony_executor
-- Locks    the apps against deletion and pushes, the pending rows in the order of their ids, then what the effects need.
--          The app comes first everywhere: what an effect writes refers to it, and a push or a deletion has it already
-- Refuses  P7005 for arrays that do not fit together, or effects of more than one item in a call; per item, answered in
--          `result` and never raised: P7001 a terminal outcome exists already, P7002 lease lost, P7003 invalid state
-- Why      effects are applied here and nowhere else: a crashed or failed script leaves nothing behind, a retried one
--          applies once. One item a call where there are effects, so that no two calls lock entries in opposite
--          orders. An effect that is not right is undone with all others of its item, which then fails. What comes
--          after its reply's deadline applies nothing and is FAILED.
CREATE OR REPLACE FUNCTION public.complete_trigger_outbox_attempts(
    p_worker_id TEXT, p_ids UUID[], p_lease_tokens UUID[], p_states TEXT[], p_results JSONB[] DEFAULT NULL, p_logs JSONB[] DEFAULT NULL,
    p_effects JSONB[] DEFAULT NULL, p_error_codes TEXT[] DEFAULT NULL, p_error_messages TEXT[] DEFAULT NULL,
    p_latencies_ms INT[] DEFAULT NULL
) RETURNS TABLE (item_no INT, result TEXT, attempt_no INT, state public.outbox_attempt_state, error_code TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count   INT := cardinality(p_ids);
    v_item    public.trigger_outbox_pending;
    v_state   TEXT;
    v_code    TEXT;
    v_message TEXT;
    v_result  JSONB;
    v_refused TEXT;
BEGIN
    PERFORM symphony_internal.require_outbox_count('p_ids', coalesce(v_count, 0), 4096);
    PERFORM symphony_internal.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony_internal.require_read_committed();
    PERFORM symphony_internal.require_same_length(v_count,
        ARRAY['p_lease_tokens', 'p_states', 'p_results', 'p_logs', 'p_effects', 'p_error_codes', 'p_error_messages', 'p_latencies_ms'],
        ARRAY[cardinality(p_lease_tokens), cardinality(p_states), coalesce(cardinality(p_results), v_count),
              coalesce(cardinality(p_logs), v_count), coalesce(cardinality(p_effects), v_count), coalesce(cardinality(p_error_codes), v_count),
              coalesce(cardinality(p_error_messages), v_count), coalesce(cardinality(p_latencies_ms), v_count)]);
    IF v_count <> (SELECT count(DISTINCT t.id) FROM unnest(p_ids) t(id)) THEN
        RAISE EXCEPTION 'p_ids names an item twice, or null: give each item''s outcome once' USING ERRCODE = 'P7005';
    ELSIF v_count > 1 AND EXISTS (SELECT FROM unnest(p_effects) e WHERE e <> '[]') THEN
        RAISE EXCEPTION 'p_effects: complete an item with effects in a call of its own' USING ERRCODE = 'P7005';
    END IF;
    PERFORM FROM public.apps a WHERE a.id IN (SELECT p.app_id FROM public.trigger_outbox_pending p WHERE p.id = ANY (p_ids))
      ORDER BY a.id FOR KEY SHARE;
    PERFORM FROM public.trigger_outbox_pending p WHERE p.id = ANY (p_ids) ORDER BY p.id FOR UPDATE;
    FOR i IN 1 .. v_count LOOP
        item_no := i;
        result := 'OK';
        attempt_no := NULL;
        state := NULL;
        error_code := NULL;
        SELECT p.* INTO v_item FROM public.trigger_outbox_pending p
         WHERE p.id = p_ids[i] AND p.claimed_by = p_worker_id AND p.lease_token = p_lease_tokens[i] AND p.lease_expires_at > clock_timestamp();
        IF NOT FOUND THEN
            -- A repeated call is answered as the first. What ended by the repair or with its app was no call of this worker's.
            SELECT a.attempt_no, a.state, a.error_code INTO attempt_no, state, error_code FROM public.trigger_outbox_attempts a
             WHERE a.id = p_ids[i] AND a.lease_token = p_lease_tokens[i] AND a.worker_id = p_worker_id AND a.state <> 'ZOMBIE_REQUEUE'
               AND (a.error_code IN ('WORKER_LOST', 'APP_DELETED')) IS NOT TRUE
             ORDER BY a.attempt_no DESC LIMIT 1;
            IF NOT FOUND THEN
                result := CASE WHEN EXISTS (SELECT FROM public.trigger_outbox_attempts a
                                             WHERE a.id = p_ids[i] AND a.state IN ('DISPATCHED', 'FAILED')) THEN 'P7001' ELSE 'P7002' END;
            END IF;
            RETURN NEXT;
            CONTINUE;
        END IF;
        v_state := p_states[i];
        v_code := p_error_codes[i];
        v_message := p_error_messages[i];
        v_result := p_results[i];
        IF v_state IS NULL OR v_state NOT IN ('DISPATCHED', 'RETRYABLE', 'FAILED') THEN
            result := 'P7003';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF v_item.reply_to IS NOT NULL AND clock_timestamp() > v_item.reply_deadline_at THEN
            v_state := 'FAILED';
            v_code := 'REPLY_DEADLINE';
            v_message := 'the answer came after whoever waited for it had gone: nothing of it was applied';
            v_result := NULL;
        ELSIF v_state = 'RETRYABLE' AND v_item.attempt_count + 1 >= v_item.attempts_max THEN
            v_state := 'FAILED';
        END IF;
        IF v_state = 'DISPATCHED' AND p_effects[i] IS NOT NULL AND p_effects[i] <> '[]' THEN
            BEGIN
                PERFORM symphony_internal.apply_trigger_effects(v_item, p_effects[i]);
            EXCEPTION WHEN SQLSTATE 'P7004' OR SQLSTATE 'P7005' OR data_exception OR integrity_constraint_violation THEN
                GET STACKED DIAGNOSTICS v_refused = MESSAGE_TEXT;
                v_state := 'FAILED';
                v_code := 'EFFECT_REFUSED';
                v_message := 'nothing of it was applied: ' || v_refused;
                v_result := NULL;
            END;
        END IF;
        IF v_state = 'RETRYABLE' THEN
            attempt_no := coalesce((SELECT max(a.attempt_no) FROM public.trigger_outbox_attempts a WHERE a.id = v_item.id), 0) + 1;
            INSERT INTO public.trigger_outbox_attempts
                (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, error_code, error_message, latency_ms,
                 worker_id, lease_token, claimed_at)
            VALUES (v_item.id, attempt_no, v_item.app_id, v_item.source_kind, v_item.trigger_id, v_item.script_id, v_item.root_execution_id,
                    'RETRYABLE', left(v_code, 255), left(v_message, 2000), p_latencies_ms[i], p_worker_id, v_item.lease_token, v_item.claimed_at);
            PERFORM symphony_internal.reschedule_trigger(v_item);
        ELSE
            DELETE FROM public.trigger_outbox_pending p WHERE p.id = v_item.id;
            PERFORM symphony_internal.end_trigger(v_item, v_state, p_worker_id, v_result, p_logs[i], v_code, v_message, p_latencies_ms[i],
                                                  v_item.lease_token);
            attempt_no := (SELECT a.attempt_no FROM public.trigger_outbox_attempts a
                            WHERE a.id = v_item.id AND a.state IN ('DISPATCHED', 'FAILED'));
        END IF;
        state := v_state::public.outbox_attempt_state;
        error_code := v_code;
        RETURN NEXT;
    END LOOP;
END $$;
