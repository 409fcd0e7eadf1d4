-- take_rail_permits: turns at a rail whose rate is the whole fleet's; one row per turn, with how long to wait for it.
--
-- Moves    nothing
-- Caller   symphony_executor
-- Locks    the rail's row of permits, until the caller commits
-- Refuses  P7005 invalid argument
-- Why      each turn is a moment of its own, one after another for all workers, so that they keep the rate together
--          whatever their number. Turns are given ahead: nobody polls, and a turn not used is lost, never saved up. Of a quiet
--          time p_burst turns are kept. The wait counts from the answer, so a slow way makes it later, never earlier.
CREATE OR REPLACE FUNCTION symphony.take_rail_permits(p_rail_type TEXT, p_wanted INT, p_per_second INT, p_burst INT DEFAULT 1)
RETURNS TABLE (permit_no INT, wait_microseconds BIGINT)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_now   TIMESTAMPTZ;
    v_next  TIMESTAMPTZ;
    v_step  INTERVAL;
BEGIN
    PERFORM symphony.require_outbox_id('p_rail_type', p_rail_type);
    PERFORM symphony.require_outbox_count('p_wanted', p_wanted, 1000);
    PERFORM symphony.require_outbox_count('p_per_second', p_per_second, 100000);
    PERFORM symphony.require_outbox_count('p_burst', p_burst, 100000);
    PERFORM symphony.require_read_committed();
    INSERT INTO symphony.payment_outbox_rail_permits (rail_type) VALUES (p_rail_type) ON CONFLICT DO NOTHING;
    SELECT r.next_permit_at INTO v_next FROM symphony.payment_outbox_rail_permits r WHERE r.rail_type = p_rail_type FOR UPDATE;
    v_now := clock_timestamp();
    v_step := INTERVAL '1 second' / p_per_second;
    -- Further ahead than an hour is a clock that was set back.
    v_next := GREATEST(CASE WHEN v_next > v_now + INTERVAL '1 hour' THEN v_now ELSE v_next END, v_now - v_step * (p_burst - 1));
    UPDATE symphony.payment_outbox_rail_permits r SET next_permit_at = v_next + v_step * p_wanted WHERE r.rail_type = p_rail_type;
    RETURN QUERY
    SELECT n, GREATEST(0, ceil(extract(epoch FROM v_next + v_step * (n - 1) - v_now) * 1000000))::BIGINT
      FROM generate_series(1, p_wanted) n ORDER BY n;
END $$;
