-- claim_trigger_outbox_batch: lease the next due items to one worker, an equal share for every app.
--
-- Moves    due -> leased
-- Caller   symphony_executor
-- Locks    the claimed pending rows, skipping those others hold
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED, P7020 another server than on record
-- Why      an app with a deep backlog cannot starve its neighbours: shares first, then what is left over; and of one app
--          a worker has at most p_app_items_max at once, with what it says it holds already, so that slow scripts
--          do not fill it. What somebody waited for is not leased after its deadline. Expired leases are the
--          repair's business. 100,000 apps that have nothing, nothing due or are paused cost nothing: a step along the index
--          passes over paused apps, and where many apps have something those that have waited longest are found by time.
--          No plan may sort, because that would read an app's whole backlog.
--          Of an order only the first message is ever looked at: the others are not in the index.
CREATE OR REPLACE FUNCTION symphony.claim_trigger_outbox_batch(
    p_batch_size INT, p_worker_id TEXT, p_lease_seconds INT, p_app_items_max INT DEFAULT NULL, p_apps UUID[] DEFAULT NULL,
    p_apps_held INT[] DEFAULT NULL
) RETURNS TABLE (
    id UUID, lease_token UUID, app_id UUID, source_kind TEXT, trigger_id UUID, script_id UUID, reply_to UUID, payload JSONB,
    origin_principal UUID, principal UUID, trigger_depth INT, root_execution_id UUID, attempt_count INT, next_attempt_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ, traceparent TEXT, parent_execution_id UUID
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_sort = off
SET enable_incremental_sort = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    -- So many apps are visited, and so many items looked at, before a claim looks at all apps that have something.
    v_apps_few    CONSTANT INT := 32;
    v_oldest_seen CONSTANT INT := 1000;
    v_now   TIMESTAMPTZ := clock_timestamp();
    v_walk_max INT;
    v_walked   INT;
    v_seen     BIGINT;
    v_apps  UUID[];
    v_lefts INT[];
    v_more  UUID[];
    v_rest  INT[];
    v_ids   UUID[] := '{}'::UUID[];
    v_share INT;
    v_got   UUID[];
BEGIN
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony.require_outbox_count('p_lease_seconds', p_lease_seconds, 3600);
    PERFORM symphony.require_outbox_count('p_app_items_max', coalesce(p_app_items_max, 4096), 4096);
    PERFORM symphony.require_same_length(coalesce(cardinality(p_apps), 0), ARRAY['p_apps_held'],
                                                  ARRAY[coalesce(cardinality(p_apps_held), 0)]);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    PERFORM symphony.require_known_server();
    IF (SELECT s.paused FROM symphony.trigger_outbox_settings s WHERE s.only_row) THEN
        RETURN;
    END IF;
    -- The apps with something due, the one that waits longest first, and how much each may still have: from app to app if few
    -- have anything, else by what has been due longest, and only if that is all of a few apps from app to app through all.
    FOREACH v_walk_max IN ARRAY ARRAY[v_apps_few, NULL] LOOP
        SELECT array_agg(d.id ORDER BY d.next_attempt_at) FILTER (WHERE d.rest > 0),
               array_agg(d.rest ORDER BY d.next_attempt_at) FILTER (WHERE d.rest > 0), max(d.walked)
          INTO v_apps, v_lefts, v_walked
          FROM (WITH RECURSIVE waiting AS (
                    (SELECT p.app_id, p.next_attempt_at, (SELECT NOT b.paused FROM symphony.apps b WHERE b.id = p.app_id) AS runs, 1 AS walked
                       FROM symphony.trigger_outbox_pending p
                      WHERE p.lease_token IS NULL AND NOT p.awaits_turn ORDER BY p.app_id, p.next_attempt_at, p.id LIMIT 1)
                    UNION ALL
                    -- Behind a paused app comes the next that runs, however many paused ones lie between.
                    SELECT n.app_id, n.next_attempt_at, (SELECT NOT b.paused FROM symphony.apps b WHERE b.id = n.app_id), w.walked + 1
                      FROM waiting w
                     CROSS JOIN LATERAL (SELECT p.app_id, p.next_attempt_at FROM symphony.trigger_outbox_pending p
                                          WHERE p.lease_token IS NULL AND NOT p.awaits_turn AND p.app_id > w.app_id
                                            AND p.app_id >= CASE WHEN w.runs THEN w.app_id
                                                                 ELSE (SELECT b.id FROM symphony.apps b WHERE NOT b.paused AND b.id > w.app_id
                                                                        ORDER BY b.id LIMIT 1) END
                                          ORDER BY p.app_id, p.next_attempt_at, p.id LIMIT 1) n
                     WHERE v_walk_max IS NULL OR w.walked < v_walk_max
                )
                SELECT w.walked, head.id, head.next_attempt_at,
                       coalesce(p_app_items_max, 4096)
                       - coalesce((SELECT sum(h.held)::INT FROM unnest(p_apps, p_apps_held) h(app_id, held) WHERE h.app_id = head.id), 0) AS rest
                  FROM waiting w
                  LEFT JOIN LATERAL (SELECT w.app_id AS id, p.next_attempt_at FROM symphony.trigger_outbox_pending p
                                      WHERE w.runs AND w.next_attempt_at <= v_now
                                        AND p.app_id = w.app_id AND p.lease_token IS NULL AND NOT p.awaits_turn AND p.next_attempt_at <= v_now
                                        AND (p.reply_deadline_at IS NULL OR p.reply_deadline_at > v_now)
                                      ORDER BY p.next_attempt_at, p.id LIMIT 1) head ON true) d;
        EXIT WHEN v_walk_max IS NULL OR v_walked < v_walk_max;
        SELECT array_agg(d.id ORDER BY d.next_attempt_at) FILTER (WHERE d.rest > 0),
               array_agg(d.rest ORDER BY d.next_attempt_at) FILTER (WHERE d.rest > 0), sum(d.items)
          INTO v_apps, v_lefts, v_seen
          FROM (SELECT a.id, o.next_attempt_at, o.items,
                       CASE WHEN a.id IS NOT NULL THEN coalesce(p_app_items_max, 4096)
                            - coalesce((SELECT sum(h.held)::INT FROM unnest(p_apps, p_apps_held) h(app_id, held) WHERE h.app_id = a.id), 0) END AS rest
                  FROM (SELECT i.app_id, min(i.next_attempt_at) AS next_attempt_at, count(*) AS items
                          FROM (SELECT p.app_id, p.next_attempt_at FROM symphony.trigger_outbox_pending p
                                 WHERE p.lease_token IS NULL AND NOT p.awaits_turn AND p.next_attempt_at <= v_now
                                   AND (p.reply_deadline_at IS NULL OR p.reply_deadline_at > v_now)
                                 ORDER BY p.next_attempt_at LIMIT v_oldest_seen) i
                         GROUP BY i.app_id) o
                  LEFT JOIN LATERAL (SELECT b.id FROM symphony.apps b WHERE b.id = o.app_id AND NOT b.paused) a ON true) d;
        EXIT WHEN coalesce(v_seen, 0) < v_oldest_seen OR cardinality(v_apps) >= p_batch_size;
    END LOOP;
    WHILE cardinality(v_apps) > 0 AND cardinality(v_ids) < p_batch_size LOOP
        v_share := GREATEST(1, (p_batch_size - cardinality(v_ids)) / cardinality(v_apps));
        v_more := '{}';
        v_rest := '{}';
        FOR i IN 1 .. cardinality(v_apps) LOOP
            EXIT WHEN cardinality(v_ids) >= p_batch_size;
            v_got := ARRAY(
                SELECT p.id FROM symphony.trigger_outbox_pending p
                 WHERE p.app_id = v_apps[i] AND p.lease_token IS NULL AND NOT p.awaits_turn AND p.next_attempt_at <= v_now
                   AND (p.reply_deadline_at IS NULL OR p.reply_deadline_at > v_now) AND p.id <> ALL (v_ids)
                 ORDER BY p.next_attempt_at, p.id LIMIT LEAST(v_share, v_lefts[i]) FOR UPDATE SKIP LOCKED);
            v_ids := v_ids || v_got;
            IF cardinality(v_got) = v_share AND v_lefts[i] > v_share THEN
                v_more := v_more || v_apps[i];
                v_rest := v_rest || v_lefts[i] - v_share;
            END IF;
        END LOOP;
        v_apps := v_more;
        v_lefts := v_rest;
    END LOOP;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH leased AS (
        UPDATE symphony.trigger_outbox_pending p
           SET claimed_by = p_worker_id, lease_token = gen_random_uuid(), claimed_at = v_now,
               lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds)
         WHERE p.id = ANY (v_ids)
        RETURNING p.*
    )
    SELECT l.id, l.lease_token, l.app_id, l.source_kind, l.trigger_id, l.script_id, l.reply_to, l.payload, l.origin_principal, l.principal,
           l.trigger_depth, l.root_execution_id, l.attempt_count, l.next_attempt_at, l.created_at,
           l.traceparent, l.parent_execution_id
      FROM leased l ORDER BY l.next_attempt_at, l.id;
END $$;
