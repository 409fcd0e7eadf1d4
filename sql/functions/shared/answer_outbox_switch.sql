-- answer_outbox_switch: what every pause and resume ends with: the line of narrative, the hint, the answer.
--
-- Moves    nothing: the caller has moved the switch, if this is no dry run
-- Caller   switch_outbox_lane, switch_payment_rail, switch_payment_participant, switch_event_topic, switch_app
-- Locks    nothing
-- Refuses  nothing
-- Why      whatever is switched, the same is written down and answered; nothing is written where nothing has changed.
CREATE OR REPLACE FUNCTION symphony.answer_outbox_switch(
    p_lane TEXT, p_target TEXT, p_before BOOLEAN, p_after BOOLEAN, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN, p_details JSONB,
    p_app_id UUID DEFAULT NULL
) RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_dry_run IS FALSE AND p_before IS DISTINCT FROM p_after THEN
        PERFORM symphony.record_outbox_act(p_lane, CASE WHEN p_after THEN 'PAUSED' ELSE 'RESUMED' END, NULL, p_actor, NULL, p_reason,
                                           p_details, p_app_id);
    END IF;
    RETURN QUERY SELECT p_target, symphony.switch_state(p_before), symphony.switch_state(p_after), p_dry_run IS NOT FALSE;
END $$;
