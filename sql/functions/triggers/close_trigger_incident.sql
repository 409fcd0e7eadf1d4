-- close_trigger_incident: a person has looked into a contradiction and says what became of it.
--
-- Moves    nothing; the incident is not listed any more
-- Caller   symphony_operator, symphony_approver
-- Locks    the late outcome the incident is about
-- Refuses  P7005 no actor or reason, P7007 no such incident is open, P7008 approved by the actor
-- Why      as close_payment_incident.
CREATE OR REPLACE FUNCTION public.close_trigger_incident(
    p_incident_no BIGINT, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (incident_no BIGINT, item_id UUID, recorded_state TEXT, recorded_reference TEXT, late_state TEXT, late_reference TEXT,
                 dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony_internal.require_outbox_act(p_actor, p_reason, p_approver);
    PERFORM FROM public.trigger_outbox_events e WHERE e.event_no = p_incident_no FOR UPDATE;
    RETURN QUERY
    SELECT i.incident_no, i.item_id, i.recorded_state::TEXT, i.recorded_reference, i.late_state, i.late_reference, p_dry_run IS NOT FALSE
      FROM public.outbox_incidents i WHERE i.lane = 'triggers' AND i.incident_no = p_incident_no;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_incident_no names no open incident of the trigger lane: %', coalesce(p_incident_no::TEXT, 'null') USING ERRCODE = 'P7007';
    END IF;
    IF p_dry_run IS FALSE THEN
        INSERT INTO public.trigger_outbox_events (event_type, id, app_id, actor, approver, reason, details)
        SELECT 'INCIDENT_CLOSED', e.id, e.app_id, p_actor, p_approver, p_reason, jsonb_build_object('incident_no', p_incident_no)
          FROM public.trigger_outbox_events e WHERE e.event_no = p_incident_no;
    END IF;
END $$;
