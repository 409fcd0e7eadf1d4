//! Ways to carry events to their consumers.
//!
//! - [`sns`]: SNS FIFO topics.
//! - [`nats`]: NATS JetStream streams.
//! - [`kafka`]: Kafka topics.
//! - [`setup`]: creates what a bus publishes to and its consumers read from; says who needs which permission.
//! - [`http`]: signed webhooks, one POST per event and endpoint.
//! - [`webhook_signature`]: how a webhook proves where it comes from (Standard Webhooks).
//! - [`conformance`]: the claims every bus must keep, checked against a real broker that is broken on purpose.

#[cfg(any(feature = "kafka", feature = "nats", feature = "sns"))]
mod broker;
pub mod conformance;
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(any(feature = "kafka", feature = "nats", feature = "sns"))]
pub mod setup;
#[cfg(feature = "sns")]
pub mod sns;
pub mod webhook_signature;

use symphony::lanes::events::bus::{Cause, Publication, Trouble};

#[cfg(any(feature = "kafka", feature = "nats", feature = "sns"))]
pub(crate) use self::broker::{limits, short_line};
pub(crate) use crate::bounds::buses::TIMEOUT_MARGIN;

/// What a failure says about the message, and about the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// Surely not taken; perhaps because of the message.
    NotTaken,
    /// Surely not taken; the topic takes nothing at the moment.
    NotTakenUnwell,
    /// Surely not taken, until an operator mends what is wrong.
    NotTakenUntilMended,
    /// Nobody knows.
    Unknown,
}

pub(crate) fn again(code: &str, message: impl Into<String>, kind: FailureKind) -> Publication {
    Publication::Again {
        trouble: Trouble::new(code, message),
        unknown: kind == FailureKind::Unknown,
        cause: match kind {
            FailureKind::NotTaken => Cause::Message,
            FailureKind::NotTakenUnwell | FailureKind::Unknown => Cause::Destination,
            FailureKind::NotTakenUntilMended => Cause::Setup,
        },
        retry_after: None,
    }
}

pub(crate) fn refused(code: &str, message: impl Into<String>) -> Publication {
    Publication::Refused(Trouble::new(code, message))
}
