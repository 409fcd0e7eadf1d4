//! How much a destination can take: calls at once, a circuit breaker and a rate limit.
//!
//! Breaker and rate are plain state machines in integers: time is a parameter, nothing is read and nothing waits. The breaker
//! decides before the claim, because an item that is not claimed costs nothing, and one that is claimed and
//! not sent costs a lease. The rate decides before each call (`pace.rs`).

mod breaker;
mod destination;
mod kinds;
mod pace;
mod rate_limit;

use std::time::{Duration, Instant};

pub use breaker::{Allowance, Breaker, BreakerSettings, BreakerState, Change};
pub use destination::{CallPermit, Destination, DestinationLimits, DestinationState, NotNow};
pub use kinds::{Answered, DestinationKind, TroubleKind};
pub(crate) use pace::Pace;
pub use rate_limit::{Rate, RateLimit, RateScope};

/// `now + wait`, or a day from now if that overflows: every waiter looks again before then.
fn later(now: Instant, wait: Duration) -> Instant {
    const DAY: Duration = Duration::from_hours(24);
    now.checked_add(wait).or_else(|| now.checked_add(DAY)).unwrap_or(now)
}
