-- Operators and approvers: the acts, and reading as an auditor does. Only approvers approve.
GRANT EXECUTE ON FUNCTION symphony.do_outbox_act, symphony.request_outbox_approval, symphony.withdraw_outbox_request TO symphony_operator, symphony_approver;
GRANT EXECUTE ON FUNCTION symphony.approve_outbox_request, symphony.reject_outbox_request TO symphony_approver;
GRANT SELECT ON symphony.outbox_approvals, symphony.outbox_waiting_approvals TO symphony_operator, symphony_approver;
GRANT EXECUTE ON FUNCTION
    symphony.park_outbox, symphony.release_outbox, symphony.resolve_outbox, symphony.redrive_outbox, symphony.skip_outbox_head,
    symphony.close_payment_incident, symphony.close_event_incident, symphony.close_trigger_incident,
    symphony.pause_payment_lane, symphony.resume_payment_lane, symphony.pause_payment_rail, symphony.resume_payment_rail,
    symphony.pause_payment_participant, symphony.resume_payment_participant,
    symphony.configure_payment_rail, symphony.configure_payment_lane, symphony.payment_rail_key,
    symphony.payment_by_rail_key, symphony.accept_symphony_server
    TO symphony_operator, symphony_approver;
GRANT SELECT ON
    symphony.payment_outbox_instructions, symphony.payment_outbox_pending, symphony.payment_outbox_attempts, symphony.payment_outbox_events,
    symphony.payment_outbox_rails, symphony.payment_outbox_paused_participants, symphony.payment_outbox_blocked_lanes,
    symphony.payment_outbox_workers, symphony.payment_outbox_settings, symphony.payment_outbox_endpoints,
    symphony.symphony_installation, symphony.symphony_witnesses,
    symphony.outbox_operational_status, symphony.payment_outbox_dead_letters, symphony.payment_outbox_leases, symphony.supervisor_outbox_status,
    symphony.participant_sequence_gaps, symphony.outbox_incidents, symphony.outbox_history, symphony.outbox_hint_leaders
    TO symphony_operator, symphony_approver;
GRANT EXECUTE ON FUNCTION
    symphony.redrive_event_outbox, symphony.skip_event_outbox, symphony.pause_event_lane, symphony.resume_event_lane,
    symphony.pause_event_topic, symphony.resume_event_topic, symphony.configure_event_lane
    TO symphony_operator, symphony_approver;
GRANT SELECT ON
    symphony.event_outbox_identities, symphony.event_outbox_log, symphony.event_outbox_cursors, symphony.event_outbox_blocked,
    symphony.event_outbox_waiting, symphony.event_outbox_attempts, symphony.event_outbox_events, symphony.event_outbox_settings,
    symphony.event_outbox, symphony.event_outbox_dead_letters, symphony.event_outbox_envelopes, symphony.event_outbox_topics
    TO symphony_operator, symphony_approver;
GRANT EXECUTE ON FUNCTION symphony.push_app, symphony.delete_app, symphony.replay_trigger_execution, symphony.configure_trigger_lane,
    symphony.pause_trigger_lane, symphony.resume_trigger_lane, symphony.pause_app, symphony.resume_app, symphony.rollback_app,
    symphony.set_kv_entry, symphony.delete_kv_entry, symphony.list_kv_entries, symphony.read_kv_entry,
    symphony.set_app_secret, symphony.delete_app_secret, symphony.list_app_secrets,
    symphony.grant_app_mail, symphony.revoke_app_mail
    TO symphony_operator, symphony_approver;
GRANT SELECT ON
    symphony.apps, symphony.app_pushes, symphony.scripts, symphony.routes, symphony.triggers, symphony.mail_addresses, symphony.mail_grants,
    symphony.trigger_retention, symphony.trigger_cron, symphony.kv_entries, symphony.topics, symphony.queues,
    symphony.queue_messages, symphony.principals, symphony.trigger_outbox_pending, symphony.trigger_outbox_attempts, symphony.trigger_outbox_events,
    symphony.trigger_outbox_executions, symphony.trigger_outbox_settings
    TO symphony_operator, symphony_approver;
GRANT EXECUTE ON FUNCTION
    symphony.inquire_outbox, symphony.close_payment_dead_letter, symphony.close_event_dead_letter, symphony.close_trigger_dead_letter,
    symphony.reset_outbox_destination, symphony.payments_by_rail_keys
    TO symphony_operator, symphony_approver;
GRANT SELECT ON
    symphony.trigger_outbox_dead_letters, symphony.outbox_destinations, symphony.outbox_destination_resets, symphony.outbox_destination_status,
    symphony.outbox_unserved
    TO symphony_operator, symphony_approver;
