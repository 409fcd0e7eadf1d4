-- enqueue_event_outbox_batch: tell many facts at once; one answer per event, in the order given.
--
-- Moves    nothing -> the log, for every new and valid event
-- Caller   symphony_ingest
-- Locks    the events' keys, until the caller's transaction ends: first those ever seen, then new ones, each in sorted
--          order; strangers' keys never
-- Refuses  P7005 for a missing or oversized array; a bad or conflicting event is answered, not raised
-- Why      optimistic: checked by the quick test and written in one statement as if all were new. If one is
--          not plain or not new, that is undone and the careful path goes event by event. A position is
--          taken under the key's lock, so position order is commit order within a key; events of one
--          call keep its order. The date style is fixed: what is a date may not depend on the producer's session.
CREATE OR REPLACE FUNCTION symphony.enqueue_event_outbox_batch(p_events JSONB[])
RETURNS TABLE (item_no INT, event_id UUID, log_position BIGINT, created_at TIMESTAMPTZ, state TEXT, duplicate BOOLEAN,
               error_code TEXT, error_message TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan SET jit = off SET datestyle = 'ISO, YMD' AS $$
#variable_conflict use_column
DECLARE
    -- Below, a look at each costs less than building the automaton for all.
    c_many CONSTANT INT := 25;
    v_now       TIMESTAMPTZ := clock_timestamp();
    v_count     INT := cardinality(p_events);
    v_denied    TEXT[] := (SELECT s.denied_payload_keys FROM symphony.event_outbox_settings s);
    v_ids       UUID[];
    v_keys      TEXT[];
    v_buckets   SMALLINT[];
    v_hashes    BIGINT[];
    v_known     BIGINT[];
    v_lines     TEXT;
    v_json      JSON[];
    v_positions BIGINT[];
    v_plain     BOOLEAN;
    v_defects   TEXT[] := '{}'::TEXT[];
    v_conflict  BOOLEAN;
BEGIN
    PERFORM symphony.require_outbox_count('p_events', coalesce(v_count, 0), 4096), symphony.require_outbox_bytes(pg_column_size(p_events));
    BEGIN
        -- NULL is not plain: bool_and and string_agg would pass over it. '$.**{2}' is whatever is not flat.
        SELECT bool_and(coalesce(
                   e.fits AND e.event - '{envelope,key,payload}'::TEXT[] = '{}'::JSONB
                   AND jsonb_typeof(e.payload) = 'object' AND NOT e.payload ?| v_denied
                   AND (NOT e.payload @? '$.**{2}' OR NOT symphony.has_denied_member(e.payload, v_denied))
                   -- 133 without type, tenant and key.
                   AND (octet_length(e.line) <= 388 OR length(e.envelope->>'type') <= 255
                        AND length(e.envelope->>'tenantId') <= 255 AND length(e.key_text) <= 255)
                   AND (v_count >= c_many OR symphony.is_plain_header(
                        e.envelope, e.key_text, e.envelope->>'eventId', e.envelope->>'occurredAt', e.envelope->>'type',
                        e.envelope->>'traceparent')), false)),
               -- What does not fit may be text out of all proportion, which is not kept: json_defect.
               string_agg(CASE WHEN e.fits THEN coalesce(e.line, '') ELSE '' END, E'\n') || E'\n', array_agg((e.envelope->>'eventId')::UUID),
               -- The key's only member has no escapes, or the event is not plain. to_json writes a JSONB's text (and a
               -- header of 4 bytes) and does not read it again, as a cast would.
               array_agg(e.key), array_agg(symphony.event_bucket(e.key)), array_agg(symphony.event_key_hash(e.key)),
               array_agg(CASE WHEN e.fits THEN e.json END)
          INTO v_plain, v_lines, v_ids, v_keys, v_buckets, v_hashes, v_json
          FROM (SELECT f.*, f.envelope::TEXT || f.key_text AS line,
                       CASE WHEN f.fits THEN left(substr(f.key_text, strpos(f.key_text, '": "') + 4), -2) END AS key
                  FROM (SELECT p.*, pg_column_size(p.json) <= CASE WHEN pg_column_size(p.event) < 1536 THEN 65536 ELSE 256000 END + 4 AS fits
                  FROM (SELECT t.event, t.event->'envelope' AS envelope, t.event->'payload' AS payload, (t.event->'key')::TEXT AS key_text,
                               to_json(t.event) AS json
                          FROM unnest(p_events) t(event) WHERE symphony.bulky_json_defect(t.event) IS NULL OFFSET 0) p OFFSET 0) f OFFSET 0) e;
        IF v_plain AND cardinality(v_ids) = v_count AND (v_count < c_many OR symphony.are_plain_headers(v_lines)) THEN
            -- As lock_event_keys does, without a block of its own: if another has just made one of the keys, the careful path waits for it.
            -- Registered after the keys, so that whoever waits for one delays nobody; for its groups before it is seen
            -- to be open.
            IF v_count = 1 THEN
                -- The same for one event, without arrays to sort, to compare and to take apart: a quarter of a single call.
                PERFORM FROM symphony.event_outbox_keys k WHERE k.key_hash = v_hashes[1] FOR UPDATE;
                IF NOT FOUND THEN
                    INSERT INTO symphony.event_outbox_keys (key_hash) VALUES (v_hashes[1]);
                END IF;
                PERFORM pg_advisory_xact_lock_shared(symphony.outbox_group_lock(), v_buckets[1] / 8);
            ELSE
                v_known := ARRAY(SELECT k.key_hash FROM symphony.event_outbox_keys k
                                  WHERE k.key_hash = ANY (v_hashes) ORDER BY k.key_hash FOR UPDATE);
                IF cardinality(v_known) < v_count THEN
                    INSERT INTO symphony.event_outbox_keys (key_hash)
                    SELECT h FROM unnest(v_hashes) h EXCEPT SELECT h FROM unnest(v_known) h ORDER BY 1;
                END IF;
                PERFORM pg_advisory_xact_lock_shared(symphony.outbox_group_lock(), g) FROM unnest(symphony.event_groups(v_buckets)) g;
            END IF;
            IF current_setting('symphony.event_producer', true) IS DISTINCT FROM pg_current_xact_id()::TEXT THEN
                PERFORM symphony.register_event_producer();
            END IF;
            IF v_count = 1 THEN
                log_position := nextval('symphony.event_outbox_position');
                WITH identity AS (
                    INSERT INTO symphony.event_outbox_identities (event_id, bucket, position) VALUES (v_ids[1], v_buckets[1], log_position)
                )
                INSERT INTO symphony.event_outbox_log (bucket, position, event_id, event_key, event, created_at)
                VALUES (v_buckets[1], log_position, v_ids[1], v_keys[1], v_json[1], v_now);
                item_no := 1; event_id := v_ids[1]; created_at := v_now; state := 'PENDING'; duplicate := false;
                RETURN NEXT;
                RETURN;
            END IF;
            v_positions := ARRAY(SELECT nextval('symphony.event_outbox_position') FROM generate_series(1, v_count));
            INSERT INTO symphony.event_outbox_identities (event_id, bucket, position)
            SELECT t.event_id, t.bucket, t.log_position
              FROM unnest(v_ids, v_buckets, v_positions) t(event_id, bucket, log_position) ORDER BY t.event_id;
            INSERT INTO symphony.event_outbox_log (bucket, position, event_id, event_key, event, created_at)
            SELECT t.bucket, t.log_position, t.event_id, t.event_key, t.event, v_now
              FROM unnest(v_ids, v_buckets, v_positions, v_keys, v_json) t(event_id, bucket, log_position, event_key, event);
            RETURN QUERY SELECT t.ordinal::INT, t.event_id, t.log_position, v_now, 'PENDING', false, NULL::TEXT, NULL::TEXT
                           FROM unnest(v_ids, v_positions) WITH ORDINALITY t(event_id, log_position, ordinal);
            RETURN;
        END IF;
    EXCEPTION WHEN unique_violation OR data_exception THEN
        NULL; -- some event is known, or not plain: the careful path will say which
    END;

    FOR i IN 1 .. v_count LOOP
        v_defects[i] := symphony.event_defect(p_events[i], v_denied);
        v_ids[i] := CASE WHEN v_defects[i] IS NULL THEN (p_events[i] #>> '{envelope,eventId}')::UUID END;
        v_keys[i] := CASE WHEN v_defects[i] IS NULL THEN (SELECT k.value FROM jsonb_each_text(p_events[i]->'key') k) END;
    END LOOP;
    PERFORM symphony.lock_event_keys(ARRAY(SELECT symphony.event_key_hash(k) FROM unnest(v_keys) k WHERE k IS NOT NULL));
    PERFORM pg_advisory_xact_lock_shared(symphony.outbox_group_lock(), g)
       FROM unnest(symphony.event_groups(ARRAY(SELECT symphony.event_bucket(k) FROM unnest(v_keys) k WHERE k IS NOT NULL))) g;
    IF current_setting('symphony.event_producer', true) IS DISTINCT FROM pg_current_xact_id()::TEXT THEN
        PERFORM symphony.register_event_producer();
    END IF;
    FOR i IN 1 .. v_count LOOP
        item_no := i;
        event_id := v_ids[i];
        log_position := NULL; created_at := NULL; state := NULL; duplicate := NULL; error_code := NULL; error_message := NULL;
        IF v_defects[i] IS NOT NULL THEN
            error_code := 'P7005';
            error_message := v_defects[i];
        ELSE
            SELECT p.log_position, p.created_at, p.duplicate, p.conflict INTO log_position, created_at, duplicate, v_conflict
              FROM symphony.place_event(v_ids[i], v_keys[i], p_events[i]) p;
            state := CASE WHEN duplicate THEN symphony.event_state(event_id) ELSE 'PENDING' END;
            IF v_conflict THEN
                -- Of the other event nothing is told.
                log_position := NULL; created_at := NULL; state := NULL;
                error_code := 'P7004';
                error_message := 'envelope.eventId reused: it already belongs to another event';
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;
