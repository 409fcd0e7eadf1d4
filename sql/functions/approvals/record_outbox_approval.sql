-- record_outbox_approval: a line of narrative for each item that a request is about, or one if it is about none.
--
-- Moves    nothing
-- Caller   request_outbox_approval, approve_outbox_request, decide_outbox_request; nobody else may
-- Locks    nothing
-- Refuses  nothing
-- Why      the life of an item tells who asked for what was done to it and who agreed, each with their login.
CREATE OR REPLACE FUNCTION symphony.record_outbox_approval(
    p_event_type TEXT, p_request symphony.outbox_approval_requests, p_actor TEXT, p_reason TEXT
) RETURNS VOID
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_details JSONB := jsonb_build_object('request_no', p_request.request_no, 'act', p_request.act);
BEGIN
    IF p_event_type <> 'APPROVAL_REQUESTED' THEN
        v_details := v_details || jsonb_build_object('asked_by', p_request.actor, 'asked_from_login', p_request.session_role);
    END IF;
    PERFORM symphony.record_outbox_act(
                p_request.lane, p_event_type,
                coalesce(a->>'outbox_id', a->>'event_id', a->>'item_id', a->>'id')::UUID, p_actor, NULL, p_reason, v_details,
                -- An app that the act makes has no id before.
                CASE WHEN a->'created' IS DISTINCT FROM 'true' THEN (a->>'app_id')::UUID END)
       FROM jsonb_array_elements(CASE jsonb_typeof(p_request.preview) WHEN 'array' THEN p_request.preview
                                 ELSE jsonb_build_array(p_request.preview) END) a;
END $$;
