//! Ways to carry events to their consumers.
//!
//! - [`sns`]: SNS FIFO topics.
//! - [`nats`]: NATS JetStream streams.
//! - [`setup`]: creates what a bus publishes to and its consumers read from; says who needs which permission.
//! - [`http`]: signed webhooks, one POST per event and endpoint.
//! - [`webhook_signature`]: how a webhook proves where it comes from (Standard Webhooks).
//! - [`receiver`]: a local receiver of webhooks that checks, counts and misbehaves; for `symphony up`, `demo` and tests.
//! - [`conformance`]: the claims every bus must keep, checked against a real broker that is broken on purpose.

pub mod conformance;
pub mod http;
pub mod nats;
pub mod receiver;
pub mod setup;
#[cfg(feature = "aws")]
pub mod sns;
pub mod webhook_signature;

use std::time::Duration;

use symphony::lanes::events::bus::{Publication, Trouble};

use crate::settings::Defects;

pub use crate::settings::SettingsError;

/// How much later than the adapter's own limit the lane's comes: so the adapter's answer, which knows more, is heard.
pub(crate) const TIMEOUT_MARGIN: Duration = Duration::from_millis(250);

/// The longest a call may be allowed to take.
const LIMIT_MS_MAX: u64 = 300_000;

/// What a failure says about the message, and about the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Surely not taken; only this topic or message is concerned.
    NotTaken,
    /// Surely not taken; the bus takes nothing at the moment.
    NotTakenBusUnwell,
    /// Nobody knows.
    Unknown,
}

pub(crate) fn again(code: &str, message: impl Into<String>, fate: Fate) -> Publication {
    Publication::Again {
        trouble: Trouble::new(code, message),
        unknown: fate == Fate::Unknown,
        bus_unwell: fate != Fate::NotTaken,
        retry_after: None,
    }
}

pub(crate) fn refused(code: &str, message: impl Into<String>) -> Publication {
    Publication::Refused(Trouble::new(code, message))
}

/// A broker's own words, short enough for a ledger and on one line.
pub(crate) fn in_short(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(300).collect()
}

/// The limits on connecting and on a whole call, connecting included.
pub(crate) fn limits(
    connect_timeout_ms: u64,
    timeout_ms: u64,
) -> Result<(Duration, Duration), SettingsError> {
    let mut defects = Defects::default();
    defects.within("connect_timeout_ms", connect_timeout_ms, 10, LIMIT_MS_MAX);
    defects.within("timeout_ms", timeout_ms, 10, LIMIT_MS_MAX);
    if connect_timeout_ms > timeout_ms {
        let problem = "must not be longer than timeout_ms, which includes it";
        defects.add("connect_timeout_ms", problem);
    }
    defects.into_result()?;
    Ok((Duration::from_millis(connect_timeout_ms), Duration::from_millis(timeout_ms)))
}
