-- lock_event_for_act: hold an event's bucket still, and say where the event stands.
--
-- Moves    nothing
-- Caller   redrive_event_outbox and skip_event_outbox; nobody else may
-- Locks    the bucket's cursor: no claim and no completion happens meanwhile
-- Refuses  P7005 no actor or reason, P7007 no such event, P7008 approval
-- Why      an act judges what it sees: nothing may move between the look and the act.
CREATE OR REPLACE FUNCTION symphony.lock_event_for_act(p_event_id UUID, p_actor TEXT, p_reason TEXT, p_approver TEXT, p_dry_run BOOLEAN)
RETURNS symphony.event_outbox_log LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_event symphony.event_outbox_log;
BEGIN
    PERFORM symphony.require_outbox_act('events', p_actor, p_reason, p_approver, p_dry_run IS FALSE);
    SELECT l.* INTO v_event FROM symphony.event_outbox_identities i
      JOIN symphony.event_outbox_log l ON l.bucket = i.bucket AND l.position = i.position WHERE i.event_id = p_event_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no event % is in the log', coalesce(p_event_id::TEXT, 'null') USING ERRCODE = 'P7007';
    END IF;
    PERFORM FROM symphony.event_outbox_cursors c WHERE c.bucket = v_event.bucket FOR UPDATE;
    RETURN v_event;
END $$;
