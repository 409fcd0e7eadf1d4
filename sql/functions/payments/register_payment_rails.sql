-- register_payment_rails: the rails that have work, of those asked for; those without a row get their default one.
--
-- Moves    nothing
-- Caller   claim_outbox_batch, on a full look; nobody else may
-- Locks    a new rail's row, for the length of the claim; it hardly waits for one that somebody else is writing
-- Refuses  nothing
-- Why      claims go rail by rail, so the rails must be known without scanning the backlog. Done by the
--          claim and not by the enqueue: a producer keeps its transaction open and would make others wait. Whoever
--          names rails pays for those alone: anybody may enqueue to a rail that nobody serves (20,000 of them
--          made a claim take 129 ms).
CREATE OR REPLACE FUNCTION symphony.register_payment_rails(p_rails TEXT[]) RETURNS TEXT[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
SET lock_timeout = '5ms' AS $$
DECLARE
    v_working TEXT[];
BEGIN
    IF p_rails IS NOT NULL THEN
        v_working := ARRAY(SELECT DISTINCT w.rail_type FROM unnest(p_rails) w(rail_type)
                            WHERE EXISTS (SELECT FROM symphony.payment_outbox_pending p WHERE p.hold IS NULL AND p.rail_type = w.rail_type)
                            ORDER BY 1);
    ELSE
        -- One index probe per rail: from each rail's first entry jump to the next rail's.
        WITH RECURSIVE working(rail_type) AS (
            (SELECT p.rail_type FROM symphony.payment_outbox_pending p WHERE p.hold IS NULL ORDER BY p.rail_type LIMIT 1)
            UNION ALL
            SELECT (SELECT p.rail_type FROM symphony.payment_outbox_pending p
                     WHERE p.hold IS NULL AND p.rail_type > w.rail_type ORDER BY p.rail_type LIMIT 1)
              FROM working w WHERE w.rail_type IS NOT NULL
        )
        SELECT array_agg(w.rail_type) INTO v_working FROM working w WHERE w.rail_type IS NOT NULL;
    END IF;
    IF EXISTS (SELECT FROM unnest(v_working) w(rail_type)
                WHERE NOT EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = w.rail_type)) THEN
        BEGIN
            INSERT INTO symphony.payment_outbox_rails (rail_type)
            SELECT w.rail_type FROM unnest(v_working) w(rail_type)
             WHERE NOT EXISTS (SELECT FROM symphony.payment_outbox_rails r WHERE r.rail_type = w.rail_type)
             ORDER BY 1
            ON CONFLICT DO NOTHING;
        EXCEPTION WHEN lock_not_available THEN
            NULL; -- somebody is writing that rail's row; a later look will see it
        END;
    END IF;
    RETURN v_working;
END $$;
