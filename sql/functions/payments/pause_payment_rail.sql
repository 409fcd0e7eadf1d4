-- pause_payment_rail: stop paying over one rail.
--
-- Moves    rail: running -> paused
-- Caller   symphony_operator, symphony_approver
-- Locks    as switch_payment_rail
-- Refuses  P7005 no actor, reason or rail, P7007 no such rail
-- Why      other rails go on; what is under way ends.
CREATE OR REPLACE FUNCTION symphony.pause_payment_rail(p_rail_type TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.switch_payment_rail(true, p_rail_type, p_actor, p_reason, p_dry_run) s;
END $$;
