-- register_payment_rails: write the default row of every rail that has work and no row yet.
--
-- Moves    nothing
-- Caller   claim_outbox_batch, on a full look; nobody else may
-- Locks    a new rail's row, for the length of the claim
-- Refuses  nothing
-- Why      claims go rail by rail, so the rails must be known without scanning the backlog. Done by the
--          claim and not by the enqueue: a producer keeps its transaction open and would make others wait.
CREATE OR REPLACE FUNCTION symphony_internal.register_payment_rails() RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
SET lock_timeout = '5ms' AS $$
BEGIN
    -- One index probe per rail: from each rail's first entry jump to the next rail's.
    WITH RECURSIVE working(rail_type) AS (
        (SELECT p.rail_type FROM public.payment_outbox_pending p WHERE p.hold IS NULL ORDER BY p.rail_type LIMIT 1)
        UNION ALL
        SELECT (SELECT p.rail_type FROM public.payment_outbox_pending p
                 WHERE p.hold IS NULL AND p.rail_type > w.rail_type ORDER BY p.rail_type LIMIT 1)
          FROM working w WHERE w.rail_type IS NOT NULL
    )
    INSERT INTO public.payment_outbox_rails (rail_type)
    SELECT w.rail_type FROM working w
     WHERE w.rail_type IS NOT NULL
       AND NOT EXISTS (SELECT FROM public.payment_outbox_rails r WHERE r.rail_type = w.rail_type)
    ON CONFLICT DO NOTHING;
EXCEPTION WHEN lock_not_available THEN
    NULL; -- somebody is writing that rail's row: the next full look will see it
END $$;
