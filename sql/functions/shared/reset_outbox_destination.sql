-- reset_outbox_destination: a person says that a rail, a topic or a whole bus is well again: workers try it at once.
--
-- Moves    nothing; every worker that leaves it alone goes on, and finds out for itself
-- Caller   symphony_operator, symphony_approver
-- Locks    the destination's row of resets; of a bus, its topics' rows in sorted order
-- Refuses  P7005 no actor, reason or name, P7007 no worker has ever served it
-- Why      the breaker is the workers' own. This is a wish they read with their next report, not a switch: a rail that is
--          still in trouble is left alone again after as many troubles as before.
CREATE OR REPLACE FUNCTION symphony.reset_outbox_destination(
    p_lane TEXT, p_name TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_before TEXT;
    v_names  TEXT[];
BEGIN
    PERFORM symphony.require_outbox_act(p_lane, p_actor, p_reason, NULL, false);
    PERFORM symphony.require_outbox_id('p_name', p_name);
    IF p_lane IS NULL OR p_lane NOT IN ('payments', 'events') THEN
        RAISE EXCEPTION 'p_lane must be payments or events' USING ERRCODE = 'P7005';
    END IF;
    -- A bus is its topics: the worst of them.
    SELECT array_agg(s.name ORDER BY s.name), (array_agg(s.breaker ORDER BY s.breaker <> 'OPEN', s.breaker <> 'HALF_OPEN'))[1]
      INTO v_names, v_before FROM symphony.outbox_destination_status s
     WHERE s.lane = p_lane AND (s.name = p_name OR p_lane = 'events' AND starts_with(s.name, p_name || '/'));
    IF v_before IS NULL THEN
        RAISE EXCEPTION 'p_name names no % that a live worker serves: %',
            CASE p_lane WHEN 'payments' THEN 'rail' ELSE 'bus or topic' END, p_name USING ERRCODE = 'P7007';
    END IF;
    IF p_dry_run IS FALSE AND v_before <> 'CLOSED' THEN
        INSERT INTO symphony.outbox_destination_resets AS r (lane, name, reset_at)
        SELECT p_lane, n, clock_timestamp() FROM unnest(v_names) n ORDER BY n
        ON CONFLICT (lane, name) DO UPDATE SET reset_at = GREATEST(excluded.reset_at, r.reset_at + INTERVAL '1 microsecond');
        PERFORM symphony.record_outbox_act(p_lane, 'BREAKER_RESET', NULL, p_actor, NULL, p_reason,
            jsonb_build_object(CASE p_lane WHEN 'payments' THEN 'rail_type' ELSE 'bus' END, p_name));
    END IF;
    RETURN QUERY SELECT p_name, v_before, 'CLOSED', p_dry_run IS NOT FALSE;
END $$;
