-- claim_trigger_outbox_batch: lease the next due items to one worker, an equal share for every app.
--
-- Moves    due -> leased
-- Caller   symphony_executor
-- Locks    the claimed pending rows, skipping those others hold
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED, P7020 another server than on record
-- Why      an app with a deep backlog cannot starve its neighbours: shares first, then what is left over; and of one app
--          a worker has at most p_app_items_max at once, with what it says it holds already, so that slow scripts
--          do not fill it. What somebody waited for is not leased after its deadline. Expired leases are the
--          repair's business.
CREATE OR REPLACE FUNCTION public.claim_trigger_outbox_batch(
    p_batch_size INT, p_worker_id TEXT, p_lease_seconds INT, p_app_items_max INT DEFAULT NULL, p_apps UUID[] DEFAULT NULL,
    p_apps_held INT[] DEFAULT NULL
) RETURNS TABLE (
    id UUID, lease_token UUID, app_id UUID, source_kind TEXT, trigger_id UUID, script_id UUID, reply_to UUID, payload JSONB,
    origin_principal UUID, principal UUID, trigger_depth INT, root_execution_id UUID, attempt_count INT, next_attempt_at TIMESTAMPTZ,
    created_at TIMESTAMPTZ
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan
SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now   TIMESTAMPTZ := clock_timestamp();
    v_apps  UUID[];
    v_lefts INT[];
    v_more  UUID[];
    v_rest  INT[];
    v_ids   UUID[] := '{}'::UUID[];
    v_share INT;
    v_got   UUID[];
BEGIN
    PERFORM symphony_internal.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony_internal.require_outbox_count('p_lease_seconds', p_lease_seconds, 3600);
    PERFORM symphony_internal.require_outbox_count('p_app_items_max', coalesce(p_app_items_max, 4096), 4096);
    PERFORM symphony_internal.require_same_length(coalesce(cardinality(p_apps), 0), ARRAY['p_apps_held'],
                                                  ARRAY[coalesce(cardinality(p_apps_held), 0)]);
    PERFORM symphony_internal.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony_internal.require_read_committed();
    PERFORM symphony_internal.require_known_server();
    IF (SELECT s.paused FROM public.trigger_outbox_settings s WHERE s.only_row) THEN
        RETURN;
    END IF;
    -- The apps with something due, the one that waits longest first, and how much each may still have.
    SELECT array_agg(d.id ORDER BY d.next_attempt_at), array_agg(d.rest ORDER BY d.next_attempt_at) INTO v_apps, v_lefts
      FROM (SELECT a.id, head.next_attempt_at,
                   coalesce(p_app_items_max, 4096)
                   - coalesce((SELECT sum(h.held)::INT FROM unnest(p_apps, p_apps_held) h(app_id, held) WHERE h.app_id = a.id), 0) AS rest
              FROM public.apps a
             CROSS JOIN LATERAL (SELECT p.next_attempt_at FROM public.trigger_outbox_pending p
                                  WHERE p.app_id = a.id AND p.lease_token IS NULL AND p.next_attempt_at <= v_now
                                    AND (p.reply_deadline_at IS NULL OR p.reply_deadline_at > v_now)
                                  ORDER BY p.next_attempt_at, p.id LIMIT 1) head
             WHERE NOT a.paused) d
     WHERE d.rest > 0;
    WHILE cardinality(v_apps) > 0 AND cardinality(v_ids) < p_batch_size LOOP
        v_share := GREATEST(1, (p_batch_size - cardinality(v_ids)) / cardinality(v_apps));
        v_more := '{}';
        v_rest := '{}';
        FOR i IN 1 .. cardinality(v_apps) LOOP
            EXIT WHEN cardinality(v_ids) >= p_batch_size;
            v_got := ARRAY(
                SELECT p.id FROM public.trigger_outbox_pending p
                 WHERE p.app_id = v_apps[i] AND p.lease_token IS NULL AND p.next_attempt_at <= v_now
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
        UPDATE public.trigger_outbox_pending p
           SET claimed_by = p_worker_id, lease_token = gen_random_uuid(), claimed_at = v_now,
               lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_seconds)
          FROM unnest(v_ids) t(id) WHERE p.id = t.id
        RETURNING p.*
    )
    SELECT l.id, l.lease_token, l.app_id, l.source_kind, l.trigger_id, l.script_id, l.reply_to, l.payload, l.origin_principal, l.principal,
           l.trigger_depth, l.root_execution_id, l.attempt_count, l.next_attempt_at, l.created_at
      FROM leased l ORDER BY l.next_attempt_at, l.id;
END $$;
