//! What a bus is: the contract between the event lane and whatever carries events to their consumers.
//!
//! A bus is at-least-once: a message whose fate is unknown is published again under the same event id, and consumers
//! deduplicate. So there are three answers that matter: taken, never takeable, and anything else.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::event::envelope::{Binding, Envelope, Format};
use crate::event::{FieldError, Parts};

/// Carries events to their consumers.
///
/// The lane never publishes an event before the one ahead of it in its key is accepted, never puts two events of
/// one key into one batch, and puts a hard time limit ([`Terms::timeout`]) on every call: what it cuts off counts as
/// unknown.
///
/// ```
/// # use symphony::lanes::events::bus::{Bus, Message, Publication, Terms};
/// /// Prints every event: durable as long as somebody keeps what is printed.
/// struct Printer(Terms);
///
/// #[async_trait::async_trait]
/// impl Bus for Printer {
///     fn terms(&self) -> &Terms {
///         &self.0
///     }
///
///     async fn publish(&self, topic: &str, batch: &[&Message]) -> Vec<Publication> {
///         let print = |message: &&Message| {
///             println!("{topic} {}: {}", message.key, message.body);
///             Publication::Accepted { reference: message.event_id.to_string() }
///         };
///         batch.iter().map(print).collect()
///     }
/// }
/// ```
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// What the lane must know to use this bus well.
    fn terms(&self) -> &Terms;

    /// Publish to one topic, at most [`Terms::batch_max`] at once; one answer per message, in the order given.
    async fn publish(&self, topic: &str, batch: &[&Message]) -> Vec<Publication>;

    /// What can be seen wrong with a route's topic without asking anybody, and the fix.
    fn check_topic(&self, _topic: &str) -> Result<(), String> {
        Ok(())
    }
}

/// What a bus promises, and how long a call may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// How its messages carry what stands beside the body.
    pub binding: Binding,
    /// The hard limit on one publish call.
    pub timeout: Duration,
    /// At most this many messages in one call.
    pub batch_max: usize,
    /// How long a call that is not full waits for messages of other keys, where one call to the broker carries them all.
    /// Zero: a call is made of what one bucket has.
    pub fill_within: Duration,
    /// How long the bus swallows a repeated event id in silence. A redrive within it would reach nobody. Zero: it
    /// does not deduplicate.
    pub dedup_window: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            binding: Binding::default(),
            timeout: Duration::from_secs(10),
            batch_max: 10,
            fill_within: Duration::ZERO,
            dedup_window: Duration::ZERO,
        }
    }
}

/// One event on its way out, written as its bus is configured: an adapter only puts it on the wire.
#[derive(Debug, Clone)]
pub struct Message {
    /// Constant across retries and redrives: what a broker deduplicates by.
    pub event_id: Uuid,
    /// Its place in the log: rises with commit order within a key, so that a consumer can tell an old one.
    pub position: i64,
    /// The value of its key: what order is kept within. A message group, a record key.
    pub key: String,
    /// Its type, such as `events.transfers.submitted.usdc`: what a subject is made of.
    pub event_type: String,
    /// When it was committed to the outbox.
    pub created_at: DateTime<Utc>,
    /// JSON text.
    pub body: String,
    /// What the body is, for a bus that has a place of its own for it; the others find it in the headers where needed.
    pub content_type: &'static str,
    /// What stands beside the body, names and values encoded as [`Terms::binding`] has them.
    pub headers: Vec<(&'static str, String)>,
}

impl Message {
    /// An accepted event at its place in the log, as this format writes it.
    ///
    /// # Errors
    /// It is no event that could have been accepted.
    pub fn new(
        format: &Format,
        event: &str,
        position: i64,
        created_at: DateTime<Utc>,
    ) -> Result<Self, FieldError> {
        let parts = Parts::read(event)?;
        let event_id = Uuid::parse_str(&parts.event_id)
            .map_err(|_| FieldError::new("envelope.eventId", "must be a UUID"))?;
        Ok(Self::of_parts(format, event, &parts, event_id, position, created_at))
    }

    pub(super) fn of_parts(
        format: &Format,
        event: &str,
        parts: &Parts<'_>,
        event_id: Uuid,
        position: i64,
        created_at: DateTime<Utc>,
    ) -> Self {
        let written = format.write(event, parts, position);
        Self {
            event_id,
            position,
            key: parts.key.to_string(),
            event_type: parts.event_type.to_string(),
            created_at,
            body: written.body,
            content_type: written.content_type,
            headers: written.headers,
        }
    }
}

impl Message {
    /// Let what its consumers do become a part of this dispatch, where the header is none of the event's own: in Debezium's
    /// shape it is, and SNS's ten attributes are full of CloudEvents'. The body stays the same on every try.
    pub(super) fn continue_trace(&mut self, format: &Format, traceparent: String) {
        const NAME: &str = "traceparent";
        let is_events_own = match format.envelope {
            Envelope::Debezium => true,
            Envelope::CloudEventsBinary => format.binding == Binding::Sns,
            Envelope::Symphony | Envelope::CloudEventsStructured => false,
        };
        if !is_events_own {
            self.headers.retain(|(name, _)| *name != NAME);
            self.headers.push((NAME, traceparent));
        }
    }
}

/// What is known of one message's fate. Texts never repeat the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publication {
    /// The bus has it durably.
    Accepted {
        /// The bus's own id of the message.
        reference: String,
    },
    /// It can never be published as it is (too large, malformed for this bus): FAILED at once.
    Refused(Trouble),
    /// It was surely not taken, or nobody knows: publish it again later, under the same event id.
    Again {
        /// What went wrong.
        trouble: Trouble,
        /// It may have been taken (no answer, cut connection, time limit).
        unknown: bool,
        /// Whose fault it is.
        cause: Cause,
        /// The bus asked to be left alone for this long.
        retry_after: Option<Duration>,
    },
}

/// Whose fault it is that a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Perhaps the message's own: it is one of its tries, and others go on.
    Message,
    /// The topic or the whole bus is unwell (unreachable, timing out, throttling, errors of its own): counts for the
    /// topic's circuit breaker. One of the message's tries only if it may have been taken.
    Destination,
    /// What an operator can mend (a missing topic, missing rights, a wrong address): counts for the topic's circuit
    /// breaker, is none of the message's tries, and never makes it FAILED.
    Setup,
}

/// Why a message was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Our code, such as `TIMEOUT`, `UNREACHABLE`, `OVERSIZE`, `THROTTLED`, `NO_SUCH_TOPIC`.
    pub code: String,
    /// In words, with the fix where there is one.
    pub message: String,
}

impl Trouble {
    /// With this code and these words.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}
