//! What is read of the event lane: the life of one event, dead letters, what a redrive would catch, the ledger in
//! figures.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::waits::{self, EventWaits};
use crate::db::{Auditor, DbError, PaymentHistoryRow, Role};
use crate::domain::{AttemptState, LeaseToken};

/// An event, as its producer sees it.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct EventRecord {
    /// The event.
    pub event_id: Uuid,
    /// Its type.
    pub event_type: String,
    /// The value of its key.
    pub event_key: String,
    /// PENDING, SENT or FAILED.
    pub state: String,
    /// Outcomes so far.
    pub attempts: i32,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it is tried next; `None` if an operator must act first, or it has ended.
    pub next_attempt: Option<DateTime<Utc>>,
    /// The FAILED event that its key waits for: itself, or an earlier one.
    pub blocked_by: Option<Uuid>,
    /// When it was committed.
    pub created_at: DateTime<Utc>,
    /// Its place in the log.
    pub log_position: i64,
    /// The whole event; `None` for whoever may not see it.
    pub event: Option<Json<Box<RawValue>>>,
}

/// One outcome of an event.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct EventAttemptRow {
    /// How often it had been redriven.
    pub redrive_no: i32,
    /// Its number.
    pub attempt_no: i32,
    /// How it ended.
    pub state: AttemptState,
    /// It may have been published.
    pub outcome_unknown: bool,
    /// When the work began.
    pub claimed_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub completed_at: DateTime<Utc>,
    /// Bus and topic; `None` for whoever may not see it.
    pub destination: Option<String>,
    /// The bus's own id.
    pub bus_reference: Option<String>,
    /// Our code.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// How long the bus took.
    pub latency_ms: Option<i32>,
    /// Who did it.
    pub worker_id: String,
    /// Under which lease; `None` for whoever may not see it.
    pub lease_token: Option<LeaseToken>,
}

/// The life of one event.
#[derive(Debug, Clone, Serialize)]
pub struct EventLife {
    /// What was told, and where it stands.
    pub record: EventRecord,
    /// Its outcomes, in order.
    pub attempts: Vec<EventAttemptRow>,
    /// What else happened to it.
    pub events: Vec<PaymentHistoryRow>,
    /// What stands in its way, while it is PENDING.
    pub waits: Option<EventWaits>,
}

/// An event that ended FAILED, or would be caught by a filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct FoundEvent {
    /// The event.
    pub event_id: Uuid,
    /// Its type.
    pub event_type: String,
    /// The value of its key.
    pub event_key: String,
    /// Its place in the log.
    pub log_position: i64,
    /// FAILED or SENT.
    pub state: String,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// Where it should have gone; `None` for whoever may not see it.
    pub destination: Option<String>,
    /// Our code.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// Later events of its key wait for it.
    pub blocks_its_key: bool,
}

/// Which ended events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    /// Those that were SENT, instead of those that FAILED.
    pub sent: bool,
    /// A type, or the start of one that ends in `*`.
    pub event_type: Option<String>,
    /// The value of the key.
    pub key: Option<String>,
    /// The tenant.
    pub tenant_id: Option<String>,
    /// Our code.
    pub error_code: Option<String>,
    /// Committed to the outbox at or after.
    pub since: Option<DateTime<Utc>>,
    /// Committed before.
    pub until: Option<DateTime<Utc>>,
    /// At most this many.
    pub limit: i64,
}

/// The event ledger in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventFigures {
    /// Events told.
    pub events: i64,
    /// Ended DISPATCHED, redrives not counted.
    pub sent: i64,
    /// Ended FAILED, and not redriven.
    pub failed: i64,
    /// Not ended yet.
    pub pending: i64,
    /// Outcomes written down.
    pub outcomes: i64,
    /// Events neither ended, nor beyond their bucket's cursor, nor waiting: must be 0.
    pub lost: i64,
    /// Events recorded as published before an earlier one of their key: must be 0, skips and redrives apart.
    pub inversions: i64,
}

impl EventFigures {
    /// Every event is accounted for, and no key was published out of order.
    pub fn holds(&self) -> bool {
        self.lost == 0
            && self.inversions == 0
            && self.events == self.sent + self.failed + self.pending
    }
}

impl Auditor {
    /// The life of one event.
    pub async fn event_life(&self, event: Uuid) -> Result<Option<EventLife>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        // One snapshot for all of it: otherwise an outcome written between two reads would seem to come from nowhere.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(transaction.session())
            .await?;
        let record: Option<EventRecord> = sqlx::query_as(AssertSqlSafe(format!(
            "SELECT e.id AS event_id, e.\"eventType\" AS event_type, e.event_key, e.state, e.attempts, \
                    e.\"lastError\" AS last_error, nullif(e.next_attempt, 'infinity') AS next_attempt, \
                    (SELECT f.event_id FROM symphony.event_outbox_blocked k \
                       JOIN symphony.event_outbox_log f ON f.bucket = k.bucket AND f.position = k.failed_position \
                      WHERE k.bucket = e.bucket AND k.event_key = e.event_key) AS blocked_by, \
                    e.\"createdAt\" AS created_at, e.log_position, {} AS event \
               FROM symphony.event_outbox_identities i \
               JOIN symphony.event_outbox e ON e.bucket = i.bucket AND e.log_position = i.position \
              WHERE i.event_id = $1",
            access.of("e.event", "json")
        )))
        .bind(event)
        .fetch_optional(transaction.session())
        .await?;
        let Some(record) = record else { return Ok(None) };
        let attempts = sqlx::query_as(AssertSqlSafe(format!(
            "SELECT a.redrive_no, a.attempt_no, a.state::text, a.outcome_unknown, a.claimed_at, a.completed_at, \
                    {} AS destination, a.bus_reference, a.error_code, a.error_message, a.latency_ms, a.worker_id, \
                    {} AS lease_token \
               FROM symphony.event_outbox_identities i \
               JOIN symphony.event_outbox_attempts a ON a.bucket = i.bucket AND a.position = i.position \
              WHERE i.event_id = $1 ORDER BY a.redrive_no, a.attempt_no",
            access.of("a.destination", "text"),
            access.of("a.lease_token", "uuid")
        )))
        .bind(event)
        .fetch_all(transaction.session())
        .await?;
        let events = sqlx::query_as(
            "SELECT event_no, event_type, worker_id, actor, approver, session_role, reason, details, created_at \
               FROM symphony.outbox_history WHERE lane = 'events' AND item_id = $1 ORDER BY event_no",
        )
        .bind(event)
        .fetch_all(transaction.session())
        .await?;
        let waits = match record.state.as_str() {
            "PENDING" => waits::of_event(&mut transaction, access, event).await?,
            _ => None,
        };
        Ok(Some(EventLife { record, attempts, events, waits }))
    }

    /// The ended events a filter catches, the earliest in the log first.
    pub async fn find_events(&self, filter: &EventFilter) -> Result<Vec<FoundEvent>, DbError> {
        let (exact, prefix) = match filter.event_type.as_deref() {
            Some(pattern) => match pattern.strip_suffix('*') {
                Some(prefix) => (None, Some(prefix.to_owned())),
                None => (Some(pattern.to_owned()), None),
            },
            None => (None, None),
        };
        let (mut transaction, access) = self.database.begin_reading().await?;
        Ok(sqlx::query_as(AssertSqlSafe(format!(
            "SELECT l.event_id, l.event_type, l.event_key, l.position AS log_position, \
                    CASE a.state WHEN 'FAILED' THEN 'FAILED' ELSE 'SENT' END AS state, a.completed_at AS ended_at, \
                    {} AS destination, a.error_code, a.error_message, \
                    EXISTS (SELECT FROM symphony.event_outbox_blocked k WHERE k.bucket = a.bucket \
                               AND k.event_key = a.event_key AND k.failed_position = a.position) AS blocks_its_key \
               FROM symphony.event_outbox_attempts a \
               JOIN symphony.event_outbox_envelopes l ON l.bucket = a.bucket AND l.position = a.position \
              WHERE ($1 AND a.state = 'DISPATCHED' OR NOT $1 AND a.state = 'FAILED') \
                AND NOT EXISTS (SELECT FROM symphony.event_outbox_attempts later WHERE later.bucket = a.bucket \
                                   AND later.position = a.position AND later.redrive_no > a.redrive_no) \
                AND NOT EXISTS (SELECT FROM symphony.event_outbox_waiting w WHERE w.bucket = a.bucket \
                                   AND w.event_key = a.event_key AND w.position = a.position) \
                AND ($1 OR NOT EXISTS (SELECT FROM symphony.outbox_history c WHERE c.lane = 'events' AND c.item_id = a.event_id \
                                          AND c.event_type = 'DEAD_LETTER_CLOSED' AND (c.details->>'redrive_no')::int >= a.redrive_no)) \
                AND ($2::text IS NULL OR l.event_type = $2) \
                AND ($3::text IS NULL OR starts_with(l.event_type, $3)) \
                AND ($4::text IS NULL OR l.event_key = $4) \
                AND ($5::text IS NULL OR l.tenant_id = $5) \
                AND ($6::text IS NULL OR a.error_code = $6) \
                AND ($7::timestamptz IS NULL OR l.created_at >= $7) \
                AND ($8::timestamptz IS NULL OR l.created_at < $8) \
              ORDER BY l.position LIMIT $9",
            access.of("a.destination", "text")
        )))
        .bind(filter.sent)
        .bind(exact)
        .bind(prefix)
        .bind(&filter.key)
        .bind(&filter.tenant_id)
        .bind(&filter.error_code)
        .bind(filter.since)
        .bind(filter.until)
        .bind(filter.limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// Count the whole event ledger. Reads all of it.
    pub async fn event_figures(&self) -> Result<EventFigures, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "WITH stands AS MATERIALIZED ( \
                 SELECT l.bucket, l.position, l.event_key, \
                        EXISTS (SELECT FROM symphony.event_outbox_waiting w WHERE w.bucket = l.bucket \
                                   AND w.event_key = l.event_key AND w.position = l.position) AS waits, \
                        l.position > c.published_through AS ahead, \
                        (SELECT a.state FROM symphony.event_outbox_attempts a WHERE a.bucket = l.bucket \
                            AND a.position = l.position AND a.outcome_no = 0 ORDER BY a.redrive_no DESC LIMIT 1) AS ended \
                   FROM symphony.event_outbox_log l JOIN symphony.event_outbox_cursors c ON c.bucket = l.bucket \
             ), published AS ( \
                 SELECT a.completed_at, lag(a.completed_at) OVER (PARTITION BY a.bucket, a.event_key ORDER BY a.position) AS before \
                   FROM symphony.event_outbox_attempts a WHERE a.state = 'DISPATCHED' AND a.redrive_no = 0) \
             SELECT (SELECT count(*) FROM stands) AS events, \
                    (SELECT count(*) FROM stands WHERE NOT waits AND ended = 'DISPATCHED') AS sent, \
                    (SELECT count(*) FROM stands WHERE NOT waits AND ended = 'FAILED') AS failed, \
                    (SELECT count(*) FROM stands WHERE waits OR ahead AND ended IS NULL) AS pending, \
                    (SELECT count(*) FROM symphony.event_outbox_attempts) AS outcomes, \
                    (SELECT count(*) FROM stands WHERE NOT waits AND NOT ahead AND ended IS NULL) AS lost, \
                    (SELECT count(*) FROM published WHERE completed_at < before) AS inversions",
        )
        .fetch_one(transaction.session())
        .await?)
    }
}
