//! What people operate: lanes, what waits, requests for approval, destinations, workers, participants, acts.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// One lane at a glance.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lane {
    /// The lane.
    lane: String,
    /// Items not ended yet.
    pending: i64,
    /// Due, and nobody has them.
    due_unleased_count: i64,
    /// In flight.
    leased_count: i64,
    /// Held by a worker that did not report in time.
    expired_lease_count: i64,
    /// Waiting for a person.
    parked_count: i64,
    /// Due later.
    scheduled_count: i64,
    /// Behind a FIFO head, or of a paused participant.
    waiting_count: i64,
    /// The age of the oldest that is neither parked nor stopped.
    oldest_pending_age_seconds: i64,
    /// The age of the oldest that a pause, or the parked head of its FIFO lane, holds up.
    oldest_stopped_age_seconds: i64,
    /// Ended FAILED and not redriven.
    dlq_count: i64,
    /// The lane is paused.
    paused: bool,
    /// Contradictions nobody has closed.
    incident_count: i64,
    /// Acts that wait for a second person.
    approval_waiting_count: i64,
    /// For how long the oldest of them has.
    oldest_approval_age_seconds: i64,
    /// The age of the oldest that is parked.
    oldest_parked_age_seconds: i64,
    /// Workers that spoke in the last seconds.
    live_worker_count: i64,
}

/// A payment that waits for a person.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitingPayment {
    /// The item.
    outbox_id: Uuid,
    /// The business instruction.
    instruction_id: String,
    /// Whose stream.
    participant_id: String,
    /// The rail.
    rail_type: String,
    /// PARKED or FAILED.
    state: String,
    /// Our code of the latest outcome.
    error_code: Option<String>,
    /// The rail's code of the latest outcome.
    rail_code: Option<String>,
    /// Since when it waits.
    since: DateTime<Utc>,
    /// For how long.
    age_seconds: i64,
    /// The money may have moved: ask the rail.
    must_inquire: bool,
    /// It failed in a strict order, and others wait behind it.
    blocks_its_lane: bool,
    /// A rail told a lost worker that it was executed.
    late_yes: bool,
}

/// An event that FAILED.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailedEvent {
    /// The event.
    event_id: Uuid,
    /// Its type.
    event_type: String,
    /// The value of its key.
    event_key: String,
    /// Its place in the log.
    log_position: i64,
    /// FAILED.
    state: String,
    /// When it ended.
    ended_at: DateTime<Utc>,
    /// Where it should have gone; null for whoever may not see it.
    destination: Option<String>,
    /// Our code.
    error_code: Option<String>,
    /// In words.
    error_message: Option<String>,
    /// Later events of its key wait for it.
    blocks_its_key: bool,
}

/// An execution that FAILED.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailedExecution {
    /// The execution.
    id: Uuid,
    /// Its app; unknown where executions do not outlive theirs.
    app_name: Option<String>,
    /// Its script.
    script_name: Option<String>,
    /// What fired it.
    source_kind: String,
    /// When it failed.
    failed_at: DateTime<Utc>,
    /// At which attempt.
    attempt_no: i32,
    /// Our code.
    error_code: Option<String>,
    /// In words.
    error_message: Option<String>,
}

/// A request for approval, with what became of it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalRequest {
    /// Its number.
    request_no: i64,
    /// The lane.
    lane: String,
    /// The function that the approval calls.
    act: String,
    /// With these arguments, or a list of them; null for whoever may not see payloads, as are preview and answer.
    arguments: Option<Value>,
    /// What the act would have answered when it was asked for.
    preview: Option<Value>,
    /// Who asked.
    actor: String,
    /// Why.
    reason: String,
    /// From which login.
    session_role: String,
    /// With which token of the API.
    token_id: Option<Uuid>,
    /// Its name.
    token_name: Option<String>,
    /// When.
    created_at: DateTime<Utc>,
    /// Until when it can be decided.
    expires_at: DateTime<Utc>,
    /// WAITING, EXPIRED, APPROVED, REJECTED or WITHDRAWN.
    state: String,
    /// Who decided.
    decided_by: Option<String>,
    /// From which login.
    decided_from_login: Option<String>,
    /// With which token of the API.
    decided_with_token: Option<Uuid>,
    /// Its name.
    decided_with_token_name: Option<String>,
    /// Why.
    decision_reason: Option<String>,
    /// When.
    decided_at: Option<DateTime<Utc>>,
    /// What the act answered.
    answer: Option<Value>,
}

/// A request that was approved, or would be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovalAnswer {
    /// Its number.
    request_no: i64,
    /// The lane.
    lane: String,
    /// The function.
    act: String,
    /// APPROVED.
    state: String,
    /// What the act answered; for many at once, one answer or refusal each.
    answer: Value,
    /// Nothing was changed.
    dry_run: bool,
}

/// A request that was rejected or withdrawn, or would be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RequestEnd {
    /// Its number.
    request_no: i64,
    /// The lane.
    lane: String,
    /// The function.
    act: String,
    /// REJECTED or WITHDRAWN.
    state: String,
    /// Nothing was changed.
    dry_run: bool,
}

/// A late outcome that contradicts the ledger, until a person closes it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Incident {
    /// The lane.
    lane: String,
    /// Its number in its lane.
    incident_no: i64,
    /// The item.
    item_id: Uuid,
    /// Since when.
    opened_at: DateTime<Utc>,
    /// Who was late.
    worker_id: Option<String>,
    /// What the ledger says.
    recorded_state: String,
    /// With this reference.
    recorded_reference: Option<String>,
    /// What arrived late.
    late_state: String,
    /// With this reference.
    late_reference: Option<String>,
}

/// Something that is paused, with who did it and why.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pause {
    /// lane, rail, participant, topic or app.
    kind: String,
    /// Its name.
    name: String,
    /// Since when, if it is on record.
    since: Option<DateTime<Utc>>,
    /// Who did it.
    actor: Option<String>,
    /// Why.
    reason: Option<String>,
}

/// A rail, a topic of a bus or a runner of scripts that live workers serve: the worst of what they say.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Destination {
    /// payments for a rail, events for `bus/topic`, triggers for what runs scripts.
    lane: String,
    /// Its name.
    name: String,
    /// How many live workers serve it.
    workers: i64,
    /// How many of them leave it alone.
    workers_away: i64,
    /// CLOSED, OPEN or HALF_OPEN.
    breaker: String,
    /// Since when it is left alone.
    open_since: Option<DateTime<Utc>>,
    /// When it is probed next.
    next_probe_at: Option<DateTime<Utc>>,
    /// Troubles in a row.
    troubles: i32,
    /// The last one's code.
    last_trouble: Option<String>,
    /// When that was.
    last_trouble_at: Option<DateTime<Utc>>,
    /// Calls of all workers.
    calls_per_minute: i64,
    /// How long these took on average.
    latency_ms: Option<i64>,
    /// The limit that is kept.
    rate_per_second: Option<i32>,
}

/// What the database knows of a rail.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rail {
    /// The rail.
    rail_type: String,
    /// Strict order per participant.
    fifo: bool,
    /// block or continue.
    on_failed: String,
    /// It can neither deduplicate nor be asked.
    marks_sending: bool,
    /// It is paused.
    paused: bool,
    /// How long an item is tried while the rail is busy or away.
    give_up_after_seconds: i32,
}

/// A topic that a worker has had a route to.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Topic {
    /// Its name, as `bus/topic`.
    topic: String,
    /// Nothing is published to it.
    paused: bool,
    /// Since when it is known.
    first_seen_at: DateTime<Utc>,
}

/// A worker of a lane, as it last reported.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkerLine {
    /// Its name.
    worker_id: String,
    /// The lane.
    lane: String,
    /// It reported within twenty seconds.
    live: bool,
    /// How many destinations it serves.
    destinations: i64,
    /// How many of them it leaves alone.
    left_alone: i64,
    /// Its calls.
    calls_per_minute: i64,
    /// When it last reported.
    reported_at: DateTime<Utc>,
    /// How long ago that was, by the database's clock.
    silent_seconds: i64,
}

/// A lease: of a payment, of an execution, or of a bucket of events.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lease {
    /// The lane.
    lane: String,
    /// Who has it.
    worker_id: String,
    /// The item; null for a bucket.
    item_id: Option<Uuid>,
    /// The rail, the bucket or the app.
    name: String,
    /// How many items it is for.
    items: i64,
    /// Since when.
    claimed_at: Option<DateTime<Utc>>,
    /// Until when.
    lease_expires_at: DateTime<Utc>,
    /// That is past.
    expired: bool,
}

/// A participant with payments.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Participant {
    /// Its name.
    participant_id: String,
    /// The number of its newest payment.
    last_number: i64,
    /// When that was asked for.
    last_at: DateTime<Utc>,
    /// Nothing of it is claimed.
    paused: bool,
}

/// Whether a stretch of a participant's numbers is whole. That none is there twice is a constraint.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SequenceProof {
    /// Payments of the stretch.
    counted: i64,
    /// The last number.
    last: i64,
    /// What is missing; the first of it.
    gaps: Vec<SequenceGap>,
}

/// Numbers that are missing from a stream.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SequenceGap {
    /// The first of them.
    missing_from: i64,
    /// The last.
    missing_to: i64,
}

/// A payment in its participant's stream.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NumberedPayment {
    /// Its number.
    sequence_id: i64,
    /// The item.
    outbox_id: Uuid,
    /// The business instruction.
    instruction_id: String,
    /// The rail.
    rail_type: String,
    /// As in its life, or REDRIVEN.
    state: String,
    /// When it was asked for.
    created_at: DateTime<Utc>,
}

/// Something a person did, or asked for, or decided.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditLine {
    /// The lane.
    lane: String,
    /// Its number in the lane.
    event_no: i64,
    /// What it was.
    event_type: String,
    /// The item, where it is about one.
    item_id: Option<Uuid>,
    /// Who.
    actor: String,
    /// Who approved it.
    approver: Option<String>,
    /// From which login.
    session_role: String,
    /// Why.
    reason: Option<String>,
    /// More; `token` and `token_id` name the token that it was done with, `approver_token` the one that approved.
    #[schema(value_type = Object)]
    details: Value,
    /// When.
    created_at: DateTime<Utc>,
}

/// What waits for a person: one of a payment, an event and an execution, as the lane has.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Letter {
    /// A parked or failed payment.
    Payment(WaitingPayment),
    /// A failed event.
    Event(FailedEvent),
    /// A failed execution.
    Execution(FailedExecution),
}

/// Arguments by name, of one act or of up to 100 of one kind.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ActArguments {
    /// Of one.
    One(HashMap<String, Value>),
    /// Of several.
    Many(Vec<HashMap<String, Value>>),
}
