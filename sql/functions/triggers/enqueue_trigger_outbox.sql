-- enqueue_trigger_outbox: fire one route or trigger of an app, inside the caller's own transaction.
--
-- Moves    nothing -> pending (due at once)
-- Caller   symphony_ingest; what serves HTTP and email
-- Locks    the app against deletion
-- Refuses  P7005 invalid argument, P7007 no such app, route or trigger
-- Why      with p_reply_to somebody waits: the item is tried once, and not at all once p_wait_ms is over.
CREATE OR REPLACE FUNCTION public.enqueue_trigger_outbox(
    p_app TEXT, p_source_kind TEXT, p_trigger_id UUID, p_payload JSONB, p_origin_principal UUID DEFAULT NULL, p_reply_to UUID DEFAULT NULL,
    p_wait_ms INT DEFAULT NULL
) RETURNS TABLE (id UUID, app_id UUID, reply_deadline_at TIMESTAMPTZ)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_script    TEXT;
    v_principal UUID;
    v_attempts  INT;
    v_backoff   INT[];
BEGIN
    IF jsonb_typeof(p_payload) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'p_payload must be a JSON object' USING ERRCODE = 'P7005';
    ELSIF p_source_kind IS NULL OR p_source_kind NOT IN ('http', 'kv', 'cron', 'pubsub', 'queue', 'email', 'dead_letter') THEN
        RAISE EXCEPTION 'p_source_kind must be http, kv, cron, pubsub, queue, email or dead_letter' USING ERRCODE = 'P7005';
    END IF;
    PERFORM symphony_internal.require_plain_json('p_payload', p_payload, 2048);
    IF p_reply_to IS NOT NULL THEN
        PERFORM symphony_internal.require_outbox_count('p_wait_ms', p_wait_ms, 300000);
        reply_deadline_at := clock_timestamp() + make_interval(secs => p_wait_ms / 1000.0);
    END IF;
    app_id := symphony_internal.require_app(p_app);
    IF p_source_kind = 'http' THEN
        SELECT r.script_name, r.registered_by_principal, r.attempts_max, r.backoff_seconds INTO v_script, v_principal, v_attempts, v_backoff
          FROM public.routes r WHERE r.id = p_trigger_id AND r.app_id = enqueue_trigger_outbox.app_id;
    ELSE
        SELECT t.script_name, t.registered_by_principal, t.attempts_max, t.backoff_seconds INTO v_script, v_principal, v_attempts, v_backoff
          FROM public.triggers t WHERE t.id = p_trigger_id AND t.app_id = enqueue_trigger_outbox.app_id AND t.source_kind = p_source_kind;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_trigger_id: the app has no such % for %', CASE p_source_kind WHEN 'http' THEN 'route' ELSE 'trigger' END, p_source_kind
            USING ERRCODE = 'P7007';
    END IF;
    id := symphony_internal.place_trigger(
        app_id, p_source_kind, p_trigger_id, v_script, p_payload, p_origin_principal, v_principal, 0, NULL, NULL, false, v_attempts, v_backoff,
        p_reply_to, reply_deadline_at);
    RETURN NEXT;
END $$;
