-- Operators and approvers: the acts, and reading as an auditor does.
GRANT EXECUTE ON FUNCTION
    public.park_outbox, public.release_outbox, public.resolve_outbox, public.redrive_outbox, public.skip_outbox_head,
    public.close_payment_incident, public.close_event_incident, public.close_trigger_incident,
    public.pause_payment_lane, public.resume_payment_lane, public.pause_payment_rail, public.resume_payment_rail,
    public.pause_payment_participant, public.resume_payment_participant,
    public.configure_payment_rail, public.configure_payment_lane, public.payment_rail_key,
    public.payment_by_rail_key, public.accept_symphony_server
    TO symphony_operator, symphony_approver;
GRANT SELECT ON
    public.payment_outbox_instructions, public.payment_outbox_pending, public.payment_outbox_attempts, public.payment_outbox_events,
    public.payment_outbox_rails, public.payment_outbox_paused_participants, public.payment_outbox_blocked_lanes,
    public.payment_outbox_workers, public.payment_outbox_settings, public.payment_outbox_endpoints,
    public.symphony_installation, public.symphony_witnesses,
    public.outbox_operational_status, public.payment_outbox_dead_letters, public.payment_outbox_leases, public.supervisor_outbox_status,
    public.participant_sequence_gaps, public.outbox_incidents, public.outbox_history, public.outbox_hint_leaders
    TO symphony_operator, symphony_approver;
GRANT EXECUTE ON FUNCTION
    public.redrive_event_outbox, public.skip_event_outbox, public.pause_event_lane, public.resume_event_lane,
    public.configure_event_lane
    TO symphony_operator, symphony_approver;
GRANT SELECT ON
    public.event_outbox_identities, public.event_outbox_log, public.event_outbox_cursors, public.event_outbox_blocked,
    public.event_outbox_waiting, public.event_outbox_attempts, public.event_outbox_events, public.event_outbox_settings,
    public.event_outbox, public.event_outbox_dead_letters, public.event_outbox_envelopes
    TO symphony_operator, symphony_approver;
GRANT EXECUTE ON FUNCTION public.push_app, public.delete_app, public.replay_trigger_execution, public.configure_trigger_lane
    TO symphony_operator, symphony_approver;
GRANT SELECT ON
    public.apps, public.scripts, public.routes, public.triggers, public.trigger_cron, public.kv_entries, public.topics, public.queues,
    public.queue_messages, public.trigger_outbox_pending, public.trigger_outbox_attempts, public.trigger_outbox_events,
    public.trigger_outbox_executions, public.trigger_outbox_settings
    TO symphony_operator, symphony_approver;
GRANT EXECUTE ON FUNCTION
    public.inquire_outbox, public.close_payment_dead_letter, public.close_event_dead_letter, public.close_trigger_dead_letter,
    public.reset_outbox_destination, public.payments_by_rail_keys
    TO symphony_operator, symphony_approver;
GRANT SELECT ON
    public.trigger_outbox_dead_letters, public.outbox_destinations, public.outbox_destination_resets, public.outbox_destination_status,
    public.outbox_unserved
    TO symphony_operator, symphony_approver;
