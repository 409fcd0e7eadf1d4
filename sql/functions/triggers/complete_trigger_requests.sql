-- complete_trigger_requests: requests that ran before they were written; write each down as it ended, with its effects.
--
-- Moves    nothing -> terminal
-- Caller   symphony_executor: what serves HTTP and runs scripts
-- Locks    the apps against deletion and pushes, in the order of their ids, then what the effects need
-- Refuses  P7005 for arrays that do not fit together, or a transaction above READ COMMITTED; P7004, P7005 or another's own
--          code for an effect that is not right, if the call completes more than one; P7020 another server than on record;
--          55P03 as in complete_trigger_outbox_attempts; 23505 while an earlier call with the same ids is being committed;
--          per item, answered in `result` and never raised: P7011 what its run had read has changed, and STALE its route
--          leads to another script by now, or something is paused: nothing was done, and nothing is written of it
-- Why      a short run needs no row of its own before it ends: whatever it wants to have done is data, and nobody was told
--          anything. So a request costs one call and one durable commit. It ran what was current a moment before: whether
--          that is still so is decided here, under the app's lock; what is not is written and run as any request. What
--          lets something leave, or takes longer, is written first (enqueue_leased_triggers) and completed as everything.
--          What succeeded without effects, for somebody in the same process, fires nothing and wakes nobody: two rows, in one
--          statement. The checks are one statement too: each has a price that eight requests do not have.
CREATE OR REPLACE FUNCTION symphony.complete_trigger_requests(
    p_worker_id TEXT, p_ids UUID[], p_lease_tokens UUID[], p_app_ids UUID[], p_route_ids UUID[], p_script_ids UUID[], p_payloads JSONB[],
    p_origin_principals UUID[], p_reply_tos UUID[], p_waits_ms INT[], p_waited_ms INT[], p_traceparents TEXT[], p_states TEXT[],
    p_results JSONB[], p_logs JSONB[], p_effects JSONB[], p_error_codes TEXT[], p_error_messages TEXT[], p_latencies_ms INT[],
    p_replies_here BOOLEAN[], p_reads JSONB[], p_lock_wait_ms INT
) RETURNS TABLE (item_no INT, result TEXT, state symphony.outbox_attempt_state, error_code TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count    INT := cardinality(p_ids);
    v_now      TIMESTAMPTZ;
    -- What is as its run has taken it to be, in the order given: written at once, and what takes more than that.
    v_written  INT[];
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
    v_plain    INT := 1;
BEGIN
    PERFORM symphony.require_outbox_count('p_ids', coalesce(v_count, 0), 4096),
            symphony.require_outbox_id('p_worker_id', p_worker_id),
            symphony.require_read_committed(),
            symphony.require_same_length(v_count,
                ARRAY['p_lease_tokens', 'p_app_ids', 'p_route_ids', 'p_script_ids', 'p_payloads', 'p_origin_principals', 'p_reply_tos', 'p_waits_ms',
                      'p_waited_ms', 'p_traceparents', 'p_states', 'p_results', 'p_logs', 'p_effects', 'p_error_codes', 'p_error_messages',
                      'p_latencies_ms', 'p_replies_here', 'p_reads'],
                ARRAY[cardinality(p_lease_tokens), cardinality(p_app_ids), cardinality(p_route_ids), cardinality(p_script_ids), cardinality(p_payloads),
                      coalesce(cardinality(p_origin_principals), v_count), cardinality(p_reply_tos), cardinality(p_waits_ms), cardinality(p_waited_ms),
                      coalesce(cardinality(p_traceparents), v_count), cardinality(p_states), coalesce(cardinality(p_results), v_count),
                      coalesce(cardinality(p_logs), v_count), coalesce(cardinality(p_effects), v_count), coalesce(cardinality(p_error_codes), v_count),
                      coalesce(cardinality(p_error_messages), v_count), cardinality(p_latencies_ms), cardinality(p_replies_here),
                      coalesce(cardinality(p_reads), v_count)]),
            symphony.require_outbox_bytes(
                pg_column_size(p_payloads), pg_column_size(p_traceparents), pg_column_size(p_states), pg_column_size(p_results), pg_column_size(p_logs),
                pg_column_size(p_effects), pg_column_size(p_error_codes), pg_column_size(p_error_messages), pg_column_size(p_reads)),
            symphony.require_outbox_count('p_lock_wait_ms', p_lock_wait_ms, 60000),
            symphony.require_known_server(),
            set_config('lock_timeout', p_lock_wait_ms || 'ms', true);
    -- A repeated call is answered as the first. What the first did not write it has answered so, and may run again.
    IF EXISTS (SELECT FROM symphony.trigger_outbox_attempts a WHERE a.id = ANY (p_ids)) THEN
        RETURN QUERY
        SELECT t.item_no::INT, CASE WHEN a.id IS NULL THEN 'P7011' ELSE 'OK' END, a.state, a.error_code
          FROM unnest(p_ids, p_lease_tokens) WITH ORDINALITY t(id, lease_token, item_no)
          LEFT JOIN symphony.trigger_outbox_attempts a ON a.id = t.id AND a.lease_token = t.lease_token AND a.state IN ('DISPATCHED', 'FAILED');
        RETURN;
    END IF;
    PERFORM FROM symphony.apps a WHERE a.id = ANY (p_app_ids) ORDER BY a.id FOR KEY SHARE;
    v_now := clock_timestamp();
    WITH served AS MATERIALIZED (
        SELECT r.id AS route_id, r.app_id, a.name AS app_name, s.id AS script_id, s.name AS script_name, s.version AS script_version,
               r.registered_by_principal, r.backoff_seconds
          FROM symphony.routes r
          JOIN symphony.apps a ON a.id = r.app_id
         CROSS JOIN LATERAL (
               SELECT c.id, c.name, c.version FROM symphony.scripts c WHERE c.app_id = r.app_id AND c.name = r.script_name
                ORDER BY c.version DESC LIMIT 1) s
         WHERE r.id = ANY (ARRAY(SELECT DISTINCT unnest(p_route_ids))) AND NOT a.paused
           AND NOT (SELECT l.paused FROM symphony.trigger_outbox_settings l WHERE l.only_row)
    ), judged AS MATERIALIZED (
        SELECT j.*, j.state = 'DISPATCHED' AND NOT j.late AND j.defect IS NULL AND j.here IS TRUE AND (j.effects IS NULL OR j.effects = '[]')
                    AND j.error_code IS NULL AND j.error_message IS NULL AS is_plain
          FROM (SELECT t.*, s.app_name, s.script_name, s.script_version, s.registered_by_principal, s.backoff_seconds, t.wait_ms <= 0 AS late,
                       symphony.json_defect(t.result) AS defect, v_now - make_interval(secs => t.waited_ms / 1000.0) AS asked_at,
                       v_now - make_interval(secs => t.latency_ms / 1000.0) AS began_at
                  FROM unnest(p_ids, p_lease_tokens, p_app_ids, p_route_ids, p_script_ids, p_payloads, p_origin_principals, p_reply_tos, p_waits_ms,
                              p_waited_ms, p_traceparents, p_states, p_results, p_logs, p_effects, p_error_codes, p_error_messages,
                              p_latencies_ms, p_replies_here, p_reads)
                       WITH ORDINALITY t(id, lease_token, app_id, route_id, script_id, payload, origin_principal, reply_to, wait_ms, waited_ms,
                                         traceparent, state, result, logs, effects, error_code, error_message, latency_ms, here, reads, item_no)
                  JOIN served s ON s.route_id = t.route_id AND s.script_id = t.script_id AND s.app_id = t.app_id
                 WHERE jsonb_typeof(t.payload) = 'object' AND t.reply_to IS NOT NULL AND t.wait_ms <= 300000
                   AND CASE WHEN symphony.json_defect(t.payload) IS NULL THEN octet_length(t.payload::TEXT) <= 2097152 END
                   AND symphony.is_traceparent(t.traceparent) IS NOT FALSE AND t.state IN ('DISPATCHED', 'FAILED', 'RETRYABLE')) j
         ORDER BY j.item_no
    ), outcomes AS (
        INSERT INTO symphony.trigger_outbox_attempts
            (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, latency_ms, worker_id, lease_token, claimed_at)
        SELECT j.id, 1, j.app_id, 'http', j.route_id, j.script_id, j.id, 'DISPATCHED', j.latency_ms, p_worker_id, j.lease_token, j.began_at
          FROM judged j WHERE j.is_plain
    ), executions AS (
        INSERT INTO symphony.trigger_outbox_executions
            (id, app_id, app_name, source_kind, trigger_id, script_id, script_name, script_version, root_execution_id, trigger_depth, reply_to,
             origin_principal, principal, payload, state, result, logs, attempts, created_at, traceparent)
        SELECT j.id, j.app_id, j.app_name, 'http', j.route_id, j.script_id, j.script_name, j.script_version, j.id, 0, j.reply_to,
               j.origin_principal, j.registered_by_principal, j.payload, 'DISPATCHED', j.result,
               CASE WHEN symphony.json_defect(j.logs) IS NULL THEN coalesce(j.logs, '[]') ELSE '[]' END, 1, j.asked_at, j.traceparent
          FROM judged j WHERE j.is_plain
    )
    SELECT (SELECT array_agg(w.item_no ORDER BY w.item_no) FROM judged w WHERE w.is_plain), array_agg(j.item_no),
           array_agg(ROW(j.id, j.app_id, 'http', j.route_id, j.script_id, j.reply_to, v_now + make_interval(secs => j.wait_ms / 1000.0), j.payload,
                         j.origin_principal, j.registered_by_principal, 0, NULL, j.id, false, 0, 1, j.backoff_seconds, NULL, NULL, false,
                         j.asked_at, j.asked_at, p_worker_id, j.lease_token, v_now, j.began_at, j.traceparent
                        )::symphony.trigger_outbox_pending),
           -- Somebody waits for each: one attempt.
           array_agg(CASE WHEN j.late OR j.defect IS NOT NULL OR j.state = 'RETRYABLE' THEN 'FAILED' ELSE j.state END),
           array_agg(CASE WHEN NOT j.late AND j.defect IS NULL THEN j.result END),
           array_agg(CASE WHEN symphony.json_defect(j.logs) IS NULL THEN j.logs END),
           array_agg(CASE WHEN j.state = 'DISPATCHED' AND NOT j.late AND j.defect IS NULL AND j.effects <> '[]' THEN j.effects END),
           array_agg(j.reads),
           array_agg(CASE WHEN j.late THEN 'REPLY_DEADLINE' WHEN j.defect IS NOT NULL THEN 'RESULT_REFUSED' ELSE j.error_code END),
           array_agg(CASE WHEN j.late THEN 'the answer came after whoever waited for it had gone: nothing of it was applied'
                          WHEN j.defect IS NOT NULL THEN 'the result ' || j.defect || ': nothing of it was applied'
                          ELSE j.error_message END),
           array_agg(j.latency_ms), array_agg(j.here)
      INTO v_written, v_ended, v_items, v_states, v_results, v_logs, v_effects, v_reads, v_codes, v_messages, v_times, v_here
      FROM judged j WHERE NOT j.is_plain;
    IF cardinality(v_ended) > 0 THEN
        SELECT s.nos, s.states, s.error_codes INTO v_nos, v_states, v_codes
          FROM symphony.settle_triggers(p_worker_id, v_items, v_states, v_results, v_logs, v_effects, CASE WHEN p_reads IS NOT NULL THEN v_reads END,
                                        v_codes, v_messages, v_times, v_here, v_count = 1, p_lock_wait_ms, false) s;
    END IF;
    FOR i IN 1 .. v_count LOOP
        item_no := i;
        state := NULL;
        error_code := NULL;
        IF i = v_written[v_plain] THEN
            result := 'OK';
            state := 'DISPATCHED';
            v_plain := v_plain + 1;
        ELSIF i IS DISTINCT FROM v_ended[v_next] THEN
            result := 'STALE';
        ELSE
            result := CASE WHEN v_nos[v_next] IS NULL THEN 'P7011' ELSE 'OK' END;
            IF result = 'OK' THEN
                state := v_states[v_next]::symphony.outbox_attempt_state;
                error_code := v_codes[v_next];
            END IF;
            v_next := v_next + 1;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
