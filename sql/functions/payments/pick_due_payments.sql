-- pick_due_payments: lock the next items of one rail that may be leased now, in claim order.
--
-- Moves    leased -> scheduled or parked, for expired leases it meets (takeover)
-- Caller   claim_outbox_batch; nobody else may
-- Locks    the picked pending rows, skipping those others hold
-- Refuses  nothing
-- Why      the loop runs once unless items had to be set aside (FIFO, paused participant, parked zombies).
--          Once something is found it looks at no more than twenty batches, so that a claim stays short;
--          while nothing is found it goes on, because an empty answer means that there is nothing to do.
CREATE OR REPLACE FUNCTION symphony.pick_due_payments(
    p_rail_type TEXT, p_after_due TIMESTAMPTZ, p_after_created TIMESTAMPTZ, p_after_id UUID, p_now TIMESTAMPTZ, p_limit INT,
    p_worker_id TEXT, p_check_waiting BOOLEAN,
    OUT outbox_ids UUID[], OUT last_due TIMESTAMPTZ, OUT last_created TIMESTAMPTZ, OUT last_id UUID, OUT exhausted BOOLEAN
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_ids     UUID[];
    v_expired UUID[];
    v_aside   UUID[];
    v_wanted  INT;
    v_found   INT;
    v_due     TIMESTAMPTZ;
    v_created TIMESTAMPTZ;
    v_id      UUID;
BEGIN
    outbox_ids := '{}';
    last_due := p_after_due;
    last_created := p_after_created;
    last_id := p_after_id;
    FOR v_round IN 1 .. 100000 LOOP
        v_found := cardinality(outbox_ids);
        -- Items behind a head come in thousands: after the first look, go through them in larger steps.
        v_wanted := CASE WHEN v_found = 0 AND v_round > 1 THEN GREATEST(p_limit, 2000) ELSE p_limit - v_found END;
        WITH due AS MATERIALIZED (
            SELECT p.outbox_id, p.next_attempt_at, p.created_at, p.lease_token IS NOT NULL AS expired
              FROM symphony.payment_outbox_pending p
             WHERE p.hold IS NULL AND p.rail_type = p_rail_type
               AND (p.next_attempt_at, p.created_at, p.outbox_id) > (last_due, last_created, last_id)
               AND p.next_attempt_at <= p_now
               AND (p.lease_expires_at IS NULL OR p.lease_expires_at <= p_now)
             ORDER BY p.next_attempt_at, p.created_at, p.outbox_id
             LIMIT v_wanted
               FOR UPDATE SKIP LOCKED
        )
        SELECT array_agg(d.outbox_id), array_agg(d.outbox_id) FILTER (WHERE d.expired),
               (array_agg(d.next_attempt_at))[count(*)], (array_agg(d.created_at))[count(*)], (array_agg(d.outbox_id))[count(*)]
          INTO v_ids, v_expired, v_due, v_created, v_id
          FROM due d;
        IF v_ids IS NULL THEN
            exhausted := true;
            RETURN;
        END IF;
        last_due := v_due;
        last_created := v_created;
        last_id := v_id;
        exhausted := cardinality(v_ids) < v_wanted;

        v_aside := '{}';
        IF v_expired IS NOT NULL THEN
            SELECT coalesce(array_agg(r.outbox_id) FILTER (WHERE r.parked), '{}') INTO v_aside
              FROM symphony.requeue_expired_payments(v_expired, p_worker_id, NULL) r;
        END IF;
        IF cardinality(v_aside) > 0 THEN
            v_ids := ARRAY(SELECT t.id FROM unnest(v_ids) t(id) WHERE t.id <> ALL (v_aside));
        END IF;
        IF p_check_waiting AND cardinality(v_ids) > 0 THEN
            v_aside := symphony.set_aside_waiting_payments(v_ids);
            v_ids := ARRAY(SELECT t.id FROM unnest(v_ids) t(id) WHERE t.id <> ALL (v_aside));
        END IF;
        IF cardinality(v_ids) > p_limit - v_found THEN
            -- More than asked for, found in a large step: the rest stays, and the next look begins right after.
            v_ids := v_ids[1 : p_limit - v_found];
            SELECT p.next_attempt_at, p.created_at, p.outbox_id INTO STRICT last_due, last_created, last_id
              FROM symphony.payment_outbox_pending p WHERE p.outbox_id = v_ids[p_limit - v_found];
            exhausted := false;
        END IF;
        outbox_ids := outbox_ids || v_ids;
        v_found := cardinality(outbox_ids);
        EXIT WHEN exhausted OR v_found >= p_limit OR (v_round >= 20 AND v_found > 0);
    END LOOP;
END $$;
