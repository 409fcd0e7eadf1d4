//! The signature of every database function Rust calls, and the statement that calls it.
//!
//! Declared once, here; `tests/signatures.rs` compares each with the live catalog, so that a changed SQL
//! signature fails a test and not a night shift. Arguments are passed by name, results are named columns.

/// A function of the public contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Its name in schema `public`.
    pub function: &'static str,
    /// Its arguments, as `pg_get_function_arguments` prints them.
    pub arguments: &'static str,
    /// Its result, as `pg_get_function_result` prints it.
    pub result: &'static str,
    /// The statement that calls it.
    pub sql: &'static str,
}

macro_rules! calls {
    ($($name:ident = $function:literal ($arguments:literal) -> $result:literal, $sql:literal;)*) => {
        $(#[doc = concat!("Calls `", $function, "`.")]
        pub const $name: Call = Call { function: $function, arguments: $arguments, result: $result, sql: $sql };)*
        /// All of them.
        pub const ALL: &[Call] = &[$($name),*];
    };
}

calls! {
    ENQUEUE_PAYMENT = "enqueue_payment_outbox"
        ("p_instruction_id text, p_participant_id text, p_idempotency_key text, p_rail_type text, p_payload jsonb, p_traceparent text DEFAULT NULL::text")
        -> "TABLE(outbox_id uuid, sequence_id bigint, created_at timestamp with time zone, state text, duplicate boolean)",
        "SELECT * FROM public.enqueue_payment_outbox(p_instruction_id => $1, p_participant_id => $2, p_idempotency_key => $3, p_rail_type => $4, p_payload => $5, p_traceparent => $6)";
    ENQUEUE_PAYMENTS = "enqueue_payment_outbox_batch"
        ("p_instruction_ids text[], p_participant_ids text[], p_idempotency_keys text[], p_rail_types text[], p_payloads jsonb[], p_traceparents text[] DEFAULT NULL::text[]")
        -> "TABLE(item_no integer, outbox_id uuid, sequence_id bigint, created_at timestamp with time zone, state text, duplicate boolean, error_code text, error_message text)",
        "SELECT * FROM public.enqueue_payment_outbox_batch(p_instruction_ids => $1, p_participant_ids => $2, p_idempotency_keys => $3, p_rail_types => $4, p_payloads => $5, p_traceparents => $6)";
    CLAIM = "claim_outbox_batch"
        ("p_batch_size integer, p_worker_id text, p_lease_seconds integer, p_rails text[] DEFAULT NULL::text[], p_due_from timestamp with time zone DEFAULT NULL::timestamp with time zone, p_endpoints text[] DEFAULT NULL::text[]")
        -> "TABLE(outbox_id uuid, lease_token uuid, lease_expires_at timestamp with time zone, instruction_id text, participant_id text, sequence_id bigint, idempotency_key text, rail_type text, payload jsonb, attempt_count integer, must_inquire boolean, next_attempt_at timestamp with time zone, created_at timestamp with time zone, redrive_no integer, traceparent text, ordered boolean, marks_sending boolean, rail_key uuid, endpoint text, claimed_at timestamp with time zone, asked_again boolean, only_ask boolean)",
        "SELECT * FROM public.claim_outbox_batch(p_batch_size => $1, p_worker_id => $2, p_lease_seconds => $3, p_rails => $4, p_due_from => $5, p_endpoints => $6)";
    COMPLETE = "complete_outbox_attempt"
        ("p_outbox_id uuid, p_lease_token uuid, p_worker_id text, p_state anycompatible, p_rail_reference text DEFAULT NULL::text, p_rail_code text DEFAULT NULL::text, p_error_code text DEFAULT NULL::text, p_error_message text DEFAULT NULL::text, p_latency_ms integer DEFAULT NULL::integer, p_retry_delay_seconds integer DEFAULT NULL::integer, p_unknown boolean DEFAULT false, p_spends_attempt boolean DEFAULT true, p_asked_only boolean DEFAULT false, p_retry_after_seconds integer DEFAULT NULL::integer")
        -> "TABLE(attempt_no integer, state outbox_attempt_state, parked boolean)",
        "SELECT attempt_no, state::text, parked FROM public.complete_outbox_attempt(p_outbox_id => $1, p_lease_token => $2, p_worker_id => $3, p_state => $4, p_rail_reference => $5, p_rail_code => $6, p_error_code => $7, p_error_message => $8, p_latency_ms => $9, p_retry_delay_seconds => $10, p_unknown => $11, p_spends_attempt => $12, p_asked_only => $13, p_retry_after_seconds => $14)";
    COMPLETE_BATCH = "complete_outbox_attempts"
        ("p_worker_id text, p_outbox_ids uuid[], p_lease_tokens uuid[], p_states text[], p_rail_references text[] DEFAULT NULL::text[], p_rail_codes text[] DEFAULT NULL::text[], p_error_codes text[] DEFAULT NULL::text[], p_error_messages text[] DEFAULT NULL::text[], p_latencies_ms integer[] DEFAULT NULL::integer[], p_retry_delays_seconds integer[] DEFAULT NULL::integer[], p_unknowns boolean[] DEFAULT NULL::boolean[], p_spends_attempts boolean[] DEFAULT NULL::boolean[], p_asked_only boolean[] DEFAULT NULL::boolean[], p_retry_afters_seconds integer[] DEFAULT NULL::integer[]")
        -> "TABLE(item_no integer, outbox_id uuid, result text, attempt_no integer, state outbox_attempt_state, parked boolean)",
        "SELECT array_agg(c.outbox_id ORDER BY c.item_no), array_agg(c.result ORDER BY c.item_no), array_agg(c.attempt_no ORDER BY c.item_no), array_agg(c.state::text ORDER BY c.item_no), array_agg(c.parked ORDER BY c.item_no) FROM public.complete_outbox_attempts(p_worker_id => $1, p_outbox_ids => $2, p_lease_tokens => $3, p_states => $4, p_rail_references => $5, p_rail_codes => $6, p_error_codes => $7, p_error_messages => $8, p_latencies_ms => $9, p_retry_delays_seconds => $10, p_unknowns => $11, p_spends_attempts => $12, p_asked_only => $13, p_retry_afters_seconds => $14) c";
    PARK_UNKNOWN = "park_unknown_outbox"
        ("p_outbox_id uuid, p_lease_token uuid, p_worker_id text, p_rail_reference text DEFAULT NULL::text, p_rail_code text DEFAULT NULL::text, p_error_code text DEFAULT NULL::text, p_error_message text DEFAULT NULL::text, p_latency_ms integer DEFAULT NULL::integer, p_asked_only boolean DEFAULT false")
        -> "TABLE(attempt_no integer, state outbox_attempt_state, parked boolean)",
        "SELECT attempt_no, state::text, parked FROM public.park_unknown_outbox(p_outbox_id => $1, p_lease_token => $2, p_worker_id => $3, p_rail_reference => $4, p_rail_code => $5, p_error_code => $6, p_error_message => $7, p_latency_ms => $8, p_asked_only => $9)";
    RENEW = "renew_outbox_leases"
        ("p_worker_id text, p_outbox_ids uuid[], p_lease_tokens uuid[], p_lease_seconds integer")
        -> "TABLE(outbox_id uuid, renewed boolean, lease_expires_at timestamp with time zone)",
        "SELECT * FROM public.renew_outbox_leases(p_worker_id => $1, p_outbox_ids => $2, p_lease_tokens => $3, p_lease_seconds => $4)";
    MARK_SENDING = "mark_outbox_sending"
        ("p_worker_id text, p_outbox_ids uuid[], p_lease_tokens uuid[]")
        -> "TABLE(outbox_id uuid, marked boolean)",
        "SELECT * FROM public.mark_outbox_sending(p_worker_id => $1, p_outbox_ids => $2, p_lease_tokens => $3)";
    RETURN_UNSENT = "return_unsent_outbox_leases"
        ("p_worker_id text, p_outbox_ids uuid[], p_lease_tokens uuid[]")
        -> "TABLE(outbox_id uuid, returned boolean)",
        "SELECT * FROM public.return_unsent_outbox_leases(p_worker_id => $1, p_outbox_ids => $2, p_lease_tokens => $3)";
    TAKE_PERMITS = "take_rail_permits"
        ("p_rail_type text, p_wanted integer, p_per_second integer, p_burst integer DEFAULT 1")
        -> "TABLE(permit_no integer, wait_microseconds bigint)",
        "SELECT wait_microseconds FROM public.take_rail_permits(p_rail_type => $1, p_wanted => $2, p_per_second => $3, p_burst => $4) ORDER BY permit_no";
    REPAIR = "repair_expired_leases"
        ("p_batch_size integer, p_worker_id text")
        -> "TABLE(outbox_id uuid, attempt_no integer, worker_id text, parked boolean)",
        "SELECT * FROM public.repair_expired_leases(p_batch_size => $1, p_worker_id => $2)";
    RECORD_LATE_OUTCOME = "record_late_outcome"
        ("p_outbox_id uuid, p_lease_token uuid, p_worker_id text, p_state text, p_rail_reference text DEFAULT NULL::text, p_rail_code text DEFAULT NULL::text, p_error_code text DEFAULT NULL::text, p_error_message text DEFAULT NULL::text, p_latency_ms integer DEFAULT NULL::integer, p_claim_lost boolean DEFAULT false")
        -> "TABLE(event_no bigint, conflict boolean)",
        "SELECT * FROM public.record_late_outcome(p_outbox_id => $1, p_lease_token => $2, p_worker_id => $3, p_state => $4, p_rail_reference => $5, p_rail_code => $6, p_error_code => $7, p_error_message => $8, p_latency_ms => $9, p_claim_lost => $10)";
    RECORD_TERMINAL_BLOCKED = "record_terminal_blocked"
        ("p_outbox_id uuid, p_lease_token uuid, p_worker_id text")
        -> "void",
        "SELECT public.record_terminal_blocked(p_outbox_id => $1, p_lease_token => $2, p_worker_id => $3)";
    REGISTER_ENDPOINT = "register_payment_endpoint"
        ("p_rail_type text, p_endpoint text, p_description text")
        -> "void",
        "SELECT public.register_payment_endpoint(p_rail_type => $1, p_endpoint => $2, p_description => $3)";
    RAIL_KEY = "payment_rail_key"
        ("p_outbox_id uuid")
        -> "uuid",
        "SELECT public.payment_rail_key(p_outbox_id => $1)";
    BY_RAIL_KEY = "payment_by_rail_key"
        ("p_rail_key uuid")
        -> "SETOF uuid",
        "SELECT * FROM public.payment_by_rail_key(p_rail_key => $1)";
    BEAT_WITNESS = "beat_symphony_witness"
        ("p_witness_id uuid, p_worker_id text, p_durable boolean DEFAULT false, p_beat_no bigint DEFAULT NULL::bigint, p_beat_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_decided_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_claimed_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_loss_max_seconds integer DEFAULT 300, p_at_start boolean DEFAULT false")
        -> "TABLE(state text, detail text, installation_id uuid, beat_no bigint, beat_at timestamp with time zone, decided_at timestamp with time zone)",
        "SELECT * FROM public.beat_symphony_witness(p_witness_id => $1, p_worker_id => $2, p_durable => $3, p_beat_no => $4, p_beat_at => $5, p_decided_at => $6, p_claimed_at => $7, p_loss_max_seconds => $8, p_at_start => $9)";
    ACCEPT_SERVER = "accept_symphony_server"
        ("p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_lost_since timestamp with time zone DEFAULT NULL::timestamp with time zone, p_ask_first_seconds integer DEFAULT 86400, p_dry_run boolean DEFAULT false")
        -> "TABLE(finding text, lost_since timestamp with time zone, ask_first_until timestamp with time zone, payments_to_ask bigint, payments_to_park bigint, dry_run boolean)",
        "SELECT * FROM public.accept_symphony_server(p_actor => $1, p_reason => $2, p_approver => $3, p_lost_since => $4, p_ask_first_seconds => $5, p_dry_run => $6)";
    PARK = "park_outbox"
        ("p_outbox_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(outbox_id uuid, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.park_outbox(p_outbox_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    RELEASE = "release_outbox"
        ("p_outbox_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false, p_despite_unknown boolean DEFAULT false")
        -> "TABLE(outbox_id uuid, state_before text, state_after text, dry_run boolean, tries jsonb, needs_despite_unknown boolean, needs_approver boolean)",
        "SELECT * FROM public.release_outbox(p_outbox_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5, p_despite_unknown => $6)";
    RESOLVE = "resolve_outbox"
        ("p_outbox_id uuid, p_resolution text, p_actor text, p_reason text, p_rail_reference text DEFAULT NULL::text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false, p_despite_unknown boolean DEFAULT false")
        -> "TABLE(outbox_id uuid, state_before text, state_after text, dry_run boolean, tries jsonb, needs_despite_unknown boolean, needs_approver boolean)",
        "SELECT * FROM public.resolve_outbox(p_outbox_id => $1, p_resolution => $2, p_actor => $3, p_reason => $4, p_rail_reference => $5, p_approver => $6, p_dry_run => $7, p_despite_unknown => $8)";
    REDRIVE = "redrive_outbox"
        ("p_outbox_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false, p_despite_unknown boolean DEFAULT false")
        -> "TABLE(outbox_id uuid, state_before text, state_after text, dry_run boolean, redriven_as uuid, sequence_id bigint, tries jsonb, needs_despite_unknown boolean, needs_approver boolean)",
        "SELECT * FROM public.redrive_outbox(p_outbox_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5, p_despite_unknown => $6)";
    SKIP_HEAD = "skip_outbox_head"
        ("p_participant_id text, p_rail_type text, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(outbox_id uuid, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.skip_outbox_head(p_participant_id => $1, p_rail_type => $2, p_actor => $3, p_reason => $4, p_approver => $5, p_dry_run => $6)";
    CLOSE_PAYMENT_INCIDENT = "close_payment_incident"
        ("p_incident_no bigint, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(incident_no bigint, item_id uuid, recorded_state text, recorded_reference text, late_state text, late_reference text, dry_run boolean)",
        "SELECT * FROM public.close_payment_incident(p_incident_no => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    CLOSE_EVENT_INCIDENT = "close_event_incident"
        ("p_incident_no bigint, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(incident_no bigint, item_id uuid, recorded_state text, recorded_reference text, late_state text, late_reference text, dry_run boolean)",
        "SELECT * FROM public.close_event_incident(p_incident_no => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    CLOSE_TRIGGER_INCIDENT = "close_trigger_incident"
        ("p_incident_no bigint, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(incident_no bigint, item_id uuid, recorded_state text, recorded_reference text, late_state text, late_reference text, dry_run boolean)",
        "SELECT * FROM public.close_trigger_incident(p_incident_no => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    PAUSE_LANE = "pause_payment_lane"
        ("p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.pause_payment_lane(p_actor => $1, p_reason => $2, p_dry_run => $3)";
    RESUME_LANE = "resume_payment_lane"
        ("p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.resume_payment_lane(p_actor => $1, p_reason => $2, p_dry_run => $3)";
    PAUSE_RAIL = "pause_payment_rail"
        ("p_rail_type text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.pause_payment_rail(p_rail_type => $1, p_actor => $2, p_reason => $3, p_dry_run => $4)";
    RESUME_RAIL = "resume_payment_rail"
        ("p_rail_type text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.resume_payment_rail(p_rail_type => $1, p_actor => $2, p_reason => $3, p_dry_run => $4)";
    PAUSE_PARTICIPANT = "pause_payment_participant"
        ("p_participant_id text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.pause_payment_participant(p_participant_id => $1, p_actor => $2, p_reason => $3, p_dry_run => $4)";
    RESUME_PARTICIPANT = "resume_payment_participant"
        ("p_participant_id text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.resume_payment_participant(p_participant_id => $1, p_actor => $2, p_reason => $3, p_dry_run => $4)";
    CONFIGURE_RAIL = "configure_payment_rail"
        ("p_rail_type text, p_actor text, p_reason text, p_fifo boolean DEFAULT NULL::boolean, p_on_failed text DEFAULT NULL::text, p_marks_sending boolean DEFAULT NULL::boolean, p_give_up_after_seconds integer DEFAULT NULL::integer")
        -> "TABLE(rail_type text, fifo boolean, on_failed text, marks_sending boolean, paused boolean, give_up_after_seconds integer)",
        "SELECT * FROM public.configure_payment_rail(p_rail_type => $1, p_actor => $2, p_reason => $3, p_fifo => $4, p_on_failed => $5, p_marks_sending => $6, p_give_up_after_seconds => $7)";
    CONFIGURE_LANE = "configure_payment_lane"
        ("p_actor text, p_reason text, p_record_routine_events boolean DEFAULT NULL::boolean, p_approval_required boolean DEFAULT NULL::boolean, p_approver text DEFAULT NULL::text")
        -> "TABLE(paused boolean, record_routine_events boolean, approval_required boolean)",
        "SELECT * FROM public.configure_payment_lane(p_actor => $1, p_reason => $2, p_record_routine_events => $3, p_approval_required => $4, p_approver => $5)";
    ENQUEUE_EVENT = "enqueue_event_outbox"
        ("p_event jsonb")
        -> "TABLE(event_id uuid, log_position bigint, created_at timestamp with time zone, state text, duplicate boolean)",
        "SELECT * FROM public.enqueue_event_outbox(p_event => $1)";
    ENQUEUE_EVENTS = "enqueue_event_outbox_batch"
        ("p_events jsonb[]")
        -> "TABLE(item_no integer, event_id uuid, log_position bigint, created_at timestamp with time zone, state text, duplicate boolean, error_code text, error_message text)",
        "SELECT * FROM public.enqueue_event_outbox_batch(p_events => $1)";
    CLAIM_EVENTS = "claim_event_outbox_batch"
        ("p_batch_size integer, p_worker_id text, p_lease_seconds integer, p_buckets_max integer DEFAULT 16, p_window_max integer DEFAULT 50")
        -> "TABLE(bucket smallint, lease_token uuid, log_position bigint, event_id uuid, event_key text, event json, created_at timestamp with time zone, attempt_count integer, redrive_no integer, last_attempt_no integer, tried_seconds integer)",
        "SELECT * FROM public.claim_event_outbox_batch(p_batch_size => $1, p_worker_id => $2, p_lease_seconds => $3, p_buckets_max => $4, p_window_max => $5)";
    COMPLETE_EVENTS = "complete_event_outbox_attempts"
        ("p_worker_id text, p_buckets smallint[], p_positions bigint[], p_lease_tokens uuid[], p_states text[], p_destinations text[] DEFAULT NULL::text[], p_bus_references text[] DEFAULT NULL::text[], p_error_codes text[] DEFAULT NULL::text[], p_error_messages text[] DEFAULT NULL::text[], p_latencies_ms integer[] DEFAULT NULL::integer[], p_retry_delays_seconds integer[] DEFAULT NULL::integer[], p_unknowns boolean[] DEFAULT NULL::boolean[], p_continues boolean[] DEFAULT NULL::boolean[], p_spends_attempts boolean[] DEFAULT NULL::boolean[], p_hasten_afters_seconds integer[] DEFAULT NULL::integer[]")
        -> "TABLE(item_no integer, result text, attempt_no integer, state outbox_attempt_state, more boolean)",
        "SELECT array_agg(c.result ORDER BY c.item_no), array_agg(c.more ORDER BY c.item_no) FROM public.complete_event_outbox_attempts(p_worker_id => $1, p_buckets => $2, p_positions => $3, p_lease_tokens => $4, p_states => $5, p_destinations => $6, p_bus_references => $7, p_error_codes => $8, p_error_messages => $9, p_latencies_ms => $10, p_retry_delays_seconds => $11, p_unknowns => $12, p_continues => $13, p_spends_attempts => $14, p_hasten_afters_seconds => $15) c";
    RENEW_EVENTS = "renew_event_outbox_leases"
        ("p_worker_id text, p_buckets smallint[], p_lease_tokens uuid[], p_lease_seconds integer")
        -> "TABLE(bucket smallint, renewed boolean, lease_expires_at timestamp with time zone)",
        "SELECT * FROM public.renew_event_outbox_leases(p_worker_id => $1, p_buckets => $2, p_lease_tokens => $3, p_lease_seconds => $4)";
    RETURN_UNSENT_EVENTS = "return_unsent_event_outbox_leases"
        ("p_worker_id text, p_buckets smallint[], p_lease_tokens uuid[]")
        -> "TABLE(bucket smallint, returned boolean)",
        "SELECT * FROM public.return_unsent_event_outbox_leases(p_worker_id => $1, p_buckets => $2, p_lease_tokens => $3)";
    REPAIR_EVENTS = "repair_event_outbox_leases"
        ("p_batch_size integer, p_worker_id text")
        -> "TABLE(bucket smallint, event_id uuid, attempt_no integer, worker_id text)",
        "SELECT * FROM public.repair_event_outbox_leases(p_batch_size => $1, p_worker_id => $2)";
    RECORD_LATE_EVENT = "record_late_event_outcome"
        ("p_bucket smallint, p_position bigint, p_lease_token uuid, p_worker_id text, p_state text, p_bus_reference text DEFAULT NULL::text, p_error_code text DEFAULT NULL::text, p_error_message text DEFAULT NULL::text")
        -> "TABLE(event_no bigint, conflict boolean)",
        "SELECT * FROM public.record_late_event_outcome(p_bucket => $1, p_position => $2, p_lease_token => $3, p_worker_id => $4, p_state => $5, p_bus_reference => $6, p_error_code => $7, p_error_message => $8)";
    REDRIVE_EVENT = "redrive_event_outbox"
        ("p_event_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false, p_resend_sent boolean DEFAULT false, p_dedup_window_seconds integer DEFAULT 300")
        -> "TABLE(event_id uuid, state_before text, state_after text, dry_run boolean, due_at timestamp with time zone)",
        "SELECT * FROM public.redrive_event_outbox(p_event_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5, p_resend_sent => $6, p_dedup_window_seconds => $7)";
    SKIP_EVENT = "skip_event_outbox"
        ("p_event_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(event_id uuid, state_before text, state_after text, dry_run boolean, waiting bigint)",
        "SELECT * FROM public.skip_event_outbox(p_event_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    PAUSE_EVENTS = "pause_event_lane"
        ("p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.pause_event_lane(p_actor => $1, p_reason => $2, p_dry_run => $3)";
    RESUME_EVENTS = "resume_event_lane"
        ("p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.resume_event_lane(p_actor => $1, p_reason => $2, p_dry_run => $3)";
    CONFIGURE_EVENTS = "configure_event_lane"
        ("p_actor text, p_reason text, p_denied_payload_keys text[] DEFAULT NULL::text[]")
        -> "TABLE(paused boolean, denied_payload_keys text[])",
        "SELECT * FROM public.configure_event_lane(p_actor => $1, p_reason => $2, p_denied_payload_keys => $3)";
    RECORD_INBOX = "record_event_inbox"
        ("p_consumer text, p_event_id uuid, p_dedupe_key text DEFAULT NULL::text")
        -> "boolean",
        "SELECT public.record_event_inbox(p_consumer => $1, p_event_id => $2, p_dedupe_key => $3)";
    RETIRE_INBOX = "retire_event_inbox"
        ("p_consumer text, p_older_than_seconds bigint, p_batch_size integer")
        -> "bigint",
        "SELECT public.retire_event_inbox(p_consumer => $1, p_older_than_seconds => $2, p_batch_size => $3)";
    FIGURES = "outbox_figures"
        ("")
        -> "TABLE(lane text, pending bigint, due_unleased_count bigint, leased_count bigint, expired_lease_count bigint, parked_count bigint, scheduled_count bigint, waiting_count bigint, oldest_pending_age_seconds bigint, dlq_count bigint, paused boolean, incident_count bigint)",
        "SELECT * FROM public.outbox_figures() ORDER BY array_position(ARRAY['payments', 'events', 'triggers'], lane)";
    HASTEN_PAYMENTS = "hasten_waiting_payments"
        ("p_rail_type text, p_batch_size integer")
        -> "integer",
        "SELECT public.hasten_waiting_payments(p_rail_type => $1, p_batch_size => $2)";
    HASTEN_EVENTS = "hasten_waiting_events"
        ("p_bus text, p_batch_size integer")
        -> "integer",
        "SELECT public.hasten_waiting_events(p_bus => $1, p_batch_size => $2)";
    REPORT_DESTINATIONS = "report_outbox_destinations"
        ("p_worker_id text, p_lane text, p_names text[], p_breakers text[], p_open_for_ms bigint[], p_next_probes_ms bigint[], p_troubles integer[], p_last_troubles text[], p_last_trouble_ages_ms bigint[], p_calls integer[], p_latencies_ms integer[], p_window_ms integer, p_rates_per_second integer[]")
        -> "TABLE(name text, reset_at timestamp with time zone)",
        "SELECT * FROM public.report_outbox_destinations(p_worker_id => $1, p_lane => $2, p_names => $3, p_breakers => $4, p_open_for_ms => $5, p_next_probes_ms => $6, p_troubles => $7, p_last_troubles => $8, p_last_trouble_ages_ms => $9, p_calls => $10, p_latencies_ms => $11, p_window_ms => $12, p_rates_per_second => $13)";
    RESET_DESTINATION = "reset_outbox_destination"
        ("p_lane text, p_name text, p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(target text, state_before text, state_after text, dry_run boolean)",
        "SELECT * FROM public.reset_outbox_destination(p_lane => $1, p_name => $2, p_actor => $3, p_reason => $4, p_dry_run => $5)";
    INQUIRE = "inquire_outbox"
        ("p_outbox_id uuid, p_actor text, p_reason text, p_dry_run boolean DEFAULT false")
        -> "TABLE(outbox_id uuid, state_before text, state_after text, dry_run boolean, attempts_before integer)",
        "SELECT * FROM public.inquire_outbox(p_outbox_id => $1, p_actor => $2, p_reason => $3, p_dry_run => $4)";
    BY_RAIL_KEYS = "payments_by_rail_keys"
        ("p_rail_keys uuid[]")
        -> "TABLE(rail_key uuid, outbox_id uuid)",
        "SELECT * FROM public.payments_by_rail_keys(p_rail_keys => $1)";
    CLOSE_PAYMENT_LETTER = "close_payment_dead_letter"
        ("p_outbox_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(item_id uuid, state text, error_code text, dry_run boolean)",
        "SELECT * FROM public.close_payment_dead_letter(p_outbox_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    CLOSE_EVENT_LETTER = "close_event_dead_letter"
        ("p_event_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(item_id uuid, state text, error_code text, dry_run boolean)",
        "SELECT * FROM public.close_event_dead_letter(p_event_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    CLOSE_TRIGGER_LETTER = "close_trigger_dead_letter"
        ("p_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(item_id uuid, state text, error_code text, dry_run boolean)",
        "SELECT * FROM public.close_trigger_dead_letter(p_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    LEAD_HINTS = "lead_outbox_hints"
        ("p_group text, p_worker_id text, p_lease_seconds integer")
        -> "boolean",
        "SELECT public.lead_outbox_hints(p_group => $1, p_worker_id => $2, p_lease_seconds => $3)";
    CLAIM_TRIGGERS = "claim_trigger_outbox_batch"
        ("p_batch_size integer, p_worker_id text, p_lease_seconds integer, p_app_items_max integer DEFAULT NULL::integer, p_apps uuid[] DEFAULT NULL::uuid[], p_apps_held integer[] DEFAULT NULL::integer[]")
        -> "TABLE(id uuid, lease_token uuid, app_id uuid, source_kind text, trigger_id uuid, script_id uuid, reply_to uuid, payload jsonb, origin_principal uuid, principal uuid, trigger_depth integer, root_execution_id uuid, attempt_count integer, next_attempt_at timestamp with time zone, created_at timestamp with time zone)",
        "SELECT * FROM public.claim_trigger_outbox_batch(p_batch_size => $1, p_worker_id => $2, p_lease_seconds => $3, p_app_items_max => $4, p_apps => $5, p_apps_held => $6)";
    COMPLETE_TRIGGERS = "complete_trigger_outbox_attempts"
        ("p_worker_id text, p_ids uuid[], p_lease_tokens uuid[], p_states text[], p_results jsonb[] DEFAULT NULL::jsonb[], p_logs jsonb[] DEFAULT NULL::jsonb[], p_effects jsonb[] DEFAULT NULL::jsonb[], p_error_codes text[] DEFAULT NULL::text[], p_error_messages text[] DEFAULT NULL::text[], p_latencies_ms integer[] DEFAULT NULL::integer[], p_spends_attempts boolean[] DEFAULT NULL::boolean[]")
        -> "TABLE(item_no integer, result text, attempt_no integer, state outbox_attempt_state, error_code text)",
        "SELECT c.result, c.state::text, c.error_code FROM public.complete_trigger_outbox_attempts(p_worker_id => $1, p_ids => $2, p_lease_tokens => $3, p_states => $4, p_results => $5, p_logs => $6, p_effects => $7, p_error_codes => $8, p_error_messages => $9, p_latencies_ms => $10, p_spends_attempts => $11) c ORDER BY c.item_no";
    CONFIGURE_TRIGGER_LANE = "configure_trigger_lane"
        ("p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_app text DEFAULT NULL::text, p_paused boolean DEFAULT NULL::boolean, p_depth_max integer DEFAULT NULL::integer, p_keep_executions boolean DEFAULT NULL::boolean")
        -> "TABLE(paused boolean, depth_max integer, keep_executions boolean)",
        "SELECT * FROM public.configure_trigger_lane(p_actor => $1, p_reason => $2, p_approver => $3, p_app => $4, p_paused => $5, p_depth_max => $6, p_keep_executions => $7)";
    DELETE_APP = "delete_app"
        ("p_app text, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(app_id uuid, items integer, dry_run boolean)",
        "SELECT * FROM public.delete_app(p_app => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    ENQUEUE_TRIGGER = "enqueue_trigger_outbox"
        ("p_app text, p_source_kind text, p_trigger_id uuid, p_payload jsonb, p_origin_principal uuid DEFAULT NULL::uuid, p_reply_to uuid DEFAULT NULL::uuid, p_wait_ms integer DEFAULT NULL::integer")
        -> "TABLE(id uuid, app_id uuid, reply_deadline_at timestamp with time zone)",
        "SELECT * FROM public.enqueue_trigger_outbox(p_app => $1, p_source_kind => $2, p_trigger_id => $3, p_payload => $4, p_origin_principal => $5, p_reply_to => $6, p_wait_ms => $7)";
    ENQUEUE_TRIGGERS = "enqueue_trigger_outbox_batch"
        ("p_apps text[], p_source_kinds text[], p_trigger_ids uuid[], p_payloads jsonb[], p_origin_principals uuid[] DEFAULT NULL::uuid[], p_reply_tos uuid[] DEFAULT NULL::uuid[], p_waits_ms integer[] DEFAULT NULL::integer[]")
        -> "TABLE(item_no integer, id uuid, app_id uuid, reply_deadline_at timestamp with time zone, error_code text, error_message text)",
        "SELECT * FROM public.enqueue_trigger_outbox_batch(p_apps => $1, p_source_kinds => $2, p_trigger_ids => $3, p_payloads => $4, p_origin_principals => $5, p_reply_tos => $6, p_waits_ms => $7) ORDER BY item_no";
    FIRE_CRON_TICK = "fire_cron_tick"
        ("p_trigger_id uuid, p_tick_at timestamp with time zone, p_next_tick_at timestamp with time zone, p_fire boolean DEFAULT true")
        -> "boolean",
        "SELECT public.fire_cron_tick(p_trigger_id => $1, p_tick_at => $2, p_next_tick_at => $3, p_fire => $4)";
    KV_DELETE = "kv_delete"
        ("p_app text, p_key text, p_principal uuid DEFAULT NULL::uuid")
        -> "boolean",
        "SELECT public.kv_delete(p_app => $1, p_key => $2, p_principal => $3)";
    KV_SET = "kv_set"
        ("p_app text, p_key text, p_value jsonb, p_principal uuid DEFAULT NULL::uuid")
        -> "bigint",
        "SELECT public.kv_set(p_app => $1, p_key => $2, p_value => $3, p_principal => $4)";
    PUBLISH_TOPIC = "publish_topic"
        ("p_app text, p_topic text, p_message jsonb, p_principal uuid DEFAULT NULL::uuid")
        -> "integer",
        "SELECT public.publish_topic(p_app => $1, p_topic => $2, p_message => $3, p_principal => $4)";
    PUSH_APP = "push_app"
        ("p_app text, p_manifest jsonb, p_actor text, p_principal uuid DEFAULT NULL::uuid")
        -> "TABLE(app_id uuid, created boolean, scripts_changed integer, routes integer, triggers integer)",
        "SELECT * FROM public.push_app(p_app => $1, p_manifest => $2, p_actor => $3, p_principal => $4)";
    RECEIVE_EMAIL = "receive_trigger_email"
        ("p_recipient text, p_mail jsonb")
        -> "integer",
        "SELECT public.receive_trigger_email(p_recipient => $1, p_mail => $2)";
    RECORD_LATE_TRIGGER = "record_late_trigger_outcome"
        ("p_id uuid, p_lease_token uuid, p_worker_id text, p_state text, p_error_code text DEFAULT NULL::text, p_error_message text DEFAULT NULL::text")
        -> "TABLE(event_no bigint)",
        "SELECT * FROM public.record_late_trigger_outcome(p_id => $1, p_lease_token => $2, p_worker_id => $3, p_state => $4, p_error_code => $5, p_error_message => $6)";
    RENEW_TRIGGERS = "renew_trigger_outbox_leases"
        ("p_worker_id text, p_ids uuid[], p_lease_tokens uuid[], p_lease_seconds integer")
        -> "TABLE(id uuid, renewed boolean)",
        "SELECT * FROM public.renew_trigger_outbox_leases(p_worker_id => $1, p_ids => $2, p_lease_tokens => $3, p_lease_seconds => $4)";
    REPAIR_TRIGGERS = "repair_trigger_outbox_leases"
        ("p_batch_size integer, p_worker_id text")
        -> "TABLE(id uuid, worker_id text, failed boolean)",
        "SELECT * FROM public.repair_trigger_outbox_leases(p_batch_size => $1, p_worker_id => $2)";
    REPLAY_EXECUTION = "replay_trigger_execution"
        ("p_id uuid, p_actor text, p_reason text, p_approver text DEFAULT NULL::text, p_dry_run boolean DEFAULT false")
        -> "TABLE(id uuid, replay_id uuid, dry_run boolean)",
        "SELECT * FROM public.replay_trigger_execution(p_id => $1, p_actor => $2, p_reason => $3, p_approver => $4, p_dry_run => $5)";
    RETURN_UNSENT_TRIGGERS = "return_unsent_trigger_outbox_leases"
        ("p_worker_id text, p_ids uuid[], p_lease_tokens uuid[]")
        -> "TABLE(id uuid, returned boolean)",
        "SELECT * FROM public.return_unsent_trigger_outbox_leases(p_worker_id => $1, p_ids => $2, p_lease_tokens => $3)";
    SEND_TO_QUEUE = "send_to_queue"
        ("p_app text, p_queue text, p_message jsonb, p_principal uuid DEFAULT NULL::uuid")
        -> "boolean",
        "SELECT public.send_to_queue(p_app => $1, p_queue => $2, p_message => $3, p_principal => $4)";
}
