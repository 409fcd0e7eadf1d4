//! The claims every executor must keep.
//!
//! The author of an executor implements [`Probe`]: for each [`Behaviour`] a request whose script behaves so, and how
//! many effects were really made. Then [`check`] runs them. Give the requests short timeouts: one claim waits for a whole
//! one.

mod claims;

#[cfg(test)]
mod tests;

use std::time::Duration;

use symphony::lanes::triggers::executor::{Executor, Request};

pub use crate::rails::conformance::{Claim, ClaimOutcome, Report};

/// Scripts as the suite needs them.
pub trait Probe: Send + Sync {
    /// A request whose script behaves like this, with [`REQUEST_PAYLOAD`] and this timeout. `None`: none can, and the
    /// claim is not checked.
    fn request(&self, behaviour: &Behaviour, timeout: Duration) -> Option<Request>;

    /// How many effects were really made, anywhere. Must stay 0: an executor only gathers them.
    fn effects_made(&self) -> usize;
}

/// What every request carries.
pub const REQUEST_PAYLOAD: &str = r#"{"amount":"9007199254740993.10","note":"zwölf\n","n":7}"#;

/// What a script does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behaviour {
    /// Returns this JSON.
    Returns(String),
    /// Returns `{"payload": …, "attempt": …, "app": …}` of its request.
    TellsRequest,
    /// Throws, or answers with an error that trying again may mend; after three effects.
    Fails,
    /// Never ends; after three effects.
    Hangs,
    /// Takes as much memory as it can get, or answers with as much.
    TakesMemory,
    /// Returns more than may be returned.
    ReturnsTooMuch,
    /// Sets the entry `k` to 1, sends 2 to the queue `q`, publishes 3 to the topic `t`, then returns `"done"`.
    MakesEffects,
    /// Asks for more effects than it may.
    MakesTooManyEffects,
    /// Logs `"one"` as a warning and `"two"` as an error, then returns `null`.
    Logs,
    /// Logs without end, then returns `null`.
    LogsTooMuch,
    /// Cannot be run at all: a script that is none, a URL that leads nowhere.
    IsBroken,
    /// Answers how often it ran in what it can see: 1 unless runs share something.
    CountsRuns,
    /// What should run it is away.
    IsAway,
}

/// Check every claim, one after the other.
pub async fn check(executor: &dyn Executor, probe: &dyn Probe) -> Report {
    claims::all(executor, probe).await
}
