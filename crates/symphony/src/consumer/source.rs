//! What a bus must be able to do for its consumers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::FieldError;

/// Where messages come from. A message is hidden from others while it is in hand; what is neither acknowledged nor
/// given back comes again by itself.
///
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// # use symphony::consumer::{DeadLetterReason, Delivery, Source, SourceError, SourceTerms};
/// /// Has nothing to deliver.
/// struct Empty(SourceTerms);
///
/// #[async_trait::async_trait]
/// impl Source for Empty {
///     fn terms(&self) -> &SourceTerms {
///         &self.0
///     }
///
///     async fn receive(&self, _max: usize) -> Result<Vec<Delivery>, SourceError> {
///         Ok(Vec::new())
///     }
///
///     async fn acknowledge(&self, _delivery: &Delivery) -> Result<(), SourceError> {
///         Ok(())
///     }
///
///     async fn extend(&self, _deliveries: &[Arc<Delivery>]) -> Result<(), SourceError> {
///         Ok(())
///     }
///
///     async fn leave(&self, _delivery: &Delivery, _delay: Duration) -> Result<(), SourceError> {
///         Ok(())
///     }
///
///     async fn dead_letter(
///         &self,
///         delivery: &Delivery,
///         reason: &DeadLetterReason,
///     ) -> Result<(), SourceError> {
///         eprintln!("{}: {}", delivery.message_id, reason.message);
///         Ok(())
///     }
/// }
/// ```
/// One that reads lines: `examples/library/event_consumer.rs`.
#[async_trait]
pub trait Source: Send + Sync + 'static {
    /// What the loop must know to use this source well.
    fn terms(&self) -> &SourceTerms;

    /// Wait for messages, some seconds at most, and take up to this many. Nothing means that there is nothing, or that
    /// all of it is hidden. May be dropped while it waits: what it had already taken comes again.
    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, SourceError>;

    /// It was applied: never deliver it again.
    async fn acknowledge(&self, delivery: &Delivery) -> Result<(), SourceError>;

    /// They are still in hand: hide each for another [`SourceTerms::visibility`], from now. One that cannot be extended
    /// must not keep the others from it.
    async fn extend(&self, deliveries: &[Arc<Delivery>]) -> Result<(), SourceError>;

    /// It is not wanted in hand any more: deliver it again, not before this delay. Failed tries are not left, they wait
    /// in hand: the broker may count every delivery.
    async fn leave(&self, delivery: &Delivery, delay: Duration) -> Result<(), SourceError>;

    /// It can never be applied: put it where a person finds it, with the reason, and only then never deliver it again.
    async fn dead_letter(
        &self,
        delivery: &Delivery,
        reason: &DeadLetterReason,
    ) -> Result<(), SourceError>;

    /// Whether it is still this process's to apply. If not it is [left](Self::leave) untried: its partition went to
    /// another process, or it could not be kept hidden and was delivered again.
    fn is_ours(&self, _delivery: &Delivery) -> bool {
        true
    }

    /// How many messages are not acknowledged, whether they wait or are in somebody's hand: asked when nothing was
    /// received, because what a process had that is gone is hidden, too. `None`: nothing is ever hidden.
    async fn unacknowledged(&self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    /// How many dead letters wait for a person, whoever put them there. `None`: it cannot be told.
    async fn dead_letters_waiting(&self) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }
}

/// What a source promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceTerms {
    /// How long a message stays hidden after it was received or extended. At least twice the handler's 99th
    /// percentile; it is extended every third of it.
    pub visibility: Duration,
    /// At most this many messages in one call.
    pub batch_max: usize,
    /// At most this many messages in hand: what failed waits there, and what is behind it in its key.
    pub held_max: usize,
    /// How long a message may stay in hand, extended again and again; `None`: without end. Then it is left.
    pub held_time_max: Option<Duration>,
    /// The broker itself holds back later messages of a group while an earlier one is not acknowledged (SQS FIFO).
    /// If not, the loop does what one process can.
    pub keeps_group_order: bool,
    /// The broker dead-letters by itself, in silence, what was received more often: it is dead-lettered before.
    pub broker_receives_max: Option<u32>,
}

/// One message in hand.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The source's own handle of this delivery.
    pub receipt: String,
    /// The bus's id of the message, the same at each delivery.
    pub message_id: String,
    /// What order is kept within, if the bus says so; else the event's key.
    pub group: Option<String>,
    /// Its place on the bus: rises within a group. Looked at only where the broker does not keep the order itself.
    pub order: u128,
    /// How often it was delivered, this time included.
    pub receives: u32,
    /// Its place in the producer's log, if the message says so.
    pub position: Option<i64>,
    /// The event in Symphony's own envelope, whichever the bus has: see [`restore`](crate::event::envelope::restore).
    pub body: Vec<u8>,
    /// Why the source could not tell which event it is.
    pub defect: Option<FieldError>,
}

/// A bus did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    /// In words, without anything of a message.
    pub message: String,
}

impl SourceError {
    /// In these words.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// Why a message is dead-lettered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterReason {
    /// Which kind.
    pub code: ReasonCode,
    /// In words, without anything of the payload.
    pub message: String,
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasonCode {
    /// It is not an event.
    Poison,
    /// The handler can never apply it.
    Rejected,
    /// All its tries failed.
    Exhausted,
}

impl ReasonCode {
    /// As it is written beside the dead letter.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Poison => "POISON",
            Self::Rejected => "REJECTED",
            Self::Exhausted => "RECEIVES_EXHAUSTED",
        }
    }
}
