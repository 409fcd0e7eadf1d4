-- switch_outbox_lane: pause or resume a whole lane.
--
-- Moves    lane: running <-> paused
-- Caller   the pause and resume functions of the lanes
-- Locks    the lane's settings
-- Refuses  P7005 no actor or reason
-- Why      one way to switch: both directions of every lane read, write and tell the same. Whoever claims sees it with the next
--          claim.
CREATE OR REPLACE FUNCTION symphony.switch_outbox_lane(
    p_lane TEXT, p_paused BOOLEAN, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony.require_outbox_act(p_lane, p_actor, p_reason, NULL, NOT p_paused AND p_dry_run IS FALSE);
    CASE p_lane
        WHEN 'payments' THEN
            SELECT s.paused INTO v_paused FROM symphony.payment_outbox_settings s FOR UPDATE;
            UPDATE symphony.payment_outbox_settings s SET paused = p_paused WHERE p_dry_run IS FALSE AND s.paused <> p_paused;
        WHEN 'events' THEN
            SELECT s.paused INTO v_paused FROM symphony.event_outbox_settings s FOR UPDATE;
            UPDATE symphony.event_outbox_settings s SET paused = p_paused WHERE p_dry_run IS FALSE AND s.paused <> p_paused;
        WHEN 'triggers' THEN
            SELECT s.paused INTO v_paused FROM symphony.trigger_outbox_settings s FOR UPDATE;
            UPDATE symphony.trigger_outbox_settings s SET paused = p_paused WHERE p_dry_run IS FALSE AND s.paused <> p_paused;
    END CASE;
    RETURN QUERY SELECT s.* FROM symphony.answer_outbox_switch(
        p_lane, p_lane, v_paused, p_paused, p_actor, p_reason, p_dry_run, jsonb_build_object('lane', p_lane)) s;
END $$;
