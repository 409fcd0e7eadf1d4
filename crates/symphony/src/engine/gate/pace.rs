//! Every call of a rated destination waits for its turn. Calls are counted, not items: an item that is asked about and then
//! sent takes two, at the moment of each, so that the destination never sees more than it was promised.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{Rate, RateLimit, RateScope};

/// A turn that was not used expires after this long: several used at once would be a burst.
const STALE_AFTER: Duration = Duration::from_millis(20);
/// Turns asked for at once; the database gives no more.
const TURNS_MAX: usize = 1_000;
/// How late a timer usually is.
const TIMER_LATENESS: Duration = Duration::from_millis(2);

/// The turns of this process.
#[derive(Debug)]
struct Own {
    limit: RateLimit,
    /// The sum of all delays of late turns; the turns after them were moved by as much.
    postponed: Duration,
}

/// The turns at one destination.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Rate,
    own: Mutex<Own>,
    /// Handed out by the database to this process and not yet taken.
    given: tokio::sync::Mutex<VecDeque<Instant>>,
    waiting: AtomicUsize,
    /// Items claimed that have not had their first turn.
    ahead: AtomicUsize,
    left: Notify,
}

impl Pace {
    pub(crate) fn new(rate: Rate) -> Self {
        Self {
            rate,
            own: Mutex::new(Own {
                limit: RateLimit::new(Some(rate), Instant::now()),
                postponed: Duration::ZERO,
            }),
            given: tokio::sync::Mutex::default(),
            waiting: AtomicUsize::new(0),
            ahead: AtomicUsize::new(0),
            left: Notify::new(),
        }
    }

    /// At most a second's worth is claimed ahead: what is not claimed can be sent by others.
    pub(crate) fn ahead_max(&self) -> usize {
        usize::try_from(self.rate.per_second.max(self.rate.burst).max(1)).unwrap_or(usize::MAX)
    }

    /// How many more items may be claimed.
    pub(crate) fn room(&self) -> usize {
        self.ahead_max().saturating_sub(self.ahead.load(Ordering::Acquire))
    }

    pub(crate) fn claimed(&self, items: usize) {
        self.ahead.fetch_add(items, Ordering::AcqRel);
    }

    /// An item had its first turn, or will have none.
    pub(crate) fn leave(&self) {
        self.ahead.fetch_sub(1, Ordering::AcqRel);
        self.left.notify_one();
    }

    /// Resolves when there may be more room.
    pub(crate) async fn left(&self) {
        self.left.notified().await;
    }

    /// Wait for the next turn. `permits` asks the database for some: how long to wait for each.
    pub(crate) async fn turn<E>(
        &self,
        permits: impl AsyncFnOnce(Rate, u32) -> Result<Vec<Duration>, E>,
    ) -> Result<(), E> {
        match self.rate.scope {
            RateScope::Process => self.own_turn().await,
            RateScope::Fleet => {
                let at = self.given_turn(permits).await?;
                tokio::time::sleep_until(at.into()).await;
            }
        }
        Ok(())
    }

    /// If a busy machine wakes a turn late, later turns move by as much: late calls close together would be a burst.
    async fn own_turn(&self) {
        let (reserved, postponed) = {
            let mut own = self.own();
            (own.limit.reserve(Instant::now()), own.postponed)
        };
        let mut at = reserved;
        loop {
            tokio::time::sleep_until(at.into()).await;
            let mut own = self.own();
            at = super::later(reserved, own.postponed.saturating_sub(postponed));
            let now = Instant::now();
            if at <= now {
                let late = now.duration_since(at).saturating_sub(TIMER_LATENESS);
                own.postponed = own.postponed.saturating_add(late);
                own.limit.postpone(late);
                return;
            }
        }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One call of the database brings turns for all who wait by then.
    async fn given_turn<E>(
        &self,
        permits: impl AsyncFnOnce(Rate, u32) -> Result<Vec<Duration>, E>,
    ) -> Result<Instant, E> {
        let _counted = Counted::new(&self.waiting);
        let mut given = self.given.lock().await;
        let now = Instant::now();
        given.retain(|at| *at + STALE_AFTER >= now);
        if let Some(at) = given.pop_front() {
            return Ok(at);
        }
        let wanted = self.waiting.load(Ordering::Acquire).clamp(1, TURNS_MAX);
        let waits = permits(self.rate, u32::try_from(wanted).unwrap_or(1)).await?;
        // Counted from the database's answer on, so a turn may be late by the network's delay, and never early.
        let now = Instant::now();
        given.extend(waits.into_iter().map(|wait| super::later(now, wait)));
        Ok(given.pop_front().unwrap_or(now))
    }
}

/// One of those who wait, for as long as it lives.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::AtomicU32;

    use futures_util::future::join_all;

    use super::*;

    fn pace(per_second: u32, scope: RateScope) -> Pace {
        Pace::new(Rate { per_second, burst: 1, scope })
    }

    #[tokio::test]
    async fn turns_of_a_process_are_evenly_spaced() {
        let pace = pace(100, RateScope::Process);
        let started = Instant::now();
        let none = async |_, _| -> Result<Vec<Duration>, Infallible> { panic!("not asked") };
        join_all((0..11).map(|_| pace.turn(none))).await;
        assert!(started.elapsed() >= Duration::from_millis(100));
    }

    #[tokio::test]
    async fn a_high_rate_is_reached_though_timers_are_coarse() {
        let pace = pace(10_000, RateScope::Process);
        let started = Instant::now();
        let none = async |_, _| -> Result<Vec<Duration>, Infallible> { panic!("not asked") };
        join_all((0..2_000).map(|_| pace.turn(none))).await;
        // A turn for each of the timer's milliseconds would take two seconds.
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }

    #[tokio::test]
    async fn a_turn_that_comes_late_makes_the_next_ones_as_late() {
        let pace = pace(100, RateScope::Process);
        let none = async |_, _| -> Result<Vec<Duration>, Infallible> { panic!("not asked") };
        let turns = (0..6).map(async |n| {
            pace.turn(none).await.unwrap();
            let at = Instant::now();
            if n % 2 == 1 {
                // Nothing else runs on this thread meanwhile: the turn after this one is woken late.
                std::thread::sleep(Duration::from_millis(18));
            }
            at
        });
        let mut turns = join_all(turns).await;
        // On a busy machine two that wait again may change places. How far calls are apart is what counts.
        turns.sort_unstable();
        for (earlier, later) in turns.iter().zip(turns.iter().skip(1)) {
            let apart = *later - *earlier;
            assert!(apart >= Duration::from_millis(8), "{apart:?} apart: {turns:?}");
        }
    }

    #[tokio::test]
    async fn one_question_brings_turns_for_all_who_wait() {
        let pace = pace(100, RateScope::Fleet);
        let questions = AtomicU32::new(0);
        let give = async |_: Rate, wanted: u32| -> Result<Vec<Duration>, Infallible> {
            questions.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok((0..wanted).map(|n| Duration::from_millis(n.into())).collect())
        };
        join_all((0..10).map(|_| pace.turn(give))).await;
        assert_eq!(questions.load(Ordering::SeqCst), 2, "the first, and one for the nine others");
    }

    #[test]
    fn a_seconds_worth_is_claimed_ahead() {
        let pace = pace(20, RateScope::Fleet);
        pace.claimed(15);
        assert_eq!(pace.room(), 5);
        pace.leave();
        assert_eq!(pace.room(), 6);
    }
}
