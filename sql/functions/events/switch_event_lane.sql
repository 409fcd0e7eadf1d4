-- switch_event_lane: pause or resume the event lane, and write down who did it.
--
-- Moves    lane: running <-> paused
-- Caller   pause_event_lane and resume_event_lane; nobody else may
-- Locks    the lane's settings
-- Refuses  nothing
-- Why      two acts, one code.
CREATE OR REPLACE FUNCTION symphony_internal.switch_event_lane(p_paused BOOLEAN, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused BOOLEAN := (SELECT s.paused FROM public.event_outbox_settings s FOR UPDATE);
BEGIN
    IF p_dry_run IS FALSE AND v_paused <> p_paused THEN
        UPDATE public.event_outbox_settings SET paused = p_paused;
        INSERT INTO public.event_outbox_events (event_type, actor, reason, details)
        VALUES (CASE WHEN p_paused THEN 'PAUSED' ELSE 'RESUMED' END, p_actor, p_reason, jsonb_build_object('lane', 'events'));
        PERFORM pg_notify('event_outbox_pending', 'new_work') WHERE NOT p_paused;
    END IF;
    RETURN QUERY SELECT 'events', CASE WHEN v_paused THEN 'PAUSED' ELSE 'RUNNING' END,
                        CASE WHEN p_paused THEN 'PAUSED' ELSE 'RUNNING' END, p_dry_run IS NOT FALSE;
END $$;
