//! The event lane's calls: enqueue, claim, complete, renew, return, repair, and what operators do.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::types::Json;
use uuid::Uuid;

use super::{DbError, Executor, Ingest, Operator, Session, SwitchAnswer, calls};
use crate::domain::Act;
use crate::domain::LeaseToken;
use crate::domain::limits;
use crate::event::Event;

/// What an enqueue answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EnqueuedEvent {
    /// The event, new or known.
    pub event_id: Uuid,
    /// Its place in the log.
    pub log_position: i64,
    /// When it was first told.
    pub created_at: DateTime<Utc>,
    /// Where it stands: PENDING, SENT or FAILED.
    pub state: String,
    /// It was known already; nothing was written.
    pub duplicate: bool,
}

/// What a batch answered about one event, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventAnswer {
    /// Its place in the batch, from 1.
    pub item_no: i32,
    /// The event; none if it was refused as invalid.
    pub event_id: Option<Uuid>,
    /// Its place in the log.
    pub log_position: Option<i64>,
    /// When it was first told.
    pub created_at: Option<DateTime<Utc>>,
    /// Where it stands.
    pub state: Option<String>,
    /// It was known already.
    pub duplicate: Option<bool>,
    /// P7004 or P7005, if it was refused.
    pub error_code: Option<String>,
    /// Why.
    pub error_message: Option<String>,
}

/// The proof that a bucket is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BucketLease {
    /// The bucket.
    pub bucket: i16,
    /// Under which lease.
    pub lease_token: LeaseToken,
}

/// What to claim.
#[derive(Debug, Clone, Copy)]
pub struct EventClaim<'a> {
    /// Who.
    pub worker_id: &'a str,
    /// At most this many buckets.
    pub buckets_max: i32,
    /// At most this many events of each.
    pub window_max: i32,
    /// For how long.
    pub lease_seconds: i32,
}

/// One event handed out under its bucket's lease.
#[derive(Debug, sqlx::FromRow)]
pub struct ClaimedEvent {
    /// Its bucket.
    pub bucket: i16,
    /// The bucket's lease.
    pub lease_token: LeaseToken,
    /// Its place in the log.
    pub log_position: i64,
    /// The event.
    pub event_id: Uuid,
    /// The value of its key.
    pub event_key: String,
    /// The whole event, as text.
    pub event: Json<Box<RawValue>>,
    /// When it was committed.
    pub created_at: DateTime<Utc>,
    /// Tries so far; lost workers, and a bus that was away, do not count.
    pub attempt_count: i32,
    /// How often it was redriven.
    pub redrive_no: i32,
    /// Outcomes so far, whether they count or not.
    pub last_attempt_no: i32,
    /// Seconds since the first of them, by the database's clock.
    pub tried_seconds: i32,
}

impl ClaimedEvent {
    /// The lease it is held under.
    pub fn lease(&self) -> BucketLease {
        BucketLease { bucket: self.bucket, lease_token: self.lease_token }
    }
}

/// How publishing one event ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventState {
    /// The bus has it.
    Dispatched,
    /// Again later; `unknown`: it may have been published.
    Retryable {
        /// Nobody knows.
        unknown: bool,
    },
    /// Never. The key goes on only if asked to.
    Failed {
        /// Later events of its key need not wait for an operator.
        key_continues: bool,
    },
    /// It was not sent: it waits, and no attempt is counted.
    Unsent,
}

impl EventState {
    fn name(self) -> Option<&'static str> {
        match self {
            Self::Dispatched => Some("DISPATCHED"),
            Self::Retryable { .. } => Some("RETRYABLE"),
            Self::Failed { .. } => Some("FAILED"),
            Self::Unsent => None,
        }
    }
}

/// One event's outcome, to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventOutcome {
    /// The lease of its bucket.
    pub lease: BucketLease,
    /// Its place in the log.
    pub log_position: i64,
    /// How it ended.
    pub state: EventState,
    /// Bus and topic, as `bus/topic`; the same text for all of a route.
    pub destination: Option<Arc<str>>,
    /// The bus's own id of the message.
    pub bus_reference: Option<String>,
    /// Our code for what went wrong.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// How long the bus took.
    pub latency_ms: Option<i32>,
    /// When to try again; the contract's own steps if not given.
    pub retry_delay_seconds: Option<i32>,
    /// It is one of the event's tries. Not so if the bus was away and surely did not take it.
    pub spends_attempt: bool,
    /// It waits only for its bus: once that is well again, it may be tried so many seconds after this outcome.
    pub hasten_after_seconds: Option<i32>,
}

impl EventOutcome {
    /// An outcome with nothing but its state.
    pub fn new(lease: BucketLease, log_position: i64, state: EventState) -> Self {
        Self {
            lease,
            log_position,
            state,
            destination: None,
            bus_reference: None,
            error_code: None,
            error_message: None,
            latency_ms: None,
            retry_delay_seconds: None,
            spends_attempt: true,
            hasten_after_seconds: None,
        }
    }
}

/// What became of one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRecorded {
    /// It is in the ledger, or set aside as it was given. `more`: its bucket has more to publish now.
    Recorded {
        /// Claim again.
        more: bool,
    },
    /// It is not held under this lease.
    NotHeld,
    /// It has a terminal outcome of another lease.
    TerminalExists,
}

/// One event of a lost worker that is due again.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct RepairedEvent {
    /// Its bucket.
    pub bucket: i16,
    /// The event.
    pub event_id: Uuid,
    /// The trace's number in the ledger.
    pub attempt_no: i32,
    /// Who was lost.
    pub worker_id: String,
}

impl Ingest {
    /// Tell one fact inside the caller's own transaction: state and event commit together.
    ///
    /// The caller's login must be a member of `symphony_ingest`. The key's bucket is locked until the transaction
    /// ends, so enqueue last; several events in one call ([`Ingest::enqueue_events`]) never deadlock with others.
    pub async fn enqueue_event(
        connection: impl Into<Session<'_>>,
        event: &Event,
    ) -> Result<EnqueuedEvent, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_as(calls::ENQUEUE_EVENT.sql)
            .bind(Json(event.body()))
            .fetch_one(session)
            .await?)
    }

    /// Tell many facts inside the caller's own transaction. One bad event never fails the others.
    pub async fn enqueue_events(
        connection: impl Into<Session<'_>>,
        events: &[&RawValue],
    ) -> Result<Vec<EventAnswer>, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_as(calls::ENQUEUE_EVENTS.sql)
            .bind(events.iter().map(|event| Json(*event)).collect::<Vec<_>>())
            .fetch_all(session)
            .await?)
    }

    /// Tell one fact in a transaction of its own. An uncertain COMMIT is looked up, not guessed.
    pub async fn enqueue_event_alone(&self, event: &Event) -> Result<EnqueuedEvent, DbError> {
        self.alone(async |connection| Self::enqueue_event(connection, event).await).await
    }

    /// Tell many facts in a transaction of their own.
    pub async fn enqueue_events_alone(
        &self,
        events: &[&RawValue],
    ) -> Result<Vec<EventAnswer>, DbError> {
        self.alone(async |connection| Self::enqueue_events(connection, events).await).await
    }
}

fn buckets(leases: &[BucketLease]) -> Vec<i16> {
    leases.iter().map(|lease| lease.bucket).collect()
}

fn tokens(leases: &[BucketLease]) -> Vec<LeaseToken> {
    leases.iter().map(|lease| lease.lease_token).collect()
}

/// One field of each, or nothing at all if none has it: five hundred nulls are not free to send.
fn column<'a, T>(
    outcomes: &[&'a EventOutcome],
    field: impl Fn(&'a EventOutcome) -> Option<T>,
) -> Option<Vec<Option<T>>> {
    let column: Vec<Option<T>> = outcomes.iter().map(|outcome| field(outcome)).collect();
    column.iter().any(Option::is_some).then_some(column)
}

impl Executor {
    /// Lease buckets that have something to publish, and get their next events in order.
    pub async fn claim_events(&self, claim: &EventClaim<'_>) -> Result<Vec<ClaimedEvent>, DbError> {
        let events_max = claim.buckets_max.saturating_mul(claim.window_max);
        self.call(async |connection| {
            Ok(sqlx::query_as(calls::CLAIM_EVENTS.sql)
                .bind(events_max.min(i32::try_from(limits::BATCH_ITEMS_MAX).unwrap_or(i32::MAX)))
                .bind(claim.worker_id)
                .bind(claim.lease_seconds)
                .bind(claim.buckets_max)
                .bind(claim.window_max)
                .fetch_all(connection)
                .await?)
        })
        .await
    }

    /// Write down how publishing ended, at most 4,096 at once; one answer each, in the order given.
    pub async fn complete_events(
        &self,
        worker_id: &str,
        outcomes: &[&EventOutcome],
    ) -> Result<Vec<EventRecorded>, DbError> {
        let (results, more): (Vec<String>, Vec<bool>) = self
            .call(async |connection| {
                Ok(sqlx::query_as(calls::COMPLETE_EVENTS.sql)
                    .bind(worker_id)
                    .bind(outcomes.iter().map(|o| o.lease.bucket).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.log_position).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.lease.lease_token).collect::<Vec<_>>())
                    .bind(outcomes.iter().map(|o| o.state.name()).collect::<Vec<_>>())
                    .bind(column(outcomes, |o| o.destination.as_deref()))
                    .bind(column(outcomes, |o| o.bus_reference.as_deref()))
                    .bind(column(outcomes, |o| o.error_code.as_deref()))
                    .bind(column(outcomes, |o| o.error_message.as_deref()))
                    .bind(column(outcomes, |o| o.latency_ms))
                    .bind(column(outcomes, |o| o.retry_delay_seconds))
                    .bind(column(outcomes, |o| {
                        matches!(o.state, EventState::Retryable { unknown: true }).then_some(true)
                    }))
                    .bind(column(outcomes, |o| {
                        matches!(o.state, EventState::Failed { key_continues: true })
                            .then_some(true)
                    }))
                    .bind(column(outcomes, |o| (!o.spends_attempt).then_some(false)))
                    .bind(column(outcomes, |o| o.hasten_after_seconds))
                    .fetch_one(connection)
                    .await?)
            })
            .await?;
        results
            .iter()
            .zip(more)
            .map(|(result, more)| match result.as_str() {
                "OK" => Ok(EventRecorded::Recorded { more }),
                "P7001" => Ok(EventRecorded::TerminalExists),
                "P7002" => Ok(EventRecorded::NotHeld),
                other => Err(DbError::Refused {
                    sqlstate: other.to_owned(),
                    message: "an outcome that the event lane does not have".to_owned(),
                }),
            })
            .collect()
    }

    /// Extend leases; one answer each, in the order given.
    pub async fn renew_events(
        &self,
        worker_id: &str,
        leases: &[BucketLease],
        lease_seconds: i32,
    ) -> Result<Vec<bool>, DbError> {
        let rows: Vec<(i16, bool, Option<DateTime<Utc>>)> = self
            .call(async |connection| {
                Ok(sqlx::query_as(calls::RENEW_EVENTS.sql)
                    .bind(worker_id)
                    .bind(buckets(leases))
                    .bind(tokens(leases))
                    .bind(lease_seconds)
                    .fetch_all(connection)
                    .await?)
            })
            .await?;
        Ok(rows.into_iter().map(|(_, renewed, _)| renewed).collect())
    }

    /// Give back what of these leases was not answered.
    pub async fn return_unsent_events(
        &self,
        worker_id: &str,
        leases: &[BucketLease],
    ) -> Result<Vec<(i16, bool)>, DbError> {
        self.call(async |connection| {
            Ok(sqlx::query_as(calls::RETURN_UNSENT_EVENTS.sql)
                .bind(worker_id)
                .bind(buckets(leases))
                .bind(tokens(leases))
                .fetch_all(connection)
                .await?)
        })
        .await
    }

    /// End expired leases of lost workers.
    pub async fn repair_events(
        &self,
        worker_id: &str,
        buckets_max: i32,
    ) -> Result<Vec<RepairedEvent>, DbError> {
        self.call(async |connection| {
            Ok(sqlx::query_as(calls::REPAIR_EVENTS.sql)
                .bind(buckets_max)
                .bind(worker_id)
                .fetch_all(connection)
                .await?)
        })
        .await
    }

    /// Keep what a bus answered after the lease was lost. Answers whether it contradicts the ledger.
    pub async fn record_late_event(
        &self,
        worker_id: &str,
        late: &EventOutcome,
    ) -> Result<bool, DbError> {
        let (_, conflict): (Option<i64>, bool) = self
            .call(async |connection| {
                Ok(sqlx::query_as(calls::RECORD_LATE_EVENT.sql)
                    .bind(late.lease.bucket)
                    .bind(late.log_position)
                    .bind(late.lease.lease_token)
                    .bind(worker_id)
                    .bind(late.state.name())
                    .bind(&late.bus_reference)
                    .bind(&late.error_code)
                    .bind(&late.error_message)
                    .fetch_one(connection)
                    .await?)
            })
            .await?;
        Ok(conflict)
    }
}

/// What a redrive of an event changed, or would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventRedriveAnswer {
    /// The event.
    pub event_id: Uuid,
    /// Where it stood.
    pub state_before: String,
    /// Where it stands, or would stand.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// When it is published at the earliest: not while the bus would swallow its id.
    pub due_at: DateTime<Utc>,
}

/// What skipping an event changed, or would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventSkipAnswer {
    /// The event.
    pub event_id: Uuid,
    /// Where it stood.
    pub state_before: String,
    /// Where it stands, or would stand.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// How many events wait behind it.
    pub waiting: i64,
}

/// How to redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resend {
    /// Events that were SENT, too.
    pub sent_too: bool,
    /// How long the bus swallows a repeated id.
    pub dedup_window_seconds: i32,
}

/// The event lane's switches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventLaneSettings {
    /// The lane is paused.
    pub paused: bool,
    /// Members no payload may have.
    pub denied_payload_keys: Vec<String>,
}

impl Operator {
    /// Publish events again, under the same event ids; all of them or none. One answer each, in the order given.
    pub async fn redrive_events(
        &self,
        events: &[Uuid],
        resend: Resend,
        act: &Act,
    ) -> Result<Vec<EventRedriveAnswer>, DbError> {
        let mut answers: Vec<EventRedriveAnswer> = self
            .act(async |connection| {
                // In the order in which workers lock buckets, so that neither waits for the other in a circle.
                let in_order: Vec<Uuid> = sqlx::query_scalar(
                    "SELECT t.event_id FROM unnest($1::uuid[]) t(event_id) \
                       LEFT JOIN public.event_outbox_identities i ON i.event_id = t.event_id ORDER BY i.bucket, i.position",
                )
                .bind(events)
                .fetch_all(&mut *connection)
                .await?;
                let mut answers = Vec::with_capacity(events.len());
                for event in in_order {
                    answers.push(
                        sqlx::query_as(calls::REDRIVE_EVENT.sql)
                            .bind(event)
                            .bind(&act.actor)
                            .bind(&act.reason)
                            .bind(&act.approver)
                            .bind(act.dry_run)
                            .bind(resend.sent_too)
                            .bind(resend.dedup_window_seconds)
                            .fetch_one(&mut *connection)
                            .await?,
                    );
                }
                Ok(answers)
            })
            .await?;
        answers
            .sort_by_cached_key(|answer| events.iter().position(|event| *event == answer.event_id));
        Ok(answers)
    }

    /// Let a key go on past the FAILED event that blocks it.
    pub async fn skip_event(&self, event: Uuid, act: &Act) -> Result<EventSkipAnswer, DbError> {
        self.act_on(calls::SKIP_EVENT.sql, event, act).await
    }

    /// Pause or resume the event lane.
    pub async fn switch_events(&self, paused: bool, act: &Act) -> Result<SwitchAnswer, DbError> {
        let call = if paused { calls::PAUSE_EVENTS } else { calls::RESUME_EVENTS };
        self.act(async |connection| {
            Ok(sqlx::query_as(call.sql)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(act.dry_run)
                .fetch_one(connection)
                .await?)
        })
        .await
    }

    /// Set which members no payload may have; `None` leaves the list as it is.
    pub async fn configure_events(
        &self,
        denied_payload_keys: Option<&[String]>,
        act: &Act,
    ) -> Result<EventLaneSettings, DbError> {
        self.change(act, async |connection| {
            Ok(sqlx::query_as(calls::CONFIGURE_EVENTS.sql)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(denied_payload_keys)
                .fetch_one(connection)
                .await?)
        })
        .await
    }
}
