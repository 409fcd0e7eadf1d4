-- place_trigger_requests: write the items that many requests ask for; one answer each, by its number.
--
-- Moves    nothing -> pending (due at once), for everything that is right; nothing -> leased, where p_leased says so
-- Caller   enqueue_trigger_outbox_batch, enqueue_leased_triggers; nobody else may
-- Locks    the apps against deletion, in the order of their ids
-- Refuses  P7005 for arrays that do not fit together; what is not right is answered, not raised
-- Why      optimistic: what is right is written in one statement, and only the rest goes one by one, to hear why not.
--          Each item's meaning is place_trigger_request's. What is paused is leased to nobody: it is written and waits.
CREATE OR REPLACE FUNCTION symphony.place_trigger_requests(
    p_apps TEXT[], p_source_kinds TEXT[], p_trigger_ids UUID[], p_payloads JSONB[], p_origin_principals UUID[], p_reply_tos UUID[],
    p_waits_ms INT[], p_worker_id TEXT DEFAULT NULL, p_lease_seconds INT DEFAULT NULL, p_leased BOOLEAN[] DEFAULT NULL,
    p_traceparents TEXT[] DEFAULT NULL, p_ids UUID[] DEFAULT NULL, p_lease_tokens UUID[] DEFAULT NULL
) RETURNS TABLE (item_no INT, id UUID, app_id UUID, reply_deadline_at TIMESTAMPTZ, script_id UUID, principal UUID, lease_token UUID,
                 created_at TIMESTAMPTZ, error_code TEXT, error_message TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count  INT := cardinality(p_apps);
    v_now    TIMESTAMPTZ;
    v_leases BOOLEAN := false;
    v_ids    UUID[];
    v_placed INT;
BEGIN
    PERFORM symphony.require_outbox_count('p_apps', coalesce(v_count, 0), 4096);
    PERFORM symphony.require_same_length(v_count,
        ARRAY['p_source_kinds', 'p_trigger_ids', 'p_payloads', 'p_origin_principals', 'p_reply_tos', 'p_waits_ms', 'p_traceparents',
              'p_ids', 'p_lease_tokens'],
        ARRAY[cardinality(p_source_kinds), cardinality(p_trigger_ids), cardinality(p_payloads),
              coalesce(cardinality(p_origin_principals), v_count), coalesce(cardinality(p_reply_tos), v_count),
              coalesce(cardinality(p_waits_ms), v_count), coalesce(cardinality(p_traceparents), v_count),
              coalesce(cardinality(p_ids), v_count), coalesce(cardinality(p_lease_tokens), v_count)]);
    PERFORM symphony.require_outbox_bytes(
        pg_column_size(p_apps), pg_column_size(p_source_kinds), pg_column_size(p_trigger_ids), pg_column_size(p_payloads),
        pg_column_size(p_traceparents));
    PERFORM FROM symphony.apps a WHERE a.name = ANY (p_apps) ORDER BY a.id FOR KEY SHARE;
    v_ids := coalesce(p_ids, ARRAY(SELECT symphony.time_ordered_id() FROM generate_series(1, v_count)));
    IF p_worker_id IS NOT NULL THEN
        v_leases := NOT (SELECT s.paused FROM symphony.trigger_outbox_settings s WHERE s.only_row);
    END IF;
    v_now := clock_timestamp();
    RETURN QUERY
    WITH fired AS MATERIALIZED (
        SELECT t.item_no, t.id, a.id AS app_id, t.source_kind, t.trigger_id, s.id AS script_id, t.reply_to,
               CASE WHEN t.reply_to IS NOT NULL THEN v_now + make_interval(secs => t.wait_ms / 1000.0) END AS reply_deadline_at,
               t.payload, t.origin_principal, t.traceparent, f.registered_by_principal,
               CASE WHEN t.reply_to IS NULL THEN f.attempts_max ELSE 1 END AS attempts_max, f.backoff_seconds,
               CASE WHEN v_leases AND t.leased AND NOT a.paused THEN coalesce(t.lease_token, gen_random_uuid()) END AS lease_token
          FROM unnest(v_ids, p_apps, p_source_kinds, p_trigger_ids, p_payloads, p_origin_principals, p_reply_tos, p_waits_ms, p_leased,
                      p_traceparents, p_lease_tokens)
               WITH ORDINALITY t(id, app, source_kind, trigger_id, payload, origin_principal, reply_to, wait_ms, leased, traceparent, lease_token,
                                 item_no)
          JOIN symphony.apps a ON a.name = t.app
         CROSS JOIN LATERAL (
               SELECT r.script_name, r.registered_by_principal, r.attempts_max, r.backoff_seconds
                 FROM symphony.routes r WHERE t.source_kind = 'http' AND r.id = t.trigger_id AND r.app_id = a.id
                UNION ALL
               SELECT g.script_name, g.registered_by_principal, g.attempts_max, g.backoff_seconds
                 FROM symphony.triggers g WHERE g.id = t.trigger_id AND g.app_id = a.id AND g.source_kind = t.source_kind) f
         CROSS JOIN LATERAL (
               SELECT c.id FROM symphony.scripts c WHERE c.app_id = a.id AND c.name = f.script_name ORDER BY c.version DESC LIMIT 1) s
         WHERE jsonb_typeof(t.payload) = 'object'
           AND CASE WHEN symphony.json_defect(t.payload) IS NULL THEN octet_length(t.payload::TEXT) <= 2097152 END
           AND (t.reply_to IS NULL OR t.wait_ms BETWEEN 1 AND 300000)
           AND symphony.is_traceparent(t.traceparent) IS NOT FALSE
    ), placed AS (
        INSERT INTO symphony.trigger_outbox_pending
            (id, app_id, source_kind, trigger_id, script_id, reply_to, reply_deadline_at, payload, origin_principal, principal,
             root_execution_id, after_dead_letter, attempts_max, backoff_seconds, next_attempt_at, created_at, claimed_by, lease_token,
             claimed_at, lease_expires_at, traceparent)
        SELECT f.id, f.app_id, f.source_kind, f.trigger_id, f.script_id, f.reply_to, f.reply_deadline_at, f.payload, f.origin_principal,
               f.registered_by_principal, f.id, f.source_kind = 'dead_letter', f.attempts_max, f.backoff_seconds, v_now, v_now,
               CASE WHEN f.lease_token IS NOT NULL THEN p_worker_id END, f.lease_token, CASE WHEN f.lease_token IS NOT NULL THEN v_now END,
               CASE WHEN f.lease_token IS NOT NULL THEN v_now + make_interval(secs => p_lease_seconds) END, f.traceparent
          FROM fired f
    )
    SELECT f.item_no::INT, f.id, f.app_id, f.reply_deadline_at, f.script_id, f.registered_by_principal, f.lease_token, v_now, NULL::TEXT,
           NULL::TEXT
      FROM fired f;
    GET DIAGNOSTICS v_placed = ROW_COUNT;
    IF v_placed = v_count THEN
        RETURN;
    END IF;
    FOR i IN 1 .. v_count LOOP
        CONTINUE WHEN EXISTS (SELECT FROM symphony.trigger_outbox_pending p WHERE p.id = v_ids[i]);
        item_no := i;
        id := NULL; app_id := NULL; reply_deadline_at := NULL; script_id := NULL; principal := NULL; lease_token := NULL; created_at := NULL;
        error_code := NULL; error_message := NULL;
        BEGIN
            SELECT e.id, e.app_id, e.reply_deadline_at INTO id, app_id, reply_deadline_at
              FROM symphony.place_trigger_request(p_apps[i], p_source_kinds[i], p_trigger_ids[i], p_payloads[i], p_origin_principals[i],
                                                p_reply_tos[i], p_waits_ms[i], p_traceparents[i]) e;
        EXCEPTION WHEN SQLSTATE 'P7005' OR SQLSTATE 'P7007' THEN
            GET STACKED DIAGNOSTICS error_code = RETURNED_SQLSTATE, error_message = MESSAGE_TEXT;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
