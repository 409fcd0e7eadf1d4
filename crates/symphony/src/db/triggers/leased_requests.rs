//! Requests that a worker serves itself: written when they have ended, or already leased to it, without waiting for the disk.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use uuid::Uuid;

use super::producer::{TriggerRequest, traceparents};
use super::worker::{CompletionRow, json, recorded};
use crate::db::leases::{each, each_or_none};
use crate::db::producer::{Enqueue, answers};
use crate::db::{
    ClaimedTrigger, DbError, Placed, TriggerLease, TriggerOutcome, TriggerRecorded, Worker, calls,
};
use crate::domain::LeaseToken;

/// A request that has run before it was written.
#[derive(Debug)]
pub struct EndedRequest<'a> {
    /// The item, under the id and lease it has run with.
    pub item: &'a ClaimedTrigger,
    /// How it ended.
    pub outcome: &'a TriggerOutcome,
    /// How long whoever waits for it still does; 0 if they have gone.
    pub wait_ms: i32,
    /// How long ago it came.
    pub waited_ms: i32,
}

/// A request as it was written.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct WrittenRequest {
    /// The item, and its execution.
    pub id: Uuid,
    /// Its app.
    pub app_id: Uuid,
    /// Its script; `None` if it has ended already.
    pub script_id: Option<Uuid>,
    /// As whom it runs.
    pub principal: Option<Uuid>,
    /// Its lease; `None` if it waits for whoever claims it.
    pub lease_token: Option<LeaseToken>,
    /// When it was written.
    pub created_at: Option<DateTime<Utc>>,
}

impl Enqueue for WrittenRequest {}

impl Worker {
    /// Write requests that somebody waits for, each leased to this worker if `leased` says so and nothing is paused; those
    /// that run already `under` the ids and tokens they run with. One answer each, in the order given, also if their COMMIT
    /// was not confirmed: what was written without waiting for the disk may be gone anyway, and its leases tell.
    pub async fn enqueue_leased_triggers(
        &self,
        worker_id: &str,
        lease_seconds: i32,
        leased: &[bool],
        requests: &[TriggerRequest<'_>],
        under: Option<&[TriggerLease]>,
    ) -> Result<Placed<WrittenRequest>, DbError> {
        let query = sqlx::query(calls::ENQUEUE_LEASED_TRIGGERS.sql)
            .bind(worker_id)
            .bind(lease_seconds)
            .bind(leased)
            .bind(requests.iter().map(|r| r.app).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| r.trigger_id).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| Json(r.payload)).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| r.origin_principal).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| r.reply.map(|(name, _)| name)).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| r.reply.map(|(_, wait_ms)| wait_ms)).collect::<Vec<_>>())
            .bind(traceparents(requests))
            .bind(under.map(|leases| each(leases, |lease| lease.id)))
            .bind(under.map(|leases| each(leases, |lease| lease.lease_token)));
        let (rows, is_confirmed) =
            self.call_unconfirmed(async |session| query.fetch_all(session).await).await?;
        Ok(Placed { answers: answers(&rows, requests.len())?, is_confirmed })
    }

    /// Write down requests that have run already, in one transaction, with their effects. Otherwise as
    /// [`complete_triggers`](Self::complete_triggers).
    pub async fn complete_trigger_requests(
        &self,
        worker_id: &str,
        ended: &[EndedRequest<'_>],
        lock_wait: Duration,
    ) -> Result<Vec<TriggerRecorded>, DbError> {
        let query = sqlx::query_as(calls::COMPLETE_TRIGGER_REQUESTS.sql)
            .bind(worker_id)
            .bind(each(ended, |e| e.item.id))
            .bind(each(ended, |e| e.item.lease_token))
            .bind(each(ended, |e| e.item.app_id))
            .bind(each(ended, |e| e.item.trigger_id))
            .bind(each(ended, |e| e.item.script_id))
            .bind(each(ended, |e| Json(&*e.item.payload.0)))
            .bind(each_or_none(ended, |e| e.item.origin_principal))
            .bind(each(ended, |e| e.item.reply_to))
            .bind(each(ended, |e| e.wait_ms))
            .bind(each(ended, |e| e.waited_ms))
            .bind(each_or_none(ended, |e| e.item.traceparent.as_deref()))
            .bind(each(ended, |e| e.outcome.state.name()))
            .bind(each(ended, |e| json(e.outcome.result.as_deref())))
            .bind(each_or_none(ended, |e| json(e.outcome.logs.as_deref())))
            .bind(each_or_none(ended, |e| json(e.outcome.effects.as_deref())))
            .bind(each_or_none(ended, |e| e.outcome.error_code.as_deref()))
            .bind(each_or_none(ended, |e| e.outcome.error_message.as_deref()))
            .bind(each(ended, |e| e.outcome.latency_ms.unwrap_or(0)))
            .bind(each(ended, |e| e.outcome.reply_here))
            .bind(each_or_none(ended, |e| json(e.outcome.reads.as_deref())))
            .bind(i32::try_from(lock_wait.as_millis()).unwrap_or(i32::MAX));
        let rows: Vec<CompletionRow> =
            self.call_alone(async |session| query.fetch_all(session).await).await?;
        rows.into_iter().map(recorded).collect()
    }
}
