-- push_app: create an app, or make it what its manifest says.
--
-- Moves    the app's scripts, routes, triggers, addresses, topics and queues; waiting messages -> pending, if their queue has a consumer now
-- Caller   symphony_operator, symphony_approver
-- Locks    the app and its queues; with mail also the lane's settings
-- Refuses  P7005 for a manifest that is not right, naming the field, or a transaction above READ COMMITTED, P7006 mail that
--          is another app's, P7008 approval
-- Why      the manifest is the whole truth: what it does not name is gone. A script gets a new version only if it has
--          changed; a trigger keeps its id and its clock unless what it is has changed, a route its id unless who may call
--          it has: so what a server has let in by older rules is not taken. Scripts run as who pushed them, which the
--          session proves and nobody names.
CREATE OR REPLACE FUNCTION symphony.push_app(p_app TEXT, p_manifest JSONB, p_actor TEXT)
RETURNS TABLE (app_id UUID, created BOOLEAN, scripts_changed INT, routes INT, triggers INT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_defect  TEXT;
    v_scripts JSONB := coalesce(p_manifest->'scripts', '[]');
    v_routes  JSONB := coalesce(p_manifest->'routes', '[]');
    v_rules   JSONB := coalesce(p_manifest->'triggers', '[]');
    v_message symphony.queue_messages;
    v_pusher  UUID;
BEGIN
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_outbox_id('p_actor', p_actor);
    PERFORM symphony.require_outbox_approval('triggers');
    PERFORM symphony.require_plain_json('p_manifest', p_manifest, 16384);
    v_defect := symphony.manifest_defect(p_manifest);
    IF p_app IS NULL OR p_app !~ '^[a-z][a-z0-9-]*$' OR length(p_app) > 63 THEN
        RAISE EXCEPTION 'p_app must be a name for a URL: lowercase letters, digits and hyphens, a letter first, at most 63' USING ERRCODE = 'P7005';
    ELSIF v_defect IS NOT NULL THEN
        RAISE EXCEPTION '%', v_defect USING ERRCODE = 'P7005';
    END IF;
    v_pusher := symphony.acting_principal();
    LOOP
        INSERT INTO symphony.apps (name) VALUES (p_app) ON CONFLICT (name) DO NOTHING;
        created := FOUND;
        SELECT a.id INTO app_id FROM symphony.apps a WHERE a.name = p_app FOR UPDATE;
        -- Or somebody has deleted it just now.
        EXIT WHEN FOUND;
    END LOOP;

    PERFORM symphony.claim_mail_addresses(app_id, p_app, p_manifest);
    UPDATE symphony.apps a SET cors = p_manifest->'cors' WHERE a.id = push_app.app_id AND a.cors IS DISTINCT FROM p_manifest->'cors';

    INSERT INTO symphony.trigger_retention AS r (app_id, executions_days, logs_days)
    SELECT push_app.app_id, (w->>'executionsDays')::INT, (w->>'logsDays')::INT FROM (SELECT coalesce(p_manifest->'retention', '{}') AS w) d
     WHERE w <> '{}' OR EXISTS (SELECT FROM symphony.trigger_retention o WHERE o.app_id = push_app.app_id)
    ON CONFLICT (app_id) DO UPDATE SET executions_days = excluded.executions_days, logs_days = excluded.logs_days
     WHERE (r.executions_days, r.logs_days) IS DISTINCT FROM (excluded.executions_days, excluded.logs_days);

    INSERT INTO symphony.scripts (app_id, name, version, source, file, modules, url, timeout_ms)
    SELECT push_app.app_id, s.name, coalesce(last.version, 0) + 1, s.source, s.file, s.modules, s.url, s.timeout_ms
      FROM (SELECT e->>'name' AS name, e->>'source' AS source, e->>'file' AS file, coalesce(e->'modules', '{}') AS modules,
                   e->>'url' AS url, coalesce((e->>'timeoutMs')::INT, 10000) AS timeout_ms
              FROM jsonb_array_elements(v_scripts) e) s
      LEFT JOIN LATERAL (SELECT x.* FROM symphony.scripts x WHERE x.app_id = push_app.app_id AND x.name = s.name
                          ORDER BY x.version DESC LIMIT 1) last ON true
     WHERE (last.source, last.file, last.modules, last.url, last.timeout_ms)
           IS DISTINCT FROM (s.source, s.file, s.modules, s.url, s.timeout_ms);
    GET DIAGNOSTICS scripts_changed = ROW_COUNT;

    -- Nobody sends to a queue while its consumers change.
    INSERT INTO symphony.queues AS q (app_id, name, serial) SELECT push_app.app_id, d.name, d.serial FROM symphony.manifest_queues(p_manifest) d
    ON CONFLICT (app_id, name) DO UPDATE SET serial = excluded.serial WHERE q.serial <> excluded.serial;
    PERFORM FROM symphony.queues q WHERE q.app_id = push_app.app_id ORDER BY q.name FOR UPDATE;
    -- A sender with an older snapshot would not see the new consumers, and its message would wait for nobody: 40001 instead.
    UPDATE symphony.queues q SET name = q.name WHERE q.app_id = push_app.app_id;
    INSERT INTO symphony.topics (app_id, name) SELECT push_app.app_id, t FROM jsonb_array_elements_text(coalesce(p_manifest->'topics', '[]')) t
    ON CONFLICT DO NOTHING;
    DELETE FROM symphony.topics t WHERE t.app_id = push_app.app_id AND NOT coalesce(p_manifest->'topics', '[]') ? t.name;
    -- A queue with messages stays until somebody has had them.
    DELETE FROM symphony.queues q WHERE q.app_id = push_app.app_id AND NOT EXISTS (SELECT FROM symphony.manifest_queues(p_manifest) d WHERE d.name = q.name)
       AND NOT EXISTS (SELECT FROM symphony.queue_messages m WHERE m.app_id = q.app_id AND m.queue = q.name);

    DELETE FROM symphony.routes r WHERE r.app_id = push_app.app_id
       AND NOT EXISTS (SELECT FROM jsonb_array_elements(v_routes) e WHERE e->>'method' = r.method AND e->>'path' = r.path);
    INSERT INTO symphony.routes AS r (app_id, method, path, script_name, synchronous, wait_ms, attempts_max, backoff_seconds, raw_body, registered_by_principal,
                                    auth, signature, secret_name)
    SELECT push_app.app_id, e->>'method', e->>'path', e->>'script', coalesce(e->>'mode', 'sync') = 'sync', coalesce((e->>'waitMs')::INT, 10000),
           coalesce((e->>'attempts')::INT, 5), symphony.manifest_backoff(e), coalesce((e->>'rawBody')::BOOLEAN, false), v_pusher, coalesce(e->>'auth', 'none'), e->>'signature', e->>'secret'
      FROM jsonb_array_elements(v_routes) e
    ON CONFLICT (app_id, method, path) DO UPDATE
       SET id = CASE WHEN (r.auth, r.signature, r.secret_name) IS DISTINCT FROM (excluded.auth, excluded.signature, excluded.secret_name)
                     THEN excluded.id ELSE r.id END,
           script_name = excluded.script_name, synchronous = excluded.synchronous, wait_ms = excluded.wait_ms,
           attempts_max = excluded.attempts_max, backoff_seconds = excluded.backoff_seconds, raw_body = excluded.raw_body,
           registered_by_principal = excluded.registered_by_principal, auth = excluded.auth, signature = excluded.signature,
           secret_name = excluded.secret_name;
    GET DIAGNOSTICS routes = ROW_COUNT;

    DELETE FROM symphony.triggers t WHERE t.app_id = push_app.app_id
       AND NOT EXISTS (SELECT FROM jsonb_array_elements(v_rules) e WHERE e->>'name' = t.name AND e->>'kind' = t.source_kind
                          AND e->>'filter' = t.filter
                          AND CASE e->>'kind' WHEN 'cron' THEN coalesce(e->>'timeZone', 'UTC') END IS NOT DISTINCT FROM t.time_zone);
    INSERT INTO symphony.triggers AS t (app_id, name, source_kind, filter, script_name, attempts_max, backoff_seconds, time_zone, catch_up,
                                      registered_by_principal)
    SELECT push_app.app_id, e->>'name', e->>'kind', e->>'filter', e->>'script', coalesce((e->>'attempts')::INT, 5),
           symphony.manifest_backoff(e), CASE e->>'kind' WHEN 'cron' THEN coalesce(e->>'timeZone', 'UTC') END,
           coalesce(e->>'missed', 'skip') = 'catch_up', v_pusher
      FROM jsonb_array_elements(v_rules) e
    ON CONFLICT (app_id, name) DO UPDATE
       SET script_name = excluded.script_name, attempts_max = excluded.attempts_max, backoff_seconds = excluded.backoff_seconds,
           catch_up = excluded.catch_up, registered_by_principal = excluded.registered_by_principal;
    GET DIAGNOSTICS triggers = ROW_COUNT;
    INSERT INTO symphony.trigger_cron (trigger_id)
    SELECT t.id FROM symphony.triggers t WHERE t.app_id = push_app.app_id AND t.source_kind = 'cron' ON CONFLICT DO NOTHING;

    FOR v_message IN WITH wanted AS (
                         DELETE FROM symphony.queue_messages m
                          WHERE m.app_id = push_app.app_id
                            AND EXISTS (SELECT FROM symphony.triggers t WHERE t.app_id = m.app_id AND t.source_kind = 'queue'
                                           AND symphony.trigger_matches(t.filter, m.queue))
                         RETURNING m.*)
                     SELECT w.* FROM wanted w ORDER BY w.message_no
    LOOP
        PERFORM symphony.send_message(v_message.app_id, 'queue', v_message.queue, v_message.payload, v_message.origin_principal,
            v_message.trigger_depth, v_message.parent_execution_id, v_message.root_execution_id, v_message.after_dead_letter, v_message.message_key);
    END LOOP;
    PERFORM symphony.keep_app_push(app_id, p_manifest, p_actor, v_pusher);
    INSERT INTO symphony.trigger_outbox_events (event_type, app_id, actor, approver, details)
    VALUES ('PUSHED', app_id, p_actor, symphony.approved_outbox_act(), jsonb_build_object('app', p_app, 'created', created, 'scripts_changed', scripts_changed,
                                                          'routes', routes, 'triggers', triggers, 'principal', v_pusher) || symphony.acting_token());
    RETURN NEXT;
END $$;
