-- The event lane's workloads: ten events of each of 20,000 keys, about 450 bytes each. Their ids are ordered by time
-- (UUIDv7), as those of the raw limit are.
CREATE TABLE bench.event_source AS
SELECT g AS n, jsonb_build_object(
           'envelope', jsonb_build_object('v', 1, 'eventId', '01a1ddd7-af52-7cd7-8000-' || lpad(to_hex(g), 12, '0'), 'occurredAt', '2026-11-15T12:00:00.123Z', 'tenantId', 'tnt_123',
               'type', 'events.transfers.submitted.usdc'),
           'key', jsonb_build_object('transferId', 'tr_' || g % 20000),
           'payload', jsonb_build_object('transferId', 'tr_' || g % 20000, 'status', 'submitted', 'value', '1234.56', 'currency', 'USD',
               'source', 'acct_' || g, 'target', 'acct_' || g + 1, 'pad', repeat('x', 60))) AS event
  FROM generate_series(0, 199999) g;
CREATE INDEX ON bench.event_source (n);

CREATE PROCEDURE bench.enqueue_events(lo INT, hi INT) LANGUAGE plpgsql AS $$
DECLARE i INT := lo; e JSONB[];
BEGIN
    WHILE i < hi LOOP
        e := ARRAY(SELECT event FROM bench.event_source WHERE n >= i AND n < i + 500 AND n < hi ORDER BY n);
        PERFORM * FROM symphony.enqueue_event_outbox_batch(e);
        COMMIT;
        i := i + 500;
    END LOOP;
END $$;

CREATE PROCEDURE bench.enqueue_events_one_by_one(lo INT, hi INT) LANGUAGE plpgsql AS $$
DECLARE i INT; e JSONB;
BEGIN
    FOR i IN lo .. hi - 1 LOOP
        SELECT event INTO e FROM bench.event_source WHERE n = i;
        PERFORM * FROM symphony.enqueue_event_outbox(e);
        COMMIT;
    END LOOP;
END $$;

-- A busy service: each transaction lasts 100 ms and tells one event at its start and one at its end. Half of the producers go
-- through their keys one way, half the other; no two have a key in common. Beside it the same with rows of its own.
CREATE TABLE bench.orders (id INT, body JSONB);
CREATE PROCEDURE bench.busy_producer(lo INT, hi INT, tell BOOLEAN) LANGUAGE plpgsql AS $$
DECLARE i INT; n INT; e JSONB;
BEGIN
    FOR i IN lo .. hi - 1 LOOP
        FOR n IN SELECT CASE WHEN lo / (hi - lo) % 2 = 0 THEN x ELSE 1 - x END FROM generate_series(0, 1) x LOOP
            e := jsonb_build_object('envelope', jsonb_build_object('v', 1, 'eventId', gen_random_uuid(), 'occurredAt', '2026-11-15T12:00:00Z',
                     'tenantId', 't', 'type', 'a.b'), 'key', jsonb_build_object('k', lo || '_' || n), 'payload', '{}'::jsonb);
            IF tell THEN
                PERFORM * FROM symphony.enqueue_event_outbox(e);
            ELSE
                INSERT INTO bench.orders VALUES (i, e);
            END IF;
            PERFORM pg_sleep(0.05);
        END LOOP;
        COMMIT;
    END LOOP;
END $$;

-- One key's head FAILED, and so many behind it, passed by the windows once.
CREATE PROCEDURE bench.block_key(behind INT) LANGUAGE plpgsql AS $$
DECLARE b SMALLINT[]; p BIGINT[]; t UUID[]; i INT := 0;
BEGIN
    WHILE i <= behind LOOP
        PERFORM * FROM symphony.enqueue_event_outbox_batch(ARRAY(
            SELECT jsonb_build_object('envelope', jsonb_build_object('v', 1, 'eventId', gen_random_uuid(), 'occurredAt', '2026-11-15T12:00:00Z',
                       'tenantId', 't', 'type', 'a.b'), 'key', '{"k": "blocked"}'::jsonb, 'payload', '{}'::jsonb)
              FROM generate_series(i, LEAST(i + 1999, behind))));
        COMMIT;
        IF i = 0 THEN
            SELECT array_agg(bucket), array_agg(log_position), array_agg(lease_token) INTO b, p, t
              FROM symphony.claim_event_outbox_batch(1, 'bench', 60);
            PERFORM * FROM symphony.complete_event_outbox_attempts('bench', b, p, t, ARRAY['FAILED']);
        END IF;
        COMMIT;
        i := i + 2000;
    END LOOP;
    -- The windows pass them, once.
    FOR i IN 0 .. behind / 4096 LOOP
        PERFORM * FROM symphony.claim_event_outbox_batch(4096, 'bench', 60, 1, 4096);
        COMMIT;
    END LOOP;
END $$;

-- Claim 500, complete 500, until nothing is left. A claim that finds every bucket in others' hands is no end.
CREATE PROCEDURE bench.drain_events(p_worker TEXT, _events INT) LANGUAGE plpgsql AS $$
DECLARE b SMALLINT[]; p BIGINT[]; t UUID[]; n INT;
BEGIN
    LOOP
        SELECT array_agg(bucket), array_agg(log_position), array_agg(lease_token), count(*) INTO b, p, t, n
          FROM symphony.claim_event_outbox_batch(500, p_worker, 60, 8, 500);
        COMMIT;
        IF n = 0 THEN
            EXIT WHEN NOT EXISTS (SELECT FROM symphony.event_outbox_cursors c CROSS JOIN LATERAL (
                SELECT FROM symphony.event_outbox_log l WHERE l.bucket = c.bucket AND l.position > c.published_through LIMIT 1) l);
            CONTINUE;
        END IF;
        PERFORM * FROM symphony.complete_event_outbox_attempts(p_worker, b, p, t, array_fill('DISPATCHED'::text, ARRAY[n]),
            array_fill('main/transfers'::text, ARRAY[n]), array_fill('REF123'::text, ARRAY[n]), NULL, NULL, array_fill(3, ARRAY[n]));
        COMMIT;
    END LOOP;
END $$;
