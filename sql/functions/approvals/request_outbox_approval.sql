-- request_outbox_approval: ask a second person to approve an act.
--
-- Moves    nothing -> waiting; nothing of what the act is about
-- Caller   symphony_operator, symphony_approver
-- Locks    as the act's dry run
-- Refuses  P7005 invalid argument, or more than 1000 acts, and whatever the act itself refuses
-- Why      approval is proved, not named: the request is a row with the login that made it, and the approval another one from
--          another login. What would be refused anyway is refused here, and the answer shows what would change.
CREATE OR REPLACE FUNCTION symphony.request_outbox_approval(
    p_act TEXT, p_arguments JSONB, p_actor TEXT, p_reason TEXT, p_expires_in_seconds INT DEFAULT 86400,
    p_dry_run BOOLEAN DEFAULT false
) RETURNS TABLE (request_no BIGINT, lane TEXT, act TEXT, expires_at TIMESTAMPTZ, preview JSONB, dry_run BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_request symphony.outbox_approval_requests;
BEGIN
    lane := symphony.outbox_act_lane(p_act);
    IF lane IS NULL THEN
        RAISE EXCEPTION 'p_act names no act that a second person can approve' USING ERRCODE = 'P7005';
    END IF;
    PERFORM symphony.require_outbox_act(lane, p_actor, p_reason, NULL, false);
    PERFORM symphony.require_outbox_count('p_expires_in_seconds', p_expires_in_seconds, 604800);
    PERFORM symphony.require_plain_json('p_arguments', p_arguments, 17408);
    IF jsonb_typeof(p_arguments) = 'array' THEN
        PERFORM symphony.require_outbox_count('the number of acts in p_arguments', jsonb_array_length(p_arguments), 1000);
        SELECT jsonb_agg(symphony.call_outbox_act(p_act, a.arguments, p_actor, p_reason, NULL, true) ORDER BY a.place)
          INTO preview FROM jsonb_array_elements(p_arguments) WITH ORDINALITY a(arguments, place);
    ELSE
        preview := symphony.call_outbox_act(p_act, p_arguments, p_actor, p_reason, NULL, true);
    END IF;
    act := p_act;
    expires_at := clock_timestamp() + make_interval(secs => p_expires_in_seconds);
    dry_run := p_dry_run IS NOT FALSE;
    IF NOT dry_run THEN
        INSERT INTO symphony.outbox_approval_requests AS r (lane, act, arguments, preview, actor, reason, token_id, expires_at)
        VALUES (lane, p_act, p_arguments, preview, p_actor, p_reason, (symphony.present_api_token('operate')).token_id, expires_at) RETURNING r.* INTO v_request;
        request_no := v_request.request_no;
        PERFORM symphony.record_outbox_approval('APPROVAL_REQUESTED', v_request, p_actor, p_reason);
    END IF;
    RETURN NEXT;
END $$;
