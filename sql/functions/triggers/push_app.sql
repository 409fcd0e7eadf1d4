-- push_app: create an app, or make it what its manifest says.
--
-- Moves    the app's scripts, routes, triggers, topics and queues; waiting messages -> pending, if their queue has a consumer now
-- Caller   symphony_operator, symphony_approver
-- Locks    the app and its queues
-- Refuses  P7005 for a manifest that is not right, naming the field, or a transaction above READ COMMITTED
-- Why      the manifest is the whole truth: what it does not name is gone. A script gets a new version only if it has
--          changed; a trigger keeps its id and its clock unless what it is has changed.
CREATE OR REPLACE FUNCTION public.push_app(p_app TEXT, p_manifest JSONB, p_actor TEXT, p_principal UUID DEFAULT NULL)
RETURNS TABLE (app_id UUID, created BOOLEAN, scripts_changed INT, routes INT, triggers INT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_defect  TEXT;
    v_scripts JSONB := coalesce(p_manifest->'scripts', '[]');
    v_routes  JSONB := coalesce(p_manifest->'routes', '[]');
    v_rules   JSONB := coalesce(p_manifest->'triggers', '[]');
    v_message public.queue_messages;
BEGIN
    PERFORM symphony_internal.require_read_committed();
    PERFORM symphony_internal.require_outbox_id('p_actor', p_actor);
    PERFORM symphony_internal.require_plain_json('p_manifest', p_manifest, 16384);
    v_defect := symphony_internal.manifest_defect(p_manifest);
    IF p_app IS NULL OR p_app !~ '^[a-z][a-z0-9-]*$' OR length(p_app) > 63 THEN
        RAISE EXCEPTION 'p_app must be a name for a URL: lowercase letters, digits and hyphens, a letter first, at most 63' USING ERRCODE = 'P7005';
    ELSIF v_defect IS NOT NULL THEN
        RAISE EXCEPTION '%', v_defect USING ERRCODE = 'P7005';
    END IF;
    LOOP
        INSERT INTO public.apps (name) VALUES (p_app) ON CONFLICT (name) DO NOTHING;
        created := FOUND;
        SELECT a.id INTO app_id FROM public.apps a WHERE a.name = p_app FOR UPDATE;
        -- Or somebody has deleted it just now.
        EXIT WHEN FOUND;
    END LOOP;

    INSERT INTO public.scripts (app_id, name, version, source, url, timeout_ms)
    SELECT push_app.app_id, s.name, coalesce(last.version, 0) + 1, s.source, s.url, s.timeout_ms
      FROM (SELECT e->>'name' AS name, e->>'source' AS source, e->>'url' AS url, coalesce((e->>'timeoutMs')::INT, 10000) AS timeout_ms
              FROM jsonb_array_elements(v_scripts) e) s
      LEFT JOIN LATERAL (SELECT x.* FROM public.scripts x WHERE x.app_id = push_app.app_id AND x.name = s.name
                          ORDER BY x.version DESC LIMIT 1) last ON true
     WHERE (last.source, last.url, last.timeout_ms) IS DISTINCT FROM (s.source, s.url, s.timeout_ms);
    GET DIAGNOSTICS scripts_changed = ROW_COUNT;

    -- Nobody sends to a queue while its consumers change.
    INSERT INTO public.queues (app_id, name) SELECT push_app.app_id, q FROM jsonb_array_elements_text(coalesce(p_manifest->'queues', '[]')) q
    ON CONFLICT DO NOTHING;
    PERFORM FROM public.queues q WHERE q.app_id = push_app.app_id ORDER BY q.name FOR UPDATE;
    -- A sender with an older snapshot would not see the new consumers, and its message would wait for nobody: 40001 instead.
    UPDATE public.queues q SET name = q.name WHERE q.app_id = push_app.app_id;
    INSERT INTO public.topics (app_id, name) SELECT push_app.app_id, t FROM jsonb_array_elements_text(coalesce(p_manifest->'topics', '[]')) t
    ON CONFLICT DO NOTHING;
    DELETE FROM public.topics t WHERE t.app_id = push_app.app_id AND NOT coalesce(p_manifest->'topics', '[]') ? t.name;
    -- A queue with messages stays until somebody has had them.
    DELETE FROM public.queues q WHERE q.app_id = push_app.app_id AND NOT coalesce(p_manifest->'queues', '[]') ? q.name
       AND NOT EXISTS (SELECT FROM public.queue_messages m WHERE m.app_id = q.app_id AND m.queue = q.name);

    DELETE FROM public.routes r WHERE r.app_id = push_app.app_id
       AND NOT EXISTS (SELECT FROM jsonb_array_elements(v_routes) e WHERE e->>'method' = r.method AND e->>'path' = r.path);
    INSERT INTO public.routes AS r (app_id, method, path, script_name, synchronous, wait_ms, attempts_max, backoff_seconds, registered_by_principal)
    SELECT push_app.app_id, e->>'method', e->>'path', e->>'script', coalesce(e->>'mode', 'sync') = 'sync', coalesce((e->>'waitMs')::INT, 10000),
           coalesce((e->>'attempts')::INT, 5), symphony_internal.manifest_backoff(e), p_principal
      FROM jsonb_array_elements(v_routes) e
    ON CONFLICT (app_id, method, path) DO UPDATE
       SET script_name = excluded.script_name, synchronous = excluded.synchronous, wait_ms = excluded.wait_ms,
           attempts_max = excluded.attempts_max, backoff_seconds = excluded.backoff_seconds,
           registered_by_principal = excluded.registered_by_principal;
    GET DIAGNOSTICS routes = ROW_COUNT;

    DELETE FROM public.triggers t WHERE t.app_id = push_app.app_id
       AND NOT EXISTS (SELECT FROM jsonb_array_elements(v_rules) e WHERE e->>'name' = t.name AND e->>'kind' = t.source_kind
                          AND e->>'filter' = t.filter
                          AND CASE e->>'kind' WHEN 'cron' THEN coalesce(e->>'timeZone', 'UTC') END IS NOT DISTINCT FROM t.time_zone);
    INSERT INTO public.triggers AS t (app_id, name, source_kind, filter, script_name, attempts_max, backoff_seconds, time_zone, catch_up,
                                      registered_by_principal)
    SELECT push_app.app_id, e->>'name', e->>'kind', e->>'filter', e->>'script', coalesce((e->>'attempts')::INT, 5),
           symphony_internal.manifest_backoff(e), CASE e->>'kind' WHEN 'cron' THEN coalesce(e->>'timeZone', 'UTC') END,
           coalesce(e->>'missed', 'skip') = 'catch_up', p_principal
      FROM jsonb_array_elements(v_rules) e
    ON CONFLICT (app_id, name) DO UPDATE
       SET script_name = excluded.script_name, attempts_max = excluded.attempts_max, backoff_seconds = excluded.backoff_seconds,
           catch_up = excluded.catch_up, registered_by_principal = excluded.registered_by_principal;
    GET DIAGNOSTICS triggers = ROW_COUNT;
    INSERT INTO public.trigger_cron (trigger_id)
    SELECT t.id FROM public.triggers t WHERE t.app_id = push_app.app_id AND t.source_kind = 'cron' ON CONFLICT DO NOTHING;

    FOR v_message IN WITH wanted AS (
                         DELETE FROM public.queue_messages m
                          WHERE m.app_id = push_app.app_id
                            AND EXISTS (SELECT FROM public.triggers t WHERE t.app_id = m.app_id AND t.source_kind = 'queue'
                                           AND symphony_internal.trigger_matches(t.filter, m.queue))
                         RETURNING m.*)
                     SELECT w.* FROM wanted w ORDER BY w.message_no
    LOOP
        PERFORM symphony_internal.send_message(v_message.app_id, 'queue', v_message.queue, v_message.payload, v_message.origin_principal,
            v_message.trigger_depth, v_message.parent_execution_id, v_message.root_execution_id, v_message.after_dead_letter);
    END LOOP;
    INSERT INTO public.trigger_outbox_events (event_type, app_id, actor, details)
    VALUES ('PUSHED', app_id, p_actor, jsonb_build_object('app', p_app, 'created', created, 'scripts_changed', scripts_changed,
                                                          'routes', routes, 'triggers', triggers));
    RETURN NEXT;
END $$;
