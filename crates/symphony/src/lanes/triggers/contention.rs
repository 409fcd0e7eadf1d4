//! What is done one after another within an app: runs that are run again because what they had read has changed, and
//! outcomes whose effects are held up by somebody's lock.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedMutexGuard, Semaphore, SemaphorePermit};
use uuid::Uuid;

use super::slots::Slot;

/// Apps whose turns are kept before those that nobody waits for are forgotten.
const APPS_KEPT_MAX: usize = 1_000;
/// Outcomes that wait for locks at the same time: each has a connection meanwhile.
const HELD_UP_AT_ONCE_MAX: usize = 4;

/// The right to go on, one of an app at a time.
pub(super) type Turn = OwnedMutexGuard<()>;

/// Who of an app goes on, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Turns {
    apps: Mutex<HashMap<Uuid, Weak<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// Wait for a turn.
    pub(super) async fn take(&self, app_id: Uuid) -> Turn {
        self.of(app_id).lock_owned().await
    }

    fn of(&self, app_id: Uuid) -> Arc<tokio::sync::Mutex<()>> {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = apps.get(&app_id).and_then(Weak::upgrade) {
            return turns;
        }
        if apps.len() >= APPS_KEPT_MAX {
            apps.retain(|_, turns| turns.strong_count() > 0);
        }
        let turns = Arc::default();
        apps.insert(app_id, Arc::downgrade(&turns));
        turns
    }
}

/// Outcomes that wait for a lock, by their apps. What else of such an app has effects goes the same way at once, so that
/// no other app's outcome waits behind the same lock. Each has a slot of its app meanwhile, and nobody else's, so that the
/// app begins no more than it may have and other apps do not notice.
#[derive(Debug)]
pub(super) struct HeldUp {
    turns: Turns,
    at_once: Semaphore,
    outcomes: Mutex<HashMap<Uuid, Vec<Slot>>>,
}

impl Default for HeldUp {
    fn default() -> Self {
        Self {
            turns: Turns::default(),
            at_once: Semaphore::new(HELD_UP_AT_ONCE_MAX),
            outcomes: Mutex::default(),
        }
    }
}

impl HeldUp {
    /// The apps with such an outcome.
    pub(super) fn apps(&self) -> HashSet<Uuid> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    pub(super) fn add(&self, app_id: Uuid, slot: Slot) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.entry(app_id).or_default().push(slot);
    }

    /// One of them has been written.
    pub(super) fn remove(&self, app_id: Uuid) {
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slots) = outcomes.get_mut(&app_id) {
            slots.pop();
            if slots.is_empty() {
                outcomes.remove(&app_id);
            }
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.values().map(Vec::len).sum()
    }

    /// Wait until one may try: one of an app at a time, and few in all.
    pub(super) async fn turn(&self, app_id: Uuid) -> (Turn, Option<SemaphorePermit<'_>>) {
        let turn = self.turns.take(app_id).await;
        // It is never closed.
        (turn, self.at_once.acquire().await.ok())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::super::slots::{Bounds, Slots};
    use super::*;

    const ONE: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    #[tokio::test]
    async fn of_an_app_one_has_its_turn_and_apps_do_not_wait_for_each_other() {
        let turns = Turns::default();
        let first = turns.take(ONE).await;
        assert!(turns.take(ONE).now_or_never().is_none());
        assert!(turns.take(OTHER).now_or_never().is_some());
        drop(first);
        assert!(turns.take(ONE).now_or_never().is_some());
    }

    #[test]
    fn an_app_is_held_up_until_all_its_outcomes_are_written() {
        let held_up = HeldUp::default();
        let slots = Slots::new(Bounds { runs: 8, runs_per_app: 4, scripts: 8, scripts_per_app: 2 });
        held_up.add(ONE, slots.retake(ONE));
        held_up.add(ONE, slots.retake(ONE));
        assert_eq!(held_up.count(), 2);
        assert!(slots.take_for_request(ONE).is_none(), "its app begins nothing more");
        assert_eq!(slots.free(), 8, "other apps do not notice");
        held_up.remove(ONE);
        assert_eq!(held_up.apps(), HashSet::from([ONE]));
        assert!(slots.take_for_request(ONE).is_some());
        held_up.remove(ONE);
        held_up.remove(OTHER);
        assert!(held_up.apps().is_empty());
    }
}
