-- configure_payment_lane: set the lane's switches; NULL leaves a setting as it is.
--
-- Moves    nothing
-- Caller   symphony_operator, symphony_approver
-- Locks    the lane's settings
-- Refuses  P7005 no actor or reason, P7008 approval, to change p_approval_required always
-- Why      require_approval_change says why two people change what two people are needed for.
CREATE OR REPLACE FUNCTION symphony.configure_payment_lane(
    p_actor TEXT, p_reason TEXT, p_record_routine_events BOOLEAN DEFAULT NULL, p_approval_required BOOLEAN DEFAULT NULL,
    p_approver TEXT DEFAULT NULL
) RETURNS TABLE (paused BOOLEAN, record_routine_events BOOLEAN, approval_required BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_act('payments', p_actor, p_reason, p_approver, true);
    PERFORM symphony.require_approval_change(s.approval_required, p_approval_required)
       FROM (SELECT x.approval_required FROM symphony.payment_outbox_settings x FOR UPDATE) s;
    UPDATE symphony.payment_outbox_settings s
       SET record_routine_events = coalesce(p_record_routine_events, s.record_routine_events),
           approval_required = coalesce(p_approval_required, s.approval_required);
    PERFORM symphony.record_outbox_act('payments', 'CONFIGURED', NULL, p_actor, p_approver, p_reason, jsonb_strip_nulls(jsonb_build_object(
        'record_routine_events', p_record_routine_events, 'approval_required', p_approval_required)));
    RETURN QUERY SELECT s.paused, s.record_routine_events, s.approval_required FROM symphony.payment_outbox_settings s;
END $$;
