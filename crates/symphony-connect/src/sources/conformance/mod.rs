//! The claims every source must keep, checked against a real broker.
//!
//! The author of a source implements [`Probe`] over their broker, and runs [`check`]. Claims about the source itself come
//! first, then those about the loop with this source: what an outage or a failing event costs. Give the source a short
//! visibility and a short wait: several claims take some of them.

mod claims;
mod runs;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use symphony::consumer::Source;

pub use crate::buses::conformance::Condition;
pub use crate::rails::conformance::{Claim, ClaimOutcome, Report};

/// A test broker with one queue, as the suite sees it. What one claim leaves behind is gone when the next one begins.
#[async_trait]
pub trait Probe: Send + Sync {
    /// A source of the queue, as another process would open it: with a connection of its own.
    async fn open(&self) -> Arc<dyn Source>;

    /// Nothing waits in the queue and nothing is hidden, dead letters included.
    async fn clear(&self);

    /// Publish, in this order. They are stored when it returns.
    async fn publish(&self, messages: &[Published]);

    /// The dead letters there are now, in any order.
    async fn dead_letters(&self) -> Vec<DeadLetter>;

    /// From now on the way to the broker is like this. `false`: it cannot be made so, and the claim is not checked.
    async fn make(&self, condition: Condition) -> bool;
}

/// A message as its producer publishes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// What order is kept within.
    pub key: String,
    /// Its place in the producer's log.
    pub position: i64,
    /// The event.
    pub body: String,
}

/// A dead letter as a person finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// As [`ReasonCode::as_str`](symphony::consumer::ReasonCode::as_str) has it.
    pub reason: String,
    /// The message, byte for byte.
    pub body: String,
}

/// Check every claim, one after the other.
pub async fn check(probe: &dyn Probe) -> Report {
    let mut report = Report::default();
    claims::all(probe, &mut report).await;
    runs::all(probe, &mut report).await;
    report
}
