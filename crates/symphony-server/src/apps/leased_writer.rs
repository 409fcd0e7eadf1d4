//! Runs the requests that somebody waits for where there is a slot in this process: no claim has to find them, and they are
//! written when they have ended or take longer. Where an app has just changed, they are written first, already leased to
//! this process; that commit does not wait for the disk, because the completion's does.
//!
//! A request without a slot waits here as long as slots of its app come free. If none does for a while, it is written for
//! whoever claims it: another process may have room.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony::db::{DbError, Placed};
use symphony::lanes::triggers::{LeasedRequests, ReservedSlot, Running};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::request_writer::{Accepted, Queued, RouteRequest, fail_all, join_batch};
use crate::bounds::{LEASED_REQUEST_STALL_MAX, LEASED_REQUEST_WAIT_MAX, REQUESTS_PER_COMMIT_MAX};

type Batch<S> = Vec<(Queued, Option<S>)>;

/// The requests of one app that have no slot yet, the first to come first.
struct OfApp {
    requests: VecDeque<Queued>,
    /// When one of them last got a slot, or the first came.
    moved_at: Instant,
}

/// Requests that have no slot yet.
#[derive(Default)]
struct Waiting {
    apps: HashMap<Uuid, OfApp>,
    /// The apps, in the order of their turns.
    turns: VecDeque<Uuid>,
}

impl Waiting {
    fn push(&mut self, queued: Queued, now: Instant) {
        let app_id = queued.0.app_id;
        let of = self.apps.entry(app_id).or_insert_with(|| {
            self.turns.push_back(app_id);
            OfApp { requests: VecDeque::new(), moved_at: now }
        });
        of.requests.push_back(queued);
    }

    /// What is to be written now: one of each app in turn as long as there are slots, and without a slot what has waited
    /// long enough.
    fn pick<S>(&mut self, now: Instant, reserve: impl Fn(Uuid) -> Option<S>) -> Batch<S> {
        let mut batch = Batch::new();
        let mut without_slot = 0;
        while batch.len() < REQUESTS_PER_COMMIT_MAX
            && without_slot < self.turns.len()
            && let Some(app_id) = self.turns.pop_front()
        {
            let Some(of) = self.apps.get_mut(&app_id) else { continue };
            // A client that closed its connection gets no row.
            while of.requests.front().is_some_and(|(_, answer)| answer.is_closed()) {
                of.requests.pop_front();
            }
            let slot = if of.requests.is_empty() { None } else { reserve(app_id) };
            if slot.is_some() {
                of.moved_at = now;
                batch.extend(of.requests.pop_front().map(|queued| (queued, slot)));
                without_slot = 0;
            } else {
                without_slot += 1;
                while batch.len() < REQUESTS_PER_COMMIT_MAX && of.is_stalled(now) {
                    batch.extend(of.requests.pop_front().map(|queued| (queued, None)));
                }
            }
            if of.requests.is_empty() {
                self.apps.remove(&app_id);
                without_slot = without_slot.saturating_sub(1);
            } else {
                self.turns.push_back(app_id);
            }
        }
        batch
    }

    /// When the first of them has waited long enough.
    fn write_by(&self) -> Option<Instant> {
        self.apps.values().filter_map(OfApp::write_by).min()
    }
}

impl OfApp {
    fn write_by(&self) -> Option<Instant> {
        let (first, _) = self.requests.front()?;
        let stalled = self.moved_at.max(first.since) + LEASED_REQUEST_STALL_MAX;
        Some(stalled.min(first.since + LEASED_REQUEST_WAIT_MAX))
    }

    fn is_stalled(&self, now: Instant) -> bool {
        self.write_by().is_some_and(|ends| ends <= now)
    }
}

/// Write until the server stops. `durable` writes what this writer may not.
pub(super) async fn write_batches(
    leased: LeasedRequests,
    mut queue: mpsc::UnboundedReceiver<Queued>,
    durable: mpsc::UnboundedSender<Queued>,
) {
    let mut waiting = Waiting::default();
    let mut come = Vec::with_capacity(REQUESTS_PER_COMMIT_MAX);
    loop {
        let write_by = waiting.write_by();
        tokio::select! {
            received = queue.recv_many(&mut come, REQUESTS_PER_COMMIT_MAX) => {
                if received == 0 {
                    return;
                }
                join_batch(&mut queue, &mut come).await;
            }
            () = leased.freed(), if write_by.is_some() => {}
            () = sleep_until(write_by), if write_by.is_some() => {}
        }
        let now = Instant::now();
        for queued in come.drain(..) {
            waiting.push(queued, now);
        }
        let batch = waiting.pick(now, |app_id| leased.reserve(app_id));
        leased.wait_for_slots(waiting.apps.keys().copied());
        let batch = run_first(&leased, batch);
        if !batch.is_empty() {
            write(&leased, batch, &durable).await;
        }
    }
}

/// Run what can run before it is written; answers the rest.
fn run_first(leased: &LeasedRequests, batch: Batch<ReservedSlot>) -> Batch<ReservedSlot> {
    let mut rest = Batch::new();
    let (mut requests, mut clients) = (Vec::new(), Vec::new());
    for ((request, answer), slot) in batch {
        match (request.script_id, request.reply, slot) {
            (Some(script_id), Some(reply), Some(slot)) if leased.may_run_first(request.app_id) => {
                requests.push((request.served(script_id, reply), slot));
                clients.push(answer);
            }
            (_, _, slot) => rest.push(((request, answer), slot)),
        }
    }
    if requests.is_empty() {
        return rest;
    }
    match leased.run_first(requests) {
        Ok(running) => {
            for (answer, Running { id, unwritten }) in clients.into_iter().zip(running) {
                let unwritten = Some(unwritten);
                drop(answer.send(Ok(Accepted { id, unwritten, is_unconfirmed: false })));
            }
        }
        // The engine stops, or cannot write outcomes: they are written for whoever claims them.
        Err(requests) => {
            for ((request, _slot), answer) in requests.into_iter().zip(clients) {
                rest.push(((RouteRequest::from(request), answer), None));
            }
        }
    }
    rest
}

async fn sleep_until(moment: Option<Instant>) {
    let now = Instant::now();
    let pause = moment.map_or(Duration::MAX, |moment| moment.saturating_duration_since(now));
    tokio::time::sleep(pause).await;
}

async fn write(
    leased: &LeasedRequests,
    batch: Batch<ReservedSlot>,
    durable: &mpsc::UnboundedSender<Queued>,
) {
    let (batch, mut slots): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    let requests: Vec<_> = batch.iter().map(|(request, _)| request.trigger()).collect();
    match leased.write(&requests, &mut slots).await {
        Ok(Placed { answers, is_confirmed }) => {
            for ((_, answer), written) in batch.into_iter().zip(answers) {
                let accepted = written.map(|id| Accepted::written(id, is_confirmed));
                drop(answer.send(accepted.map_err(Arc::new)));
            }
        }
        // Nothing is leased here: they are written as everybody's requests are.
        Err(DbError::OtherServer { .. } | DbError::MissingPrivilege { .. }) => {
            for queued in batch {
                // Closed only if the server stops, and then nobody is answered.
                drop(durable.send(queued));
            }
        }
        // As in the durable writer: one of them is refused, and fails alone.
        Err(error) if batch.len() > 1 && !error.is_transient() => {
            // Apps that somebody has locked are waited for once.
            let mut locked: HashMap<Uuid, Arc<DbError>> = HashMap::new();
            for ((request, answer), mut slot) in batch.into_iter().zip(slots) {
                if let Some(error) = locked.get(&request.app_id) {
                    drop(answer.send(Err(error.clone())));
                    continue;
                }
                let written = leased
                    .write(&[request.trigger()], std::slice::from_mut(&mut slot))
                    .await
                    .and_then(|mut placed| {
                        let id = placed.answers.pop().unwrap_or(Err(DbError::NotCommitted))?;
                        Ok(Accepted::written(id, placed.is_confirmed))
                    })
                    .map_err(Arc::new);
                if let Err(error) = &written
                    && error.is_lock_timeout()
                {
                    locked.insert(request.app_id, error.clone());
                }
                drop(answer.send(written));
            }
        }
        // Nothing was written.
        Err(error) => fail_all(batch.into_iter(), error),
    }
}
