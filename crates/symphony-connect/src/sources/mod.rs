//! Where consumers receive events from.
//!
//! - [`forward`]: events handed to a program on this machine, in any language.
//! - [`sqs`]: an SQS FIFO queue. The broker holds back a group while an earlier message of it is not acknowledged.
//! - [`jetstream`]: a durable pull consumer of a NATS JetStream stream. Order within a key is kept by one process.

pub mod forward;
pub mod jetstream;
#[cfg(feature = "aws")]
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
