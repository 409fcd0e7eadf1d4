//! Requests that this process serves: where there is a slot they run at once, and are written when they have ended or take
//! longer (`unwritten.rs`). Those that are written first are already leased to this process, so that no claim has to find
//! them, and committed without waiting for the disk: the completion's commit covers theirs, and nobody is told anything
//! before it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::Utc;
use sqlx::types::Json;
use tokio::sync::OnceCell;
use uuid::Uuid;

use super::executor::{Departure, DepartureCheck, Execution};
use super::slots::{Slot, Slots};
use super::unwritten::{ROW_AFTER, Row, RunFirst, ServedRequest, Unwritten};
use super::{TriggerLane, Underway, failed, traced};
use crate::db::{ClaimedTrigger, DbError, Placed, TriggerLease, Worker, WrittenRequest};
use crate::domain::LeaseToken;
use crate::engine::{Handover, IntakeClosed, Unsent};
use crate::trace::Traces;
use crate::triggers::TriggerRequest;

/// Writes requests for the lane of this process.
#[derive(Debug)]
pub struct LeasedRequests {
    pub(super) worker: Worker,
    pub(super) worker_id: String,
    pub(super) slots: Slots,
    pub(super) lease: Duration,
    pub(super) handover: Handover<Underway>,
    pub(super) run_first: RunFirst,
    pub(super) traces: Traces,
}

/// A request that runs.
#[derive(Debug)]
pub struct Running {
    /// Its id, and its execution's.
    pub id: Uuid,
    /// What the database is still to be told.
    pub unwritten: Arc<Unwritten>,
}

/// A slot that waits for its request.
#[derive(Debug)]
pub struct ReservedSlot(Slot);

impl LeasedRequests {
    /// A slot for a request of this app, if it may have one now.
    pub fn reserve(&self, app_id: Uuid) -> Option<ReservedSlot> {
        self.slots.take_for_request(app_id).map(ReservedSlot)
    }

    /// Whether a request of this app may run before it is written.
    pub fn may_run_first(&self, app_id: Uuid) -> bool {
        self.run_first.is_allowed(app_id, Instant::now())
    }

    /// Run requests before they are written. Answers each one's id, in the order given; all of them come back if the
    /// engine takes nothing at present.
    pub fn run_first(
        &self,
        requests: Vec<(ServedRequest, ReservedSlot)>,
    ) -> Result<Vec<Running>, Vec<(ServedRequest, ReservedSlot)>> {
        let asked_at = self.traces.now();
        let Ok(permit) = self.handover.permit() else { return Err(requests) };
        let mut all = Vec::with_capacity(requests.len());
        let mut works = Vec::with_capacity(requests.len());
        for (request, ReservedSlot(slot)) in requests {
            let unwritten = Unwritten::new(&request);
            let item = running_item(request);
            let trace = traced::written(&self.traces, &item, asked_at);
            all.push(Running { id: item.id, unwritten: unwritten.clone() });
            works.push(Underway {
                unwritten: Some(unwritten),
                ..Underway::new(item, slot, false, trace)
            });
        }
        permit.hand_over(works);
        Ok(all)
    }

    /// Say of which apps requests wait for a slot.
    pub fn wait_for_slots(&self, apps: impl Iterator<Item = Uuid>) {
        self.slots.wait_for_slots(apps);
    }

    /// Ends when there may be slots again.
    pub async fn freed(&self) {
        self.slots.freed().await;
    }

    /// Write requests that somebody waits for; those with a slot are run here, and their slots are taken. Answers each one's
    /// id, in the order given, also if nobody knows whether they are written: those that run here find that out when they
    /// end, and the others at their deadline.
    pub async fn write(
        &self,
        requests: &[TriggerRequest<'_>],
        slots: &mut [Option<ReservedSlot>],
    ) -> Result<Placed<Uuid>, DbError> {
        let asked_at = self.traces.now();
        // An engine that stops, or cannot write outcomes, gets nothing: whoever claims will run them.
        let permit = self.handover.permit();
        let leased: Vec<bool> = slots.iter().map(|slot| slot.is_some() && permit.is_ok()).collect();
        let lease_seconds = i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX);
        let Placed { answers, is_confirmed } = self
            .worker
            .enqueue_leased_triggers(&self.worker_id, lease_seconds, &leased, requests, None)
            .await?;
        let each = answers.iter().zip(requests).zip(slots.iter_mut());
        let works: Vec<Underway> = each
            .filter_map(|((written, request), slot)| {
                let item = leased_item(written.as_ref().ok()?, request)?;
                let trace = traced::written(&self.traces, &item, asked_at);
                Some(Underway::new(item, slot.take()?.0, false, trace))
            })
            .collect();
        match permit {
            Ok(permit) if !works.is_empty() => permit.hand_over(works),
            Ok(_) | Err(IntakeClosed) => {}
        }
        let answers = answers.into_iter().map(|written| written.map(|written| written.id));
        Ok(Placed { answers: answers.collect(), is_confirmed })
    }
}

fn leased_item(written: &WrittenRequest, request: &TriggerRequest<'_>) -> Option<ClaimedTrigger> {
    Some(ClaimedTrigger {
        id: written.id,
        lease_token: written.lease_token?,
        app_id: written.app_id,
        source_kind: request.source.as_str().to_owned(),
        trigger_id: Some(request.trigger_id),
        script_id: Some(written.script_id?),
        reply_to: request.reply.map(|(name, _)| name),
        payload: Json(request.payload.to_owned()),
        origin_principal: request.origin_principal,
        principal: written.principal,
        trigger_depth: 0,
        root_execution_id: written.id,
        attempt_count: 0,
        next_attempt_at: written.created_at?,
        created_at: written.created_at?,
        traceparent: request.traceparent.map(str::to_owned),
        parent_execution_id: None,
    })
}

/// As a claim would have brought it. The times are this process's own, for traces only: the database has its own.
fn running_item(request: ServedRequest) -> ClaimedTrigger {
    let (id, now) = (Uuid::now_v7(), Utc::now());
    ClaimedTrigger {
        id,
        lease_token: LeaseToken(Uuid::new_v4()),
        app_id: request.app_id,
        source_kind: "http".to_owned(),
        trigger_id: Some(request.route_id),
        script_id: Some(request.script_id),
        reply_to: Some(request.reply_to),
        payload: Json(request.payload),
        origin_principal: request.origin_principal,
        principal: request.principal,
        trigger_depth: 0,
        root_execution_id: id,
        attempt_count: 0,
        next_attempt_at: now,
        created_at: now,
        traceparent: request.traceparent,
        parent_execution_id: None,
    }
}

/// A request's row may not be on disk yet, or not written at all. Renewing its lease is a durable commit after its own, and is refused if a crash
/// of the server took the row.
pub(super) struct DurableRow {
    pub(super) worker: Worker,
    pub(super) worker_id: String,
    pub(super) item: Arc<ClaimedTrigger>,
    pub(super) unwritten: Option<Arc<Unwritten>>,
    pub(super) lease_seconds: i32,
    pub(super) found: OnceCell<bool>,
}

#[async_trait]
impl DepartureCheck for DurableRow {
    async fn may_leave(&self) -> Result<(), String> {
        let renew = async || {
            if let Some(unwritten) = &self.unwritten {
                let (worker, item) = (&self.worker, &self.item);
                let seconds = Some(self.lease_seconds);
                if unwritten.write_row(worker, &self.worker_id, item, seconds).await != Row::Leased
                {
                    return Ok(false);
                }
            }
            let lease: TriggerLease = self.item.lease();
            let renewed = self.worker.renew(&self.worker_id, &[lease], self.lease_seconds).await?;
            Ok::<bool, DbError>(renewed == [true])
        };
        match self.found.get_or_try_init(renew).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err("REQUEST_LOST: the database lost this request, or gave it up".to_owned())
            }
            Err(error) => {
                Err(format!("{}: the database did not confirm this request", error.code()))
            }
        }
    }
}

impl TriggerLane {
    /// What a run must wait for before anything of it leaves.
    pub(super) fn departure(&self, underway: &Underway) -> Departure {
        if underway.is_durable {
            return Departure::default();
        }
        Departure::new(DurableRow {
            worker: self.worker.clone(),
            worker_id: self.worker_id.clone(),
            item: underway.item.clone(),
            unwritten: underway.unwritten.clone(),
            lease_seconds: self.lease_seconds(),
            found: tokio::sync::OnceCell::new(),
        })
    }

    fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease.as_secs()).unwrap_or(i32::MAX)
    }

    /// Let a run end. One that runs before it is written gets its row if it takes long.
    pub(super) async fn ended_run(
        &self,
        underway: &Underway,
        run: impl Future<Output = Execution>,
    ) -> Result<Execution, Unsent> {
        let Some(unwritten) = &underway.unwritten else { return Ok(run.await) };
        let mut run = std::pin::pin!(run);
        let execution = tokio::select! {
            biased;
            execution = &mut run => execution,
            () = tokio::time::sleep(ROW_AFTER) => {
                let (worker, id, seconds) = (&self.worker, &self.worker_id, self.lease_seconds());
                let write = unwritten.write_row(worker, id, &underway.item, Some(seconds));
                // Whatever became of its row, it does not end before that.
                let (execution, _) = tokio::join!(run, write);
                execution
            }
        };
        match unwritten.row() {
            None | Some(Row::Leased) => Ok(execution),
            // Whoever claims it runs it.
            Some(Row::Pending) => Err(Unsent::LeaseLost),
            Some(Row::NoRoute) => {
                self.fail_reply(&underway.item, "NO_ROUTE");
                Err(Unsent::LeaseLost)
            }
            // It was not written: whoever waits is told when the completion finds that.
            Some(Row::NotWritten) => Ok(failed(
                "REQUEST_LOST",
                "the database did not confirm the request: nothing of it was applied",
                false,
            )),
        }
    }

    /// What did not begin here is left to whoever claims it.
    pub(super) async fn leave_to_others(&self, underway: &Underway) {
        if let Some(unwritten) = &underway.unwritten {
            self.write_for_others(unwritten, &underway.item).await;
        }
    }

    pub(super) async fn write_for_others(&self, unwritten: &Unwritten, item: &ClaimedTrigger) {
        match unwritten.write_row(&self.worker, &self.worker_id, item, None).await {
            Row::Pending | Row::Leased => {}
            Row::NoRoute => self.fail_reply(item, "NO_ROUTE"),
            Row::NotWritten => self.fail_reply(item, "REQUEST_LOST"),
        }
    }

    pub(super) fn fail_reply(&self, item: &ClaimedTrigger, code: &str) {
        if let Some(name) = item.reply_to {
            self.replies.failed(name, item.id, code);
        }
    }
}
