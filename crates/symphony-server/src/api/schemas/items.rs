//! Payments and events: what became of a request, and their lives.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// What became of a payment's request.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnqueuedPayment {
    /// The item, new or known.
    outbox_id: Uuid,
    /// Its number in the participant's stream.
    sequence_id: i64,
    /// When it was first asked for.
    created_at: DateTime<Utc>,
    /// PENDING, DISPATCHED or FAILED.
    state: String,
    /// It was known already; nothing was written.
    duplicate: bool,
}

/// What became of an event that was told.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnqueuedEvent {
    /// The event, new or known.
    event_id: Uuid,
    /// Its place in the log.
    log_position: i64,
    /// When it was first told.
    created_at: DateTime<Utc>,
    /// PENDING, DISPATCHED or FAILED.
    state: String,
    /// It was known already; nothing was written.
    duplicate: bool,
}

/// The life of one payment.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaymentLife {
    /// What was asked.
    instruction: Instruction,
    /// Where it stands: SCHEDULED, DUE, IN_FLIGHT, LEASE_EXPIRED, PARKED, WAITING, PAUSED, DISPATCHED or FAILED.
    state: String,
    /// Its pending row, while it lives.
    live: Option<LivePayment>,
    /// Its outcomes, in order.
    attempts: Vec<PaymentAttempt>,
    /// What else happened, in order.
    events: Vec<HistoryLine>,
    /// The key its rail gets.
    rail_key: Option<Uuid>,
    /// The item that tries it again, if it failed and was redriven.
    redriven_as: Option<Uuid>,
    /// What stands in its way, while it lives.
    waits: Option<PaymentWaits>,
}

/// What was asked.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Instruction {
    /// The item.
    outbox_id: Uuid,
    /// The business instruction.
    instruction_id: String,
    /// The producer's key.
    idempotency_key: String,
    /// Whose stream.
    participant_id: String,
    /// Its number there.
    sequence_id: i64,
    /// The rail.
    rail_type: String,
    /// What the rail is told; null for whoever may not see it.
    #[schema(value_type = Option<Object>)]
    payload: Option<Value>,
    /// When.
    created_at: DateTime<Utc>,
    /// The failed item it tries again.
    redrive_of: Option<Uuid>,
    /// How often.
    redrive_no: i32,
}

/// The pending row of a live item.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LivePayment {
    /// SCHEDULED, DUE, IN_FLIGHT, LEASE_EXPIRED, PARKED, WAITING or PAUSED.
    state: String,
    /// Outcomes so far.
    attempt_count: i32,
    /// The money may have moved.
    must_inquire: bool,
    /// When it is due.
    next_attempt_at: DateTime<Utc>,
    /// Who has it.
    claimed_by: Option<String>,
    /// Until when.
    lease_expires_at: Option<DateTime<Utc>>,
}

/// One outcome.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaymentAttempt {
    /// Its number.
    attempt_no: i32,
    /// DISPATCHED, RETRYABLE, FAILED or ZOMBIE_REQUEUE.
    state: String,
    /// Nobody knew whether the money moved.
    outcome_unknown: bool,
    /// When the work began.
    claimed_at: Option<DateTime<Utc>>,
    /// When it ended.
    completed_at: DateTime<Utc>,
    /// The rail's reference.
    rail_reference: Option<String>,
    /// The rail's code.
    rail_code: Option<String>,
    /// Our code.
    error_code: Option<String>,
    /// In words.
    error_message: Option<String>,
    /// How long the rail took.
    latency_ms: Option<i32>,
    /// Who did it.
    worker_id: String,
    /// Under which lease; null for whoever may not see it.
    lease_token: Option<Uuid>,
}

/// One line of the narrative.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryLine {
    /// Its number in its lane.
    event_no: i64,
    /// What happened.
    event_type: String,
    /// The worker.
    worker_id: Option<String>,
    /// The person.
    actor: Option<String>,
    /// The second person.
    approver: Option<String>,
    /// The database login.
    session_role: String,
    /// Why.
    reason: Option<String>,
    /// More; `token` and `token_id` name the token that it was done with.
    #[schema(value_type = Object)]
    details: Value,
    /// When.
    created_at: DateTime<Utc>,
}

/// What a payment waits for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "as the library has it")]
pub(crate) struct PaymentWaits {
    /// The lane is paused.
    lane_paused: bool,
    /// Its rail is.
    rail_paused: bool,
    /// Its participant is.
    participant_paused: bool,
    /// How many live workers serve its rail.
    workers: i64,
    /// CLOSED, OPEN or HALF_OPEN, as they say.
    breaker: Option<String>,
    /// Since when the rail is left alone.
    open_since: Option<DateTime<Utc>>,
    /// What stands before it in its FIFO lane.
    head: Option<Uuid>,
    /// What failed before it there, and blocks it.
    blocked_by: Option<Uuid>,
    /// It is only asked about, and parked again.
    only_ask: bool,
    /// How many stand behind it in its FIFO lane.
    behind: i64,
}

/// The life of one event.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventLife {
    /// What was told, and where it stands.
    record: EventRecord,
    /// Its outcomes, in order.
    attempts: Vec<EventAttempt>,
    /// What else happened to it.
    events: Vec<HistoryLine>,
    /// What stands in its way, while it is PENDING.
    waits: Option<EventWaits>,
}

/// An event, as its producer sees it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventRecord {
    /// The event.
    event_id: Uuid,
    /// Its type.
    event_type: String,
    /// The value of its key.
    event_key: String,
    /// PENDING, SENT or FAILED.
    state: String,
    /// Outcomes so far.
    attempts: i32,
    /// What went wrong last.
    last_error: Option<String>,
    /// When it is tried next; null if a person must act first, or it has ended.
    next_attempt: Option<DateTime<Utc>>,
    /// The FAILED event that its key waits for: itself, or an earlier one.
    blocked_by: Option<Uuid>,
    /// When it was committed.
    created_at: DateTime<Utc>,
    /// Its place in the log.
    log_position: i64,
    /// The whole event; null for whoever may not see it.
    #[schema(value_type = Option<Object>)]
    event: Option<Value>,
}

/// One outcome of an event.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventAttempt {
    /// How often it had been redriven.
    redrive_no: i32,
    /// Its number.
    attempt_no: i32,
    /// DISPATCHED, RETRYABLE, FAILED or ZOMBIE_REQUEUE.
    state: String,
    /// It may have been published.
    outcome_unknown: bool,
    /// When the work began.
    claimed_at: Option<DateTime<Utc>>,
    /// When it ended.
    completed_at: DateTime<Utc>,
    /// Bus and topic; null for whoever may not see it.
    destination: Option<String>,
    /// The bus's own id.
    bus_reference: Option<String>,
    /// Our code.
    error_code: Option<String>,
    /// In words.
    error_message: Option<String>,
    /// How long the bus took.
    latency_ms: Option<i32>,
    /// Who did it.
    worker_id: String,
    /// Under which lease; null for whoever may not see it.
    lease_token: Option<Uuid>,
}

/// What an event waits for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventWaits {
    /// The lane is paused.
    lane_paused: bool,
    /// How many live workers serve the lane.
    workers: i64,
    /// The earlier event of its key that goes first.
    behind: Option<Uuid>,
    /// The topic that it, or an earlier event of its key, waits for, if that is paused.
    topic_paused: Option<String>,
    /// Since when, if it is on record.
    paused_since: Option<DateTime<Utc>>,
    /// Who did it.
    paused_by: Option<String>,
    /// Its bus, if that is left alone.
    bus: Option<String>,
    /// Since when.
    open_since: Option<DateTime<Utc>>,
}
