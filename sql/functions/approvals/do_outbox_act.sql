-- do_outbox_act: do any act by its name, with its arguments by theirs.
--
-- Moves    as the act does
-- Caller   symphony_operator, symphony_approver
-- Locks    as the act does
-- Refuses  P7005 no such act, or invalid arguments, P7008 approval, and whatever the act refuses
-- Why      the HTTP API takes every act in one shape. It is the act's own function that runs, with its own checks.
CREATE OR REPLACE FUNCTION symphony.do_outbox_act(
    p_act TEXT, p_arguments JSONB, p_actor TEXT, p_reason TEXT, p_dry_run BOOLEAN DEFAULT false
) RETURNS JSONB
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM symphony.require_outbox_act(NULL, p_actor, p_reason, NULL, false);
    PERFORM symphony.require_plain_json('p_arguments', p_arguments, 17408);
    IF symphony.outbox_act_lane(p_act) IS NULL
       AND (p_act IS NULL OR p_act <> ALL (ARRAY['park_outbox', 'inquire_outbox', 'reset_outbox_destination', 'pause_payment_lane', 'pause_payment_rail',
            'pause_payment_participant', 'pause_event_lane', 'pause_event_topic', 'pause_trigger_lane', 'pause_app',
            'revoke_app_mail'])) THEN
        RAISE EXCEPTION 'p_act names no act' USING ERRCODE = 'P7005';
    END IF;
    RETURN symphony.call_outbox_act(p_act, p_arguments, p_actor, p_reason, NULL, p_dry_run);
END $$;
