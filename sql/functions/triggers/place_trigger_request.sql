-- place_trigger_request: write the item that one request to fire a route or trigger asks for, or raise why not.
--
-- Moves    nothing -> pending (due at once)
-- Caller   the careful path of enqueue_trigger_outbox_batch; nobody else may
-- Locks    the app against deletion
-- Refuses  P7005 invalid argument, P7007 no such app, route or trigger
-- Why      the words for each refusal exist once.
CREATE OR REPLACE FUNCTION symphony.place_trigger_request(
    p_app TEXT, p_source_kind TEXT, p_trigger_id UUID, p_payload JSONB, p_origin_principal UUID, p_reply_to UUID,
    p_wait_ms INT, p_traceparent TEXT DEFAULT NULL
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
    PERFORM symphony.require_plain_json('p_payload', p_payload, 2048);
    IF NOT symphony.is_traceparent(p_traceparent) THEN
        RAISE EXCEPTION 'p_traceparent must be a W3C trace context of version 00, or be left out' USING ERRCODE = 'P7005';
    END IF;
    IF p_reply_to IS NOT NULL THEN
        PERFORM symphony.require_outbox_count('p_wait_ms', p_wait_ms, 300000);
        reply_deadline_at := clock_timestamp() + make_interval(secs => p_wait_ms / 1000.0);
    END IF;
    app_id := symphony.require_app(p_app);
    IF p_source_kind = 'http' THEN
        SELECT r.script_name, r.registered_by_principal, r.attempts_max, r.backoff_seconds INTO v_script, v_principal, v_attempts, v_backoff
          FROM symphony.routes r WHERE r.id = p_trigger_id AND r.app_id = place_trigger_request.app_id;
    ELSE
        SELECT t.script_name, t.registered_by_principal, t.attempts_max, t.backoff_seconds INTO v_script, v_principal, v_attempts, v_backoff
          FROM symphony.triggers t WHERE t.id = p_trigger_id AND t.app_id = place_trigger_request.app_id AND t.source_kind = p_source_kind;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_trigger_id: the app has no such % for %', CASE p_source_kind WHEN 'http' THEN 'route' ELSE 'trigger' END, p_source_kind
            USING ERRCODE = 'P7007';
    END IF;
    id := symphony.place_trigger(
        app_id, p_source_kind, p_trigger_id, v_script, p_payload, p_origin_principal, v_principal, 0, NULL, NULL, false, v_attempts, v_backoff,
        p_reply_to, reply_deadline_at, p_traceparent => p_traceparent);
    RETURN NEXT;
END $$;
