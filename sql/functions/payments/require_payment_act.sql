-- require_payment_act: may this person do this to the payment lane now?
--
-- Moves    nothing
-- Caller   every act
-- Locks    nothing
-- Refuses  P7005 no actor, no reason, or a transaction above READ COMMITTED, P7008 approval missing, or given by the actor
-- Why      what moves money needs a second person where the lane says so.
CREATE OR REPLACE FUNCTION symphony_internal.require_payment_act(p_actor TEXT, p_reason TEXT, p_approver TEXT, p_moves_money BOOLEAN) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM symphony_internal.require_outbox_act(p_actor, p_reason, p_approver);
    IF p_approver IS NULL AND p_moves_money AND (SELECT s.approval_required FROM public.payment_outbox_settings s) THEN
        RAISE EXCEPTION 'p_approver is missing: this act needs a second person''s approval here' USING ERRCODE = 'P7008';
    END IF;
END $$;
