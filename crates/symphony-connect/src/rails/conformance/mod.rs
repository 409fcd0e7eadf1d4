//! The claims every rail must keep, checked against a provider that misbehaves on purpose.
//!
//! The author of a rail implements [`Provider`] over their test provider, and runs [`check`]. Which claims apply
//! follows from the rail's [`Terms`](symphony::lanes::payments::rail::Terms): what it does not promise is not asked of it. The suite's own judge is
//! the provider's count of executions, never what the rail said.
//!
//! Give the rail short timeouts: one claim waits for a whole one.

mod claims;
mod report;

#[cfg(test)]
pub(crate) mod tests;

use async_trait::async_trait;
use serde_json::value::RawValue;
use symphony::domain::RailKey;
use symphony::lanes::payments::rail::{Payment, Rail};

pub use report::{Claim, ClaimOutcome, Report};
pub(crate) use report::{Ruling, Stop, require};

/// A test provider, as the suite sees it: can be told to misbehave, and counts what it executed.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The next dispatch under `key` goes as `misbehaviour` says, and only that one. `false`: this provider
    /// cannot do that, and the claim is not checked.
    async fn misbehave(&self, key: RailKey, misbehaviour: Misbehaviour) -> bool;

    /// How often money moved under `key`, ever.
    async fn executions(&self, key: RailKey) -> u64;

    /// Forget that `key` was ever seen, as after its lifetime, but not how often it was executed. `false`: this
    /// provider cannot forget.
    async fn forget(&self, key: RailKey) -> bool;

    /// How many requests arrived, of whatever kind. `None`: it does not count.
    async fn requests(&self) -> Option<u64> {
        None
    }
}

/// What can go wrong with one dispatch. "Executing" is moving the money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Misbehaviour {
    /// Refuse for good, without executing.
    Refuse,
    /// Ask to come back later, without executing.
    Busy,
    /// Answer with an error of its own, without executing.
    ErrorBefore,
    /// Answer with an error of its own, after executing.
    ErrorAfter,
    /// Drop the connection, without executing.
    ResetBefore,
    /// Drop the connection, after executing.
    ResetAfter,
    /// Never answer.
    Hang,
    /// Execute, and answer twice.
    AnswerTwice,
    /// Answer with nonsense.
    Garbage,
    /// Answer a byte at a time, slower than anybody waits.
    SlowDrip,
}

/// A payment the provider would execute, to make others from.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Valid in everything. The suite gives each copy its own key, instruction and number.
    pub payment: Payment,
    /// The same payload but for a destination that the rail must refuse by itself. `None`: it takes every one.
    pub wrong_destination: Option<Box<RawValue>>,
}

/// Check every claim, one after the other.
pub async fn check(rail: &dyn Rail, provider: &dyn Provider, sample: &Sample) -> Report {
    claims::all(rail, provider, sample).await
}
