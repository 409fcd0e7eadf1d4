-- Readers: everything that tells the story, never the counters (participant_outbox_sequences). An auditor sees all of it.
GRANT SELECT ON
    public.payment_outbox_instructions, public.payment_outbox_pending, public.payment_outbox_attempts,
    public.payment_outbox_events, public.payment_outbox_rails, public.payment_outbox_paused_participants,
    public.payment_outbox_blocked_lanes, public.payment_outbox_workers, public.payment_outbox_settings,
    public.payment_outbox_endpoints, public.symphony_installation, public.symphony_witnesses,
    public.outbox_operational_status, public.payment_outbox_dead_letters, public.payment_outbox_leases,
    public.supervisor_outbox_status, public.participant_sequence_gaps, public.outbox_incidents, public.outbox_history,
    public.outbox_hint_leaders
    TO symphony_auditor;
GRANT SELECT ON
    public.payment_outbox_rails, public.payment_outbox_paused_participants, public.payment_outbox_blocked_lanes,
    public.payment_outbox_workers, public.payment_outbox_settings, public.symphony_installation,
    public.symphony_witnesses, public.outbox_operational_status, public.payment_outbox_dead_letters,
    public.payment_outbox_leases, public.supervisor_outbox_status, public.participant_sequence_gaps,
    public.outbox_incidents, public.outbox_history, public.outbox_hint_leaders
    TO symphony_readonly;
GRANT EXECUTE ON FUNCTION public.outbox_figures
    TO symphony_executor, symphony_operator, symphony_approver, symphony_readonly, symphony_auditor;
GRANT EXECUTE ON FUNCTION public.payment_rail_key, public.payment_by_rail_key TO symphony_readonly, symphony_auditor;
GRANT SELECT ON
    public.event_outbox_identities, public.event_outbox_log, public.event_outbox_cursors, public.event_outbox_blocked,
    public.event_outbox_waiting, public.event_outbox_attempts, public.event_outbox_events,
    public.event_outbox_settings, public.event_outbox, public.event_outbox_dead_letters, public.event_outbox_envelopes
    TO symphony_auditor;
GRANT SELECT ON
    public.event_outbox_identities, public.event_outbox_settings, public.event_outbox_envelopes
    TO symphony_readonly;
GRANT SELECT ON
    public.apps, public.scripts, public.routes, public.triggers, public.trigger_cron, public.kv_entries,
    public.topics, public.queues, public.queue_messages, public.trigger_outbox_pending,
    public.trigger_outbox_attempts, public.trigger_outbox_events, public.trigger_outbox_executions,
    public.trigger_outbox_settings
    TO symphony_auditor;
GRANT SELECT ON
    public.apps, public.routes, public.triggers, public.trigger_cron, public.topics, public.queues,
    public.trigger_outbox_settings
    TO symphony_readonly;
-- Of these symphony_readonly gets the columns without payloads, destinations and lease tokens, and without what may hold
-- them: each is named, so a column that is added later stays hidden until somebody decides.
GRANT SELECT (outbox_id, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, created_at,
    redrive_of, redrive_no, traceparent) ON public.payment_outbox_instructions TO symphony_readonly;
GRANT SELECT (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_count,
    next_attempt_at, created_at, claimed_by, lease_expires_at, claimed_at, hold, lane_position, must_inquire,
    sending_marked_at, endpoint, cleared_at, hasten_from, only_ask) ON public.payment_outbox_pending TO symphony_readonly;
GRANT SELECT (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
    attempt_no, state, outcome_unknown, spends_attempt, asked_only, claimed_at, completed_at, rail_reference,
    rail_code, error_code, error_message, latency_ms, worker_id, endpoint, created_at)
    ON public.payment_outbox_attempts TO symphony_readonly;
GRANT SELECT (event_no, event_type, outbox_id, worker_id, actor, approver, session_role, reason, created_at)
    ON public.payment_outbox_events TO symphony_readonly;
GRANT SELECT (endpoint, rail_type, first_seen_at) ON public.payment_outbox_endpoints TO symphony_readonly;
GRANT SELECT (bucket, position, event_id, event_key, created_at) ON public.event_outbox_log TO symphony_readonly;
GRANT SELECT (bucket, event_key, due_at, failed_position, blocked_at, hasten_from)
    ON public.event_outbox_blocked TO symphony_readonly;
GRANT SELECT (bucket, published_through, claimed_through, ragged_through, unanswered, claimed_by, lease_expires_at,
    claimed_at) ON public.event_outbox_cursors TO symphony_readonly;
GRANT SELECT (bucket, event_key, position, redrive_no, not_before) ON public.event_outbox_waiting TO symphony_readonly;
GRANT SELECT (bucket, position, redrive_no, outcome_no, attempt_no, state, event_id, event_key, outcome_unknown,
    spends_attempt, claimed_at, completed_at, bus_reference, error_code, error_message, latency_ms, worker_id)
    ON public.event_outbox_attempts TO symphony_readonly;
GRANT SELECT (event_no, event_type, outbox_event, worker_id, actor, approver, session_role, reason, created_at)
    ON public.event_outbox_events TO symphony_readonly;
GRANT SELECT (id, "eventType", state, attempts, "lastError", next_attempt, "createdAt", "updatedAt", event_key,
    bucket, log_position) ON public.event_outbox TO symphony_readonly;
GRANT SELECT (event_id, event_key, bucket, log_position, redrive_no, attempt_no, failed_at, error_code,
    error_message, blocks_its_key) ON public.event_outbox_dead_letters TO symphony_readonly;
GRANT SELECT (id, app_id, name, version, timeout_ms, created_at) ON public.scripts TO symphony_readonly;
GRANT SELECT (app_id, key, version, updated_at) ON public.kv_entries TO symphony_readonly;
GRANT SELECT (message_no, app_id, queue, origin_principal, trigger_depth, parent_execution_id, root_execution_id,
    after_dead_letter) ON public.queue_messages TO symphony_readonly;
GRANT SELECT (id, app_id, source_kind, trigger_id, script_id, reply_deadline_at, origin_principal, principal,
    trigger_depth, parent_execution_id, root_execution_id, after_dead_letter, attempt_count, attempts_max,
    backoff_seconds, next_attempt_at, created_at, claimed_by, lease_expires_at, claimed_at)
    ON public.trigger_outbox_pending TO symphony_readonly;
GRANT SELECT (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, spends_attempt,
    error_code, error_message, latency_ms, worker_id, claimed_at, completed_at)
    ON public.trigger_outbox_attempts TO symphony_readonly;
GRANT SELECT (event_no, event_type, id, app_id, worker_id, actor, approver, session_role, reason, created_at)
    ON public.trigger_outbox_events TO symphony_readonly;
GRANT SELECT (id, app_id, app_name, source_kind, trigger_id, script_id, script_name, script_version,
    parent_execution_id, root_execution_id, trigger_depth, origin_principal, state, error_code, error_message,
    attempts, created_at, completed_at) ON public.trigger_outbox_executions TO symphony_readonly;
GRANT EXECUTE ON FUNCTION public.payments_by_rail_keys TO symphony_readonly, symphony_auditor;
GRANT SELECT ON
    public.trigger_outbox_dead_letters, public.outbox_destinations, public.outbox_destination_resets, public.outbox_destination_status,
    public.outbox_unserved
    TO symphony_readonly, symphony_auditor;
