//! Claims for one group and starts dispatches: no more than there is room for, no more than the group can take.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use super::gate::{Allowance, Destination, Pace};
use super::holds::Hold;
use super::pacer::{Catch, Look, Pacer, worth_claiming};
use super::{
    Ask, Claimed, Dispatched, Group, Interruption, Lane, Point, RefusedSince, Shared, Stage,
    Unsent, jitter,
};
use crate::db::DbError;

/// A task each would cost more in wake-ups than a quick rail does in work.
const ITEMS_PER_TASK: usize = 8;

/// How many items the process may hold, and how many it does.
#[derive(Debug)]
pub(super) struct Room {
    held: AtomicUsize,
    max: usize,
}

impl Room {
    pub(super) fn new(max: usize) -> Self {
        Self { held: AtomicUsize::new(0), max }
    }

    fn free(&self) -> usize {
        self.max.saturating_sub(self.held.load(Ordering::Acquire))
    }

    /// Take up to `wanted`; answers how many were taken.
    fn take(&self, wanted: usize) -> usize {
        let before = self.held.fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
            Some(held + wanted.min(self.max.saturating_sub(held)))
        });
        let held = before.unwrap_or_else(|unchanged| unchanged);
        wanted.min(self.max.saturating_sub(held))
    }

    fn give(&self, items: usize) {
        self.held.fetch_sub(items, Ordering::AcqRel);
    }
}

/// One group as the tasks share it.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) settings: Group,
    /// This worker follows hints at once.
    pub(super) doorman: AtomicBool,
    /// Somebody committed work.
    pub(super) hint: Notify,
    /// A completion brought a successor forward.
    pub(super) successor: Notify,
    /// Something was let go.
    freed: Notify,
    held: AtomicUsize,
    calls: Semaphore,
    /// `None`: no rate limit.
    pace: Option<Arc<Pace>>,
    pub(super) destination: Arc<Destination>,
}

impl GroupState {
    pub(super) fn new(settings: Group, destination: Arc<Destination>) -> Self {
        Self {
            doorman: AtomicBool::new(false),
            hint: Notify::new(),
            successor: Notify::new(),
            freed: Notify::new(),
            held: AtomicUsize::new(0),
            calls: Semaphore::new(settings.concurrency_max),
            pace: settings.rate.map(|rate| Arc::new(Pace::new(rate))),
            destination,
            settings,
        }
    }

    fn claimed(&self, items: usize) {
        if items == 0 {
            self.destination.probe_unused();
        }
        if let Some(pace) = &self.pace {
            pace.claimed(items);
        }
    }

    /// Something was let go, or has had its turn.
    async fn freed(&self) {
        match &self.pace {
            None => self.freed.notified().await,
            Some(pace) => {
                tokio::select! {
                    () = self.freed.notified() => {}
                    () = pace.left() => {}
                }
            }
        }
    }
}

/// Where outcomes go, with the group they belong to.
pub(super) struct Outlet<L: Lane> {
    pub(super) done: mpsc::UnboundedSender<(usize, L::Done)>,
    pub(super) unsent: mpsc::UnboundedSender<(usize, L::Lease)>,
}

impl<L: Lane> Clone for Outlet<L> {
    fn clone(&self) -> Self {
        Self { done: self.done.clone(), unsent: self.unsent.clone() }
    }
}

/// Claim for one group until the engine stops; whoever waits for that sees `_pulling` dropped.
pub(super) async fn pull<L: Lane>(
    shared: Arc<Shared<L>>,
    index: usize,
    outlet: Outlet<L>,
    _pulling: watch::Receiver<()>,
) {
    let Some(group) = shared.groups.get(index) else { return };
    let mut stage = shared.stage.clone();
    let mut pacer = Pacer::new(Instant::now(), shared.settings.poll);
    let mut decided = shared.database.news().decided.subscribe();
    let mut refused = RefusedSince::default();
    loop {
        // Only the waiting is interrupted: a claim that was begun is finished, so that no lease is left behind.
        let items_max = tokio::select! {
            biased;
            _ = stage.wait_for(|stage| *stage > Stage::Running) => break,
            items_max = async {
                wait_for_a_reason(&shared, group, &mut pacer, &mut decided).await;
                wait_for_room(&shared, group).await
            } => items_max,
        };
        match claim(&shared, index, group, items_max, &mut pacer, &outlet).await {
            Ok(()) => refused.ended(),
            Err(error) => {
                let since = refused.failed(&error, Instant::now());
                if since.is_some_and(|since| shared.end_if_refused_for_long("claim", since, &error))
                {
                    break;
                }
            }
        }
    }
    shared.holds.stop_sending();
    group.calls.close();
}

async fn wait_for_a_reason<L: Lane>(
    shared: &Shared<L>,
    group: &GroupState,
    pacer: &mut Pacer,
    decided: &mut watch::Receiver<u64>,
) {
    // A timer whose time has come still takes a millisecond to say so: too long between two full batches.
    while Instant::now() < pacer.wakes_at() {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(pacer.wakes_at().into()) => return,
            () = group.successor.notified() => pacer.successor(Instant::now()),
            // Claims were refused until somebody decided that this server goes on.
            Ok(()) = decided.changed() => pacer.successor(Instant::now()),
            () = nudged(shared.lane.nudge()) => pacer.successor(Instant::now()),
            () = group.destination.changed() => pacer.successor(Instant::now()),
            () = group.hint.notified() => {
                let before = pacer.wakes_at();
                pacer.hint(Instant::now(), group.doorman.load(Ordering::Acquire), jitter());
                if pacer.wakes_at() < before {
                    shared.metrics.notify_wakeups.add(1);
                }
            }
        }
    }
}

async fn nudged(nudge: Option<&Notify>) {
    match nudge {
        Some(nudge) => nudge.notified().await,
        None => std::future::pending().await,
    }
}

/// Back-pressure: wait until there is room for a worthwhile claim and the destination can take it.
async fn wait_for_room<L: Lane>(shared: &Shared<L>, group: &GroupState) -> usize {
    loop {
        let held = group.held.load(Ordering::Acquire);
        let mut capacity = group.settings.held_items_max().min(shared.settings.held_items_max);
        let mut room = group.settings.held_items_max().saturating_sub(held).min(shared.room.free());
        if let Some(pace) = &group.pace {
            capacity = capacity.min(pace.ahead_max());
            room = room.min(pace.room());
        }
        // What cannot be written down must not be sent: whoever writes says so, and lets go of items once it can.
        let writable = !shared.unwritten.load(Ordering::Acquire);
        if writable && worth_claiming(held, group.settings.concurrency_max, room, capacity) {
            // Asked last, because it gives its probe away with the answer.
            let allowance = group.destination.allowance();
            match allowance {
                Allowance::Free | Allowance::Probe => {
                    let items = usize::try_from(allowance.items_max()).unwrap_or(usize::MAX);
                    // Half of what may be held: one half is written down while the other is claimed.
                    let wanted = room
                        .min(capacity.div_ceil(2))
                        .min(shared.settings.batch_items_max)
                        .min(items);
                    let taken = shared.room.take(wanted);
                    if taken > 0 {
                        group.held.fetch_add(taken, Ordering::AcqRel);
                        return taken;
                    }
                }
                Allowance::Nothing { until } => {
                    tokio::select! {
                        () = tokio::time::sleep_until(until.into()) => {}
                        // The probe was answered: what waits shall not wait for the rest of its time.
                        () = group.destination.changed() => {}
                    }
                    continue;
                }
            }
        }
        group.freed().await;
    }
}

async fn claim<L: Lane>(
    shared: &Arc<Shared<L>>,
    index: usize,
    group: &GroupState,
    items_max: usize,
    pacer: &mut Pacer,
    outlet: &Outlet<L>,
) -> Result<(), DbError> {
    let asked_at = shared.clock.now();
    let look = pacer.look(Instant::now());
    let request = Ask {
        group: &group.settings.name,
        items_max,
        lease: shared.settings.lease,
        due_from: match look {
            Look::Full => None,
            Look::From(due) => Some(due),
        },
    };
    let claimed = shared.lane.claim(&request).await;
    shared.metrics.claim_batches.add(1);
    let Claimed { works, through } = match claimed {
        Ok(claimed) => claimed,
        Err(error) => {
            shared.metrics.database_errors.add(1);
            // Of another server the witness says all there is to say, and not several times a second.
            if !matches!(error, DbError::OtherServer { .. }) {
                tracing::warn!(lane = shared.lane.name(), group = group.settings.name, code = error.code(), %error, "nothing could be claimed");
            }
            pacer.failed(Instant::now(), jitter());
            group.claimed(0);
            release(shared, index, items_max);
            return Err(error);
        }
    };
    let got = works.len();
    pacer.claimed(Instant::now(), Catch { asked: items_max, got, through, look }, jitter());
    group.claimed(got);
    release(shared, index, items_max.saturating_sub(got));
    if works.is_empty() {
        shared.metrics.empty_claims.add(1);
        return Ok(());
    }
    shared.metrics.claimed_items.add(works.iter().map(L::items).sum());
    let holds = shared.holds.add(asked_at, works.iter().map(L::lease), group.pace.as_ref());
    shared.points.reach(Point::AfterClaim);
    let mut items = works.into_iter().zip(holds).peekable();
    while items.peek().is_some() {
        let some: Vec<_> = items.by_ref().take(ITEMS_PER_TASK).collect();
        tokio::spawn(carry_all(shared.clone(), index, some, outlet.clone()));
    }
    Ok(())
}

/// Carry some items out, all at the same time.
async fn carry_all<L: Lane>(
    shared: Arc<Shared<L>>,
    index: usize,
    items: Vec<(L::Work, Arc<Hold>)>,
    outlet: Outlet<L>,
) {
    let (shared, outlet) = (&shared, &outlet);
    let mut carried: FuturesUnordered<_> = items
        .into_iter()
        .map(|(work, hold)| async move {
            let lease = L::lease(&work);
            let carried = AssertUnwindSafe(carry(shared, index, work, hold, outlet)).catch_unwind();
            if !carried.await.unwrap_or(false) {
                // Nobody will complete it: let its lease run out instead of renewing it for ever.
                tracing::error!(
                    lane = shared.lane.name(),
                    "an outcome got lost: its item comes back when its lease expires, and its rail is asked first"
                );
                shared.holds.remove([lease].iter());
                release(shared, index, 1);
            }
        })
        .collect();
    while carried.next().await.is_some() {}
}

/// Carry one item out, from its turn to its outcome. Answers whether there is somebody to write that down.
async fn carry<L: Lane>(
    shared: &Shared<L>,
    index: usize,
    work: L::Work,
    hold: Arc<Hold>,
    outlet: &Outlet<L>,
) -> bool {
    let Some(group) = shared.groups.get(index) else { return false };
    // Closed when the engine stops.
    let dispatched = match group.calls.acquire().await {
        Err(_) => Dispatched::Unsent(Unsent::Stopping),
        Ok(_permit) => {
            let started = Instant::now();
            let mut stage = shared.stage.clone();
            let dispatch = AssertUnwindSafe(shared.lane.dispatch(&work, &hold)).catch_unwind();
            let dispatched = tokio::select! {
                biased;
                dispatched = dispatch => dispatched.unwrap_or_else(|_| {
                    tracing::error!(lane = shared.lane.name(), group = group.settings.name, "a dispatch panicked");
                    interrupted(shared, &work, &hold, Interruption::Panicked)
                }),
                _ = stage.wait_for(|stage| *stage >= Stage::Stopping) => {
                    interrupted(shared, &work, &hold, Interruption::Shutdown)
                }
            };
            shared.metrics.dispatch_latency.observe(started.elapsed());
            dispatched
        }
    };
    // The receivers end only when the engine does; then the lease takes care of the item.
    match dispatched {
        Dispatched::Done { done, trouble } => {
            group.destination.report(trouble);
            outlet.done.send((index, done)).is_ok()
        }
        Dispatched::Unsent(reason) => {
            if reason == Unsent::LeaseTooShort {
                tracing::warn!(
                    lane = shared.lane.name(),
                    group = group.settings.name,
                    "an item waited too long to be sent safely and is given back"
                );
            }
            outlet.unsent.send((index, L::lease(&work))).is_ok()
        }
    }
}

fn interrupted<L: Lane>(
    shared: &Shared<L>,
    work: &L::Work,
    hold: &Hold,
    why: Interruption,
) -> Dispatched<L::Done> {
    if hold.was_sent() || why == Interruption::Panicked {
        Dispatched::Done { done: shared.lane.interrupted(work, why), trouble: true }
    } else {
        Dispatched::Unsent(Unsent::Stopping)
    }
}

/// Let go of items of a group, and tell whoever waits for room.
pub(super) fn release<L: Lane>(shared: &Shared<L>, index: usize, items: usize) {
    if items == 0 {
        return;
    }
    shared.room.give(items);
    if let Some(group) = shared.groups.get(index) {
        group.held.fetch_sub(items, Ordering::AcqRel);
    }
    for group in &shared.groups {
        group.freed.notify_one();
    }
}
