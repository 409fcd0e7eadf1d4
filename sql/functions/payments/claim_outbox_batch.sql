-- claim_outbox_batch: lease the next due payments to one worker.
--
-- Moves    due -> leased | expired lease -> leased (with the trace of a repair) | expired lease -> parked
-- Caller   symphony_executor
-- Locks    the claimed pending rows, skipping those others hold
-- Refuses  P7005 invalid argument, or a transaction above READ COMMITTED, P7020 another server than on record
-- Why      rail by rail, equal shares first and the rest filled up: a deep rail cannot starve a shallow
--          one, and a paused rail or one this worker does not serve costs nothing. p_due_from is the
--          worker's watermark: below it lie only entries of finished items, which a held snapshot keeps
--          from being removed. Without it the look is full; workers do one at start and every second.
--          p_endpoints, one for each of p_rails, says where this worker would send: written down with the lease, because
--          a worker that dies can no longer say it. What may have been sent before keeps the endpoint it was sent to.
CREATE OR REPLACE FUNCTION symphony.claim_outbox_batch(
    p_batch_size INT, p_worker_id TEXT, p_lease_seconds INT, p_rails TEXT[] DEFAULT NULL,
    p_due_from TIMESTAMPTZ DEFAULT NULL, p_endpoints TEXT[] DEFAULT NULL
) RETURNS TABLE (
    outbox_id UUID, lease_token UUID, lease_expires_at TIMESTAMPTZ, instruction_id TEXT, participant_id TEXT,
    sequence_id BIGINT, idempotency_key TEXT, rail_type TEXT, payload JSONB, attempt_count INT, must_inquire BOOLEAN,
    next_attempt_at TIMESTAMPTZ, created_at TIMESTAMPTZ, redrive_no INT, traceparent TEXT, ordered BOOLEAN,
    marks_sending BOOLEAN, rail_key UUID, endpoint TEXT, claimed_at TIMESTAMPTZ, asked_again BOOLEAN, only_ask BOOLEAN
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now        TIMESTAMPTZ := clock_timestamp();
    v_zero       UUID := '00000000-0000-0000-0000-000000000000'::UUID;
    v_settings   symphony.payment_outbox_settings;
    v_server     symphony.symphony_installation;
    v_working    TEXT[];
    v_rails      TEXT[];
    v_fifo       BOOLEAN[];
    v_after_due  TIMESTAMPTZ[];
    v_after_created TIMESTAMPTZ[];
    v_after_id   UUID[];
    v_deeper     INT[];
    v_next       INT[];
    v_waiting    BOOLEAN;
    v_share      INT;
    v_picked     UUID[];
    v_last_due   TIMESTAMPTZ;
    v_last_created TIMESTAMPTZ;
    v_last_id    UUID;
    v_exhausted  BOOLEAN;
    v_ids        UUID[] := '{}'::UUID[];
    v_through    TIMESTAMPTZ[];
BEGIN
    PERFORM symphony.require_outbox_count('p_batch_size', p_batch_size, 4096);
    PERFORM symphony.require_outbox_count('p_lease_seconds', p_lease_seconds, 3600);
    PERFORM symphony.require_outbox_id('p_worker_id', p_worker_id);
    PERFORM symphony.require_read_committed();
    IF cardinality(p_rails) > 1000 THEN
        RAISE EXCEPTION 'p_rails has more than 1000 elements: a worker serves fewer' USING ERRCODE = 'P7005';
    END IF;
    IF p_endpoints IS NOT NULL THEN
        PERFORM symphony.require_same_length(coalesce(cardinality(p_rails), 0), ARRAY['p_endpoints'], ARRAY[cardinality(p_endpoints)]);
    END IF;
    v_server := symphony.require_known_server();

    -- Nobody can change a rail's order from here to the end of the claim.
    LOCK TABLE symphony.payment_outbox_pending IN ROW SHARE MODE;
    SELECT s.* INTO v_settings FROM symphony.payment_outbox_settings s;
    IF v_settings.paused THEN
        RETURN;
    END IF;
    IF p_due_from IS NULL THEN
        v_working := symphony.register_payment_rails(p_rails);
    END IF;
    v_waiting := EXISTS (SELECT FROM symphony.payment_outbox_paused_participants);

    SELECT array_agg(r.rail_type ORDER BY r.rail_type), array_agg(r.fifo ORDER BY r.rail_type) INTO v_rails, v_fifo
      FROM (SELECT t.rail_type, t.fifo FROM symphony.payment_outbox_rails t WHERE p_rails IS NULL AND NOT t.paused
            UNION ALL
            SELECT t.rail_type, t.fifo FROM symphony.payment_outbox_rails t WHERE t.rail_type = ANY (p_rails) AND NOT t.paused
            UNION ALL
            -- A rail without a row is unordered and running.
            SELECT w.rail_type, false FROM unnest(v_working) w(rail_type)
             WHERE NOT EXISTS (SELECT FROM symphony.payment_outbox_rails t WHERE t.rail_type = w.rail_type)) r;
    IF cardinality(v_rails) > 1 THEN
        -- The rails that have something due, the oldest first: a batch of one takes the oldest of all.
        SELECT array_agg(t.rail_type ORDER BY head.next_attempt_at, head.created_at, head.outbox_id),
               array_agg(t.fifo ORDER BY head.next_attempt_at, head.created_at, head.outbox_id)
          INTO v_rails, v_fifo
          FROM unnest(v_rails, v_fifo) t(rail_type, fifo)
         CROSS JOIN LATERAL (
             SELECT p.next_attempt_at, p.created_at, p.outbox_id FROM symphony.payment_outbox_pending p
              WHERE p.hold IS NULL AND p.rail_type = t.rail_type
                AND p.next_attempt_at >= coalesce(p_due_from, '-infinity') AND p.next_attempt_at <= v_now
                AND (p.lease_expires_at IS NULL OR p.lease_expires_at <= v_now)
              ORDER BY p.next_attempt_at, p.created_at, p.outbox_id LIMIT 1) head;
    END IF;
    IF v_rails IS NULL THEN
        RETURN;
    END IF;

    v_deeper := ARRAY(SELECT generate_series(1, cardinality(v_rails)));
    v_after_due := array_fill(coalesce(p_due_from, '-infinity'), ARRAY[cardinality(v_rails)]);
    v_after_created := array_fill('-infinity'::TIMESTAMPTZ, ARRAY[cardinality(v_rails)]);
    v_after_id := array_fill(v_zero, ARRAY[cardinality(v_rails)]);
    v_through := array_fill(NULL::TIMESTAMPTZ, ARRAY[cardinality(v_rails)]);
    WHILE cardinality(v_deeper) > 0 AND cardinality(v_ids) < p_batch_size LOOP
        v_share := GREATEST(1, (p_batch_size - cardinality(v_ids)) / cardinality(v_deeper));
        v_next := '{}';
        FOR i IN 1 .. cardinality(v_deeper) LOOP
            EXIT WHEN cardinality(v_ids) >= p_batch_size;
            SELECT p.outbox_ids, p.last_due, p.last_created, p.last_id, p.exhausted
              INTO v_picked, v_last_due, v_last_created, v_last_id, v_exhausted
              FROM symphony.pick_due_payments(
                       v_rails[v_deeper[i]], v_after_due[v_deeper[i]], v_after_created[v_deeper[i]], v_after_id[v_deeper[i]], v_now,
                       v_share, p_worker_id, v_waiting OR v_fifo[v_deeper[i]]) p;
            v_ids := v_ids || v_picked;
            v_through[v_deeper[i]] := v_last_due;
            IF NOT v_exhausted AND cardinality(v_picked) > 0 THEN
                v_next := v_next || v_deeper[i];
                v_after_due[v_deeper[i]] := v_last_due;
                v_after_created[v_deeper[i]] := v_last_created;
                v_after_id[v_deeper[i]] := v_last_id;
            END IF;
        END LOOP;
        v_deeper := v_next;
    END LOOP;
    IF cardinality(v_ids) = 0 THEN
        RETURN;
    END IF;

    v_now := clock_timestamp();
    RETURN QUERY
    WITH leased AS MATERIALIZED (
        UPDATE symphony.payment_outbox_pending p
           SET claimed_by = p_worker_id, lease_token = gen_random_uuid(), claimed_at = v_now,
               lease_expires_at = v_now + make_interval(secs => p_lease_seconds),
               -- It may have been sent in a life of this database that was lost: then nobody knows where either.
               must_inquire = p.must_inquire OR (p.created_at < v_server.ask_first_until
                                                 AND (p.cleared_at IS NULL OR p.cleared_at < v_server.decided_at)) IS TRUE,
               -- Then '?' and this worker's: wherever it was sent before, from here on it is sent nowhere else.
               endpoint = CASE WHEN p.must_inquire AND p.endpoint IS NOT NULL THEN p.endpoint
                               WHEN p.must_inquire OR (p.created_at < v_server.ask_first_until
                                                       AND (p.cleared_at IS NULL OR p.cleared_at < v_server.decided_at)) IS TRUE
                               THEN '?' || p_endpoints[array_position(p_rails, p.rail_type)]
                               ELSE p_endpoints[array_position(p_rails, p.rail_type)] END
         WHERE p.outbox_id = ANY (v_ids)
        RETURNING p.outbox_id, p.lease_token, p.lease_expires_at, p.instruction_id, p.participant_id, p.sequence_id,
                  p.idempotency_key, p.rail_type, p.attempt_count, p.must_inquire, p.next_attempt_at, p.created_at,
                  p.endpoint, p.claimed_at, p.only_ask, p.lane_position IS NOT NULL AND p.lane_position > 0 AS ordered
    ), narrative AS (
        INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, worker_id, details)
        SELECT 'LEASE_CLAIMED', l.outbox_id, p_worker_id,
               jsonb_build_object('lease_token', l.lease_token, 'lease_expires_at', l.lease_expires_at)
          FROM leased l WHERE v_settings.record_routine_events
    )
    SELECT l.outbox_id, l.lease_token, l.lease_expires_at, l.instruction_id, l.participant_id, l.sequence_id,
           l.idempotency_key, l.rail_type, i.payload, l.attempt_count, l.must_inquire, l.next_attempt_at, l.created_at,
           i.redrive_no, i.traceparent, l.ordered,
           -- It cannot change while an item is leased: a worker configured otherwise still marks what it sends.
           EXISTS (SELECT FROM symphony.payment_outbox_rails m WHERE m.rail_type = l.rail_type AND m.marks_sending),
           symphony.derive_key(v_server.installation_id, l.instruction_id, l.idempotency_key, i.redrive_no), l.endpoint, l.claimed_at,
           (l.must_inquire AND l.created_at >= v_server.decided_at AND l.created_at < v_server.ask_first_until) IS TRUE, l.only_ask
      FROM leased l
     CROSS JOIN LATERAL (SELECT x.payload, x.redrive_no, x.traceparent
                           FROM symphony.payment_outbox_instructions x WHERE x.outbox_id = l.outbox_id LIMIT 1) i
     ORDER BY l.next_attempt_at, l.created_at, l.outbox_id;

    INSERT INTO symphony.payment_outbox_workers AS w (worker_id, rail_type, claimed_through, last_claim_at)
    SELECT p_worker_id, t.rail_type, t.through, v_now
      FROM unnest(v_rails, v_through) t(rail_type, through) WHERE t.through > '-infinity'
    ON CONFLICT (worker_id, rail_type) DO UPDATE
       SET claimed_through = GREATEST(w.claimed_through, excluded.claimed_through), last_claim_at = GREATEST(w.last_claim_at, excluded.last_claim_at);
END $$;
