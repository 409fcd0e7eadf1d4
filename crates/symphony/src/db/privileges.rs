//! Who may do what: the declared matrix. Everything not named here is forbidden.
//!
//! `sql/privileges/` grants; this table states. The two are kept apart on purpose, as in double-entry
//! bookkeeping: `symphony doctor` and the tests compare this table with the live catalog, cell by cell.

/// The owner. Nobody runs as it.
pub const OWNER: &str = "symphony_control";

/// Every role Symphony makes.
pub const ROLES: &[&str] = &[
    OWNER, INGEST, EXECUTOR, OPERATOR, APPROVER, READONLY, AUDITOR, AUTH, CONSUMER,
];

/// The roles people and programs act as.
pub const RUNTIME_ROLES: &[&str] =
    &[INGEST, EXECUTOR, OPERATOR, APPROVER, READONLY, AUDITOR, AUTH, CONSUMER];

const INGEST: &str = "symphony_ingest";
const EXECUTOR: &str = "symphony_executor";
const OPERATOR: &str = "symphony_operator";
const APPROVER: &str = "symphony_approver";
const READONLY: &str = "symphony_readonly";
const AUDITOR: &str = "symphony_auditor";
const AUTH: &str = "symphony_auth";
const CONSUMER: &str = "symphony_consumer";

const ACTS: &[&str] = &[OPERATOR, APPROVER];
const READS: &[&str] = &[OPERATOR, APPROVER, READONLY, AUDITOR];
const WORKS_AND_READS: &[&str] = &[EXECUTOR, OPERATOR, APPROVER, READONLY, AUDITOR];
const NOBODY: &[&str] = &[];

/// Every table and view, and the roles that may SELECT from it. No runtime role has any other privilege on
/// any of them: no INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER or MAINTAIN.
pub const TABLES: &[(&str, &[&str])] = &[
    ("participant_outbox_sequences", NOBODY),
    ("payment_outbox_instructions", WORKS_AND_READS),
    ("payment_outbox_pending", WORKS_AND_READS),
    ("payment_outbox_attempts", WORKS_AND_READS),
    ("payment_outbox_rails", WORKS_AND_READS),
    ("payment_outbox_events", READS),
    ("payment_outbox_paused_participants", READS),
    ("payment_outbox_blocked_lanes", READS),
    ("payment_outbox_workers", READS),
    ("payment_outbox_settings", READS),
    ("outbox_operational_status", READS),
    ("payment_outbox_dead_letters", READS),
    ("payment_outbox_leases", READS),
    ("supervisor_outbox_status", READS),
    ("participant_sequence_gaps", READS),
    ("event_outbox_buckets", NOBODY),
    ("event_outbox_identities", READS),
    ("event_outbox_log", WORKS_AND_READS),
    ("event_outbox_cursors", WORKS_AND_READS),
    ("event_outbox_blocked", WORKS_AND_READS),
    ("event_outbox_waiting", WORKS_AND_READS),
    ("event_outbox_attempts", WORKS_AND_READS),
    ("event_outbox_events", READS),
    ("event_outbox_settings", READS),
    ("event_outbox", READS),
    ("event_outbox_dead_letters", READS),
    ("event_inbox", READS),
    ("event_inbox_keys", READS),
    ("apps", WORKS_AND_READS),
    ("scripts", WORKS_AND_READS),
    ("routes", WORKS_AND_READS),
    ("triggers", WORKS_AND_READS),
    ("trigger_cron", WORKS_AND_READS),
    ("kv_entries", WORKS_AND_READS),
    ("topics", READS),
    ("queues", READS),
    ("queue_messages", READS),
    ("trigger_outbox_pending", WORKS_AND_READS),
    ("trigger_outbox_attempts", WORKS_AND_READS),
    ("trigger_outbox_events", READS),
    ("trigger_outbox_executions", WORKS_AND_READS),
    ("trigger_outbox_settings", READS),
    ("symphony_schema", &[INGEST, EXECUTOR, OPERATOR, APPROVER, READONLY, AUDITOR]),
];

/// Every function, and the roles that may EXECUTE it. PUBLIC never may.
pub const FUNCTIONS: &[(&str, &[&str])] = &[
    ("enqueue_payment_outbox", &[INGEST]),
    ("enqueue_payment_outbox_batch", &[INGEST]),
    ("claim_outbox_batch", &[EXECUTOR]),
    ("complete_outbox_attempt", &[EXECUTOR]),
    ("complete_outbox_attempts", &[EXECUTOR]),
    ("mark_outbox_sending", &[EXECUTOR]),
    ("park_unknown_outbox", &[EXECUTOR]),
    ("record_late_outcome", &[EXECUTOR]),
    ("record_terminal_blocked", &[EXECUTOR]),
    ("renew_outbox_leases", &[EXECUTOR]),
    ("repair_expired_leases", &[EXECUTOR]),
    ("return_unsent_outbox_leases", &[EXECUTOR]),
    ("park_outbox", ACTS),
    ("release_outbox", ACTS),
    ("resolve_outbox", ACTS),
    ("redrive_outbox", ACTS),
    ("skip_outbox_head", ACTS),
    ("pause_payment_lane", ACTS),
    ("resume_payment_lane", ACTS),
    ("pause_payment_rail", ACTS),
    ("resume_payment_rail", ACTS),
    ("pause_payment_participant", ACTS),
    ("resume_payment_participant", ACTS),
    ("configure_payment_rail", ACTS),
    ("configure_payment_lane", ACTS),
    ("enqueue_event_outbox", &[INGEST]),
    ("enqueue_event_outbox_batch", &[INGEST]),
    ("claim_event_outbox_batch", &[EXECUTOR]),
    ("complete_event_outbox_attempts", &[EXECUTOR]),
    ("record_late_event_outcome", &[EXECUTOR]),
    ("renew_event_outbox_leases", &[EXECUTOR]),
    ("repair_event_outbox_leases", &[EXECUTOR]),
    ("return_unsent_event_outbox_leases", &[EXECUTOR]),
    ("redrive_event_outbox", ACTS),
    ("skip_event_outbox", ACTS),
    ("pause_event_lane", ACTS),
    ("resume_event_lane", ACTS),
    ("configure_event_lane", ACTS),
    ("record_event_inbox", &[CONSUMER]),
    ("retire_event_inbox", &[CONSUMER, OPERATOR]),
    ("enqueue_trigger_outbox", &[INGEST]),
    ("enqueue_trigger_outbox_batch", &[INGEST]),
    ("kv_set", &[INGEST]),
    ("kv_delete", &[INGEST]),
    ("publish_topic", &[INGEST]),
    ("send_to_queue", &[INGEST]),
    ("receive_trigger_email", &[INGEST]),
    ("claim_trigger_outbox_batch", &[EXECUTOR]),
    ("complete_trigger_outbox_attempts", &[EXECUTOR]),
    ("renew_trigger_outbox_leases", &[EXECUTOR]),
    ("return_unsent_trigger_outbox_leases", &[EXECUTOR]),
    ("repair_trigger_outbox_leases", &[EXECUTOR]),
    ("record_late_trigger_outcome", &[EXECUTOR]),
    ("fire_cron_tick", &[EXECUTOR]),
    ("push_app", ACTS),
    ("delete_app", ACTS),
    ("replay_trigger_execution", ACTS),
    ("configure_trigger_lane", ACTS),
    // Called only by the functions above, which run as the owner. All but the first two and the triggers are in
    // schema symphony_internal, where nobody can plant an overload that a definer would call.
    ("backoff", NOBODY),
    ("bump_participant_outbox_seq", NOBODY),
    ("advance_event_cursors", NOBODY),
    ("apply_trigger_effects", NOBODY),
    ("end_triggers", NOBODY),
    ("fire_triggers", NOBODY),
    ("lock_held_triggers", NOBODY),
    ("manifest_backoff", NOBODY),
    ("manifest_defect", NOBODY),
    ("outbound_email", NOBODY),
    ("place_trigger", NOBODY),
    ("require_app", NOBODY),
    ("reschedule_trigger", NOBODY),
    ("send_message", NOBODY),
    ("trigger_matches", NOBODY),
    ("write_kv", NOBODY),
    ("event_backoff", NOBODY),
    ("are_plain_headers", NOBODY),
    ("event_bucket", NOBODY),
    ("event_defect", NOBODY),
    ("event_state", NOBODY),
    ("free_event_buckets", NOBODY),
    ("handed_out_events", NOBODY),
    ("has_denied_member", NOBODY),
    ("is_event_name", NOBODY),
    ("is_event_time", NOBODY),
    ("is_plain_header", NOBODY),
    ("is_traceparent", NOBODY),
    ("leave_payment_lanes", NOBODY),
    ("lock_event_for_act", NOBODY),
    ("lock_held_buckets", NOBODY),
    ("lock_held_payments", NOBODY),
    ("lock_payment_for_act", NOBODY),
    ("notify_outbox_pending", NOBODY),
    ("payment_item_state", NOBODY),
    ("payment_request_defect", NOBODY),
    ("payment_request_hash", NOBODY),
    ("pick_due_payments", NOBODY),
    ("pick_ready_buckets", NOBODY),
    ("pin_payment_rail", NOBODY),
    ("place_event", NOBODY),
    ("place_payment_instruction", NOBODY),
    ("promote_payment_heads", NOBODY),
    ("raise_payment_answer", NOBODY),
    ("record_payment_switch", NOBODY),
    ("refuse_after_late_yes", NOBODY),
    ("refuse_ledger_change", NOBODY),
    ("register_payment_rails", NOBODY),
    ("requeue_expired_events", NOBODY),
    ("requeue_expired_payments", NOBODY),
    ("require_outbox_act", NOBODY),
    ("require_outbox_count", NOBODY),
    ("require_outbox_id", NOBODY),
    ("require_parked_payment", NOBODY),
    ("require_payment_act", NOBODY),
    ("require_payment_item", NOBODY),
    ("require_read_committed", NOBODY),
    ("require_same_length", NOBODY),
    ("set_aside_blocked_events", NOBODY),
    ("set_aside_waiting_payments", NOBODY),
    ("settle_blocked_events", NOBODY),
    ("settle_event_attempts", NOBODY),
    ("settle_payment_attempts", NOBODY),
    ("switch_event_lane", NOBODY),
    ("time_ordered_id", NOBODY),
    // Absent on PostgreSQL 18, which has its own.
    ("uuidv7", NOBODY),
];
