-- close_trigger_incident: a person has looked into a contradiction and says what became of it.
--
-- Moves    nothing; the incident is not listed any more
-- Caller   symphony_operator, symphony_approver
-- Locks    as close_outbox_incident
-- Refuses  P7005 no actor or reason, P7007 no such incident is open, P7008 approval
-- Why      as close_outbox_incident.
CREATE OR REPLACE FUNCTION symphony.close_trigger_incident(
    p_incident_no BIGINT, p_actor TEXT, p_reason TEXT, p_approver TEXT DEFAULT NULL, p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (incident_no BIGINT, item_id UUID, recorded_state TEXT, recorded_reference TEXT, late_state TEXT, late_reference TEXT,
                 dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT i.* FROM symphony.close_outbox_incident('triggers', p_incident_no, p_actor, p_reason, p_approver, p_dry_run) i;
END $$;
