//! Where consumers receive events from.
//!
//! - [`conformance`]: the suite every source must pass.
//! - [`forward`]: events handed to a program on this machine, in any language.
//! - [`sqs`]: an SQS FIFO queue. The broker holds back a group while an earlier message of it is not acknowledged.
//! - [`jetstream`]: a durable pull consumer of a NATS JetStream stream. Order within a key is kept by one process.
//! - [`kafka`]: a member of a group that reads a Kafka topic. A key is in one partition, and a partition is one process's.

pub mod conformance;
pub mod forward;
#[cfg(feature = "nats")]
pub mod jetstream;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(feature = "sns")]
pub mod sqs;

/// A source that cannot be used as it is set up: names what is wrong and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(String);

impl OpenError {
    fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}
