-- tried_seconds: for how long something has been tried, by when its outcomes came.
--
-- Moves    nothing
-- Caller   handed_out_events, settle_payment_attempts, complete_trigger_outbox_attempts; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      who was away is known only where somebody tried: of the time between two outcomes, and since the last, an
--          hour counts at most. Else one refused connection on Friday, a pause over the weekend and one on Monday were
--          three days.
CREATE OR REPLACE FUNCTION symphony.tried_seconds(p_outcomes_at TIMESTAMPTZ[]) RETURNS INT
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(sum(extract(epoch FROM GREATEST(INTERVAL '0', LEAST(INTERVAL '1 hour', t.until - t.at)))), 0)::INT
      FROM (SELECT o.at, coalesce(lead(o.at) OVER (ORDER BY o.at), clock_timestamp()) AS until FROM unnest(p_outcomes_at) o(at)) t
$$;
