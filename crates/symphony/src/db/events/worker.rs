//! What a worker calls for events: claim, complete, renew, give back, repair.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::calls::Call;
use crate::db::leases::{
    ClaimRow, EndedLeases, LaneLease, claim, each, each_or_none, leased_and_ended,
    unexpected_result,
};
use crate::db::{DbError, Worker, calls};
use crate::domain::LeaseToken;
use crate::domain::limits;

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
    /// For how long its bus has been away without a break, by the database's clock; between two tries, and since the
    /// last, an hour counts at most.
    pub tried_seconds: i32,
}

/// What a claim found.
#[derive(Debug, Default)]
pub struct EventsClaimed {
    /// In the order of the log, bucket by bucket.
    pub events: Vec<ClaimedEvent>,
    /// Topics to leave alone, as `bus/topic`. Only told with events.
    pub paused_topics: Vec<String>,
    /// There are more that cannot be claimed yet, because a producer before them is open. Only told with events.
    pub beyond_horizon: bool,
    /// What lost workers had held and this claim made due again, whether it is among these events or not.
    pub ended: EndedLeases,
}

#[derive(sqlx::FromRow)]
struct ClaimedRow {
    #[sqlx(flatten)]
    event: ClaimedEvent,
    paused_topics: Option<Vec<String>>,
    beyond_horizon: bool,
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
    /// The bus was away by itself, and nobody need mend anything: counts towards giving up.
    pub bus_away: bool,
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
            bus_away: false,
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

impl LaneLease for BucketLease {
    type Ids = Vec<i16>;
    type Repaired = RepairedEvent;
    const RENEW: Call = calls::RENEW_EVENTS;
    const RETURN_UNSENT: Call = calls::RETURN_UNSENT_EVENTS;
    const REPAIR: Call = calls::REPAIR_EVENTS;
    const CALL_MAX: usize = limits::BUCKETS;

    fn ids(leases: &[Self]) -> Vec<i16> {
        leases.iter().map(|lease| lease.bucket).collect()
    }

    fn token(&self) -> LeaseToken {
        self.lease_token
    }

    fn repaired_id(repaired: &RepairedEvent) -> String {
        repaired.event_id.to_string()
    }

    fn ended(_repaired: &RepairedEvent) -> EndedLeases {
        EndedLeases { ended: 1, zombies: 1, parked: 0, failed: 0 }
    }
}

impl Worker {
    /// Lease buckets that have something to publish, and get their next events in order.
    pub async fn claim_events(&self, request: &EventClaim<'_>) -> Result<EventsClaimed, DbError> {
        let events_max = request.buckets_max.saturating_mul(request.window_max);
        let events_max = events_max.min(i32::try_from(limits::BATCH_ITEMS_MAX).unwrap_or(i32::MAX));
        let query =
            claim(calls::CLAIM_EVENTS, events_max, request.worker_id, request.lease_seconds)
                .bind(request.buckets_max)
                .bind(request.window_max);
        let rows: Vec<ClaimRow<ClaimedRow>> =
            self.call(async |session| query.fetch_all(session).await).await?;
        let (rows, ended) = leased_and_ended(rows);
        let mut claimed = EventsClaimed { ended, ..EventsClaimed::default() };
        for row in rows {
            claimed.paused_topics = row.paused_topics.unwrap_or_default();
            claimed.beyond_horizon = row.beyond_horizon;
            claimed.events.push(row.event);
        }
        Ok(claimed)
    }

    /// Say which topics routes lead to, as `bus/topic`: they can be paused by that name.
    pub async fn register_topics(&self, topics: &[&str]) -> Result<(), DbError> {
        let query = sqlx::query(calls::REGISTER_TOPICS.sql).bind(topics);
        self.call(async |session| query.execute(session).await).await?;
        Ok(())
    }

    /// Whether there are events that cannot be claimed yet, because a producer before them is still open.
    pub async fn are_events_beyond_horizon(&self) -> Result<bool, DbError> {
        self.call(async |connection| {
            sqlx::query_scalar(calls::ARE_EVENTS_BEYOND_HORIZON.sql).fetch_one(connection).await
        })
        .await
    }

    /// Write down how publishing ended, at most 4,096 at once; one answer each, in the order given.
    pub async fn complete_events(
        &self,
        worker_id: &str,
        outcomes: &[&EventOutcome],
    ) -> Result<Vec<EventRecorded>, DbError> {
        let query = sqlx::query_as(calls::COMPLETE_EVENTS.sql)
            .bind(worker_id)
            .bind(each(outcomes, |o| o.lease.bucket))
            .bind(each(outcomes, |o| o.log_position))
            .bind(each(outcomes, |o| o.lease.lease_token))
            .bind(each(outcomes, |o| o.state.name()))
            .bind(each_or_none(outcomes, |o| o.destination.as_deref()))
            .bind(each_or_none(outcomes, |o| o.bus_reference.as_deref()))
            .bind(each_or_none(outcomes, |o| o.error_code.as_deref()))
            .bind(each_or_none(outcomes, |o| o.error_message.as_deref()))
            .bind(each_or_none(outcomes, |o| o.latency_ms))
            .bind(each_or_none(outcomes, |o| o.retry_delay_seconds))
            .bind(each_or_none(outcomes, |o| {
                matches!(o.state, EventState::Retryable { unknown: true }).then_some(true)
            }))
            .bind(each_or_none(outcomes, |o| {
                matches!(o.state, EventState::Failed { key_continues: true }).then_some(true)
            }))
            .bind(each_or_none(outcomes, |o| (!o.spends_attempt).then_some(false)))
            .bind(each_or_none(outcomes, |o| o.hasten_after_seconds))
            .bind(each_or_none(outcomes, |o| o.bus_away.then_some(true)));
        let (results, more): (Vec<String>, Vec<bool>) =
            self.call(async |session| query.fetch_one(session).await).await?;
        results
            .iter()
            .zip(more)
            .map(|(result, more)| match result.as_str() {
                "OK" => Ok(EventRecorded::Recorded { more }),
                "P7001" => Ok(EventRecorded::TerminalExists),
                "P7002" => Ok(EventRecorded::NotHeld),
                other => Err(unexpected_result(other)),
            })
            .collect()
    }

    /// Keep what a bus answered after the lease was lost. Answers whether it contradicts the ledger.
    pub async fn record_late_event(
        &self,
        worker_id: &str,
        late: &EventOutcome,
    ) -> Result<bool, DbError> {
        let query = sqlx::query_as(calls::RECORD_LATE_EVENT.sql)
            .bind(late.lease.bucket)
            .bind(late.log_position)
            .bind(late.lease.lease_token)
            .bind(worker_id)
            .bind(late.state.name())
            .bind(&late.bus_reference)
            .bind(&late.error_code)
            .bind(&late.error_message);
        let (_, conflict): (Option<i64>, bool) =
            self.call(async |session| query.fetch_one(session).await).await?;
        Ok(conflict)
    }
}
