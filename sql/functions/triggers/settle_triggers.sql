-- settle_triggers: apply what runs want to have done, and end their items; those whose reads have changed are left alone.
--
-- Moves    leased, or never written -> terminal
-- Caller   complete_trigger_outbox_attempts, complete_trigger_requests; nobody else may
-- Locks    what the effects need; the caller has locked the apps, and the pending rows if there are any
-- Refuses  P7004, P7005 or another's own code for an effect that is not right, unless p_alone; 55P03 if something is locked
--          for longer than p_lock_wait_ms, or than whoever waits first
-- Why      a run's effects and its outcome are one thing, whether its row was written before it or not. Answers by place: the
--          attempt's number, NULL where the reads have changed and nothing was done; the state and code that were written.
--          The deadline is looked at again when all effects are applied, because they may have waited for locks. p_alone:
--          what is not right with it, or too late, is its outcome; of several it undoes the call, and each comes alone.
CREATE OR REPLACE FUNCTION symphony.settle_triggers(
    p_worker_id TEXT, p_items symphony.trigger_outbox_pending[], p_states TEXT[], p_results JSONB[], p_logs JSONB[], p_effects JSONB[],
    p_reads JSONB[], p_error_codes TEXT[], p_error_messages TEXT[], p_latencies_ms INT[], p_replies_here BOOLEAN[], p_alone BOOLEAN,
    p_lock_wait_ms INT, p_are_written BOOLEAN
) RETURNS TABLE (nos INT[], states TEXT[], error_codes TEXT[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
    v_items    symphony.trigger_outbox_pending[] := p_items;
    v_results  JSONB[] := p_results;
    v_logs     JSONB[] := p_logs;
    v_messages TEXT[] := p_error_messages;
    v_times    INT[] := p_latencies_ms;
    v_here     BOOLEAN[] := p_replies_here;
    v_states   TEXT[];
    v_codes    TEXT[];
    v_deadline TIMESTAMPTZ;
    v_refused  TEXT;
    -- Places whose reads have changed, and the others.
    v_changed  INT[] := '{}'::INT[];
    v_kept     INT[];
    v_nos      INT[];
BEGIN
    states := p_states;
    error_codes := p_error_codes;
    IF EXISTS (SELECT FROM unnest(p_effects) e WHERE e IS NOT NULL) THEN
        v_deadline := (SELECT min(i.reply_deadline_at) FROM unnest(p_items) WITH ORDINALITY i WHERE p_effects[i.ordinality] IS NOT NULL);
        IF v_deadline IS NOT NULL THEN
            PERFORM set_config('lock_timeout', LEAST(p_lock_wait_ms, GREATEST(1,
                ceil(extract(epoch FROM v_deadline - clock_timestamp()) * 1000)::INT)) || 'ms', true);
        END IF;
        IF NOT p_alone THEN
            v_changed := symphony.apply_trigger_effects(p_items, p_effects, p_reads);
            IF v_deadline < clock_timestamp() THEN
                RAISE EXCEPTION 'effects have waited for locks until somebody''s deadline' USING ERRCODE = '55P03';
            END IF;
        ELSE
            BEGIN
                v_changed := symphony.apply_trigger_effects(p_items, p_effects, p_reads);
                IF v_deadline < clock_timestamp() THEN
                    RAISE EXCEPTION 'late' USING ERRCODE = 'P7012';
                END IF;
            EXCEPTION WHEN SQLSTATE 'P7011' THEN
                v_changed := '{1}';
            WHEN SQLSTATE 'P7012' THEN
                states := ARRAY['FAILED'];
                error_codes := ARRAY['REPLY_DEADLINE'];
                v_messages := ARRAY['its effects waited for locks until whoever waited for it had gone: nothing of it was applied'];
                v_results := NULL;
            WHEN SQLSTATE 'P7004' OR SQLSTATE 'P7005' OR data_exception OR integrity_constraint_violation THEN
                GET STACKED DIAGNOSTICS v_refused = MESSAGE_TEXT;
                states := ARRAY['FAILED'];
                error_codes := ARRAY['EFFECT_REFUSED'];
                v_messages := ARRAY['nothing of it was applied: ' || v_refused];
                v_results := NULL;
            END;
        END IF;
    END IF;
    v_states := states;
    v_codes := error_codes;
    IF cardinality(v_changed) > 0 THEN
        v_kept := ARRAY(SELECT i FROM generate_series(1, cardinality(p_items)) i WHERE i <> ALL (v_changed) ORDER BY i);
        v_items := ARRAY(SELECT v_items[i] FROM unnest(v_kept) WITH ORDINALITY k(i, o) ORDER BY o);
        v_states := ARRAY(SELECT v_states[i] FROM unnest(v_kept) WITH ORDINALITY k(i, o) ORDER BY o);
        v_results := ARRAY(SELECT v_results[i] FROM unnest(v_kept) WITH ORDINALITY k(i, o) ORDER BY o);
        v_logs := ARRAY(SELECT v_logs[i] FROM unnest(v_kept) WITH ORDINALITY k(i, o) ORDER BY o);
        v_codes := ARRAY(SELECT v_codes[i] FROM unnest(v_kept) WITH ORDINALITY k(i, o) ORDER BY o);
        v_messages := ARRAY(SELECT v_messages[i] FROM unnest(v_kept) WITH ORDINALITY k(i, o) ORDER BY o);
        v_times := ARRAY(SELECT v_times[i] FROM unnest(v_kept) WITH ORDINALITY k(i, o) ORDER BY o);
        v_here := ARRAY(SELECT v_here[i] FROM unnest(v_kept) WITH ORDINALITY k(i, o) ORDER BY o);
    END IF;
    IF cardinality(v_items) > 0 THEN
        IF p_are_written THEN
            DELETE FROM symphony.trigger_outbox_pending p WHERE p.id = ANY (ARRAY(SELECT i.id FROM unnest(v_items) i));
        END IF;
        v_nos := symphony.end_triggers(v_items, p_worker_id, v_states, v_results, v_logs, v_codes, v_messages, v_times, v_here);
    END IF;
    nos := CASE WHEN v_kept IS NULL THEN v_nos
                ELSE ARRAY(SELECT v_nos[array_position(v_kept, i)] FROM generate_series(1, cardinality(p_items)) i ORDER BY i) END;
    RETURN NEXT;
END $$;
