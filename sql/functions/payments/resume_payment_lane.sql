-- resume_payment_lane: resume the whole payment lane.
--
-- Moves    lane: paused -> running
-- Caller   symphony_operator, symphony_approver
-- Locks    the lane's settings
-- Refuses  P7005 no actor or reason
-- Why      enqueueing goes on and what is in flight ends as it does: only claims start again.
CREATE OR REPLACE FUNCTION public.resume_payment_lane(p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false)
RETURNS TABLE (target TEXT, state_before TEXT, state_after TEXT, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_paused BOOLEAN;
BEGIN
    PERFORM symphony_internal.require_payment_act(p_actor, p_reason, NULL, false);
    SELECT s.paused INTO v_paused FROM public.payment_outbox_settings s FOR UPDATE;
    IF NOT p_dry_run AND v_paused IS DISTINCT FROM false THEN
        UPDATE public.payment_outbox_settings SET paused = false;
        PERFORM symphony_internal.record_payment_switch('RESUMED', p_actor, p_reason, jsonb_build_object('lane', 'payments'));
    END IF;
    RETURN QUERY SELECT 'payments', CASE WHEN v_paused THEN 'PAUSED' ELSE 'RUNNING' END, 'RUNNING', p_dry_run;
END $$;
