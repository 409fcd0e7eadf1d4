-- Workers: the work functions, and reading what they work on. No direct write at all.
GRANT EXECUTE ON FUNCTION
    public.claim_outbox_batch, public.complete_outbox_attempt, public.complete_outbox_attempts, public.renew_outbox_leases,
    public.return_unsent_outbox_leases, public.mark_outbox_sending, public.park_unknown_outbox, public.repair_expired_leases,
    public.record_late_outcome, public.record_terminal_blocked, public.register_payment_endpoint, public.payment_rail_key,
    public.beat_symphony_witness, public.take_rail_permits, public.lead_outbox_hints
    TO symphony_executor;
GRANT SELECT ON
    public.payment_outbox_instructions, public.payment_outbox_pending, public.payment_outbox_attempts, public.payment_outbox_rails,
    public.payment_outbox_endpoints, public.symphony_installation
    TO symphony_executor;
-- Its lanes' figures, for its own /metrics: depths and ages, nothing of any item.
GRANT SELECT ON public.supervisor_outbox_status TO symphony_executor;
GRANT EXECUTE ON FUNCTION
    public.claim_event_outbox_batch, public.complete_event_outbox_attempts, public.renew_event_outbox_leases,
    public.return_unsent_event_outbox_leases, public.repair_event_outbox_leases, public.record_late_event_outcome
    TO symphony_executor;
GRANT SELECT ON
    public.event_outbox_log, public.event_outbox_cursors, public.event_outbox_blocked, public.event_outbox_waiting,
    public.event_outbox_attempts
    TO symphony_executor;
GRANT EXECUTE ON FUNCTION
    public.claim_trigger_outbox_batch, public.complete_trigger_outbox_attempts, public.renew_trigger_outbox_leases,
    public.return_unsent_trigger_outbox_leases, public.repair_trigger_outbox_leases, public.record_late_trigger_outcome,
    public.fire_cron_tick
    TO symphony_executor;
GRANT SELECT ON
    public.apps, public.scripts, public.routes, public.triggers, public.trigger_cron, public.kv_entries,
    public.trigger_outbox_pending, public.trigger_outbox_attempts, public.trigger_outbox_executions
    TO symphony_executor;
-- How its rails and buses are, and what waits only for them.
GRANT EXECUTE ON FUNCTION public.report_outbox_destinations, public.hasten_waiting_payments, public.hasten_waiting_events
    TO symphony_executor;
