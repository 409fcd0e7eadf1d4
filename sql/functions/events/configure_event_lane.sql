-- configure_event_lane: set which members no payload may have; NULL leaves the list as it is.
--
-- Moves    nothing
-- Caller   symphony_operator, symphony_approver
-- Locks    the lane's settings
-- Refuses  P7005 no actor or reason, or a blank name in the list
-- Why      what counts as personal data differs by service; whoever changes it is on record.
CREATE OR REPLACE FUNCTION public.configure_event_lane(p_actor TEXT, p_reason TEXT, p_denied_payload_keys TEXT[] DEFAULT NULL)
RETURNS TABLE (paused BOOLEAN, denied_payload_keys TEXT[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM symphony_internal.require_outbox_act(p_actor, p_reason, NULL);
    PERFORM symphony_internal.require_outbox_id('p_denied_payload_keys', k) FROM unnest(p_denied_payload_keys) k;
    UPDATE public.event_outbox_settings s
       SET denied_payload_keys = ARRAY(SELECT DISTINCT k FROM unnest(p_denied_payload_keys) k ORDER BY k)
     WHERE p_denied_payload_keys IS NOT NULL;
    INSERT INTO public.event_outbox_events (event_type, actor, reason, details)
    VALUES ('CONFIGURED', p_actor, p_reason, jsonb_build_object('denied_payload_keys', to_jsonb(p_denied_payload_keys)));
    RETURN QUERY SELECT s.paused, s.denied_payload_keys FROM public.event_outbox_settings s;
END $$;
