-- Readers: everything that tells the story, never the counters (participant_outbox_sequences).
GRANT SELECT ON
    public.payment_outbox_instructions, public.payment_outbox_pending, public.payment_outbox_attempts, public.payment_outbox_events,
    public.payment_outbox_rails, public.payment_outbox_paused_participants, public.payment_outbox_blocked_lanes,
    public.payment_outbox_workers, public.payment_outbox_settings, public.payment_outbox_endpoints,
    public.symphony_installation, public.symphony_witnesses,
    public.outbox_operational_status, public.payment_outbox_dead_letters, public.payment_outbox_leases, public.supervisor_outbox_status,
    public.participant_sequence_gaps, public.outbox_incidents, public.outbox_hint_leaders
    TO symphony_readonly, symphony_auditor;
GRANT EXECUTE ON FUNCTION public.outbox_figures
    TO symphony_executor, symphony_operator, symphony_approver, symphony_readonly, symphony_auditor;
GRANT EXECUTE ON FUNCTION public.payment_rail_key, public.payment_by_rail_key TO symphony_readonly, symphony_auditor;
GRANT SELECT ON
    public.event_outbox_identities, public.event_outbox_log, public.event_outbox_cursors, public.event_outbox_blocked,
    public.event_outbox_waiting, public.event_outbox_attempts, public.event_outbox_events, public.event_outbox_settings,
    public.event_outbox, public.event_outbox_dead_letters
    TO symphony_readonly, symphony_auditor;
GRANT SELECT ON
    public.apps, public.scripts, public.routes, public.triggers, public.trigger_cron, public.kv_entries, public.topics, public.queues,
    public.queue_messages, public.trigger_outbox_pending, public.trigger_outbox_attempts, public.trigger_outbox_events,
    public.trigger_outbox_executions, public.trigger_outbox_settings
    TO symphony_readonly, symphony_auditor;
