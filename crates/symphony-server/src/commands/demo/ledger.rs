//! What the database says, for progress and for the judge. Reads only.

use chrono::{DateTime, Utc};
use serde_json::Value;
use symphony::db::{Database, Role};
use uuid::Uuid;

use crate::output::Failure;

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

/// One payment with its ends, as the judge wants it.
#[derive(Debug, Clone, sqlx::FromRow)]
pub(super) struct Item {
    pub(super) outbox_id: String,
    /// The key the bank knows.
    pub(super) key: String,
    pub(super) instruction_id: String,
    pub(super) participant_id: String,
    pub(super) rail_type: String,
    pub(super) sequence_id: i64,
    /// Its place in its lane: its own number, or that of the payment it redrives.
    pub(super) place: i64,
    pub(super) amount: String,
    pub(super) pending: bool,
    /// DISPATCHED rows.
    pub(super) dispatched: i64,
    /// FAILED rows.
    pub(super) failed: i64,
    pub(super) reference: Option<String>,
    /// It was taken over from the worker that was killed.
    pub(super) requeued: bool,
    /// When it was first in doubt whether the money had moved.
    pub(super) doubted_at: Option<DateTime<Utc>>,
}

pub(super) async fn progress(database: &Database) -> Result<Progress, Failure> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(sqlx::query_as(
        "SELECT (SELECT count(*) FROM public.payment_outbox_instructions) AS asked, \
                a.dispatched, a.failed, a.retried, a.unknown, a.requeued, p.in_flight, p.parked, p.pending, \
                (SELECT count(*) FROM public.payment_outbox_events WHERE event_type IN ('RESOLVED', 'REDRIVEN')) AS acts \
           FROM (SELECT count(*) FILTER (WHERE state = 'DISPATCHED') AS dispatched, \
                        count(*) FILTER (WHERE state = 'FAILED') AS failed, \
                        count(*) FILTER (WHERE state = 'RETRYABLE' AND NOT outcome_unknown) AS retried, \
                        count(*) FILTER (WHERE outcome_unknown) AS unknown, \
                        count(*) FILTER (WHERE state = 'ZOMBIE_REQUEUE') AS requeued \
                   FROM public.payment_outbox_attempts) a, \
                (SELECT count(*) AS pending, count(lease_token) AS in_flight, \
                        count(*) FILTER (WHERE hold = 'PARKED') AS parked \
                   FROM public.payment_outbox_pending) p",
    )
    .fetch_one(transaction.connection())
    .await?)
}

/// What a worker process holds, whose number is part of its name; and whether these instructions are among it.
pub(super) async fn held_by(
    database: &Database,
    process: u32,
    instructions: &[&str],
) -> Result<Held, Failure> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(sqlx::query_as(
        "SELECT count(*) AS items, coalesce(bool_or(instruction_id = ANY ($2)), false) AS named \
           FROM public.payment_outbox_pending WHERE claimed_by LIKE '%:' || $1 || ':%'",
    )
    .bind(process.to_string())
    .bind(instructions)
    .fetch_one(transaction.connection())
    .await?)
}

/// Every payment, once all is over.
pub(super) async fn items(database: &Database, killed: u32) -> Result<Vec<Item>, Failure> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(sqlx::query_as(
        "SELECT i.outbox_id::text, public.payment_rail_key(i.outbox_id)::text AS key, i.instruction_id, i.participant_id, i.rail_type, i.sequence_id, \
                origin.sequence_id AS place, \
                (i.payload->'amount'->>'value') || ' ' || (i.payload->'amount'->>'currency') AS amount, \
                EXISTS (SELECT FROM public.payment_outbox_pending p WHERE p.outbox_id = i.outbox_id) AS pending, \
                a.* \
           FROM public.payment_outbox_instructions i \
           JOIN public.payment_outbox_instructions origin \
             ON origin.instruction_id = i.instruction_id AND origin.idempotency_key = i.idempotency_key \
            AND origin.redrive_no = 0 \
          CROSS JOIN LATERAL ( \
                SELECT count(*) FILTER (WHERE state = 'DISPATCHED') AS dispatched, \
                       count(*) FILTER (WHERE state = 'FAILED') AS failed, \
                       max(rail_reference) FILTER (WHERE state = 'DISPATCHED') AS reference, \
                       coalesce(bool_or(state = 'ZOMBIE_REQUEUE' AND worker_id LIKE '%:' || $1 || ':%'), false) AS requeued, \
                       min(completed_at) FILTER (WHERE outcome_unknown OR state = 'ZOMBIE_REQUEUE') AS doubted_at \
                  FROM public.payment_outbox_attempts WHERE outbox_id = i.outbox_id) a \
          ORDER BY i.participant_id, i.sequence_id",
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

pub(super) async fn app(database: &Database) -> Result<AppLedger, Failure> {
    let mut transaction = database.begin(Role::Auditor).await?;
    let entries =
        sqlx::query_as("SELECT key, value FROM public.kv_entries WHERE key LIKE 'order/%'")
            .fetch_all(transaction.connection())
            .await?;
    let (pending, runs, worker_lost) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM public.trigger_outbox_pending), count(*), \
                count(*) FILTER (WHERE error_code = 'WORKER_LOST') \
           FROM public.trigger_outbox_executions",
    )
    .fetch_one(transaction.connection())
    .await?;
    Ok(AppLedger { entries, pending, runs, worker_lost })
}

/// An order that went all the way from the request to its receipt; rather one that was interrupted on it.
pub(super) async fn whole_order(database: &Database) -> Result<Option<Uuid>, Failure> {
    let mut transaction = database.begin(Role::Auditor).await?;
    Ok(sqlx::query_scalar(
        "SELECT root_execution_id FROM public.trigger_outbox_executions GROUP BY root_execution_id \
         HAVING bool_and(state = 'DISPATCHED') AND count(DISTINCT source_kind) >= 3 \
          ORDER BY max(attempts) DESC, min(created_at) LIMIT 1",
    )
    .fetch_optional(transaction.connection())
    .await?)
}
