-- outbox_act_lane: the lane of an act that a second person can be asked to approve; NULL for anything else.
--
-- Moves    nothing
-- Caller   request_outbox_approval
-- Locks    nothing
-- Refuses  nothing
-- Why      an approval calls a function by its name: only these may be named. What stops something (park, pause) or only asks
--          (inquire) is for one person alone.
CREATE OR REPLACE FUNCTION symphony.outbox_act_lane(p_act TEXT) RETURNS TEXT
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN p_act IN ('release_outbox', 'resolve_outbox', 'redrive_outbox', 'skip_outbox_head', 'close_payment_dead_letter',
                   'close_payment_incident', 'resume_payment_lane', 'resume_payment_rail', 'resume_payment_participant',
                   'configure_payment_rail', 'configure_payment_lane', 'accept_symphony_server') THEN 'payments'
    WHEN p_act IN ('redrive_event_outbox', 'skip_event_outbox', 'close_event_dead_letter', 'close_event_incident',
                   'resume_event_lane', 'resume_event_topic', 'configure_event_lane') THEN 'events'
    WHEN p_act IN ('replay_trigger_execution', 'close_trigger_dead_letter', 'close_trigger_incident', 'resume_trigger_lane',
                   'resume_app', 'push_app', 'delete_app', 'grant_app_mail', 'configure_trigger_lane', 'rollback_app', 'set_kv_entry',
                   'delete_kv_entry', 'set_app_secret', 'delete_app_secret') THEN 'triggers'
END;
