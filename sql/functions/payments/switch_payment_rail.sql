-- switch_payment_rail: pause or resume one rail.
--
-- Moves    rail: running <-> paused
-- Caller   pause_payment_rail, resume_payment_rail
-- Locks    the rail's row
-- Refuses  P7005 no actor, reason or rail, P7007 no such rail
-- Why      a switch and not a change of rows: a rail with a million items is paused or resumed in a millisecond.
CREATE OR REPLACE FUNCTION symphony.switch_payment_rail(
    p_paused BOOLEAN, p_rail_type TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, NULL, NOT p_paused AND p_dry_run IS FALSE);
    PERFORM symphony.require_payment_rail(p_rail_type);
    SELECT r.paused INTO v_paused FROM symphony.payment_outbox_rails r WHERE r.rail_type = p_rail_type FOR UPDATE;
    IF p_dry_run IS FALSE AND v_paused IS DISTINCT FROM p_paused THEN
        INSERT INTO symphony.payment_outbox_rails (rail_type, paused) VALUES (p_rail_type, p_paused)
        ON CONFLICT (rail_type) DO UPDATE SET paused = p_paused, updated_at = clock_timestamp();
    END IF;
    RETURN QUERY SELECT s.* FROM symphony.answer_outbox_switch(
        'payments', p_rail_type, v_paused, p_paused, p_actor, p_reason, p_dry_run, jsonb_build_object('rail_type', p_rail_type)) s;
END $$;
