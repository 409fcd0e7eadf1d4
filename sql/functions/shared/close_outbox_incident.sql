-- close_outbox_incident: a person has looked into a contradiction and says what became of it.
--
-- Moves    nothing; the incident is not listed any more
-- Caller   close_payment_incident, close_event_incident, close_trigger_incident
-- Locks    the late outcome the incident is about
-- Refuses  P7005 no actor or reason, P7007 no such incident is open, P7008 approval
-- Why      the ledger and the late outcome both stay as they are; the reason beside them is what an auditor reads. What is
--          answered, refused and written down is the same in every lane.
CREATE OR REPLACE FUNCTION symphony.close_outbox_incident(
    p_lane TEXT, p_incident_no BIGINT, p_actor TEXT, p_reason TEXT, p_approver TEXT, p_dry_run BOOLEAN
) RETURNS TABLE (incident_no BIGINT, item_id UUID, recorded_state TEXT, recorded_reference TEXT, late_state TEXT, late_reference TEXT,
                 dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
    v_app_id UUID;
BEGIN
    PERFORM symphony.require_outbox_act(p_lane, p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    CASE p_lane
        WHEN 'payments' THEN PERFORM FROM symphony.payment_outbox_events e WHERE e.event_no = p_incident_no FOR UPDATE;
        WHEN 'events' THEN PERFORM FROM symphony.event_outbox_events e WHERE e.event_no = p_incident_no FOR UPDATE;
        WHEN 'triggers' THEN
            SELECT e.app_id INTO v_app_id FROM symphony.trigger_outbox_events e WHERE e.event_no = p_incident_no FOR UPDATE;
    END CASE;
    SELECT i.incident_no, i.item_id, i.recorded_state::TEXT, i.recorded_reference, i.late_state, i.late_reference
      INTO incident_no, item_id, recorded_state, recorded_reference, late_state, late_reference
      FROM symphony.outbox_incidents i WHERE i.lane = p_lane AND i.incident_no = p_incident_no;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'p_incident_no names no open incident of the % lane: %', rtrim(p_lane, 's'), coalesce(p_incident_no::TEXT, 'null')
            USING ERRCODE = 'P7007';
    END IF;
    dry_run := p_dry_run IS NOT FALSE;
    IF NOT dry_run THEN
        PERFORM symphony.record_outbox_act(p_lane, 'INCIDENT_CLOSED', item_id, p_actor, p_approver, p_reason,
                                           jsonb_build_object('incident_no', p_incident_no), v_app_id);
    END IF;
    RETURN NEXT;
END $$;
