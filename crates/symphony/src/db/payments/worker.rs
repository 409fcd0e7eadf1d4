//! What a worker calls for payments: claim, complete, renew, give back, repair; marks and permits.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::types::Json;

use crate::db::calls::Call;
use crate::db::leases::{
    EndedLeases, LaneLease, about_leases, claim, each, each_or_none, leased_and_ended, tokens,
    unexpected_result,
};
use crate::db::{DbError, Worker, calls};
use crate::domain::{AttemptState, LeaseToken, OutboxId, Outcome, RailKey};
use crate::engine::Rate;

/// What to claim.
#[derive(Debug, Clone)]
pub struct PaymentClaim<'a> {
    /// Who claims; unique per incarnation of a process.
    pub worker_id: &'a str,
    /// At most this many.
    pub batch_size: i32,
    /// For this long.
    pub lease_seconds: i32,
    /// Only these rails; `None` for all.
    pub rails: Option<&'a [String]>,
    /// The watermark: look only at or after this due time. `None` is a full look. With several rails it is the
    /// smallest of the rails' last due times: each rail is claimed in its own due order.
    pub due_from: Option<DateTime<Utc>>,
    /// Where this worker would send to, as fingerprints, one for each of `rails`.
    pub endpoints: Option<&'a [String]>,
}

/// The proof that a worker holds an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct PaymentLease {
    /// The item.
    pub outbox_id: OutboxId,
    /// The proof.
    pub lease_token: LeaseToken,
}

/// What one claim brought.
#[derive(Debug, Clone, Default)]
pub struct PaymentsClaimed {
    /// The leased items, in claim order.
    pub items: Vec<ClaimedPayment>,
    /// What lost workers had held and this claim took over or parked.
    pub ended: EndedLeases,
}

/// One leased item, with all a rail needs.
#[allow(clippy::struct_excessive_bools)] // the columns of the claim
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ClaimedPayment {
    /// The item.
    pub outbox_id: OutboxId,
    /// The proof of the lease.
    pub lease_token: LeaseToken,
    /// When the lease ends, by the database's clock.
    pub lease_expires_at: DateTime<Utc>,
    /// The business instruction.
    pub instruction_id: String,
    /// Whose stream.
    pub participant_id: String,
    /// Its number there.
    pub sequence_id: i64,
    /// The producer's key.
    pub idempotency_key: String,
    /// The rail.
    pub rail_type: String,
    /// What the rail is told, as text.
    pub payload: Json<Box<RawValue>>,
    /// Outcomes so far, at most 20.
    pub attempt_count: i32,
    /// The money may have moved: ask the rail before sending.
    pub must_inquire: bool,
    /// When it was due.
    pub next_attempt_at: DateTime<Utc>,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
    /// How often it was redriven.
    pub redrive_no: i32,
    /// W3C trace context.
    pub traceparent: Option<String>,
    /// It stands in a strict order: when it ends, the next of its lane becomes due, without a hint.
    pub ordered: bool,
    /// While it is leased, the database takes "not marked" for "not sent": mark it before sending.
    pub marks_sending: bool,
    /// Its key to the rail.
    pub rail_key: RailKey,
    /// The fingerprint of where it may have been sent, or else of where this worker sends it.
    pub endpoint: Option<String>,
    /// When it was claimed, by the database's clock.
    pub claimed_at: DateTime<Utc>,
    /// It was asked for after a loss of data: if it was sent before that, then under the same key.
    pub asked_again: bool,
    /// A person wants to know what became of it: ask, and park it again rather than send it.
    pub only_ask: bool,
}

impl ClaimedPayment {
    /// The lease on it.
    pub fn lease(&self) -> PaymentLease {
        PaymentLease { outbox_id: self.outbox_id, lease_token: self.lease_token }
    }
}

/// How one dispatch ended.
#[derive(Debug, Clone)]
pub struct PaymentOutcome {
    /// Which item, under which lease.
    pub lease: PaymentLease,
    /// How.
    pub outcome: Outcome,
    /// The rail's reference.
    pub rail_reference: Option<String>,
    /// The rail's code.
    pub rail_code: Option<String>,
    /// Our code for what went wrong.
    pub error_code: Option<String>,
    /// In words; never payload contents.
    pub error_message: Option<String>,
    /// How long the rail took.
    pub latency_ms: Option<i32>,
    /// When to try again, exactly; `None` for the standard backoff.
    pub retry_delay_seconds: Option<i32>,
    /// What the rail asked for: it delays, and never hastens.
    pub retry_after_seconds: Option<i32>,
    /// It counts towards the ceiling of 20. Not so if the rail was busy or away, or has not settled yet.
    pub spends_attempt: bool,
    /// The rail was only asked: nothing was sent.
    pub asked_only: bool,
}

impl PaymentOutcome {
    /// A completion with nothing but its outcome.
    pub fn new(lease: PaymentLease, outcome: Outcome) -> Self {
        Self {
            lease,
            outcome,
            rail_reference: None,
            rail_code: None,
            error_code: None,
            error_message: None,
            latency_ms: None,
            retry_delay_seconds: None,
            retry_after_seconds: None,
            spends_attempt: true,
            asked_only: false,
        }
    }
}

/// What became of one completion of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum PaymentRecorded {
    /// It is in the ledger.
    Recorded(SettledPayment),
    /// P7001: the item had a terminal outcome already.
    TerminalExists,
    /// P7002: the lease was lost.
    LeaseLost,
    /// P7003: not a state a worker may report.
    InvalidState,
    /// The unique index refused a second terminal outcome; recorded as TERMINAL_BLOCKED.
    TerminalBlocked,
    /// 23505: another constraint was about to be violated. An integrity alarm.
    Integrity,
}

/// A ledger row just written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct SettledPayment {
    /// Its number.
    pub attempt_no: i32,
    /// Its state; FAILED for a retryable outcome at the ceiling.
    pub state: AttemptState,
    /// The item now waits for a person.
    pub parked: bool,
}

/// The answer to one completion of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PaymentAnswer {
    /// The item.
    pub outbox_id: OutboxId,
    /// What became of it.
    pub result: PaymentRecorded,
}

/// An item whose expired lease was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct RepairedPayment {
    /// The item.
    pub outbox_id: OutboxId,
    /// The number of its ZOMBIE_REQUEUE row.
    pub attempt_no: i32,
    /// The worker that was lost.
    pub worker_id: String,
    /// It now waits for a person.
    pub parked: bool,
}

/// Evidence kept of an outcome that came too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct LatePayment {
    /// Its number in the narrative.
    pub event_no: i64,
    /// It contradicts the recorded outcome: raise an alarm.
    pub conflict: bool,
}

impl LaneLease for PaymentLease {
    type Ids = Vec<OutboxId>;
    type Repaired = RepairedPayment;
    const RENEW: Call = calls::RENEW_PAYMENTS;
    const RETURN_UNSENT: Call = calls::RETURN_UNSENT_PAYMENTS;
    const REPAIR: Call = calls::REPAIR_PAYMENTS;

    fn ids(leases: &[Self]) -> Vec<OutboxId> {
        leases.iter().map(|lease| lease.outbox_id).collect()
    }

    fn token(&self) -> LeaseToken {
        self.lease_token
    }

    fn repaired_id(repaired: &RepairedPayment) -> String {
        repaired.outbox_id.to_string()
    }

    fn ended(repaired: &RepairedPayment) -> EndedLeases {
        EndedLeases { ended: 1, zombies: 1, parked: usize::from(repaired.parked), failed: 0 }
    }
}

impl Worker {
    /// Lease the next due items.
    pub async fn claim_payments(
        &self,
        request: &PaymentClaim<'_>,
    ) -> Result<PaymentsClaimed, DbError> {
        let PaymentClaim { batch_size, worker_id, lease_seconds, rails, due_from, endpoints } =
            request;
        let query = claim(calls::CLAIM_PAYMENTS, *batch_size, worker_id, *lease_seconds)
            .bind(rails)
            .bind(due_from)
            .bind(endpoints);
        let rows = self.call(async |session| query.fetch_all(session).await).await?;
        let (items, ended) = leased_and_ended::<ClaimedPayment>(rows);
        if let Some(item) = items.last() {
            self.claimed(item.claimed_at);
        }
        Ok(PaymentsClaimed { items, ended })
    }

    /// Write down how one dispatch ended.
    pub async fn complete_payment(
        &self,
        worker_id: &str,
        completion: &PaymentOutcome,
    ) -> Result<SettledPayment, DbError> {
        let query = sqlx::query_as(calls::COMPLETE_PAYMENT.sql)
            .bind(completion.lease.outbox_id)
            .bind(completion.lease.lease_token)
            .bind(worker_id)
            .bind(completion.outcome.state())
            .bind(&completion.rail_reference)
            .bind(&completion.rail_code)
            .bind(&completion.error_code)
            .bind(&completion.error_message)
            .bind(completion.latency_ms)
            .bind(completion.retry_delay_seconds)
            .bind(completion.outcome == Outcome::Unknown)
            .bind(completion.spends_attempt)
            .bind(completion.asked_only)
            .bind(completion.retry_after_seconds);
        let settled = self.call(async |session| query.fetch_one(session).await).await;
        if matches!(settled, Err(DbError::TerminalBlocked)) {
            // The refused call took its own trace with it: keep that in a second one.
            self.record_blocked_payment(worker_id, completion.lease).await?;
        }
        settled
    }

    /// Write down how many dispatches ended; one answer each, in the order given.
    pub async fn complete_payments(
        &self,
        worker_id: &str,
        completions: &[PaymentOutcome],
    ) -> Result<Vec<PaymentAnswer>, DbError> {
        // One row of arrays: five hundred rows take longer to read than to write.
        let query = sqlx::query_as(calls::COMPLETE_PAYMENTS.sql)
            .bind(worker_id)
            .bind(each(completions, |c| c.lease.outbox_id))
            .bind(each(completions, |c| c.lease.lease_token))
            .bind(each(completions, |c| c.outcome.state()))
            .bind(each_or_none(completions, |c| c.rail_reference.as_deref()))
            .bind(each_or_none(completions, |c| c.rail_code.as_deref()))
            .bind(each_or_none(completions, |c| c.error_code.as_deref()))
            .bind(each_or_none(completions, |c| c.error_message.as_deref()))
            .bind(each_or_none(completions, |c| c.latency_ms))
            .bind(each_or_none(completions, |c| c.retry_delay_seconds))
            .bind(each_or_none(completions, |c| (c.outcome == Outcome::Unknown).then_some(true)))
            .bind(each_or_none(completions, |c| (!c.spends_attempt).then_some(false)))
            .bind(each_or_none(completions, |c| c.asked_only.then_some(true)))
            .bind(each_or_none(completions, |c| c.retry_after_seconds));
        let answers: CompletionColumns =
            self.call(async |session| query.fetch_one(session).await).await?;
        completion_answers(answers)
    }

    /// Park an item whose outcome is unknown and cannot be settled by asking.
    pub async fn park_unknown_payment(
        &self,
        worker_id: &str,
        evidence: &PaymentOutcome,
    ) -> Result<SettledPayment, DbError> {
        let query = sqlx::query_as(calls::PARK_UNKNOWN_PAYMENT.sql)
            .bind(evidence.lease.outbox_id)
            .bind(evidence.lease.lease_token)
            .bind(worker_id)
            .bind(&evidence.rail_reference)
            .bind(&evidence.rail_code)
            .bind(&evidence.error_code)
            .bind(&evidence.error_message)
            .bind(evidence.latency_ms)
            .bind(evidence.asked_only);
        self.call(async |session| query.fetch_one(session).await).await
    }

    /// Turns at a rail whose rate is the whole fleet's: how long to wait for each, from now on.
    pub async fn take_rail_permits(
        &self,
        rail_type: &str,
        rate: Rate,
        wanted: u32,
    ) -> Result<Vec<Duration>, DbError> {
        let whole = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
        // Permits of a call whose COMMIT got no answer are lost, which is harmless.
        let query = sqlx::query_scalar(calls::TAKE_PERMITS.sql)
            .bind(rail_type)
            .bind(whole(wanted))
            .bind(whole(rate.per_second.max(1)))
            .bind(whole(rate.burst.max(1)));
        let waits: Vec<i64> =
            self.call_repeatable(async |session| query.fetch_all(session).await).await?;
        let wait = |micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        Ok(waits.into_iter().map(wait).collect())
    }

    /// Whether a lease is still held, by the database's word of this moment. It is not made any longer.
    pub async fn still_holds_payment(
        &self,
        worker_id: &str,
        lease: PaymentLease,
    ) -> Result<bool, DbError> {
        Ok(self.renew(worker_id, &[lease], 1).await? == [true])
    }

    /// Say that these are about to leave. Send only those answered `true`.
    pub async fn mark_payments_sending(
        &self,
        worker_id: &str,
        leases: &[PaymentLease],
    ) -> Result<Vec<(OutboxId, bool)>, DbError> {
        let query = about_leases(calls::MARK_PAYMENTS_SENDING, worker_id, leases);
        self.call(async |session| query.fetch_all(session).await).await
    }

    /// Keep what a rail answered after the lease was lost. If the database has never heard of the lease (a failover or
    /// a restore lost the claim), it is kept as that: what a rail said is never thrown away.
    pub async fn record_late_payment(
        &self,
        worker_id: &str,
        late: &PaymentOutcome,
    ) -> Result<LatePayment, DbError> {
        match self.record_late(worker_id, late, false).await {
            Err(DbError::LeaseLost { .. }) => self.record_late(worker_id, late, true).await,
            other => other,
        }
    }

    async fn record_late(
        &self,
        worker_id: &str,
        late: &PaymentOutcome,
        claim_lost: bool,
    ) -> Result<LatePayment, DbError> {
        let query = sqlx::query_as(calls::RECORD_LATE_PAYMENT.sql)
            .bind(late.lease.outbox_id)
            .bind(late.lease.lease_token)
            .bind(worker_id)
            .bind(late.outcome.state())
            .bind(&late.rail_reference)
            .bind(&late.rail_code)
            .bind(&late.error_code)
            .bind(&late.error_message)
            .bind(late.latency_ms)
            .bind(claim_lost);
        self.call(async |session| query.fetch_one(session).await).await
    }

    /// Which of these leases already have an outcome of their own in the ledger: a completion whose COMMIT got
    /// no answer may have been written after all.
    pub async fn payments_recorded_under(
        &self,
        leases: &[PaymentLease],
    ) -> Result<Vec<OutboxId>, DbError> {
        let query = sqlx::query_scalar(
            "SELECT a.outbox_id FROM unnest($1::uuid[], $2::uuid[]) l(outbox_id, lease_token)
               JOIN symphony.payment_outbox_attempts a USING (outbox_id, lease_token) WHERE a.state <> 'ZOMBIE_REQUEUE'",
        )
        .bind(PaymentLease::ids(leases))
        .bind(tokens(leases));
        self.call(async |session| query.fetch_all(session).await).await
    }

    /// Keep the trace of a terminal outcome that the unique index refused.
    pub async fn record_blocked_payment(
        &self,
        worker_id: &str,
        lease: PaymentLease,
    ) -> Result<(), DbError> {
        let query = sqlx::query(calls::RECORD_BLOCKED_PAYMENT.sql)
            .bind(lease.outbox_id)
            .bind(lease.lease_token)
            .bind(worker_id);
        self.call(async |session| query.execute(session).await).await?;
        Ok(())
    }
}

/// Item, result, number, state and whether it is parked, each in the order given.
type CompletionColumns = (
    Option<Vec<OutboxId>>,
    Option<Vec<String>>,
    Option<Vec<Option<i32>>>,
    Option<Vec<Option<String>>>,
    Option<Vec<bool>>,
);

fn completion_answers(columns: CompletionColumns) -> Result<Vec<PaymentAnswer>, DbError> {
    let (items, results, numbers, states, parked) = columns;
    let columns = (results.unwrap_or_default().into_iter())
        .zip(numbers.unwrap_or_default())
        .zip(states.unwrap_or_default())
        .zip(parked.unwrap_or_default());
    let answers = items.unwrap_or_default().into_iter().zip(columns);
    answers
        .map(|(outbox_id, (((result, attempt_no), state), parked))| {
            let result =
                match (result.as_str(), attempt_no, state.as_deref().and_then(attempt_state)) {
                    ("OK", Some(attempt_no), Some(state)) => {
                        PaymentRecorded::Recorded(SettledPayment { attempt_no, state, parked })
                    }
                    ("P7001", ..) => PaymentRecorded::TerminalExists,
                    ("P7002", ..) => PaymentRecorded::LeaseLost,
                    ("P7003", ..) => PaymentRecorded::InvalidState,
                    ("TERMINAL_BLOCKED", ..) => PaymentRecorded::TerminalBlocked,
                    ("23505", ..) => PaymentRecorded::Integrity,
                    (other, ..) => return Err(unexpected_result(other)),
                };
            Ok(PaymentAnswer { outbox_id, result })
        })
        .collect()
}

fn attempt_state(text: &str) -> Option<AttemptState> {
    match text {
        "DISPATCHED" => Some(AttemptState::Dispatched),
        "RETRYABLE" => Some(AttemptState::Retryable),
        "FAILED" => Some(AttemptState::Failed),
        _ => None,
    }
}
