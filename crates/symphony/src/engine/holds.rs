//! What this worker holds: leases by its own clock, renewed while there is work on them.
//!
//! The database decides who holds what. A worker may only assume that its lease lasts until the moment before
//! it asked for it plus the lease's length, on its own monotonic clock: that is never later than the truth.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{LaneMetrics, Point, Points};

/// One held item, shared between its dispatch, the renewal and the shutdown.
#[derive(Debug)]
pub struct Hold {
    epoch: Instant,
    until_micros: AtomicU64,
    sent: AtomicBool,
    lost: AtomicBool,
    margin: Duration,
    stopping: Arc<AtomicBool>,
    points: Points,
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
    /// What there was to know could not be found out.
    Undecided,
}

impl Hold {
    /// Say that the first byte is about to leave; refused unless the lease surely outlives the call.
    pub fn begin_sending(&self, call_limit: Duration) -> Result<(), Unsent> {
        may_send(
            self.lost.load(Ordering::Acquire),
            self.stopping.load(Ordering::Acquire),
            self.remaining(Instant::now()),
            call_limit + self.margin,
        )?;
        self.sent.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether the first byte may have left.
    pub fn was_sent(&self) -> bool {
        self.sent.load(Ordering::Acquire)
    }

    /// Pass a named point, where tests may kill the process.
    pub fn at(&self, point: Point) {
        self.points.reach(point);
    }

    fn remaining(&self, now: Instant) -> Duration {
        let until = Duration::from_micros(self.until_micros.load(Ordering::Acquire));
        until.saturating_sub(now.saturating_duration_since(self.epoch))
    }

    fn extend(&self, until: Instant) {
        let micros = until.saturating_duration_since(self.epoch).as_micros();
        self.until_micros.store(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Release);
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
    epoch: Instant,
    lease: Duration,
    margin: Duration,
    held: Mutex<HashMap<K, Arc<Hold>>>,
    stopping: Arc<AtomicBool>,
    points: Points,
    metrics: Arc<LaneMetrics>,
}

impl<K: Copy + Eq + Hash> Holds<K> {
    pub(crate) fn new(
        lease: Duration,
        margin: Duration,
        points: Points,
        metrics: Arc<LaneMetrics>,
    ) -> Self {
        Self {
            epoch: Instant::now(),
            lease,
            margin,
            held: Mutex::default(),
            stopping: Arc::default(),
            points,
            metrics,
        }
    }

    /// Leases asked for at `asked_at` were granted.
    pub(crate) fn add(&self, asked_at: Instant, leases: impl Iterator<Item = K>) -> Vec<Arc<Hold>> {
        let mut all = self.lock();
        let holds = leases
            .map(|lease| {
                let hold = Arc::new(Hold {
                    epoch: self.epoch,
                    until_micros: AtomicU64::new(0),
                    sent: AtomicBool::new(false),
                    lost: AtomicBool::new(false),
                    margin: self.margin,
                    stopping: self.stopping.clone(),
                    points: self.points.clone(),
                });
                hold.extend(asked_at + self.lease);
                all.insert(lease, hold.clone());
                hold
            })
            .collect();
        self.count(&all);
        holds
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

    // Under the lock: a stop waits for this figure to be 0, so it may never be an older one.
    fn count(&self, all: &HashMap<K, Arc<Hold>>) {
        self.metrics.held_items.set(all.len() as u64);
    }

    /// The leases that should be renewed now.
    pub(crate) fn due_for_renewal(&self, now: Instant) -> Vec<K> {
        self.lock()
            .iter()
            .filter(|(_, hold)| {
                needs_renewal(hold.lost.load(Ordering::Acquire), hold.remaining(now), self.lease)
            })
            .map(|(lease, _)| *lease)
            .collect()
    }

    /// Renewals asked for at `asked_at` were answered. Returns how many leases were lost.
    pub(crate) fn renewed(&self, asked_at: Instant, answers: &[(K, bool)]) -> usize {
        let all = self.lock();
        let mut lost = 0;
        for (lease, renewed) in answers {
            match all.get(lease) {
                Some(hold) if *renewed => hold.extend(asked_at + self.lease),
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

    #[test]
    fn a_lease_counts_from_before_it_was_asked_for() {
        let holds: Holds<u32> =
            Holds::new(60 * SECOND, 5 * SECOND, Points::default(), Arc::default());
        let asked_at = holds.epoch;
        let hold = holds.add(asked_at, [1].into_iter()).remove(0);
        assert_eq!(hold.remaining(asked_at + 20 * SECOND), 40 * SECOND);
        assert_eq!(hold.remaining(asked_at + 61 * SECOND), Duration::ZERO);
        assert_eq!(holds.due_for_renewal(asked_at + 19 * SECOND), Vec::<u32>::new());
        assert_eq!(holds.due_for_renewal(asked_at + 20 * SECOND), vec![1]);

        assert_eq!(holds.renewed(asked_at + 20 * SECOND, &[(1, true)]), 0);
        assert_eq!(hold.remaining(asked_at + 20 * SECOND), 60 * SECOND);

        assert_eq!(holds.renewed(asked_at + 50 * SECOND, &[(1, false), (2, false)]), 1);
        assert_eq!(hold.begin_sending(Duration::ZERO), Err(Unsent::LeaseLost));
        assert!(!hold.was_sent());
        holds.remove([1].iter());
        assert_eq!(holds.len(), 0);
    }

    #[test]
    fn once_stopping_nothing_more_is_sent() {
        let holds: Holds<u32> = Holds::new(60 * SECOND, SECOND, Points::default(), Arc::default());
        let hold = holds.add(Instant::now(), [1].into_iter()).remove(0);
        hold.begin_sending(SECOND).unwrap();
        assert!(hold.was_sent());
        holds.stop_sending();
        assert_eq!(hold.begin_sending(SECOND), Err(Unsent::Stopping));
    }
}
