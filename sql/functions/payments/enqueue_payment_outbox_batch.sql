-- enqueue_payment_outbox_batch: ask for many payments at once; one answer per item, in the order given.
--
-- Moves    nothing -> pending, for every new and valid item
-- Caller   symphony_ingest
-- Locks    the participants' rows in sorted order, until the caller's transaction ends: enqueue last
-- Refuses  P7005 for arrays that do not fit together; a bad or conflicting item is answered, not raised
-- Why      optimistic: all items are written in one statement as if all were new, which is 1.3 times as
--          fast as asking first. If the constraint says one was known, that statement is undone and the
--          careful path goes item by item. Participants are locked in sorted order before anything else,
--          in both paths, so batches over the same participants never deadlock (unsorted: 0.47 % did).
CREATE OR REPLACE FUNCTION symphony.enqueue_payment_outbox_batch(
    p_instruction_ids TEXT[], p_participant_ids TEXT[], p_idempotency_keys TEXT[], p_rail_types TEXT[],
    p_payloads JSONB[], p_traceparents TEXT[] DEFAULT NULL
) RETURNS TABLE (item_no INT, outbox_id UUID, sequence_id BIGINT, created_at TIMESTAMPTZ, state TEXT,
                 duplicate BOOLEAN, error_code TEXT, error_message TEXT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_custom_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_count    INT := cardinality(p_instruction_ids);
    v_now      TIMESTAMPTZ := clock_timestamp();
    -- One time and one random part for the whole batch, the item's number between them: cheaper than an id
    -- each, and the ids keep the batch's order. 4,096 numbers fit, which bounds the batch.
    v_prefix   TEXT := lpad(to_hex(floor(EXTRACT(EPOCH FROM v_now) * 1000)::BIGINT), 12, '0') || '7';
    v_suffix   TEXT := '8' || substr(replace(gen_random_uuid()::TEXT, '-', ''), 1, 15);
    v_texts    TEXT[];
    v_defects  TEXT[];
    v_ids      UUID[];
    v_numbers  BIGINT[];
    v_item     RECORD;
BEGIN
    PERFORM symphony.require_outbox_count('p_instruction_ids', coalesce(v_count, 0), 4096);
    PERFORM symphony.require_same_length(v_count,
        ARRAY['p_participant_ids', 'p_idempotency_keys', 'p_rail_types', 'p_payloads', 'p_traceparents'],
        ARRAY[cardinality(p_participant_ids), cardinality(p_idempotency_keys), cardinality(p_rail_types),
              cardinality(p_payloads), coalesce(cardinality(p_traceparents), v_count)]);
    PERFORM symphony.require_outbox_bytes(
        pg_column_size(p_instruction_ids), pg_column_size(p_participant_ids), pg_column_size(p_idempotency_keys),
        pg_column_size(p_rail_types), pg_column_size(p_payloads), pg_column_size(p_traceparents));

    -- Texts out of all proportion are not kept: json_defect.
    SELECT array_agg(CASE WHEN t.bytes >= 1536 OR octet_length(t.payload_text) <= 65536 THEN t.payload_text END ORDER BY t.ordinal) INTO v_texts
      FROM (SELECT pg_column_size(u.payload) AS bytes, u.ordinal,
                   CASE WHEN symphony.bulky_json_defect(u.payload) IS NULL THEN u.payload::TEXT END AS payload_text
              FROM unnest(p_payloads) WITH ORDINALITY u(payload, ordinal) OFFSET 0) t;
    SELECT array_agg(symphony.payment_request_defect(t.instruction_id, t.participant_id, t.idempotency_key, t.rail_type,
                                                   t.payload, octet_length(t.payload_text), t.traceparent)
                     ORDER BY t.ordinal) INTO v_defects
      FROM unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads, v_texts, p_traceparents)
           WITH ORDINALITY t(instruction_id, participant_id, idempotency_key, rail_type, payload, payload_text, traceparent, ordinal);

    IF num_nonnulls(VARIADIC v_defects) = 0 THEN
        BEGIN
            PERFORM symphony.pin_payment_rail(r.rail_type)
               FROM (SELECT DISTINCT t.rail_type FROM unnest(p_rail_types) t(rail_type) ORDER BY 1) r;
            WITH requested AS MATERIALIZED (
                SELECT t.*,
                       (v_prefix || lpad(to_hex(t.ordinal - 1), 3, '0') || v_suffix)::UUID AS outbox_id,
                       row_number() OVER (PARTITION BY t.participant_id ORDER BY t.ordinal) AS nth,
                       count(*) OVER (PARTITION BY t.participant_id) AS of_all
                  FROM unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads, v_texts, p_traceparents)
                       WITH ORDINALITY t(instruction_id, participant_id, idempotency_key, rail_type, payload, payload_text, traceparent, ordinal)
            ), streams AS (
                INSERT INTO symphony.participant_outbox_sequences AS s (participant_id, next_sequence_id)
                SELECT r.participant_id, 1 + count(*) FROM requested r GROUP BY r.participant_id
                 ORDER BY r.participant_id COLLATE "C"
                ON CONFLICT (participant_id)
                   DO UPDATE SET next_sequence_id = s.next_sequence_id + excluded.next_sequence_id - 1
                RETURNING s.participant_id, s.next_sequence_id
            ), placed AS MATERIALIZED (
                SELECT r.*, s.next_sequence_id - r.of_all + r.nth - 1 AS sequence_id
                  FROM requested r JOIN streams s ON s.participant_id = r.participant_id
                 ORDER BY r.ordinal
            ), written AS (
                INSERT INTO symphony.payment_outbox_instructions
                    (outbox_id, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, payload,
                     request_hash, created_at, traceparent)
                SELECT p.outbox_id, p.instruction_id, p.idempotency_key, p.participant_id, p.sequence_id, p.rail_type, p.payload,
                       symphony.payment_request_hash(p.participant_id, p.rail_type, p.payload_text), v_now, p.traceparent
                  FROM placed p
            ), queued AS (
                INSERT INTO symphony.payment_outbox_pending
                    (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                     next_attempt_at, created_at, lane_position)
                SELECT p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type,
                       v_now, v_now, CASE WHEN rail.fifo THEN p.sequence_id END
                  FROM placed p LEFT JOIN symphony.payment_outbox_rails rail ON rail.rail_type = p.rail_type
            )
            SELECT array_agg(p.outbox_id), array_agg(p.sequence_id) INTO v_ids, v_numbers FROM placed p;
            RETURN QUERY SELECT t.ordinal::INT, t.outbox_id, t.sequence_id, v_now, 'PENDING', false, NULL::TEXT, NULL::TEXT
                           FROM unnest(v_ids, v_numbers) WITH ORDINALITY t(outbox_id, sequence_id, ordinal);
            RETURN;
        EXCEPTION WHEN unique_violation THEN
            NULL; -- at least one item is known: the careful path will say which
        END;
    END IF;

    PERFORM symphony.pin_payment_rail(r.rail_type)
       FROM (SELECT DISTINCT t.rail_type FROM unnest(p_rail_types, v_defects) t(rail_type, defect)
              WHERE t.defect IS NULL ORDER BY 1) r;
    INSERT INTO symphony.participant_outbox_sequences AS s (participant_id, next_sequence_id)
    SELECT DISTINCT t.participant_id COLLATE "C", 1
      FROM unnest(p_participant_ids, v_defects) t(participant_id, defect) WHERE t.defect IS NULL ORDER BY 1
    ON CONFLICT (participant_id) DO UPDATE SET next_sequence_id = s.next_sequence_id;
    FOR v_item IN
        SELECT t.* FROM unnest(p_instruction_ids, p_participant_ids, p_idempotency_keys, p_rail_types, p_payloads, v_texts,
                               p_traceparents, v_defects)
               WITH ORDINALITY t(instruction_id, participant_id, idempotency_key, rail_type, payload, payload_text,
                                 traceparent, defect, ordinal)
         ORDER BY t.ordinal
    LOOP
        item_no := v_item.ordinal;
        outbox_id := NULL; sequence_id := NULL; created_at := NULL; state := NULL; duplicate := NULL;
        error_code := NULL; error_message := NULL;
        IF v_item.defect IS NOT NULL THEN
            error_code := 'P7005';
            error_message := v_item.defect;
            RETURN NEXT;
            CONTINUE;
        END IF;
        -- Of another participant's item nothing is told but that there is one.
        SELECT CASE WHEN placed.own THEN placed.outbox_id END, CASE WHEN placed.own THEN placed.sequence_id END,
               CASE WHEN placed.own THEN placed.created_at END, CASE WHEN placed.own THEN placed.duplicate END,
               CASE WHEN placed.conflict THEN 'P7004' END,
               CASE WHEN placed.conflict
                    THEN 'idempotency key reused: this instruction and key already belong to another request' END
          INTO outbox_id, sequence_id, created_at, duplicate, error_code, error_message
          FROM symphony.place_payment(
                   v_item.instruction_id, v_item.participant_id, v_item.idempotency_key, v_item.rail_type, v_item.payload,
                   symphony.payment_request_hash(v_item.participant_id, v_item.rail_type, v_item.payload_text),
                   v_item.traceparent) placed;
        state := CASE WHEN duplicate THEN symphony.payment_item_state(outbox_id) WHEN error_code IS NULL THEN 'PENDING' END;
        RETURN NEXT;
    END LOOP;
END $$;
