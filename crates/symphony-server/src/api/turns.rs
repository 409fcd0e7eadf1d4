//! How often each of many may ask: a rate for each, and room for so many of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A second's worth may come at once.
const BURST: Duration = Duration::from_secs(1);

/// Until when each has spoken for its turns. The one that asked longest ago is forgotten for a new one.
#[derive(Debug)]
pub(super) struct Turns<K> {
    interval: Duration,
    keys_max: usize,
    until: HashMap<K, Instant>,
}

impl<K: Hash + Eq + Copy> Turns<K> {
    pub(super) fn new(per_second: u32, keys_max: usize) -> Self {
        let interval = Duration::from_secs(1) / per_second.max(1);
        Self { interval, keys_max, until: HashMap::new() }
    }

    pub(super) fn knows(&self, key: K) -> bool {
        self.until.contains_key(&key)
    }

    /// Whether it may ask now.
    pub(super) fn has_one(&self, key: K, now: Instant) -> bool {
        self.next(key, now) <= now + BURST
    }

    /// Take it.
    pub(super) fn take(&mut self, key: K, now: Instant) {
        let next = self.next(key, now);
        self.remember(key, next);
    }

    /// Know it from now on.
    pub(super) fn meet(&mut self, key: K, now: Instant) {
        if !self.knows(key) {
            self.remember(key, now);
        }
    }

    pub(super) fn forget(&mut self, key: K) {
        self.until.remove(&key);
    }

    fn next(&self, key: K, now: Instant) -> Instant {
        self.until.get(&key).map_or(now, |until| (*until).max(now)) + self.interval
    }

    fn remember(&mut self, key: K, until: Instant) {
        if self.until.len() >= self.keys_max && !self.knows(key) {
            let stalest = self.until.iter().min_by_key(|(_, until)| **until);
            if let Some(stalest) = stalest.map(|(key, _)| *key) {
                self.forget(stalest);
            }
        }
        self.until.insert(key, until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many at once are let through.
    fn let_through(turns: &mut Turns<u32>, key: u32, asked: usize, now: Instant) -> usize {
        let one = |turns: &mut Turns<u32>| {
            let may = turns.has_one(key, now);
            if may {
                turns.take(key, now);
            }
            may
        };
        (0..asked).filter(|_| one(turns)).count()
    }

    #[test]
    fn each_has_a_rate_of_its_own_and_a_seconds_worth_may_come_at_once() {
        let (mut turns, now) = (Turns::new(20, 10), Instant::now());
        assert_eq!(let_through(&mut turns, 1, 60, now), 20);
        assert_eq!(let_through(&mut turns, 2, 60, now), 20, "another is not held up");
        let later = now + Duration::from_millis(500);
        assert_eq!(let_through(&mut turns, 1, 60, later), 10);
    }

    #[test]
    fn there_are_never_more_than_the_bound_and_the_stalest_is_forgotten() {
        let (mut turns, now) = (Turns::new(20, 3), Instant::now());
        for key in 0_u32..5 {
            turns.take(key, now + Duration::from_secs(u64::from(key)));
        }
        assert_eq!([0, 1, 2, 3, 4].map(|key| turns.knows(key)), [false, false, true, true, true]);
        turns.meet(2, now);
        assert_eq!(turns.until.len(), 3);
    }
}
