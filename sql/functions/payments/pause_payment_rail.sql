-- pause_payment_rail: pause one rail.
--
-- Moves    rail: running -> paused
-- Caller   symphony_operator, symphony_approver
-- Locks    the rail's row
-- Refuses  P7005 no actor, reason or rail, P7007 no such rail
-- Why      a switch and not a change of rows: a rail with a million items is paused in a millisecond.
CREATE OR REPLACE FUNCTION public.pause_payment_rail(p_rail_type TEXT, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony_internal.require_payment_act(p_actor, p_reason, NULL, false);
    PERFORM symphony_internal.require_payment_rail(p_rail_type);
    SELECT r.paused INTO v_paused FROM public.payment_outbox_rails r WHERE r.rail_type = p_rail_type FOR UPDATE;
    IF NOT p_dry_run AND v_paused IS DISTINCT FROM true THEN
        INSERT INTO public.payment_outbox_rails (rail_type, paused) VALUES (p_rail_type, true)
        ON CONFLICT (rail_type) DO UPDATE SET paused = true, updated_at = clock_timestamp();
        PERFORM symphony_internal.record_payment_switch('PAUSED', p_actor, p_reason, jsonb_build_object('rail_type', p_rail_type));
    END IF;
    RETURN QUERY SELECT p_rail_type, CASE WHEN v_paused THEN 'PAUSED' ELSE 'RUNNING' END, 'PAUSED', p_dry_run;
END $$;
