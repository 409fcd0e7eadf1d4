//! Plain atomics: the server renders them, tests read them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the latency histogram's buckets, in milliseconds; the last bucket has none.
pub const LATENCY_BOUNDS_MS: [u64; 14] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000];

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Add to it.
    pub fn add(&self, by: usize) {
        self.0.fetch_add(by as u64, Ordering::Relaxed);
    }

    /// How much it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Set it.
    pub fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// How much it is.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long calls took.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; LATENCY_BOUNDS_MS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Count one call.
    pub fn observe(&self, took: Duration) {
        let milliseconds_up = took.as_micros().div_ceil(1_000);
        let bucket =
            LATENCY_BOUNDS_MS.partition_point(|bound| u128::from(*bound) < milliseconds_up);
        if let Some(counter) = self.buckets.get(bucket) {
            counter.add(1);
        }
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Calls at or below each bound, then all calls.
    pub fn cumulative(&self) -> Vec<u64> {
        self.buckets
            .iter()
            .scan(0, |total, bucket| {
                *total += bucket.get();
                Some(*total)
            })
            .collect()
    }

    /// Of all calls together.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.sum_micros.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_counted_in_the_first_bucket_it_fits() {
        let histogram = Histogram::default();
        for micros in [1, 1_000, 1_001, 2_000, 29_999_999, 30_000_000, 30_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let cumulative = histogram.cumulative();
        assert_eq!(cumulative.first(), Some(&2));
        assert_eq!(cumulative.get(1), Some(&4));
        assert_eq!(cumulative.get(13), Some(&6));
        assert_eq!(cumulative.last(), Some(&7));
        assert_eq!(histogram.sum(), Duration::from_micros(90_004_002));
    }
}
