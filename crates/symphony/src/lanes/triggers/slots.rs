//! What can run now, in all and of each app. A claim leases nothing beyond it: what cannot run here stays where another
//! worker finds it, and no run waits on its script's time. And one app's slow scripts do not fill the worker.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::db::AppLimit;

/// How many runs there may be at once, at most. Scripts in this process are runs too, and have bounds of their own: each has a
/// thread and memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) runs: usize,
    pub(super) runs_per_app: usize,
    pub(super) scripts: usize,
    pub(super) scripts_per_app: usize,
}

/// The slots of one worker.
#[derive(Debug, Clone)]
pub(super) struct Slots(Arc<State>);

#[derive(Debug)]
struct State {
    bounds: Bounds,
    taken: Mutex<Taken>,
    /// For claims.
    room: Notify,
    /// For requests that wait for a slot.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    all: Count,
    /// A claim took every slot, so there may be more.
    left_some: bool,
    /// Apps of which the last claim left items behind.
    items_wait: HashSet<Uuid>,
    /// Apps of which requests wait for a slot here.
    requests_wait: HashSet<Uuid>,
    /// A claim is under way: until it has ended, what is free is its own.
    claiming: bool,
    apps: HashMap<Uuid, OfApp>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    runs: usize,
    scripts: usize,
}

#[derive(Debug, Default)]
struct OfApp {
    count: Count,
    /// Those of its runs that no claim brought.
    requests: usize,
    /// A claim brought all this app might have, so there may be more.
    left_some: bool,
}

/// One run's slot, until it is dropped. What an item is, is known only once its script is read: until then its slot is a
/// script's.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    app_id: Uuid,
    is_script: bool,
    is_request: bool,
    /// It has its place in all, not only in its app.
    has_place: bool,
}

/// A claim under way: what it may bring. Dropped when it has ended, whatever it brought.
#[derive(Debug)]
pub(super) struct Claim {
    slots: Slots,
    pub(super) limit: AppLimit,
}

impl Slots {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(State {
            bounds,
            taken: Mutex::default(),
            room: Notify::new(),
            freed: Notify::new(),
        }))
    }

    /// How many more runs can begin, whatever they are.
    pub(super) fn free(&self) -> usize {
        self.free_of(&self.taken())
    }

    fn free_of(&self, taken: &Taken) -> usize {
        let Bounds { runs, scripts, .. } = self.0.bounds;
        rest(taken.all, runs, scripts)
    }

    /// Of each app at most this many, whatever they are.
    fn per_app_max(&self) -> usize {
        self.0.bounds.runs_per_app.min(self.0.bounds.scripts_per_app).max(1)
    }

    /// What an app may still have.
    fn free_of_app(&self, count: Count) -> usize {
        let Bounds { runs_per_app, scripts_per_app, .. } = self.0.bounds;
        rest(count, runs_per_app.max(1), scripts_per_app.max(1)).min(self.per_app_max())
    }

    /// Begin a claim.
    pub(super) fn claim(&self) -> Claim {
        let whole = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let most = self.per_app_max();
        let held = |of: &OfApp| whole(most - self.free_of_app(of.count));
        let mut taken = self.taken();
        taken.claiming = true;
        let (apps, held) = taken.apps.iter().map(|(app_id, of)| (*app_id, held(of))).unzip();
        drop(taken);
        Claim { slots: self.clone(), limit: AppLimit { items_max: whole(most), apps, held } }
    }

    /// A slot for a request that is written already leased, if its app may have one now. Where a claim has left some of the
    /// app's items behind, requests have at most half of its slots: the other half is for those.
    pub(super) fn take_for_request(&self, app_id: Uuid) -> Option<Slot> {
        let mut taken = self.taken();
        if taken.claiming || self.free_of(&taken) == 0 {
            return None;
        }
        let of = taken.apps.entry(app_id).or_default();
        let requests_max = if of.left_some { self.per_app_max().div_ceil(2) } else { usize::MAX };
        if self.free_of_app(of.count) == 0 || of.requests >= requests_max {
            return None;
        }
        of.count.take();
        of.requests += 1;
        taken.all.take();
        let slots = self.clone();
        Some(Slot { slots, app_id, is_script: true, is_request: true, has_place: true })
    }

    /// A slot for a run that has ended and is held on: to be run again, or until its outcome is written. It is not given back
    /// because there is none now. Until it [begins](Slot::begin) it counts in its app only: it runs nowhere, and other apps
    /// go on.
    pub(super) fn retake(&self, app_id: Uuid) -> Slot {
        self.taken().apps.entry(app_id).or_default().count.take();
        let slots = self.clone();
        Slot { slots, app_id, is_script: true, is_request: false, has_place: false }
    }

    /// Requests of these apps wait for a slot.
    pub(super) fn wait_for_slots(&self, apps: impl Iterator<Item = Uuid>) {
        let mut taken = self.taken();
        taken.requests_wait.clear();
        taken.requests_wait.extend(apps);
    }

    /// Whether more of this app waits than can begin. What waits of others says nothing about its own.
    pub(super) fn are_waited_for(&self, app_id: Uuid) -> bool {
        let taken = self.taken();
        taken.items_wait.contains(&app_id) || taken.requests_wait.contains(&app_id)
    }

    /// Ends when a slot was given back, or a claim has ended.
    pub(super) async fn freed(&self) {
        self.0.freed.notified().await;
    }

    /// There are slots again for items that a claim left behind.
    pub(super) fn room(&self) -> &Notify {
        &self.0.room
    }

    /// An app is claimed for again when it has half of its slots back, because a claim of one costs nearly what a claim of
    /// many does.
    fn tell(&self, taken: &mut Taken) {
        let mut room = taken.left_some && self.free_of(taken) > 0;
        taken.left_some &= !room;
        for of in taken.apps.values_mut() {
            if of.left_some && self.free_of_app(of.count) >= self.per_app_max().div_ceil(2) {
                of.left_some = false;
                room = true;
            }
        }
        if room {
            self.0.room.notify_one();
        }
    }

    fn give(&self, app_id: Uuid, count: Count, requests: usize, has_place: bool) {
        let mut taken = self.taken();
        if has_place {
            taken.all.give(count);
        }
        let what = |of: &mut OfApp| {
            of.count.give(count);
            of.requests -= requests;
        };
        if let Some(of) = taken.apps.get_mut(&app_id) {
            what(of);
        }
        self.tell(&mut taken);
        taken.apps.retain(|_, of| of.count.runs > 0);
        drop(taken);
        self.0.freed.notify_one();
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Count {
    fn take(&mut self) {
        self.runs += 1;
        self.scripts += 1;
    }

    fn give(&mut self, count: Self) {
        self.runs -= count.runs;
        self.scripts -= count.scripts;
    }
}

impl Claim {
    /// What it has brought, in the same order.
    pub(super) fn take(&self, apps: impl Iterator<Item = Uuid>) -> Vec<Slot> {
        let (slots, limit) = (&self.slots, &self.limit);
        let mut with_claim: HashMap<Uuid, i32> =
            limit.apps.iter().copied().zip(limit.held.iter().copied()).collect();
        let mut taken = slots.taken();
        let mut take = |app_id| {
            let with_claim: &mut i32 = with_claim.entry(app_id).or_default();
            *with_claim += 1;
            let of = taken.apps.entry(app_id).or_default();
            of.count.take();
            of.left_some |= *with_claim >= limit.items_max;
            taken.all.take();
            let slots = slots.clone();
            Slot { slots, app_id, is_script: true, is_request: false, has_place: true }
        };
        let brought = apps.map(&mut take).collect();
        taken.left_some |= slots.free_of(&taken) == 0;
        let left = taken.apps.iter().filter(|(_, of)| of.left_some);
        taken.items_wait = left.map(|(app_id, _)| *app_id).collect();
        // Others may have ended while the claim was under way.
        slots.tell(&mut taken);
        brought
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.slots.taken().claiming = false;
        self.slots.0.freed.notify_one();
    }
}

/// Every new run may turn out to be a script.
fn rest(count: Count, runs_max: usize, scripts_max: usize) -> usize {
    runs_max.saturating_sub(count.runs).min(scripts_max.saturating_sub(count.scripts))
}

impl Slot {
    /// Its run begins, whether there is a place for it or not.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_place, true) {
            self.slots.taken().all.take();
        }
    }

    /// It runs elsewhere: it needs no thread here.
    pub(super) fn runs_elsewhere(&mut self) {
        if std::mem::take(&mut self.is_script) {
            self.slots.give(self.app_id, Count { runs: 0, scripts: 1 }, 0, self.has_place);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let count = Count { runs: 1, scripts: usize::from(self.is_script) };
        self.slots.give(self.app_id, count, usize::from(self.is_request), self.has_place);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const ONE: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn slots() -> Slots {
        Slots::new(Bounds { runs: 20, runs_per_app: 10, scripts: 8, scripts_per_app: 4 })
    }

    fn has_room(slots: &Slots) -> bool {
        slots.room().notified().now_or_never().is_some()
    }

    fn take(slots: &Slots, app_id: Uuid, items: usize) -> Vec<Slot> {
        slots.claim().take(std::iter::repeat_n(app_id, items))
    }

    #[test]
    fn a_slot_is_given_back_when_it_is_dropped() {
        let slots = slots();
        let held = slots.claim().take([ONE, ONE, OTHER].into_iter());
        assert_eq!(slots.free(), 5);
        let limit = slots.claim().limit.clone();
        assert_eq!(limit.items_max, 4);
        let mut of_each: Vec<_> = limit.apps.into_iter().zip(limit.held).collect();
        of_each.sort_unstable();
        assert_eq!(of_each, [(ONE, 2), (OTHER, 1)]);
        drop(held);
        assert!(slots.claim().limit.apps.is_empty());
        assert_eq!(slots.free(), 8);
        assert!(!has_room(&slots), "nobody had all they may have");
    }

    #[test]
    fn what_waits_of_one_app_is_nothing_to_another() {
        let slots = slots();
        slots.wait_for_slots([ONE].into_iter());
        assert!(slots.are_waited_for(ONE) && !slots.are_waited_for(OTHER));
        slots.wait_for_slots([].into_iter());
        assert!(!slots.are_waited_for(ONE));
        let held = take(&slots, OTHER, 4);
        assert!(slots.are_waited_for(OTHER), "a claim brought all it may have");
        drop(held);
        drop(take(&slots, OTHER, 1));
        assert!(!slots.are_waited_for(OTHER), "a claim has found the rest");
    }

    #[test]
    fn an_app_that_had_all_it_may_have_is_claimed_for_again_at_half() {
        let slots = slots();
        let mut held = take(&slots, ONE, 4);
        held.pop();
        assert!(!has_room(&slots));
        held.pop();
        assert!(has_room(&slots));
        held.pop();
        assert!(!has_room(&slots), "once is enough");
    }

    #[test]
    fn what_ended_while_a_claim_was_under_way_does_not_make_it_forget_what_it_left() {
        let slots = slots();
        let before = take(&slots, ONE, 3);
        let claim = slots.claim();
        drop(before);
        // The claim knew of three and brought the one that fitted.
        let _held = claim.take([ONE].into_iter());
        assert!(has_room(&slots));
    }

    #[test]
    fn a_worker_whose_slots_were_all_taken_claims_again_with_the_first_that_is_free() {
        let slots = slots();
        let mut held = take(&slots, ONE, 4);
        held.extend(take(&slots, OTHER, 4));
        assert_eq!(slots.free(), 0);
        assert!(!has_room(&slots));
        held.pop();
        assert!(has_room(&slots));
        assert_eq!(slots.free(), 1);
    }

    #[test]
    fn what_runs_elsewhere_takes_no_scripts_slot() {
        let slots = slots();
        let mut held = take(&slots, ONE, 4);
        held.iter_mut().for_each(Slot::runs_elsewhere);
        assert!(has_room(&slots), "the app may have four scripts again");
        assert_eq!(slots.free(), 8);
        let limit = slots.claim().limit.clone();
        assert_eq!((limit.items_max, limit.held), (4, vec![0]));
        held.extend(take(&slots, ONE, 4));
        held.iter_mut().for_each(Slot::runs_elsewhere);
        // Two more runs of this app, of whatever kind.
        assert_eq!(slots.claim().limit.held, [2]);
        drop(held);
        assert_eq!(slots.free(), 8);
    }

    #[test]
    fn what_is_held_on_counts_in_its_app_and_in_all_only_while_it_runs() {
        let slots = slots();
        let mut held: Vec<Slot> = (0..60).map(|_| slots.retake(ONE)).collect();
        assert!(slots.take_for_request(ONE).is_none(), "its app begins nothing more");
        assert_eq!(slots.free(), 8);
        held.iter_mut().take(2).for_each(|slot| {
            slot.begin();
            slot.begin();
        });
        assert_eq!(slots.free(), 6);
        held.iter_mut().for_each(Slot::runs_elsewhere);
        assert_eq!(slots.free(), 8);
        drop(held);
        assert_eq!(slots.taken().all.runs, 0);
        assert!(slots.take_for_request(ONE).is_some());
    }

    #[test]
    fn a_request_takes_a_slot_only_where_its_app_and_the_worker_have_one() {
        let slots = slots();
        let mut held: Vec<Slot> =
            std::iter::from_fn(|| slots.take_for_request(ONE)).take(100).collect();
        assert_eq!(held.len(), 4, "what one app may have");
        held.extend(std::iter::from_fn(|| slots.take_for_request(OTHER)).take(100));
        assert_eq!(held.len(), 8, "what the worker has");
        assert!(slots.take_for_request(Uuid::from_u128(3)).is_none());
        held.pop();
        assert!(slots.take_for_request(ONE).is_none(), "it still has its four");
        assert!(slots.take_for_request(OTHER).is_some());
    }

    #[test]
    fn while_a_claim_is_under_way_no_request_takes_what_it_may_bring() {
        let slots = slots();
        let claim = slots.claim();
        assert!(slots.take_for_request(ONE).is_none());
        let _brought = claim.take([ONE, ONE].into_iter());
        drop(claim);
        assert!(slots.freed().now_or_never().is_some(), "whoever waits looks again");
        assert!(slots.take_for_request(ONE).is_some());
    }

    #[test]
    fn requests_leave_half_of_an_apps_slots_to_what_a_claim_left_behind() {
        let slots = slots();
        // It brought all it might: there may be more.
        let mut brought = take(&slots, ONE, 4);
        brought.truncate(3);
        let mut requests: Vec<Slot> = slots.take_for_request(ONE).into_iter().collect();
        brought.truncate(2);
        requests.extend(slots.take_for_request(ONE));
        assert_eq!(requests.len(), 2);
        assert!(!has_room(&slots), "the app's slots are full");
        brought.truncate(1);
        assert!(slots.take_for_request(ONE).is_none(), "the rest is for the claim");
    }
}
