-- configure_event_lane: set which members no payload may have, and what needs approval; NULL leaves a setting as it is.
--
-- Moves    nothing
-- Caller   symphony_operator, symphony_approver
-- Locks    the lane's settings
-- Refuses  P7005 no actor or reason, or a blank name in the list, P7008 approval, to change p_approval_required always
-- Why      what counts as personal data differs by service; whoever changes it is on record.
CREATE OR REPLACE FUNCTION symphony.configure_event_lane(
    p_actor TEXT, p_reason TEXT, p_denied_payload_keys TEXT[] DEFAULT NULL,
    p_approval_required BOOLEAN DEFAULT NULL
) RETURNS TABLE (paused BOOLEAN, denied_payload_keys TEXT[], approval_required BOOLEAN)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony.require_outbox_act('events', p_actor, p_reason, NULL, true);
    PERFORM symphony.require_approval_change(s.approval_required, p_approval_required)
       FROM (SELECT x.approval_required FROM symphony.event_outbox_settings x FOR UPDATE) s;
    PERFORM symphony.require_outbox_id('p_denied_payload_keys', k) FROM unnest(p_denied_payload_keys) k;
    UPDATE symphony.event_outbox_settings s
       SET denied_payload_keys = CASE WHEN p_denied_payload_keys IS NULL THEN s.denied_payload_keys
                                      ELSE ARRAY(SELECT DISTINCT k FROM unnest(p_denied_payload_keys) k ORDER BY k) END,
           approval_required = coalesce(p_approval_required, s.approval_required);
    PERFORM symphony.record_outbox_act('events', 'CONFIGURED', NULL, p_actor, NULL, p_reason,
        jsonb_strip_nulls(jsonb_build_object('denied_payload_keys', to_jsonb(p_denied_payload_keys), 'approval_required', p_approval_required)));
    RETURN QUERY SELECT s.paused, s.denied_payload_keys, s.approval_required FROM symphony.event_outbox_settings s;
END $$;
