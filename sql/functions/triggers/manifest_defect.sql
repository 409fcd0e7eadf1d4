-- manifest_defect: what is wrong with an app's manifest, or NULL.
--
-- Moves    nothing
-- Caller   push_app
-- Locks    nothing
-- Refuses  nothing: it answers, naming the field
-- Why      all of it is looked at before anything is changed.
CREATE OR REPLACE FUNCTION symphony.manifest_defect(p_manifest JSONB) RETURNS TEXT
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_list  TEXT;
    v_entry JSONB;
    v_at    TEXT;
    v_field TEXT;
    v_names TEXT[] := '{}'::TEXT[];
    v_known TEXT[];
BEGIN
    IF jsonb_typeof(p_manifest) IS DISTINCT FROM 'object' THEN
        RETURN 'p_manifest must be a JSON object';
    END IF;
    SELECT f INTO v_field FROM jsonb_object_keys(p_manifest) f WHERE f NOT IN ('scripts', 'routes', 'triggers', 'topics', 'queues', 'cors', 'retention') LIMIT 1;
    IF FOUND THEN
        RETURN format('%s is not known: a manifest has scripts, routes, triggers, topics, queues, cors and retention', quote_ident(left(v_field, 100)));
    END IF;
    FOREACH v_list IN ARRAY ARRAY['scripts', 'routes', 'triggers', 'topics', 'queues'] LOOP
        IF p_manifest ? v_list AND jsonb_typeof(p_manifest->v_list) <> 'array' THEN
            RETURN format('%s must be an array', v_list);
        ELSIF jsonb_array_length(coalesce(p_manifest->v_list, '[]')) > 1000 THEN
            RETURN format('%s has more than 1000 entries', v_list);
        END IF;
    END LOOP;
    v_field := coalesce(symphony.manifest_cors_defect(p_manifest->'cors'), symphony.manifest_retention_defect(p_manifest->'retention'));
    IF v_field IS NOT NULL THEN
        RETURN v_field;
    END IF;
    FOR v_entry, v_at IN SELECT e.entry, format('queues[%s]', e.ordinal - 1)
                           FROM jsonb_array_elements(coalesce(p_manifest->'queues', '[]')) WITH ORDINALITY e(entry, ordinal)
                          WHERE jsonb_typeof(e.entry) = 'object'
    LOOP
        SELECT f INTO v_field FROM jsonb_object_keys(v_entry) f WHERE f NOT IN ('name', 'serial') LIMIT 1;
        IF FOUND THEN
            RETURN format('%s.%s is not known: it has name, serial', v_at, quote_ident(left(v_field, 100)));
        ELSIF v_entry ? 'serial' AND jsonb_typeof(v_entry->'serial') <> 'boolean' THEN
            RETURN v_at || '.serial must be true or false';
        END IF;
    END LOOP;
    FOREACH v_list IN ARRAY ARRAY['topics', 'queues'] LOOP
        IF EXISTS (SELECT FROM jsonb_array_elements(coalesce(p_manifest->v_list, '[]')) e
                    CROSS JOIN LATERAL (SELECT CASE WHEN v_list = 'queues' AND jsonb_typeof(e) = 'object' THEN e->'name' ELSE e END AS name) n
                    WHERE (jsonb_typeof(n.name) = 'string' AND n.name #>> '{}' ~ '^[A-Za-z0-9][A-Za-z0-9._-]*$'
                           AND length(n.name #>> '{}') <= 100) IS NOT TRUE) THEN
            RETURN format('%s must be names of letters, digits, dots, hyphens and underscores', v_list);
        END IF;
    END LOOP;
    FOREACH v_list IN ARRAY ARRAY['scripts', 'routes', 'triggers'] LOOP
        v_known := CASE v_list
            WHEN 'scripts' THEN ARRAY['name', 'source', 'file', 'modules', 'url', 'timeoutMs']
            WHEN 'routes' THEN ARRAY['method', 'path', 'script', 'mode', 'waitMs', 'attempts', 'backoffSeconds', 'rawBody', 'auth', 'signature', 'secret']
            ELSE ARRAY['name', 'kind', 'filter', 'script', 'attempts', 'backoffSeconds', 'timeZone', 'missed'] END;
        FOR v_entry, v_at IN SELECT e.entry, format('%s[%s]', v_list, e.ordinal - 1)
                               FROM jsonb_array_elements(coalesce(p_manifest->v_list, '[]')) WITH ORDINALITY e(entry, ordinal)
        LOOP
            IF jsonb_typeof(v_entry) <> 'object' THEN
                RETURN v_at || ' must be an object';
            END IF;
            SELECT f INTO v_field FROM jsonb_object_keys(v_entry) f WHERE f <> ALL (v_known) LIMIT 1;
            IF FOUND THEN
                RETURN format('%s.%s is not known: it has %s', v_at, quote_ident(left(v_field, 100)), array_to_string(v_known, ', '));
            END IF;
            FOREACH v_field IN ARRAY ARRAY['name', 'source', 'file', 'url', 'method', 'path', 'script', 'mode', 'kind', 'filter', 'timeZone', 'missed',
                                          'auth', 'signature', 'secret'] LOOP
                IF v_entry ? v_field AND jsonb_typeof(v_entry->v_field) <> 'string' THEN
                    RETURN format('%s.%s must be a string', v_at, v_field);
                END IF;
            END LOOP;
            FOREACH v_field IN ARRAY ARRAY['timeoutMs', 'waitMs', 'attempts'] LOOP
                IF v_entry ? v_field AND (jsonb_typeof(v_entry->v_field) <> 'number' OR v_entry->>v_field !~ '^[0-9]{1,6}$'
                        OR (v_entry->>v_field)::INT NOT BETWEEN 1 AND CASE v_field WHEN 'attempts' THEN 20 ELSE 300000 END) THEN
                    RETURN format('%s.%s must be a whole number from 1 to %s', v_at, v_field, CASE v_field WHEN 'attempts' THEN 20 ELSE 300000 END);
                END IF;
            END LOOP;
            IF v_entry ? 'rawBody' AND jsonb_typeof(v_entry->'rawBody') <> 'boolean' THEN
                RETURN v_at || '.rawBody must be true or false';
            END IF;
            IF v_entry ? 'backoffSeconds' AND (jsonb_typeof(v_entry->'backoffSeconds') <> 'array'
                    OR jsonb_array_length(v_entry->'backoffSeconds') NOT BETWEEN 1 AND 20
                    OR EXISTS (SELECT FROM jsonb_array_elements(v_entry->'backoffSeconds') s
                                WHERE jsonb_typeof(s) <> 'number' OR s::TEXT !~ '^[0-9]{1,6}$')) THEN
                RETURN v_at || '.backoffSeconds must be 1 to 20 whole numbers of seconds';
            END IF;
            IF v_list IN ('scripts', 'triggers') AND (v_entry->>'name' ~ '^[A-Za-z0-9][A-Za-z0-9._-]*$' AND length(v_entry->>'name') <= 100) IS NOT TRUE THEN
                RETURN v_at || '.name must be letters, digits, dots, hyphens and underscores';
            ELSIF v_list = 'scripts' AND (v_entry ? 'source') = (v_entry ? 'url') THEN
                RETURN v_at || ' must have either source or url';
            ELSIF v_list = 'scripts' AND octet_length(v_entry->>'source') > 1048576 THEN
                RETURN v_at || '.source is larger than 1 MiB';
            ELSIF v_list = 'scripts' AND v_entry ? 'url' AND v_entry ?| ARRAY['file', 'modules'] THEN
                RETURN v_at || ' must have file and modules only with source';
            ELSIF v_list = 'scripts' AND v_entry ? 'file' AND symphony.is_app_file(v_entry->>'file') IS NOT TRUE THEN
                RETURN v_at || '.file must be a path inside the app, such as scripts/order.js';
            ELSIF v_list = 'scripts' AND v_entry ? 'modules' AND jsonb_typeof(v_entry->'modules') <> 'object' THEN
                RETURN v_at || '.modules must be an object of paths and sources';
            ELSIF v_list = 'scripts' AND (SELECT count(*) > 100 FROM jsonb_object_keys(coalesce(v_entry->'modules', '{}'))) THEN
                RETURN v_at || '.modules has more than 100 files';
            ELSIF v_list = 'scripts' AND EXISTS (SELECT FROM jsonb_each(coalesce(v_entry->'modules', '{}')) m
                                                  WHERE (symphony.is_app_file(m.key) AND jsonb_typeof(m.value) = 'string') IS NOT TRUE
                                                     OR octet_length(m.value #>> '{}') > 1048576) THEN
                RETURN v_at || '.modules must be paths inside the app, each with a source of at most 1 MiB';
            ELSIF v_list = 'scripts' AND v_entry->>'url' !~ '^https?://' THEN
                RETURN v_at || '.url must begin with https:// or http://';
            ELSIF v_list <> 'scripts' AND NOT coalesce(v_entry->>'script' = ANY (v_names), false) THEN
                RETURN format('%s.script must name one of the scripts', v_at);
            ELSIF v_list = 'routes' AND (v_entry->>'method' IN ('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS')) IS NOT TRUE THEN
                RETURN v_at || '.method must be GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS';
            ELSIF v_list = 'routes' AND (v_entry->>'path' ~ '^/([A-Za-z0-9._~-]+|\{[a-z][a-zA-Z0-9]*\}|/)*(\{\*[a-z][a-zA-Z0-9]*\})?$' AND length(v_entry->>'path') <= 500
                                         AND v_entry->>'path' !~ '//') IS NOT TRUE THEN
                RETURN v_at || '.path must be a path such as /orders/{id} or /files/{*rest}';
            ELSIF v_list = 'routes' AND v_entry ? 'mode' AND v_entry->>'mode' NOT IN ('sync', 'async') THEN
                RETURN v_at || '.mode must be sync or async';
            ELSIF v_list = 'routes' AND v_entry ? 'auth' AND v_entry->>'auth' NOT IN ('none', 'token', 'hmac') THEN
                RETURN v_at || '.auth must be none, token or hmac';
            ELSIF v_list = 'routes' AND coalesce(v_entry->>'auth', 'none') <> 'hmac' AND (v_entry ? 'signature' OR v_entry ? 'secret') THEN
                RETURN v_at || '.signature and .secret are for auth hmac only';
            ELSIF v_list = 'routes' AND v_entry->>'auth' = 'hmac'
                  AND (v_entry->>'signature' IN ('standard-webhooks', 'stripe', 'github')) IS NOT TRUE THEN
                RETURN v_at || '.signature must be standard-webhooks, stripe or github';
            ELSIF v_list = 'routes' AND v_entry->>'auth' = 'hmac' AND (v_entry->>'secret' ~ '^[A-Za-z][A-Za-z0-9_-]{0,99}$') IS NOT TRUE THEN
                RETURN v_at || '.secret must name the secret: letters, digits, hyphens and underscores, a letter first';
            ELSIF v_list = 'triggers' AND (v_entry->>'kind' IN ('kv', 'cron', 'pubsub', 'queue', 'email', 'dead_letter')) IS NOT TRUE THEN
                RETURN v_at || '.kind must be kv, cron, pubsub, queue, email or dead_letter';
            ELSIF v_list = 'triggers' AND (v_entry->>'filter' <> '' AND length(v_entry->>'filter') <= 512) IS NOT TRUE THEN
                RETURN v_at || '.filter must say which: a name, the beginning of one and *, or for cron its expression';
            ELSIF v_list = 'triggers' AND v_entry->>'kind' = 'email' AND NOT symphony.is_mail_filter(v_entry->>'filter') THEN
                RETURN v_at || '.filter must be an address, the beginning of one and *, or *@ and a domain';
            ELSIF v_list = 'triggers' AND v_entry ? 'missed' AND v_entry->>'missed' NOT IN ('skip', 'catch_up') THEN
                RETURN v_at || '.missed must be skip or catch_up';
            ELSIF v_list = 'triggers' AND (v_entry ? 'timeZone' OR v_entry ? 'missed') AND v_entry->>'kind' <> 'cron' THEN
                RETURN v_at || '.timeZone and .missed are for cron only';
            ELSIF v_entry ? 'timeZone' AND NOT EXISTS (SELECT FROM pg_timezone_names z WHERE z.name = v_entry->>'timeZone') THEN
                RETURN v_at || '.timeZone is not known: give a name such as Europe/Berlin';
            END IF;
            IF v_list = 'scripts' THEN
                v_names := v_names || (v_entry->>'name');
            END IF;
        END LOOP;
    END LOOP;
    SELECT format('%s is there twice', x.what) INTO v_field
      FROM (SELECT 'script ' || (e->>'name') AS what FROM jsonb_array_elements(coalesce(p_manifest->'scripts', '[]')) e
            UNION ALL SELECT 'route ' || (e->>'method') || ' ' || (e->>'path') FROM jsonb_array_elements(coalesce(p_manifest->'routes', '[]')) e
            UNION ALL SELECT 'queue ' || q.name FROM symphony.manifest_queues(p_manifest) q
            UNION ALL SELECT 'trigger ' || (e->>'name') FROM jsonb_array_elements(coalesce(p_manifest->'triggers', '[]')) e) x
     GROUP BY x.what HAVING count(*) > 1 LIMIT 1;
    IF v_field IS NOT NULL THEN
        RETURN v_field;
    END IF;
    -- Of two that match the same requests a server would serve one, and nobody would know which.
    WITH routes AS MATERIALIZED (
        SELECT r.ordinal - 1 AS place, r.route->>'method' AS method, r.route->>'path' AS path, p.pattern,
               CASE WHEN p.pattern LIKE '%{*}' THEN left(p.pattern, -3) || '{' END AS any_parameter
          FROM jsonb_array_elements(coalesce(p_manifest->'routes', '[]')) WITH ORDINALITY r(route, ordinal)
         CROSS JOIN LATERAL (
               SELECT regexp_replace(regexp_replace(r.route->>'path', '\{[^*}]+\}', '{}', 'g'), '\{\*[^}]+\}', '{*}') AS pattern) p
    )
    SELECT format('routes[%s].path: %s %s overlaps %s %s: both match the same requests, keep one', b.place, b.method, b.path, a.method, a.path)
      INTO v_field
      FROM routes a JOIN routes b ON b.method = a.method AND b.place > a.place
     WHERE b.pattern = a.pattern OR starts_with(b.pattern, a.any_parameter) OR starts_with(a.pattern, b.any_parameter)
     ORDER BY b.place, a.place LIMIT 1;
    RETURN v_field;
END $$;
