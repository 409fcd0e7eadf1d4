//! How much a destination can take: a circuit breaker and a rate limit.
//!
//! Both are plain state machines in integers: time is a parameter, nothing is read and nothing waits. The breaker
//! decides before the claim, because an item that is not claimed costs nothing, and one that is claimed and
//! not sent costs a lease. The rate decides before each call (`pace.rs`).

mod breaker;
mod destination;
mod pace;
mod rate_limit;

use std::time::{Duration, Instant};

pub use breaker::{Allowance, Breaker, BreakerSettings, BreakerState, Change};
pub use destination::{Answered, Destination, DestinationKind, DestinationState, TroubleKind};
pub(super) use pace::Pace;
pub use rate_limit::{Rate, RateLimit, RateScope};

/// `now + wait`; past the end of the clock, a day: nobody sleeps that long without looking again.
fn later(now: Instant, wait: Duration) -> Instant {
    const DAY: Duration = Duration::from_hours(24);
    now.checked_add(wait).or_else(|| now.checked_add(DAY)).unwrap_or(now)
}
