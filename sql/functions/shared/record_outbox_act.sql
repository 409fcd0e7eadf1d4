-- record_outbox_act: one line of narrative about what a person did, in the lane it was done to.
--
-- Moves    nothing
-- Caller   acts that every lane has; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      one way to write down who did it and why. What may have made work due also wakes the lane's workers.
CREATE OR REPLACE FUNCTION symphony.record_outbox_act(
    p_lane TEXT, p_event_type TEXT, p_item UUID, p_actor TEXT, p_approver TEXT, p_reason TEXT, p_details JSONB DEFAULT '{}',
    p_app_id UUID DEFAULT NULL
) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
    v_approver TEXT := coalesce(p_approver, symphony.approved_outbox_act());
    v_details  JSONB := p_details || symphony.acting_token();
    v_wakes    BOOLEAN := p_event_type IN ('RESUMED', 'CONFIGURED', 'REDRIVEN', 'SKIPPED');
BEGIN
    CASE p_lane
        WHEN 'payments' THEN
            INSERT INTO symphony.payment_outbox_events (event_type, outbox_id, actor, approver, reason, details)
            VALUES (p_event_type, p_item, p_actor, v_approver, p_reason, v_details);
            PERFORM pg_notify(symphony.outbox_channel('outbox_pending'), 'new_work') WHERE v_wakes;
        WHEN 'events' THEN
            INSERT INTO symphony.event_outbox_events (event_type, outbox_event, actor, approver, reason, details)
            VALUES (p_event_type, p_item, p_actor, v_approver, p_reason, v_details);
            PERFORM pg_notify(symphony.outbox_channel('event_outbox_pending'), 'new_work') WHERE v_wakes;
        WHEN 'triggers' THEN
            INSERT INTO symphony.trigger_outbox_events (event_type, id, app_id, actor, approver, reason, details)
            VALUES (p_event_type, p_item, p_app_id, p_actor, v_approver, p_reason, v_details);
            PERFORM pg_notify(symphony.outbox_channel('trigger_outbox_pending'), 'new_work') WHERE v_wakes;
    END CASE;
END $$;
