//! The clock that leases are counted on. It goes on while the host is suspended, as the database's does. `Instant` stops
//! then, so a worker that wakes up would still trust leases that have long expired.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Linux has this clock; elsewhere the monotonic one is used, which on Apple's systems counts sleep too.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// Time since the host started, suspended or not. Clones share what [`suspend`](Self::suspend) added.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    suspended_micros: Arc<AtomicU64>,
}

/// A point in time of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Clock {
    /// Now.
    pub fn now(&self) -> Moment {
        let time = clock_gettime(BOOT);
        let seconds = Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0));
        let rest = Duration::from_nanos(u64::try_from(time.tv_nsec).unwrap_or(0));
        let suspended = Duration::from_micros(self.suspended_micros.load(Ordering::Acquire));
        Moment(seconds.saturating_add(rest).saturating_add(suspended))
    }

    /// As if the host had been suspended for this long: for tests.
    pub fn suspend(&self, length: Duration) {
        let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        self.suspended_micros.fetch_add(micros, Ordering::AcqRel);
    }
}

impl Moment {
    /// How long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This long after.
    #[must_use]
    pub fn after(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_on_while_the_host_is_suspended_and_never_back() {
        let clock = Clock::default();
        let before = clock.now();
        assert!(clock.now() >= before);
        clock.clone().suspend(Duration::from_mins(2));
        let after = clock.now();
        assert!(after.since(before) >= Duration::from_mins(2));
        assert_eq!(before.since(after), Duration::ZERO);
    }
}
