-- What is measured: the public functions, called as a producer and a worker call them, in a loop on the server
-- so that no client's speed is measured with them.

CREATE PROCEDURE bench.enqueue_bulk(lo INT, hi INT, p_rail TEXT) LANGUAGE plpgsql AS $$
DECLARE i INT := lo; a TEXT[]; b TEXT[]; c TEXT[]; d TEXT[]; e JSONB[];
BEGIN
    WHILE i < hi LOOP
        SELECT array_agg(instruction_id ORDER BY n), array_agg(participant_id ORDER BY n), array_agg(idempotency_key ORDER BY n),
               array_agg(p_rail ORDER BY n), array_agg(payload ORDER BY n) INTO a, b, c, d, e
          FROM bench.source WHERE n >= i AND n < i + 500 AND n < hi;
        PERFORM * FROM symphony.enqueue_payment_outbox_batch(a, b, c, d, e);
        COMMIT;
        i := i + 500;
    END LOOP;
END $$;

-- Untimed: fill a rail to a depth. One participant (a deep FIFO lane) or 10,000.
CREATE PROCEDURE bench.fill(items INT, p_rail TEXT, p_prefix TEXT, p_participants INT) LANGUAGE plpgsql AS $$
DECLARE i INT := 0; a TEXT[]; b TEXT[]; c TEXT[]; d TEXT[]; e JSONB[];
BEGIN
    WHILE i < items LOOP
        SELECT array_agg(p_prefix || '-' || g), array_agg(p_prefix || '-' || g % p_participants), array_agg('key'::text), array_agg(p_rail),
               array_agg('{"amount": {"value": "1.00", "currency": "EUR"}}'::jsonb) INTO a, b, c, d, e
          FROM generate_series(i, LEAST(i + 2000, items) - 1) g;
        PERFORM * FROM symphony.enqueue_payment_outbox_batch(a, b, c, d, e);
        COMMIT;
        i := i + 2000;
    END LOOP;
END $$;

CREATE PROCEDURE bench.enqueue_single(lo INT, hi INT) LANGUAGE plpgsql AS $$
DECLARE i INT; s RECORD;
BEGIN
    FOR i IN lo .. hi - 1 LOOP
        SELECT * INTO s FROM bench.source WHERE n = i;
        PERFORM * FROM symphony.enqueue_payment_outbox(s.instruction_id, s.participant_id, s.idempotency_key, s.rail_type, s.payload);
        COMMIT;
    END LOOP;
END $$;

-- Claim 500, complete 500, until `items` have been completed by this worker or nothing is left. As a worker does:
-- the watermark after a full batch, and a full look at start, every second and before giving up.
CREATE PROCEDURE bench.drain(p_worker TEXT, items INT) LANGUAGE plpgsql AS $$
DECLARE
    ids UUID[]; tokens UUID[]; last_due TIMESTAMPTZ; due_from TIMESTAMPTZ; looked_at TIMESTAMPTZ := '-infinity'; done INT := 0; n INT;
BEGIN
    WHILE done < items LOOP
        IF clock_timestamp() > looked_at + INTERVAL '1 second' THEN
            due_from := NULL;
            looked_at := clock_timestamp();
        ELSE
            due_from := last_due;
        END IF;
        SELECT array_agg(outbox_id), array_agg(lease_token), max(next_attempt_at), count(*) INTO ids, tokens, last_due, n
          FROM symphony.claim_outbox_batch(500, p_worker, 60, NULL, due_from);
        COMMIT;
        IF n = 0 THEN
            EXIT WHEN due_from IS NULL;
            looked_at := '-infinity';
            CONTINUE;
        END IF;
        PERFORM * FROM symphony.complete_outbox_attempts(p_worker, ids, tokens, array_fill('DISPATCHED'::text, ARRAY[n]),
            array_fill('REF123'::text, ARRAY[n]), array_fill('ACSC'::text, ARRAY[n]), NULL, NULL, array_fill(3, ARRAY[n]));
        COMMIT;
        done := done + n;
    END LOOP;
END $$;
