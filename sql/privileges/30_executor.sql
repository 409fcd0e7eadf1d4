-- Workers: the work functions, and reading what they work on. No direct write at all.
GRANT EXECUTE ON FUNCTION
    symphony.claim_outbox_batch, symphony.complete_outbox_attempt, symphony.complete_outbox_attempts, symphony.renew_outbox_leases,
    symphony.return_unsent_outbox_leases, symphony.mark_outbox_sending, symphony.park_unknown_outbox, symphony.repair_expired_leases,
    symphony.record_late_outcome, symphony.record_terminal_blocked, symphony.register_payment_endpoint, symphony.payment_rail_key,
    symphony.beat_symphony_witness, symphony.take_rail_permits, symphony.lead_outbox_hints
    TO symphony_executor;
GRANT SELECT ON
    symphony.payment_outbox_instructions, symphony.payment_outbox_pending, symphony.payment_outbox_attempts, symphony.payment_outbox_rails,
    symphony.payment_outbox_endpoints, symphony.symphony_installation
    TO symphony_executor;
-- Its lanes' figures, for its own /metrics: depths and ages, nothing of any item.
GRANT SELECT ON symphony.supervisor_outbox_status TO symphony_executor;
GRANT EXECUTE ON FUNCTION symphony.shared_outbox_figures TO symphony_executor;
GRANT EXECUTE ON FUNCTION
    symphony.claim_event_outbox_batch, symphony.complete_event_outbox_attempts, symphony.renew_event_outbox_leases,
    symphony.return_unsent_event_outbox_leases, symphony.repair_event_outbox_leases, symphony.record_late_event_outcome,
    symphony.register_event_topics, symphony.are_events_beyond_horizon
    TO symphony_executor;
GRANT SELECT ON
    symphony.event_outbox_log, symphony.event_outbox_cursors, symphony.event_outbox_blocked, symphony.event_outbox_waiting,
    symphony.event_outbox_attempts, symphony.event_outbox_topics
    TO symphony_executor;
GRANT EXECUTE ON FUNCTION
    symphony.enqueue_leased_triggers, symphony.claim_trigger_outbox_batch, symphony.complete_trigger_outbox_attempts, symphony.complete_trigger_requests,
    symphony.renew_trigger_outbox_leases,
    symphony.return_unsent_trigger_outbox_leases, symphony.repair_trigger_outbox_leases, symphony.record_late_trigger_outcome,
    symphony.expire_trigger_reply, symphony.fire_cron_tick, symphony.retire_trigger_executions,
    symphony.sealed_app_secret
    TO symphony_executor;
GRANT SELECT ON
    symphony.apps, symphony.scripts, symphony.routes, symphony.triggers, symphony.trigger_cron, symphony.kv_entries,
    symphony.trigger_outbox_pending, symphony.trigger_outbox_attempts, symphony.trigger_outbox_executions
    TO symphony_executor;
-- Whose the token of a request to its API is.
GRANT EXECUTE ON FUNCTION symphony.authenticate_api_token, symphony.note_principal TO symphony_executor;
-- How its rails and buses are, and what waits only for them.
GRANT EXECUTE ON FUNCTION symphony.report_outbox_destinations, symphony.hasten_waiting_payments, symphony.hasten_waiting_events
    TO symphony_executor;
