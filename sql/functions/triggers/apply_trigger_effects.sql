-- apply_trigger_effects: what scripts want to have done, in the transaction that completes their items.
--
-- Moves    entries and messages of their apps; nothing -> pending at their depth plus one
-- Caller   complete_trigger_outbox_attempts; nobody else may
-- Locks    apps' unlocked reads, entries in the order of apps and keys (those that were only read: shared), orders of
--          messages in the order of their numbers, then the rest in the order given
-- Refuses  P7004, P7005 for an effect that is not right, or if all of them fire more than one run may; P7011 for what
--          changed while it was applied: the caller undoes all
-- Why      answers the places of the items whose reads have changed: nothing of those was applied. Keys are locked in one
--          order over all items, so that two calls never wait for each other in a circle; all writes of an item to one key
--          are one change. What was not there, or was listed, cannot be locked: of those who looked for that and write,
--          one of an app at a time, so that no two miss what the other adds. Who has read something and writes a new entry
--          must find it new still: whoever has made it meanwhile may have written what was read, too. Messages last: a
--          queue's row is shared, and an event's bucket is locked until the end. All events in one call, because that locks
--          their keys in order.
CREATE OR REPLACE FUNCTION symphony.apply_trigger_effects(p_items symphony.trigger_outbox_pending[], p_effects JSONB[], p_reads JSONB[] DEFAULT NULL)
RETURNS INT[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_changed INT[] := '{}'::INT[];
    v_kinds   TEXT[];
    v_item    symphony.trigger_outbox_pending;
    v_effect  JSONB;
    v_writes  JSONB[];
    v_app     UUID;
    v_key     TEXT;
    v_written BOOLEAN;
    -- Entries to be written that are not there to be locked: apps and keys.
    v_absent  TEXT[] := '{}'::TEXT[];
    v_new     JSONB;
    -- What may still be fired.
    v_rows    INT := 10000;
    v_bytes   BIGINT := 67108864;
    v_left    RECORD;
    v_place   INT;
    v_number  INT;
    v_events  JSONB[];
    v_bad     TEXT;
BEGIN
    IF EXISTS (SELECT FROM unnest(p_effects) e WHERE jsonb_typeof(e) <> 'array') THEN
        RAISE EXCEPTION 'effects must be an array' USING ERRCODE = 'P7005';
    END IF;
    v_kinds := ARRAY(SELECT DISTINCT coalesce(e.effect->>'kind', 'null')
                       FROM unnest(p_effects) o(effects) CROSS JOIN LATERAL jsonb_array_elements(o.effects) e(effect));
    SELECT k INTO v_bad FROM unnest(v_kinds) k
     WHERE k NOT IN ('kv_set', 'kv_delete', 'kv_increment', 'kv_compare_and_set', 'kv_set_if_absent', 'queue_send', 'pubsub_publish',
                     'event_publish', 'email_send') LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'there is no effect %', quote_ident(left(v_bad, 100)) USING ERRCODE = 'P7005';
    END IF;
    IF p_reads IS NOT NULL THEN
        FOR v_app IN
            SELECT DISTINCT (p_items[r.place]).app_id
              FROM unnest(p_reads) WITH ORDINALITY r(reads, place) CROSS JOIN LATERAL jsonb_array_elements(r.reads) e(read)
             WHERE p_effects[r.place] IS NOT NULL
               AND (e.read ? 'prefix'
                    OR e.read->>'version' IS NULL
                       AND NOT EXISTS (SELECT FROM jsonb_array_elements(p_effects[r.place]) w
                                        WHERE w->>'kind' LIKE 'kv\_%' AND w->>'key' = e.read->>'key'))
             ORDER BY 1
        LOOP
            PERFORM pg_advisory_xact_lock(hashtextextended('symphony kv reads of ' || v_app, 0));
        END LOOP;
        FOR v_app, v_key, v_written IN
            SELECT k.app_id, k.key, bool_or(k.written)
              FROM (SELECT (p_items[o.place]).app_id, e.effect->>'key' AS key, true AS written
                      FROM unnest(p_effects) WITH ORDINALITY o(effects, place) CROSS JOIN LATERAL jsonb_array_elements(o.effects) e(effect)
                     WHERE e.effect->>'kind' LIKE 'kv\_%'
                    UNION ALL
                    SELECT (p_items[r.place]).app_id, e.read->>'key', false
                      FROM unnest(p_reads) WITH ORDINALITY r(reads, place) CROSS JOIN LATERAL jsonb_array_elements(r.reads) e(read)
                     WHERE p_effects[r.place] IS NOT NULL AND e.read ? 'key') k
             GROUP BY k.app_id, k.key ORDER BY k.app_id, k.key COLLATE "C"
        LOOP
            IF v_written THEN
                PERFORM FROM symphony.kv_entries e WHERE e.app_id = v_app AND e.key = v_key FOR UPDATE;
                IF NOT FOUND AND v_key IS NOT NULL THEN
                    v_absent := array_append(v_absent, v_app || ' ' || v_key);
                END IF;
            ELSE
                PERFORM FROM symphony.kv_entries e WHERE e.app_id = v_app AND e.key = v_key FOR SHARE;
            END IF;
        END LOOP;
        IF cardinality(v_absent) > 0 THEN
            v_new := jsonb_object(v_absent, v_absent);
        END IF;
        v_changed := ARRAY(
            SELECT DISTINCT r.place::INT
              FROM unnest(p_reads) WITH ORDINALITY r(reads, place) CROSS JOIN LATERAL jsonb_array_elements(r.reads) e(read)
             WHERE p_effects[r.place] IS NOT NULL
               AND CASE WHEN e.read ? 'key'
                        THEN (SELECT k.entry_no || '.' || k.version FROM symphony.kv_entries k
                               WHERE k.app_id = (p_items[r.place]).app_id AND k.key = e.read->>'key'
                                 AND (k.expires_at IS NULL OR k.expires_at > clock_timestamp())) IS DISTINCT FROM e.read->>'version'
                        ELSE symphony.kv_listing((p_items[r.place]).app_id, e.read->>'prefix', e.read->>'after', (e.read->>'limit')::INT)
                             IS DISTINCT FROM e.read->>'listing' END);
    END IF;
    FOR v_place, v_key, v_writes IN
        SELECT w.place, w.key, array_agg(w.effect ORDER BY w.ordinal)
          FROM (SELECT (p_items[o.place]).app_id, o.place::INT AS place, e.effect->>'key' AS key, e.effect, e.ordinal
                  FROM unnest(p_effects) WITH ORDINALITY o(effects, place)
                 CROSS JOIN LATERAL jsonb_array_elements(o.effects) WITH ORDINALITY e(effect, ordinal)
                 WHERE e.effect->>'kind' LIKE 'kv\_%' AND o.place <> ALL (v_changed)) w
         GROUP BY w.app_id, w.place, w.key ORDER BY w.app_id, w.key COLLATE "C", w.place
    LOOP
        v_item := p_items[v_place];
        v_left := symphony.write_kv(
            v_item.app_id, v_key, v_writes, v_item.origin_principal, v_item.trigger_depth + 1, v_item.id, v_item.root_execution_id,
            v_item.after_dead_letter, coalesce(
                (SELECT r FROM jsonb_array_elements(p_reads[v_place]) r WHERE r->>'key' = v_key LIMIT 1),
                CASE WHEN v_new ? (v_item.app_id || ' ' || v_key) AND jsonb_array_length(p_reads[v_place]) > 0
                     THEN '{"version": null}'::JSONB END),
            v_rows, v_bytes);
        v_rows := v_left.p_rows_left;
        v_bytes := v_left.p_bytes_left;
    END LOOP;
    IF NOT v_kinds && ARRAY['queue_send', 'pubsub_publish', 'event_publish', 'email_send'] THEN
        RETURN v_changed;
    END IF;
    IF 'queue_send' = ANY (v_kinds) THEN
        -- Those of the items that end, too: all that this transaction needs, in one order.
        PERFORM symphony.lock_trigger_orders(array_agg(k.app_id), array_agg(k.order_key))
           FROM (SELECT i.app_id, i.order_key FROM unnest(p_items) i
                 UNION ALL
                 SELECT (p_items[o.place]).app_id,
                        symphony.queue_order((p_items[o.place]).app_id, e.effect->>'queue', e.effect->>'key')
                   FROM unnest(p_effects) WITH ORDINALITY o(effects, place) CROSS JOIN LATERAL jsonb_array_elements(o.effects) e(effect)
                  WHERE e.effect->>'kind' = 'queue_send') k
          WHERE k.order_key IS NOT NULL;
    END IF;
    FOR v_effect, v_place, v_number IN
        SELECT e.effect, o.place::INT, e.ordinal::INT
          FROM unnest(p_effects) WITH ORDINALITY o(effects, place)
         CROSS JOIN LATERAL jsonb_array_elements(o.effects) WITH ORDINALITY e(effect, ordinal)
         WHERE e.effect->>'kind' IN ('queue_send', 'pubsub_publish', 'email_send') AND o.place <> ALL (v_changed)
         ORDER BY o.place, e.ordinal
    LOOP
        v_item := p_items[v_place];
        IF v_effect->>'kind' = 'email_send' THEN
            v_rows := v_rows - 1;
            v_bytes := v_bytes - pg_column_size(v_effect);
            PERFORM symphony.require_fan_out(v_rows, v_bytes);
            PERFORM symphony.place_trigger(
                v_item.app_id, 'email', NULL, NULL,
                -- The same if this completion is lost and the script runs again: readers know a mail by it.
                symphony.outbound_email(v_effect->'message') || jsonb_build_object('messageKey',
                    (SELECT symphony.derive_key(s.installation_id,
                         -- A tick that a failover or a restore has lost is fired again under another id: it is known by its
                         -- time. A replay of one (it has no trigger) is meant to be another.
                         CASE WHEN v_item.source_kind = 'cron' AND v_item.trigger_id IS NOT NULL
                              THEN jsonb_build_array((SELECT a.name FROM symphony.apps a WHERE a.id = v_item.app_id),
                                                     v_item.payload->'trigger', v_item.payload->'tickAt')::TEXT
                              ELSE v_item.id::TEXT END, 'email', v_number) FROM symphony.symphony_installation s)),
                v_item.origin_principal,
                v_item.principal, v_item.trigger_depth + 1, v_item.id, v_item.root_execution_id, v_item.after_dead_letter, 8, '{5,30,120,600,3600}');
        ELSE
            v_left := symphony.send_message(
                v_item.app_id, CASE v_effect->>'kind' WHEN 'queue_send' THEN 'queue' ELSE 'pubsub' END,
                coalesce(v_effect->>'queue', v_effect->>'topic'), v_effect->'message', v_item.origin_principal,
                v_item.trigger_depth + 1, v_item.id, v_item.root_execution_id, v_item.after_dead_letter, v_effect->>'key', v_rows, v_bytes);
            v_rows := v_left.p_rows_left;
            v_bytes := v_left.p_bytes_left;
        END IF;
    END LOOP;
    v_events := ARRAY(SELECT e.effect->'event' FROM unnest(p_effects) WITH ORDINALITY o(effects, place)
                       CROSS JOIN LATERAL jsonb_array_elements(o.effects) WITH ORDINALITY e(effect, ordinal)
                       WHERE e.effect->>'kind' = 'event_publish' AND o.place <> ALL (v_changed) ORDER BY o.place, e.ordinal);
    IF cardinality(v_events) > 0 THEN
        SELECT a.error_code || ' ' || a.error_message INTO v_bad FROM symphony.enqueue_event_outbox_batch(v_events) a
         WHERE a.error_code IS NOT NULL ORDER BY a.item_no LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION '%', substr(v_bad, 7) USING ERRCODE = left(v_bad, 5);
        END IF;
    END IF;
    RETURN v_changed;
END $$;
