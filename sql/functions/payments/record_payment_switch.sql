-- record_payment_switch: one line of narrative for a pause, a resume or a changed setting.
--
-- Moves    nothing
-- Caller   pause, resume and configure functions; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      seven functions, one way to write down who did it and why; a resume also wakes the workers.
CREATE OR REPLACE FUNCTION symphony_internal.record_payment_switch(p_event_type TEXT, p_actor TEXT, p_reason TEXT, p_details JSONB) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO public.payment_outbox_events (event_type, actor, reason, details)
    VALUES (p_event_type, p_actor, p_reason, p_details);
    PERFORM pg_notify('outbox_pending', 'new_work') WHERE p_event_type <> 'PAUSED';
END $$;
