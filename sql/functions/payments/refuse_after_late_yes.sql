-- refuse_after_late_yes: a rail said yes to a lost worker; one person alone may not have the money sent again.
--
-- Moves    nothing
-- Caller   redrive_outbox, resolve_outbox (FAILED and RETRY); nobody else may
-- Locks    nothing
-- Refuses  P7008 such evidence exists and nobody has approved
-- Why      the evidence stands in the narrative, where it is easily overlooked at night; sending again would
--          pay twice.
CREATE OR REPLACE FUNCTION symphony_internal.refuse_after_late_yes(p_outbox_id UUID, p_approver TEXT) RETURNS VOID
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_approver IS NULL AND EXISTS (
        SELECT FROM public.payment_outbox_events e
         WHERE e.outbox_id = p_outbox_id AND e.event_type = 'LATE_OUTCOME' AND e.details->>'state' = 'DISPATCHED') THEN
        RAISE EXCEPTION 'p_approver is missing: a rail has told a lost worker that item % was executed; a second person must confirm that it was not', p_outbox_id
            USING ERRCODE = 'P7008', HINT = 'symphony show lists the LATE_OUTCOME. If the money moved, resolve the item as DISPATCHED.';
    END IF;
END $$;
