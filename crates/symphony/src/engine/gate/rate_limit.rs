//! Send to a destination no faster than it takes.

use std::time::{Duration, Instant};

use super::later;

/// How many calls a destination takes, inquiries included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In the long run; 0 counts as 1.
    pub per_second: u32,
    /// At once, after a pause; 0 counts as 1.
    pub burst: u32,
    /// Whose calls are counted together.
    pub scope: RateScope,
}

/// Whose calls a [`Rate`] counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateScope {
    /// Those of this process.
    #[default]
    Process,
    /// Those of every worker on this database, which hands out the permits.
    Fleet,
}

/// A token bucket. Exact over any time: it counts in billionths of a token, and a nanosecond brings a whole
/// number of those, so nothing is ever rounded away.
#[derive(Debug, Clone)]
pub struct RateLimit {
    /// `None`: unlimited.
    bucket: Option<Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    /// What one nanosecond brings, in billionths of a token.
    per_nanosecond: i128,
    full: i128,
    /// Below zero if more was taken than there was.
    level: i128,
    /// The time of `level`.
    at: Instant,
}

/// One token, in billionths.
const TOKEN: i128 = 1_000_000_000;

impl RateLimit {
    /// A full bucket; without a rate, no limit.
    pub fn new(rate: Option<Rate>, now: Instant) -> Self {
        let bucket = rate.map(|rate| {
            let full = i128::from(rate.burst.max(1)) * TOKEN;
            Bucket {
                per_nanosecond: i128::from(rate.per_second.max(1)),
                full,
                level: full,
                at: now,
            }
        });
        Self { bucket }
    }

    /// How many calls may be made now.
    pub fn available(&self, now: Instant) -> u32 {
        self.bucket.map_or(u32::MAX, |bucket| {
            u32::try_from(bucket.level_at(now).max(0) / TOKEN).unwrap_or(u32::MAX)
        })
    }

    /// So many were sent. More than there were is a debt, paid off before the next.
    pub fn take(&mut self, now: Instant, items: u32) {
        if let Some(bucket) = &mut self.bucket {
            bucket.level = bucket.level_at(now).saturating_sub(i128::from(items) * TOKEN);
            bucket.at = bucket.at.max(now);
        }
    }

    /// Take one as soon as there is one; answers when that is.
    pub fn reserve(&mut self, now: Instant) -> Instant {
        let at = self.next_at(now).unwrap_or(now);
        self.take(now, 1);
        at
    }

    /// A reserved call was made so much later than it might have been: the ones after it are as much later.
    pub fn postpone(&mut self, by: Duration) {
        if let Some(bucket) = &mut self.bucket {
            bucket.at = later(bucket.at, by);
        }
    }

    /// When the next item may be sent; `None` if one may now.
    pub fn next_at(&self, now: Instant) -> Option<Instant> {
        let bucket = self.bucket?;
        let missing = TOKEN.saturating_sub(bucket.level_at(now));
        if missing <= 0 {
            return None;
        }
        // Rounded up: a nanosecond earlier there is no whole token yet.
        let wait_nanoseconds =
            missing.saturating_add(bucket.per_nanosecond - 1) / bucket.per_nanosecond;
        let wait = Duration::from_nanos(u64::try_from(wait_nanoseconds).unwrap_or(u64::MAX));
        Some(later(now.max(bucket.at), wait))
    }
}

impl Bucket {
    fn level_at(&self, now: Instant) -> i128 {
        // A caller with an older clock reading sees the present level.
        let elapsed = now.saturating_duration_since(self.at).as_nanos();
        let brought =
            i128::try_from(elapsed).unwrap_or(i128::MAX).saturating_mul(self.per_nanosecond);
        self.level.saturating_add(brought).min(self.full)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A ledger of (at ms, available then, taken, next at ms) against a bucket.
    fn pour(rate: Rate, ledger: &[(u64, u32, u32, Option<u64>)]) {
        let start = Instant::now();
        let mut limit = RateLimit::new(Some(rate), start);
        for line in ledger {
            let (at_ms, available, taken, next_at_ms) = *line;
            let now = start + Duration::from_millis(at_ms);
            assert_eq!(limit.available(now), available, "{line:?}");
            limit.take(now, taken);
            let next_at = next_at_ms.map(|at_ms| start + Duration::from_millis(at_ms));
            assert_eq!(limit.next_at(now), next_at, "{line:?}");
        }
    }

    #[test]
    fn a_burst_is_spent_and_comes_back_at_the_rate() {
        pour(
            Rate { per_second: 10, burst: 5, scope: RateScope::Process },
            &[
                (0, 5, 5, Some(100)),
                (50, 0, 0, Some(100)),
                (100, 1, 1, Some(200)),
                // A part of a token is kept, not thrown away.
                (250, 1, 1, Some(300)),
                (299, 0, 0, Some(300)),
                (300, 1, 0, None),
                (400, 2, 0, None),
                // Never more than the burst.
                (60_000, 5, 2, None),
                (60_000, 3, 3, Some(60_100)),
            ],
        );
    }

    #[test]
    fn what_was_taken_too_much_is_paid_off_first() {
        pour(
            Rate { per_second: 10, burst: 2, scope: RateScope::Process },
            &[
                (0, 2, 5, Some(400)),
                (300, 0, 0, Some(400)),
                (400, 1, 1, Some(500)),
                (600, 2, 0, None),
            ],
        );
    }

    #[test]
    fn an_older_clock_reading_changes_nothing() {
        pour(
            Rate { per_second: 10, burst: 2, scope: RateScope::Process },
            &[(1_000, 2, 2, Some(1_100)), (500, 0, 0, Some(1_100)), (1_100, 1, 0, None)],
        );
    }

    #[test]
    fn those_who_come_at_once_are_called_one_after_another() {
        let start = Instant::now();
        let rate = Rate { per_second: 10, burst: 2, scope: RateScope::Process };
        let mut limit = RateLimit::new(Some(rate), start);
        let at: Vec<_> = (0..5).map(|_| limit.reserve(start).duration_since(start)).collect();
        assert_eq!(at, [0, 0, 100, 200, 300].map(Duration::from_millis));
    }

    #[test]
    fn a_day_at_any_rate_brings_exactly_that_many() {
        // Asked at awkward moments, so that a rounding of each look would show.
        for per_second in [1, 3, 7, 9, 1_000, 999_983] {
            let start = Instant::now();
            let mut limit = RateLimit::new(
                Some(Rate { per_second, burst: u32::MAX, scope: RateScope::Process }),
                start,
            );
            limit.take(start, u32::MAX);
            let day = Duration::from_hours(24);
            let step = Duration::from_nanos(864_000_000_007);
            let mut now = start;
            let mut sent = 0_u64;
            while now < start + day {
                now = (now + step).min(start + day);
                let items = limit.available(now);
                limit.take(now, items);
                sent += u64::from(items);
            }
            assert_eq!(sent, 86_400 * u64::from(per_second));
        }
    }

    #[test]
    fn the_next_moment_is_neither_early_nor_late() {
        for per_second in [1, 3, 7, 999_983, u32::MAX] {
            let start = Instant::now();
            let mut limit = RateLimit::new(
                Some(Rate { per_second, burst: 1, scope: RateScope::Process }),
                start,
            );
            let mut now = start;
            for _ in 0..100 {
                limit.take(now, 1);
                let Some(next) = limit.next_at(now) else { break };
                assert_eq!(limit.available(next.checked_sub(Duration::from_nanos(1)).unwrap()), 0);
                assert_eq!(limit.available(next), 1);
                assert_eq!(limit.next_at(next), None);
                now = next;
            }
            assert!(now > start, "{per_second}");
        }
    }

    #[test]
    fn without_a_rate_there_is_no_limit_and_zeros_count_as_one() {
        let now = Instant::now();
        let mut unlimited = RateLimit::new(None, now);
        unlimited.take(now, u32::MAX);
        assert_eq!((unlimited.available(now), unlimited.next_at(now)), (u32::MAX, None));
        pour(
            Rate { per_second: 0, burst: 0, scope: RateScope::Process },
            &[(0, 1, 1, Some(1_000)), (1_000, 1, 0, None)],
        );
    }
}
