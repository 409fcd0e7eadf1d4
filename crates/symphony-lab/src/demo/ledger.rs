//! What the database says, for progress and for the judge. Reads only.

use crate::judge::{Item, read_ledger};
use chrono::{DateTime, Utc};
use serde_json::Value;
use symphony::db::{Database, Role};
use uuid::Uuid;

use crate::LabError;

/// Where things stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Progress {
    pub(super) asked: i64,
    pub(super) dispatched: i64,
    pub(super) failed: i64,
    /// Outcomes "surely not executed".
    pub(super) retried: i64,
    /// Outcomes nobody knew.
    pub(super) unknown: i64,
    /// Leases of lost workers that were ended.
    pub(super) requeued: i64,
    pub(super) in_flight: i64,
    pub(super) parked: i64,
    pub(super) pending: i64,
    /// Payments settled or redriven by a person.
    pub(super) acts: i64,
}

/// What a worker has in its hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub(super) struct Held {
    pub(super) items: i64,
    /// One of those named is among them.
    pub(super) named: bool,
}

/// A payment that was in doubt.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Doubt {
    /// The key the bank knows.
    pub(super) rail_key: String,
    /// When it was first in doubt whether the money had moved.
    pub(super) at: DateTime<Utc>,
    /// It was taken over from the worker that was killed.
    pub(super) requeued: bool,
}

pub(super) async fn progress(database: &Database) -> Result<Progress, LabError> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(sqlx::query_as(
        "SELECT (SELECT count(*) FROM symphony.payment_outbox_instructions) AS asked, \
                a.dispatched, a.failed, a.retried, a.unknown, a.requeued, p.in_flight, p.parked, p.pending, \
                (SELECT count(*) FROM symphony.payment_outbox_events WHERE event_type IN ('RESOLVED', 'REDRIVEN')) AS acts \
           FROM (SELECT count(*) FILTER (WHERE state = 'DISPATCHED') AS dispatched, \
                        count(*) FILTER (WHERE state = 'FAILED') AS failed, \
                        count(*) FILTER (WHERE state = 'RETRYABLE' AND NOT outcome_unknown) AS retried, \
                        count(*) FILTER (WHERE outcome_unknown) AS unknown, \
                        count(*) FILTER (WHERE state = 'ZOMBIE_REQUEUE') AS requeued \
                   FROM symphony.payment_outbox_attempts) a, \
                (SELECT count(*) AS pending, count(lease_token) AS in_flight, \
                        count(*) FILTER (WHERE hold = 'PARKED') AS parked \
                   FROM symphony.payment_outbox_pending) p",
    )
    .fetch_one(transaction.connection())
    .await?)
}

/// What a worker process holds, whose number is part of its name; and whether these instructions are among it.
pub(super) async fn held_by(
    database: &Database,
    process: u32,
    instructions: &[&str],
) -> Result<Held, LabError> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(sqlx::query_as(
        "SELECT count(*) AS items, coalesce(bool_or(instruction_id = ANY ($2)), false) AS named \
           FROM symphony.payment_outbox_pending WHERE claimed_by LIKE '%:' || $1 || ':%'",
    )
    .bind(process.to_string())
    .bind(instructions)
    .fetch_one(transaction.connection())
    .await?)
}

/// Every payment as the judge wants it, once all is over.
pub(super) async fn items(database: &Database) -> Result<Vec<Item>, LabError> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(read_ledger(transaction.connection()).await?)
}

/// Every payment that was ever in doubt.
pub(super) async fn doubts(database: &Database, killed: u32) -> Result<Vec<Doubt>, LabError> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(sqlx::query_as(
        "SELECT symphony.payment_rail_key(outbox_id)::text AS rail_key, min(completed_at) AS at, \
                coalesce(bool_or(state = 'ZOMBIE_REQUEUE' AND worker_id LIKE '%:' || $1 || ':%'), false) AS requeued \
           FROM symphony.payment_outbox_attempts WHERE outcome_unknown OR state = 'ZOMBIE_REQUEUE' \
          GROUP BY outbox_id",
    )
    .bind(killed.to_string())
    .fetch_all(transaction.connection())
    .await?)
}

/// What the database knows of the app.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AppLedger {
    /// The orders, by their keys.
    pub(super) entries: Vec<(String, Value)>,
    pub(super) pending: i64,
    /// Runs that ended.
    pub(super) runs: i64,
    /// Of those: FAILED because their worker was lost while a client waited.
    pub(super) worker_lost: i64,
}

pub(super) async fn app(database: &Database) -> Result<AppLedger, LabError> {
    let mut transaction = database.begin(Role::Auditor).await?;
    let entries =
        sqlx::query_as("SELECT key, value FROM symphony.kv_entries WHERE key LIKE 'order/%'")
            .fetch_all(transaction.connection())
            .await?;
    let (pending, runs, worker_lost) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM symphony.trigger_outbox_pending), count(*), \
                count(*) FILTER (WHERE error_code = 'WORKER_LOST') \
           FROM symphony.trigger_outbox_executions",
    )
    .fetch_one(transaction.connection())
    .await?;
    Ok(AppLedger { entries, pending, runs, worker_lost })
}

/// An order that went all the way from the request to its receipt; rather one that was interrupted on it.
pub(super) async fn whole_order(database: &Database) -> Result<Option<Uuid>, LabError> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(sqlx::query_scalar(
        "SELECT root_execution_id FROM symphony.trigger_outbox_executions GROUP BY root_execution_id \
         HAVING bool_and(state = 'DISPATCHED') AND count(DISTINCT source_kind) >= 3 \
          ORDER BY max(attempts) DESC, min(created_at) LIMIT 1",
    )
    .fetch_optional(transaction.connection())
    .await?)
}
