-- enqueue_trigger_outbox_batch: fire many routes or triggers at once; one answer each, by its number.
--
-- Moves    nothing -> pending (due at once), for everything that is right
-- Caller   symphony_ingest; what serves HTTP
-- Locks    the apps against deletion, in the order of their ids
-- Refuses  P7005 for arrays that do not fit together; what is not right is answered, not raised
-- Why      optimistic: what is right is written in one statement, and only the rest goes one by one, to hear why not.
--          Each item's meaning is enqueue_trigger_outbox's.
CREATE OR REPLACE FUNCTION public.enqueue_trigger_outbox_batch(
    p_apps TEXT[], p_source_kinds TEXT[], p_trigger_ids UUID[], p_payloads JSONB[], p_origin_principals UUID[] DEFAULT NULL,
    p_reply_tos UUID[] DEFAULT NULL, p_waits_ms INT[] DEFAULT NULL
) RETURNS TABLE (item_no INT, id UUID, app_id UUID, reply_deadline_at TIMESTAMPTZ, error_code TEXT, error_message TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count  INT := cardinality(p_apps);
    v_ids    UUID[];
    v_placed INT;
BEGIN
    PERFORM symphony_internal.require_outbox_count('p_apps', coalesce(v_count, 0), 4096);
    PERFORM symphony_internal.require_same_length(v_count,
        ARRAY['p_source_kinds', 'p_trigger_ids', 'p_payloads', 'p_origin_principals', 'p_reply_tos', 'p_waits_ms'],
        ARRAY[cardinality(p_source_kinds), cardinality(p_trigger_ids), cardinality(p_payloads),
              coalesce(cardinality(p_origin_principals), v_count), coalesce(cardinality(p_reply_tos), v_count),
              coalesce(cardinality(p_waits_ms), v_count)]);
    PERFORM symphony_internal.require_outbox_bytes(
        pg_column_size(p_apps), pg_column_size(p_source_kinds), pg_column_size(p_trigger_ids), pg_column_size(p_payloads));
    PERFORM FROM public.apps a WHERE a.name = ANY (p_apps) ORDER BY a.id FOR KEY SHARE;
    v_ids := ARRAY(SELECT symphony_internal.time_ordered_id() FROM generate_series(1, v_count));
    RETURN QUERY
    WITH fired AS MATERIALIZED (
        SELECT t.item_no, t.id, a.id AS app_id, t.source_kind, t.trigger_id, s.id AS script_id, t.reply_to,
               CASE WHEN t.reply_to IS NOT NULL THEN clock_timestamp() + make_interval(secs => t.wait_ms / 1000.0) END AS reply_deadline_at,
               t.payload, t.origin_principal, f.registered_by_principal,
               CASE WHEN t.reply_to IS NULL THEN f.attempts_max ELSE 1 END AS attempts_max, f.backoff_seconds
          FROM unnest(v_ids, p_apps, p_source_kinds, p_trigger_ids, p_payloads, p_origin_principals, p_reply_tos, p_waits_ms)
               WITH ORDINALITY t(id, app, source_kind, trigger_id, payload, origin_principal, reply_to, wait_ms, item_no)
          JOIN public.apps a ON a.name = t.app
         CROSS JOIN LATERAL (
               SELECT r.script_name, r.registered_by_principal, r.attempts_max, r.backoff_seconds
                 FROM public.routes r WHERE t.source_kind = 'http' AND r.id = t.trigger_id AND r.app_id = a.id
                UNION ALL
               SELECT g.script_name, g.registered_by_principal, g.attempts_max, g.backoff_seconds
                 FROM public.triggers g WHERE g.id = t.trigger_id AND g.app_id = a.id AND g.source_kind = t.source_kind) f
         CROSS JOIN LATERAL (
               SELECT c.id FROM public.scripts c WHERE c.app_id = a.id AND c.name = f.script_name ORDER BY c.version DESC LIMIT 1) s
         WHERE jsonb_typeof(t.payload) = 'object'
           AND CASE WHEN symphony_internal.json_defect(t.payload) IS NULL THEN octet_length(t.payload::TEXT) <= 2097152 END
           AND (t.reply_to IS NULL OR t.wait_ms BETWEEN 1 AND 300000)
    ), placed AS (
        INSERT INTO public.trigger_outbox_pending
            (id, app_id, source_kind, trigger_id, script_id, reply_to, reply_deadline_at, payload, origin_principal, principal,
             root_execution_id, after_dead_letter, attempts_max, backoff_seconds)
        SELECT f.id, f.app_id, f.source_kind, f.trigger_id, f.script_id, f.reply_to, f.reply_deadline_at, f.payload, f.origin_principal,
               f.registered_by_principal, f.id, f.source_kind = 'dead_letter', f.attempts_max, f.backoff_seconds
          FROM fired f
    )
    SELECT f.item_no::INT, f.id, f.app_id, f.reply_deadline_at, NULL::TEXT, NULL::TEXT FROM fired f;
    GET DIAGNOSTICS v_placed = ROW_COUNT;
    IF v_placed = v_count THEN
        RETURN;
    END IF;
    FOR i IN 1 .. v_count LOOP
        CONTINUE WHEN EXISTS (SELECT FROM public.trigger_outbox_pending p WHERE p.id = v_ids[i]);
        item_no := i;
        id := NULL; app_id := NULL; reply_deadline_at := NULL; error_code := NULL; error_message := NULL;
        BEGIN
            SELECT e.id, e.app_id, e.reply_deadline_at INTO id, app_id, reply_deadline_at
              FROM public.enqueue_trigger_outbox(p_apps[i], p_source_kinds[i], p_trigger_ids[i], p_payloads[i], p_origin_principals[i],
                                                 p_reply_tos[i], p_waits_ms[i]) e;
        EXCEPTION WHEN SQLSTATE 'P7005' OR SQLSTATE 'P7007' THEN
            GET STACKED DIAGNOSTICS error_code = RETURNED_SQLSTATE, error_message = MESSAGE_TEXT;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
