//! How much of each app is under way: one app's slow scripts must not fill the worker, so that nobody else's are claimed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::db::AppLimit;

/// Of each app, how many items wait for their turn or run.
#[derive(Debug, Clone)]
pub(super) struct Shares(Arc<State>);

#[derive(Debug)]
struct State {
    counts: Mutex<HashMap<Uuid, Count>>,
    items_max: i32,
    room: Notify,
}

#[derive(Debug, Default)]
struct Count {
    held: i32,
    /// A claim brought all it might, so there may be more.
    left_some: bool,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    app_id: Uuid,
}

impl Shares {
    /// Of each app at most this many.
    pub(super) fn new(items_max: usize) -> Self {
        let items_max = i32::try_from(items_max.max(1)).unwrap_or(i32::MAX);
        Self(Arc::new(State { counts: Mutex::default(), items_max, room: Notify::new() }))
    }

    /// What a claim may bring.
    pub(super) fn limit(&self) -> AppLimit {
        let (apps, held) =
            self.counts().iter().map(|(app_id, count)| (*app_id, count.held)).unzip();
        AppLimit { items_max: self.0.items_max, apps, held }
    }

    /// What a claim within that limit has brought, in the same order.
    pub(super) fn take(&self, limit: &AppLimit, apps: impl Iterator<Item = Uuid>) -> Vec<Share> {
        let mut with_claim: HashMap<Uuid, i32> =
            limit.apps.iter().copied().zip(limit.held.iter().copied()).collect();
        let mut counts = self.counts();
        let mut take = |app_id| {
            let with_claim: &mut i32 = with_claim.entry(app_id).or_default();
            *with_claim += 1;
            let count: &mut Count = counts.entry(app_id).or_default();
            count.held += 1;
            count.left_some |= *with_claim >= self.0.items_max;
            Share { shares: self.clone(), app_id }
        };
        let shares = apps.map(&mut take).collect();
        // Others may have ended while the claim was under way.
        for count in counts.values_mut() {
            self.nudge(count);
        }
        shares
    }

    /// An app had all it may have, and has room again: what it left behind can be claimed.
    pub(super) fn room(&self) -> &Notify {
        &self.0.room
    }

    /// Half of it, because a claim of one costs nearly what a claim of many does.
    fn nudge(&self, count: &mut Count) {
        if count.left_some && count.held <= self.0.items_max / 2 {
            count.left_some = false;
            self.0.room.notify_one();
        }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Uuid, Count>> {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut counts = self.shares.counts();
        if let Some(count) = counts.get_mut(&self.app_id) {
            count.held -= 1;
            self.shares.nudge(count);
            if count.held == 0 {
                counts.remove(&self.app_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const ONE: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn has_room(shares: &Shares) -> bool {
        shares.room().notified().now_or_never().is_some()
    }

    #[test]
    fn a_share_is_given_back_when_it_is_dropped() {
        let shares = Shares::new(4);
        let held = shares.take(&shares.limit(), [ONE, ONE, OTHER].into_iter());
        let limit = shares.limit();
        assert_eq!(limit.items_max, 4);
        let mut of_each: Vec<_> = limit.apps.into_iter().zip(limit.held).collect();
        of_each.sort_unstable();
        assert_eq!(of_each, [(ONE, 2), (OTHER, 1)]);
        drop(held);
        assert!(shares.limit().apps.is_empty());
        assert!(!has_room(&shares), "nobody had all they may have");
    }

    #[test]
    fn an_app_that_had_all_it_may_have_is_claimed_for_again_at_half() {
        let shares = Shares::new(4);
        let mut held = shares.take(&shares.limit(), [ONE; 4].into_iter());
        held.pop();
        assert!(!has_room(&shares));
        held.pop();
        assert!(has_room(&shares));
        held.pop();
        assert!(!has_room(&shares), "once is enough");
    }

    #[test]
    fn what_ended_while_a_claim_was_under_way_does_not_make_it_forget_what_it_left() {
        let shares = Shares::new(4);
        let before = shares.take(&shares.limit(), [ONE; 3].into_iter());
        let limit = shares.limit();
        drop(before);
        // The claim knew of three and brought the one that fitted.
        let _held = shares.take(&limit, [ONE].into_iter());
        assert!(has_room(&shares));
    }
}
