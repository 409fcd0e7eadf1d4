//! Claims for one group and starts dispatches: no more than there is room for, no more than the group can take.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{Notify, mpsc, watch};

use super::clock::Moment;
use super::gate::{Allowance, Destination};
use super::holds::Hold;
use super::pacer::{ClaimFound, Look, Pacer, worth_claiming};
use super::{
    Ask, Claimed, DestinationKind, Dispatched, Group, Interruption, Lane, LaneMetrics, Point,
    RefusedSince, Shared, Stage, Unsent, jitter,
};
use crate::db::DbError;

/// Items per task: with a task for each, waking them would cost more than a quick call.
const ITEMS_PER_TASK: usize = 8;
/// How often to look for room again while there is none, should nobody say that there is.
const LOOK_FOR_ROOM: Duration = Duration::from_millis(100);

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

    pub(super) fn free(&self) -> usize {
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

    /// Take them whatever there is: they are leased already.
    pub(super) fn take_all(&self, items: usize) {
        self.held.fetch_add(items, Ordering::AcqRel);
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
    pub(super) is_hint_leader: AtomicBool,
    /// Somebody committed work.
    pub(super) hint: Notify,
    /// A completion brought a successor forward.
    pub(super) successor: Notify,
    /// Something was let go.
    freed: Notify,
    pub(super) held: AtomicUsize,
    /// What bounds its calls.
    pub(super) destination: Arc<Destination>,
    /// What its items go to: when one of these is well again, more may be due.
    watched: Vec<Arc<Destination>>,
}

impl GroupState {
    pub(super) fn new(
        settings: Group,
        destination: Arc<Destination>,
        watched: Vec<Arc<Destination>>,
    ) -> Self {
        Self {
            is_hint_leader: AtomicBool::new(false),
            hint: Notify::new(),
            successor: Notify::new(),
            freed: Notify::new(),
            held: AtomicUsize::new(0),
            destination,
            watched,
            settings,
        }
    }

    fn claimed(&self, items: usize) {
        if items == 0 {
            self.destination.probe_unused();
        }
        if let Some(pace) = self.destination.pace() {
            pace.claimed(items);
        }
    }

    /// Something was let go, or has had its turn.
    async fn freed(&self) {
        match self.destination.pace() {
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

impl GroupState {
    /// A breaker has opened or closed.
    async fn changed(&self) {
        if self.watched.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.watched.iter().map(|watched| Box::pin(watched.changed()))).await;
    }
}

/// Each group with the destination that gates it; what is served is where metrics and reports find it.
pub(super) fn with_destinations<L: Lane>(
    lane: &L,
    groups: Vec<Group>,
    metrics: &LaneMetrics,
) -> Vec<GroupState> {
    let served = lane.destinations();
    let gated = groups.into_iter().map(|group| {
        if let Some(gate) = lane.gate(&group.name) {
            return GroupState::new(group, gate.clone(), vec![gate]);
        }
        let kind = DestinationKind::Executor;
        let own = Arc::new(Destination::new(kind, &group.name, group.limits));
        GroupState::new(group, own, served.clone())
    });
    let gated: Vec<_> = gated.collect();
    let reported = if served.is_empty() {
        gated.iter().map(|group| group.destination.clone()).collect()
    } else {
        served
    };
    // Metrics that serve a second engine keep the first one's.
    drop(metrics.destinations.set(reported));
    gated
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

/// The same for whoever does not keep the engine from ending.
pub(super) struct WeakOutlet<L: Lane> {
    pub(super) done: mpsc::WeakUnboundedSender<(usize, L::Done)>,
    pub(super) unsent: mpsc::WeakUnboundedSender<(usize, L::Lease)>,
}

impl<L: Lane> WeakOutlet<L> {
    pub(super) fn upgrade(&self) -> Option<Outlet<L>> {
        Some(Outlet { done: self.done.upgrade()?, unsent: self.unsent.upgrade()? })
    }
}

impl<L: Lane> Clone for WeakOutlet<L> {
    fn clone(&self) -> Self {
        Self { done: self.done.clone(), unsent: self.unsent.clone() }
    }
}

/// Carry out once more what is held already; `false` if the engine ends and nothing more is carried out.
pub(super) fn carry_again<L: Lane>(
    shared: &Arc<Shared<L>>,
    index: usize,
    work: L::Work,
    outlet: &WeakOutlet<L>,
) -> bool {
    let Some(outlet) = outlet.upgrade() else { return false };
    let Some(hold) = shared.holds.get(&L::lease(&work)) else { return false };
    tokio::spawn(carry_all(shared.clone(), index, vec![(work, hold)], outlet));
    true
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
    let mut decided = shared.database.signals().decided.subscribe();
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
    group.destination.close();
}

async fn wait_for_a_reason<L: Lane>(
    shared: &Shared<L>,
    group: &GroupState,
    pacer: &mut Pacer,
    decided: &mut watch::Receiver<u64>,
) {
    // A timer takes up to a millisecond even if its time has come, too long between two full batches. So it is not asked then.
    while Instant::now() < pacer.wakes_at() {
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(pacer.wakes_at().into()) => return,
            () = group.successor.notified() => pacer.successor(Instant::now()),
            // Claims were refused until somebody decided that this server goes on.
            Ok(()) = decided.changed() => pacer.successor(Instant::now()),
            () = notified(shared.lane.slots_freed()) => pacer.successor(Instant::now()),
            () = group.changed() => pacer.successor(Instant::now()),
            () = group.hint.notified() => {
                let before = pacer.wakes_at();
                pacer.hint(Instant::now(), group.is_hint_leader.load(Ordering::Acquire), jitter());
                if pacer.wakes_at() < before {
                    shared.metrics.notify_wakeups.add(1);
                }
            }
        }
    }
}

async fn notified(signal: Option<&Notify>) {
    match signal {
        Some(signal) => signal.notified().await,
        None => std::future::pending().await,
    }
}

/// Back-pressure: wait until there is room for a worthwhile claim and the destination can take it.
async fn wait_for_room<L: Lane>(shared: &Shared<L>, group: &GroupState) -> usize {
    loop {
        let held = group.held.load(Ordering::Acquire);
        let mut capacity = group.settings.held_items_max().min(shared.settings.held_items_max);
        let mut room = group.settings.held_items_max().saturating_sub(held).min(shared.room.free());
        room = room.min(shared.lane.slots_free());
        if let Some(pace) = group.destination.pace() {
            capacity = capacity.min(pace.ahead_max());
            room = room.min(pace.room());
        }
        // Nothing is sent while outcomes cannot be written. The writer releases items once they can, which wakes this loop.
        let writable = !shared.unwritten.load(Ordering::Acquire);
        if writable && worth_claiming(held, group.destination.concurrency_max(), room, capacity) {
            // Asked last: the answer may take the breaker's only probe.
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
                        // The probe was answered: do not wait for the rest of the pause.
                        () = group.changed() => {}
                    }
                    continue;
                }
            }
        }
        tokio::select! {
            () = group.freed() => {}
            () = notified(shared.lane.slots_freed()) => {}
            // A slot may come free long after its item was let go, without a word.
            () = tokio::time::sleep(LOOK_FOR_ROOM) => {}
        }
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
    let Claimed { works, through, more_soon, ended } = match claimed {
        Ok(claimed) => claimed,
        Err(error) => {
            shared.metrics.database_errors.add(1);
            // The witness logs another server, and less often.
            if !matches!(error, DbError::OtherServer { .. }) {
                tracing::warn!(lane = shared.lane.name(), group = group.settings.name, code = error.code(), %error, "nothing could be claimed");
            }
            pacer.failed(Instant::now(), jitter());
            group.claimed(0);
            release(shared, index, items_max);
            return Err(error);
        }
    };
    shared.metrics.count_ended(ended);
    if ended.ended > 0 {
        tracing::warn!(
            lane = shared.lane.name(),
            worker_id = shared.lane.worker_id(),
            expired_leases_detected = ended.ended,
            "lost workers' leases were taken over"
        );
    }
    let got = works.len();
    pacer.claimed(
        Instant::now(),
        ClaimFound { asked: items_max, got, through, more_soon, look },
        jitter(),
    );
    group.claimed(got);
    release(shared, index, items_max.saturating_sub(got));
    if works.is_empty() {
        shared.metrics.empty_claims.add(1);
        return Ok(());
    }
    begin(shared, index, group, asked_at, works, outlet);
    Ok(())
}

/// Hold what was leased, asked for at that moment, and carry it out.
pub(super) fn begin<L: Lane>(
    shared: &Arc<Shared<L>>,
    index: usize,
    group: &GroupState,
    asked_at: Moment,
    works: Vec<L::Work>,
    outlet: &Outlet<L>,
) {
    shared.metrics.claimed_items.add(works.iter().map(L::items).sum());
    let holds = shared.holds.add(asked_at, works.iter().map(L::lease), group.destination.pace());
    shared.points.reach(Point::AfterClaim);
    let mut items = works.into_iter().zip(holds).peekable();
    while items.peek().is_some() {
        let some: Vec<_> = items.by_ref().take(ITEMS_PER_TASK).collect();
        tokio::spawn(carry_all(shared.clone(), index, some, outlet.clone()));
    }
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
            let (lease, trace_id) = (L::lease(&work), L::trace_id(&work));
            let carried = AssertUnwindSafe(carry(shared, index, work, hold, outlet)).catch_unwind();
            if !carried.await.unwrap_or(false) {
                // Nobody will complete it: drop it, so that its lease expires instead of being renewed for ever.
                tracing::error!(
                    lane = shared.lane.name(),
                    trace_id = trace_id.map(tracing::field::display),
                    "an outcome got lost: its item comes back when its lease expires, and its destination is asked first"
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
    wait_for_turn(shared, index, &work).await;
    // Closed when the engine stops.
    let dispatched = match group.destination.slot().await {
        Err(_) => {
            shared.lane.not_begun(&work).await;
            Dispatched::Unsent(Unsent::Stopping)
        }
        Ok(permit) => {
            let started = Instant::now();
            let mut stage = shared.stage.clone();
            let mut dispatch =
                pin!(AssertUnwindSafe(shared.lane.dispatch(&work, &hold)).catch_unwind());
            let mut permit = Some(permit);
            let dispatched = loop {
                tokio::select! {
                    biased;
                    dispatched = &mut dispatch => break dispatched.unwrap_or_else(|_| {
                        tracing::error!(lane = shared.lane.name(), group = group.settings.name,
                            trace_id = L::trace_id(&work).map(tracing::field::display), "a dispatch panicked");
                        interrupted(shared, &work, &hold, Interruption::Panicked)
                    }),
                    _ = stage.wait_for(|stage| *stage >= Stage::Stopping) => {
                        break interrupted(shared, &work, &hold, Interruption::Shutdown);
                    }
                    // It is held on, but no longer takes another's place.
                    () = hold.stalled(), if permit.is_some() => {
                        drop(permit.take());
                        release(shared, index, 1);
                    }
                }
            };
            if permit.is_none() {
                take_back(shared, index);
            }
            shared.metrics.dispatch_latency.observe(started.elapsed());
            dispatched
        }
    };
    // The receivers end only with the engine. Then the lease expires, and the item is due again.
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
                    trace_id = L::trace_id(&work).map(tracing::field::display),
                    "an item waited too long to be sent safely and is given back"
                );
            }
            outlet.unsent.send((index, L::lease(&work))).is_ok()
        }
    }
}

/// What has to wait for its turn is held on, but takes nobody's place.
async fn wait_for_turn<L: Lane>(shared: &Shared<L>, index: usize, work: &L::Work) {
    let mut turn = pin!(shared.lane.turn(work));
    if turn.as_mut().now_or_never().is_none() {
        release(shared, index, 1);
        turn.await;
        take_back(shared, index);
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

/// Count one again that was [let go](release) while it was held on, whatever room there is.
pub(super) fn take_back<L: Lane>(shared: &Shared<L>, index: usize) {
    shared.room.take_all(1);
    if let Some(group) = shared.groups.get(index) {
        group.held.fetch_add(1, Ordering::AcqRel);
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
