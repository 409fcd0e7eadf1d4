-- resume_app: run one app's scripts again.
--
-- Moves    app: paused -> running
-- Caller   symphony_operator, symphony_approver
-- Locks    as switch_app
-- Refuses  P7005 no actor or reason, P7007 no such app
-- Why      workers are woken, so that what has gathered runs at once.
CREATE OR REPLACE FUNCTION symphony.resume_app(p_app TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT s.* FROM symphony.switch_app(false, p_app, p_actor, p_reason, p_dry_run) s;
END $$;
