//! The claims every bus must keep, checked against a real broker that is broken on purpose.
//!
//! The author of a bus implements [`Probe`] over their broker, and runs [`check`]. Which claims apply follows from
//! the bus's [`Terms`](symphony::lanes::events::bus::Terms) and from what the probe can do. The suite's judge is what
//! a consumer received, never what the bus said.
//!
//! Give the bus short timeouts: some claims wait for a whole one.

mod claims;

#[cfg(test)]
mod tests;

use std::time::Duration;

use async_trait::async_trait;
use symphony::lanes::events::bus::{Bus, Message};
use uuid::Uuid;

pub use crate::rails::conformance::{Claim, ClaimOutcome, Report};

/// A test broker, as the suite sees it: can be broken and mended, and read as a consumer reads.
#[async_trait]
pub trait Probe: Send + Sync {
    /// A topic that exists, with the consumer behind it.
    fn topic(&self) -> &str;

    /// One that does not. `None`: there is no such thing for this bus.
    fn missing_topic(&self) -> Option<String> {
        None
    }

    /// What the consumer has received since the last call, in its order. Waits until there are `expected` at least,
    /// or a while; with 0 it looks for what is there now.
    async fn received(&self, expected: usize) -> Vec<Arrival>;

    /// From now on the way to the broker is like this. `false`: it cannot be made so, and the claim is not checked.
    async fn make(&self, condition: Condition) -> bool;

    /// A body of so many bytes can never be published. `None`: no size is too large.
    fn oversize_bytes(&self) -> Option<usize>;

    /// Change a good message into one that the broker itself refuses for good. `false`: it takes every one.
    fn spoil(&self, _message: &mut Message) -> bool {
        false
    }
}

/// How the way to the broker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// As it should be.
    Well,
    /// Connections are refused, and those there were are cut.
    Down,
    /// The broker hears everything; the connection breaks when it answers.
    AnswersLost,
    /// Nothing is heard and nothing breaks.
    Hanging,
    /// Every answer takes this much longer.
    Slow(Duration),
}

/// A message as its consumer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Its event id, from wherever the bus carries it outside the body.
    pub event_id: Uuid,
    /// Its position, likewise.
    pub position: i64,
    /// Its type, likewise.
    pub event_type: String,
    /// Its body, byte for byte.
    pub body: String,
}

/// Check every claim, one after the other.
pub async fn check(bus: &dyn Bus, probe: &dyn Probe) -> Report {
    claims::all(bus, probe).await
}
