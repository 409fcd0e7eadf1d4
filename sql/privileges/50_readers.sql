-- Readers: everything that tells the story, never the counters (participant_outbox_sequences). An auditor sees all of it.
GRANT SELECT ON
    symphony.payment_outbox_instructions, symphony.payment_outbox_pending, symphony.payment_outbox_attempts,
    symphony.payment_outbox_events, symphony.payment_outbox_rails, symphony.payment_outbox_paused_participants,
    symphony.payment_outbox_blocked_lanes, symphony.payment_outbox_workers, symphony.payment_outbox_settings,
    symphony.payment_outbox_endpoints, symphony.symphony_installation, symphony.symphony_witnesses,
    symphony.outbox_operational_status, symphony.payment_outbox_dead_letters, symphony.payment_outbox_leases,
    symphony.supervisor_outbox_status, symphony.participant_sequence_gaps, symphony.outbox_incidents, symphony.outbox_history,
    symphony.outbox_hint_leaders
    TO symphony_auditor;
GRANT SELECT ON
    symphony.payment_outbox_rails, symphony.payment_outbox_paused_participants, symphony.payment_outbox_blocked_lanes,
    symphony.payment_outbox_workers, symphony.payment_outbox_settings, symphony.symphony_installation,
    symphony.symphony_witnesses, symphony.outbox_operational_status, symphony.payment_outbox_dead_letters,
    symphony.payment_outbox_leases, symphony.supervisor_outbox_status, symphony.participant_sequence_gaps,
    symphony.outbox_incidents, symphony.outbox_history, symphony.outbox_hint_leaders
    TO symphony_readonly;
GRANT EXECUTE ON FUNCTION symphony.outbox_figures, symphony.open_event_producers
    TO symphony_executor, symphony_operator, symphony_approver, symphony_readonly, symphony_auditor;
GRANT EXECUTE ON FUNCTION symphony.payment_rail_key, symphony.payment_by_rail_key TO symphony_readonly, symphony_auditor;
GRANT SELECT ON
    symphony.event_outbox_identities, symphony.event_outbox_log, symphony.event_outbox_cursors, symphony.event_outbox_blocked,
    symphony.event_outbox_waiting, symphony.event_outbox_attempts, symphony.event_outbox_events,
    symphony.event_outbox_settings, symphony.event_outbox, symphony.event_outbox_dead_letters, symphony.event_outbox_envelopes,
    symphony.event_outbox_topics
    TO symphony_auditor;
GRANT SELECT ON
    symphony.event_outbox_identities, symphony.event_outbox_settings, symphony.event_outbox_envelopes,
    symphony.event_outbox_topics
    TO symphony_readonly;
GRANT SELECT ON
    symphony.apps, symphony.app_pushes, symphony.scripts, symphony.routes, symphony.triggers, symphony.mail_addresses, symphony.mail_grants,
    symphony.trigger_retention, symphony.trigger_cron, symphony.kv_entries,
    symphony.topics, symphony.queues, symphony.queue_messages, symphony.trigger_outbox_pending,
    symphony.trigger_outbox_attempts, symphony.trigger_outbox_events, symphony.trigger_outbox_executions,
    symphony.trigger_outbox_settings, symphony.principals
    TO symphony_auditor;
GRANT SELECT ON
    symphony.apps, symphony.routes, symphony.triggers, symphony.mail_addresses, symphony.mail_grants, symphony.trigger_retention, symphony.trigger_cron, symphony.topics, symphony.queues,
    symphony.trigger_outbox_settings
    TO symphony_readonly;
-- Of these symphony_readonly gets the columns without payloads, destinations and lease tokens, and without what may hold
-- them: each is named, so a column that is added later stays hidden until somebody decides.
GRANT SELECT (outbox_id, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, created_at,
    redrive_of, redrive_no, traceparent) ON symphony.payment_outbox_instructions TO symphony_readonly;
GRANT SELECT (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_count,
    next_attempt_at, created_at, claimed_by, lease_expires_at, claimed_at, hold, lane_position, must_inquire,
    sending_marked_at, endpoint, cleared_at, hasten_from, only_ask) ON symphony.payment_outbox_pending TO symphony_readonly;
GRANT SELECT (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
    attempt_no, state, outcome_unknown, spends_attempt, asked_only, claimed_at, completed_at, rail_reference,
    rail_code, error_code, error_message, latency_ms, worker_id, endpoint, created_at)
    ON symphony.payment_outbox_attempts TO symphony_readonly;
GRANT SELECT (event_no, event_type, outbox_id, worker_id, actor, approver, session_role, reason, created_at)
    ON symphony.payment_outbox_events TO symphony_readonly;
GRANT SELECT (endpoint, rail_type, first_seen_at) ON symphony.payment_outbox_endpoints TO symphony_readonly;
GRANT SELECT (bucket, position, event_id, event_key, created_at) ON symphony.event_outbox_log TO symphony_readonly;
GRANT SELECT (bucket, event_key, due_at, failed_position, blocked_at, hasten_from, paused_topic)
    ON symphony.event_outbox_blocked TO symphony_readonly;
GRANT SELECT (bucket, published_through, claimed_through, ragged_through, unanswered, claimed_by, lease_expires_at,
    claimed_at) ON symphony.event_outbox_cursors TO symphony_readonly;
GRANT SELECT (bucket, event_key, position, redrive_no, not_before) ON symphony.event_outbox_waiting TO symphony_readonly;
GRANT SELECT (bucket, position, redrive_no, outcome_no, attempt_no, state, event_id, event_key, outcome_unknown,
    spends_attempt, bus_away, claimed_at, completed_at, bus_reference, error_code, error_message, latency_ms, worker_id)
    ON symphony.event_outbox_attempts TO symphony_readonly;
GRANT SELECT (event_no, event_type, outbox_event, worker_id, actor, approver, session_role, reason, created_at)
    ON symphony.event_outbox_events TO symphony_readonly;
GRANT SELECT (id, "eventType", state, attempts, "lastError", next_attempt, "createdAt", "updatedAt", event_key,
    bucket, log_position) ON symphony.event_outbox TO symphony_readonly;
GRANT SELECT (event_id, event_key, bucket, log_position, redrive_no, attempt_no, failed_at, error_code,
    error_message, blocks_its_key) ON symphony.event_outbox_dead_letters TO symphony_readonly;
GRANT EXECUTE ON FUNCTION symphony.list_app_secrets TO symphony_readonly, symphony_auditor;
GRANT EXECUTE ON FUNCTION symphony.list_kv_entries, symphony.read_kv_entry TO symphony_auditor;
GRANT SELECT (app_id, version, manifest_digest, pushed_by, principal, pushed_at) ON symphony.app_pushes TO symphony_readonly;
GRANT SELECT (id, app_id, name, version, file, timeout_ms, created_at) ON symphony.scripts TO symphony_readonly;
-- A sender's address is part of what came in.
GRANT SELECT (principal_id, kind, first_seen_at) ON symphony.principals TO symphony_readonly;
GRANT SELECT (app_id, key, version, entry_no, expires_at, updated_at) ON symphony.kv_entries TO symphony_readonly;
GRANT SELECT (message_no, app_id, queue, message_key, origin_principal, trigger_depth, parent_execution_id, root_execution_id,
    after_dead_letter) ON symphony.queue_messages TO symphony_readonly;
GRANT SELECT (id, app_id, source_kind, trigger_id, script_id, reply_deadline_at, origin_principal, principal,
    trigger_depth, parent_execution_id, root_execution_id, after_dead_letter, attempt_count, attempts_max,
    backoff_seconds, order_key, order_no, awaits_turn, next_attempt_at, created_at, claimed_by, lease_expires_at, claimed_at, traceparent)
    ON symphony.trigger_outbox_pending TO symphony_readonly;
-- What a script throws is its own text, as what it logs is: both may repeat a payload.
GRANT SELECT (id, attempt_no, app_id, source_kind, trigger_id, script_id, root_execution_id, state, spends_attempt,
    error_code, latency_ms, worker_id, claimed_at, completed_at)
    ON symphony.trigger_outbox_attempts TO symphony_readonly;
GRANT SELECT (event_no, event_type, id, app_id, worker_id, actor, approver, session_role, reason, created_at)
    ON symphony.trigger_outbox_events TO symphony_readonly;
GRANT SELECT (id, app_id, app_name, source_kind, trigger_id, script_id, script_name, script_version,
    parent_execution_id, root_execution_id, trigger_depth, origin_principal, principal, state, error_code,
    attempts, created_at, completed_at, traceparent) ON symphony.trigger_outbox_executions TO symphony_readonly;
GRANT EXECUTE ON FUNCTION symphony.payments_by_rail_keys TO symphony_readonly, symphony_auditor;
GRANT SELECT ON symphony.trigger_outbox_dead_letters TO symphony_auditor;
GRANT SELECT (id, app_id, app_name, script_name, source_kind, root_execution_id, attempt_no, failed_at, error_code)
    ON symphony.trigger_outbox_dead_letters TO symphony_readonly;
GRANT SELECT ON
    symphony.outbox_destinations, symphony.outbox_destination_resets, symphony.outbox_destination_status,
    symphony.outbox_unserved
    TO symphony_readonly, symphony_auditor;
GRANT SELECT ON symphony.outbox_approvals, symphony.outbox_waiting_approvals TO symphony_auditor;
GRANT SELECT ON symphony.outbox_waiting_approvals TO symphony_readonly;
GRANT SELECT (request_no, lane, act, actor, reason, session_role, token_id, decided_with_token, created_at, expires_at, state, decided_by, decided_from_login,
    decision_reason, decided_at, token_name, decided_with_token_name) ON symphony.outbox_approvals TO symphony_readonly;
