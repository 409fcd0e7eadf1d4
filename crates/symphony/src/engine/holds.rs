//! The leases this worker holds, by its own clock. They are renewed while there is work on them.
//!
//! The database decides who holds what. A worker may only assume that its lease lasts until the moment before
//! it asked for it plus the lease's length, on its own clock ([`Clock`]): that is never later than the truth.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::clock::{Clock, Moment};
use super::gate::{Pace, Rate};
use super::{LaneMetrics, Point, Points};

/// One held item, shared between its dispatch, the renewal and the shutdown.
#[derive(Debug)]
pub struct Hold {
    clock: Clock,
    epoch: Moment,
    until_micros: AtomicU64,
    sent: AtomicBool,
    lost: AtomicBool,
    margin: Duration,
    stopping: Arc<AtomicBool>,
    points: Points,
    /// Where its calls wait for the destination's rate.
    pace: Option<Arc<Pace>>,
    /// It has not had its first turn yet.
    ahead: AtomicBool,
    /// It only waits for answers: another may begin.
    stalled: Notify,
}

/// Why an item was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsent {
    /// The lease passed to another.
    LeaseLost,
    /// The lease would not outlive the call.
    LeaseTooShort,
    /// The worker is stopping.
    Stopping,
    /// The database or the rail could not say what is needed to decide.
    Undecided,
}

impl Hold {
    /// Say that the first byte is about to leave; refused unless the lease surely outlives the call.
    pub fn begin_sending(&self, call_limit: Duration) -> Result<(), Unsent> {
        may_send(
            self.lost.load(Ordering::Acquire),
            self.stopping.load(Ordering::Acquire),
            self.remaining(self.clock.now()),
            call_limit + self.margin,
        )?;
        self.sent.store(true, Ordering::Release);
        Ok(())
    }

    /// Wait for a turn at the destination: before every call, inquiries included. `permits` asks the database for some,
    /// where the rate is the whole fleet's: how long to wait for each.
    pub async fn turn<E>(
        &self,
        permits: impl AsyncFnOnce(Rate, u32) -> Result<Vec<Duration>, E>,
    ) -> Result<(), E> {
        if let Some(pace) = &self.pace {
            pace.turn(permits).await?;
            self.leave_the_queue();
        }
        Ok(())
    }

    /// Nothing is left to send, and the answers take long: let another item begin in its place.
    pub fn stalls(&self) {
        self.stalled.notify_one();
    }

    /// Resolves once it stalls.
    pub(crate) async fn stalled(&self) {
        self.stalled.notified().await;
    }

    fn leave_the_queue(&self) {
        if let Some(pace) = &self.pace
            && self.ahead.swap(false, Ordering::AcqRel)
        {
            pace.leave();
        }
    }

    /// Now, by the clock leases are counted on.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Whether the first byte may have left.
    pub fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    /// Pass a named point, where tests may kill the process.
    pub fn at(&self, point: Point) {
        self.points.reach(point);
    }

    fn remaining(&self, now: Moment) -> Duration {
        let until = Duration::from_micros(self.until_micros.load(Ordering::Acquire));
        until.saturating_sub(now.since(self.epoch))
    }

    fn extend(&self, until: Moment) {
        let micros = until.since(self.epoch).as_micros();
        self.until_micros.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Release);
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.leave_the_queue();
    }
}

/// May an item be sent now?
fn may_send(
    lost: bool,
    stopping: bool,
    remaining: Duration,
    needed: Duration,
) -> Result<(), Unsent> {
    if lost {
        Err(Unsent::LeaseLost)
    } else if stopping {
        Err(Unsent::Stopping)
    } else if remaining < needed {
        Err(Unsent::LeaseTooShort)
    } else {
        Ok(())
    }
}

/// A lease is renewed once this much of it is gone.
pub(crate) fn renew_after(lease: Duration) -> Duration {
    lease / 3
}

/// Is it time to renew?
fn needs_renewal(lost: bool, remaining: Duration, lease: Duration) -> bool {
    !lost && remaining <= lease.saturating_sub(renew_after(lease))
}

/// Everything this worker holds.
#[derive(Debug)]
pub(crate) struct Holds<K> {
    clock: Clock,
    epoch: Moment,
    lease: Duration,
    margin: Duration,
    held: Mutex<HashMap<K, Arc<Hold>>>,
    stopping: Arc<AtomicBool>,
    points: Points,
    metrics: Arc<LaneMetrics>,
}

impl<K: Copy + Eq + Hash> Holds<K> {
    pub(crate) fn new(
        clock: Clock,
        lease: Duration,
        margin: Duration,
        points: Points,
        metrics: Arc<LaneMetrics>,
    ) -> Self {
        Self {
            epoch: clock.now(),
            clock,
            lease,
            margin,
            held: Mutex::default(),
            stopping: Arc::default(),
            points,
            metrics,
        }
    }

    /// Leases asked for at `asked_at` were granted.
    pub(crate) fn add(
        &self,
        asked_at: Moment,
        leases: impl Iterator<Item = K>,
        pace: Option<&Arc<Pace>>,
    ) -> Vec<Arc<Hold>> {
        let mut all = self.lock();
        let holds = leases
            .map(|lease| {
                let hold = Arc::new(Hold {
                    clock: self.clock.clone(),
                    epoch: self.epoch,
                    until_micros: AtomicU64::new(0),
                    sent: AtomicBool::new(false),
                    lost: AtomicBool::new(false),
                    margin: self.margin,
                    stopping: self.stopping.clone(),
                    points: self.points.clone(),
                    pace: pace.cloned(),
                    ahead: AtomicBool::new(true),
                    stalled: Notify::new(),
                });
                hold.extend(asked_at.after(self.lease));
                all.insert(lease, hold.clone());
                hold
            })
            .collect();
        self.count(&all);
        holds
    }

    /// One that is held.
    pub(crate) fn get(&self, lease: &K) -> Option<Arc<Hold>> {
        self.lock().get(lease).cloned()
    }

    pub(crate) fn remove<'a>(&self, leases: impl Iterator<Item = &'a K>)
    where
        K: 'a,
    {
        let mut all = self.lock();
        for lease in leases {
            all.remove(lease);
        }
        self.count(&all);
    }

    // Set under the lock: a stop waits for this figure to be 0, so an older one must not overwrite it.
    fn count(&self, all: &HashMap<K, Arc<Hold>>) {
        self.metrics.held_items.set(all.len() as u64);
    }

    /// The leases that should be renewed now.
    pub(crate) fn due_for_renewal(&self, now: Moment) -> Vec<K> {
        self.lock()
            .iter()
            .filter(|(_, hold)| {
                needs_renewal(hold.lost.load(Ordering::Acquire), hold.remaining(now), self.lease)
            })
            .map(|(lease, _)| *lease)
            .collect()
    }

    /// Renewals asked for at `asked_at` were answered. Returns how many leases were lost.
    pub(crate) fn renewed(&self, asked_at: Moment, answers: &[(K, bool)]) -> usize {
        let all = self.lock();
        let mut lost = 0;
        for (lease, renewed) in answers {
            match all.get(lease) {
                Some(hold) if *renewed => hold.extend(asked_at.after(self.lease)),
                Some(hold) => {
                    hold.lost.store(true, Ordering::Release);
                    lost += 1;
                }
                // Completed meanwhile.
                None => {}
            }
        }
        lost
    }

    /// From now on nothing more is sent.
    pub(crate) fn stop_sending(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// What [`stop_sending`](Self::stop_sending) sets.
    pub(crate) fn stopping(&self) -> Arc<AtomicBool> {
        self.stopping.clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    // A panic while the lock was held cannot leave the map half changed.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Arc<Hold>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nothing_is_sent_that_its_lease_might_not_outlive() {
        //  lost, stopping, remaining, needed | answer
        for (lost, stopping, remaining, needed, answer) in [
            (false, false, 60, 35, Ok(())),
            (false, false, 35, 35, Ok(())),
            (false, false, 34, 35, Err(Unsent::LeaseTooShort)),
            (false, false, 0, 0, Ok(())),
            (true, false, 60, 35, Err(Unsent::LeaseLost)),
            (false, true, 60, 35, Err(Unsent::Stopping)),
            (true, true, 0, 35, Err(Unsent::LeaseLost)),
        ] {
            assert_eq!(
                may_send(lost, stopping, remaining * SECOND, needed * SECOND),
                answer,
                "lost {lost}, stopping {stopping}, {remaining} s left, {needed} s needed"
            );
        }
    }

    #[test]
    fn a_lease_is_renewed_when_a_third_is_gone_and_never_once_lost() {
        //  lost, remaining of 60 | renew
        for (lost, remaining, renew) in [
            (false, 60, false),
            (false, 41, false),
            (false, 40, true),
            (false, 0, true),
            (true, 10, false),
        ] {
            assert_eq!(needs_renewal(lost, remaining * SECOND, 60 * SECOND), renew, "{remaining}");
        }
    }

    fn holds_on(clock: &Clock) -> Holds<u32> {
        Holds::new(clock.clone(), 60 * SECOND, 5 * SECOND, Points::default(), Arc::default())
    }

    #[test]
    fn a_host_that_was_suspended_past_its_lease_sends_nothing_and_renews_first() {
        let clock = Clock::default();
        let holds = holds_on(&clock);
        let hold = holds.add(clock.now(), [1].into_iter(), None).remove(0);
        clock.suspend(40 * SECOND);
        assert_eq!(holds.due_for_renewal(clock.now()), vec![1]);
        hold.begin_sending(10 * SECOND).unwrap();
        clock.suspend(20 * SECOND);
        assert_eq!(hold.begin_sending(Duration::ZERO), Err(Unsent::LeaseTooShort));
    }

    #[test]
    fn a_lease_counts_from_before_it_was_asked_for() {
        let holds: Holds<u32> = holds_on(&Clock::default());
        let asked_at = holds.epoch;
        let hold = holds.add(asked_at, [1].into_iter(), None).remove(0);
        let at = |seconds: u32| asked_at.after(seconds * SECOND);
        assert_eq!(hold.remaining(at(20)), 40 * SECOND);
        assert_eq!(hold.remaining(at(61)), Duration::ZERO);
        assert_eq!(holds.due_for_renewal(at(19)), Vec::<u32>::new());
        assert_eq!(holds.due_for_renewal(at(20)), vec![1]);

        assert_eq!(holds.renewed(at(20), &[(1, true)]), 0);
        assert_eq!(hold.remaining(at(20)), 60 * SECOND);

        assert_eq!(holds.renewed(at(50), &[(1, false), (2, false)]), 1);
        assert_eq!(hold.begin_sending(Duration::ZERO), Err(Unsent::LeaseLost));
        assert!(!hold.was_sent());
        holds.remove([1].iter());
        assert_eq!(holds.len(), 0);
    }

    #[test]
    fn once_stopping_nothing_more_is_sent() {
        let clock = Clock::default();
        let holds = holds_on(&clock);
        let hold = holds.add(clock.now(), [1].into_iter(), None).remove(0);
        hold.begin_sending(SECOND).unwrap();
        assert!(hold.was_sent());
        holds.stop_sending();
        assert_eq!(hold.begin_sending(SECOND), Err(Unsent::Stopping));
    }
}
