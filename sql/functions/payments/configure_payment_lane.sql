-- configure_payment_lane: set the lane's switches; NULL leaves a setting as it is.
--
-- Moves    nothing
-- Caller   symphony_operator, symphony_approver
-- Locks    the lane's settings
-- Refuses  P7005 no actor or reason, P7008 switching approval off needs an approver
-- Why      whoever could switch the four-eyes rule off alone would not be bound by it.
CREATE OR REPLACE FUNCTION public.configure_payment_lane(
    p_actor TEXT, p_reason TEXT, p_record_routine_events BOOLEAN DEFAULT NULL, p_approval_required BOOLEAN DEFAULT NULL,
    p_approver TEXT DEFAULT NULL
) RETURNS TABLE (paused BOOLEAN, record_routine_events BOOLEAN, approval_required BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony_internal.require_payment_act(p_actor, p_reason, p_approver, p_approval_required IS FALSE);
    UPDATE public.payment_outbox_settings s
       SET record_routine_events = coalesce(p_record_routine_events, s.record_routine_events),
           approval_required = coalesce(p_approval_required, s.approval_required);
    PERFORM symphony_internal.record_payment_switch('CONFIGURED', p_actor, p_reason, jsonb_strip_nulls(jsonb_build_object(
        'record_routine_events', p_record_routine_events, 'approval_required', p_approval_required, 'approver', p_approver)));
    RETURN QUERY SELECT s.paused, s.record_routine_events, s.approval_required FROM public.payment_outbox_settings s;
END $$;
