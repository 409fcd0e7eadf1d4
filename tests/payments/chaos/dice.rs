//! Decisions that a seed repeats, and what became of them in numbers.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

/// Pseudo-random numbers (splitmix64). Every actor rolls dice of its own, so that what one does does not change
/// what another decides.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The dice of one actor of a run.
    pub fn of(seed: u64, actor: &str) -> Self {
        let mut dice = Self(seed);
        for byte in actor.bytes() {
            dice.0 = dice.roll() ^ u64::from(byte);
        }
        dice
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From `from` to `to`, both included.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.roll() % (to - from + 1)
    }

    pub fn percent(&mut self, share: u64) -> bool {
        self.between(1, 100) <= share
    }

    pub fn duration_ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = self.between(0, from.len() as u64 - 1);
        &from[usize::try_from(index).unwrap()]
    }
}

/// What happened, counted by name.
#[derive(Debug, Default)]
pub struct Tally(Mutex<BTreeMap<String, u64>>);

impl Tally {
    pub fn add(&self, what: &str) {
        *self.0.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    /// Of everything whose name starts so.
    pub fn sum(&self, prefix: &str) -> u64 {
        let counts = self.0.lock().unwrap();
        counts.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum()
    }

    /// As `name 3, other 4`, without the common start of the names.
    pub fn list(&self, prefix: &str) -> String {
        let counts = self.0.lock().unwrap();
        let named = counts.iter().filter_map(|(name, count)| {
            name.strip_prefix(prefix).map(|rest| format!("{} {count}", rest.trim_start()))
        });
        named.collect::<Vec<_>>().join(", ")
    }
}

#[test]
fn the_same_seed_gives_the_same_decisions_and_actors_do_not_share_them() {
    let rolls = |seed, actor| {
        let mut dice = Dice::of(seed, actor);
        (0..100).map(|_| dice.between(1, 6)).collect::<Vec<_>>()
    };
    assert_eq!(rolls(7, "worker 1"), rolls(7, "worker 1"));
    assert_ne!(rolls(7, "worker 1"), rolls(8, "worker 1"));
    assert_ne!(rolls(7, "worker 1"), rolls(7, "worker 2"));
    assert!((1..=6).all(|face| rolls(7, "worker 1").contains(&face)));
}
