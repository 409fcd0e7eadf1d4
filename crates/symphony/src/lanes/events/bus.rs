//! What a bus is: the contract between the event lane and whatever carries events to their consumers.
//!
//! A bus is at-least-once: a message whose fate is unknown is published again under the same event id, and consumers
//! deduplicate. So there are three answers that matter: taken, never takeable, and anything else.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use uuid::Uuid;

/// Carries events to their consumers.
///
/// The lane never publishes an event before the one ahead of it in its key is accepted, never puts two events of
/// one key into one batch, and puts a hard time limit ([`Terms::timeout`]) on every call: what it cuts off counts as
/// unknown.
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
    /// The hard limit on one publish call.
    pub timeout: Duration,
    /// At most this many messages in one call.
    pub batch_max: usize,
    /// How long the bus swallows a repeated event id in silence. A redrive within it would reach nobody. Zero: it
    /// does not deduplicate.
    pub dedup_window: Duration,
}

/// One event on its way out.
#[derive(Debug, Clone)]
pub struct Message {
    /// Constant across retries and redrives.
    pub event_id: Uuid,
    /// Its place in the log: rises with commit order within a key, so that a consumer can tell an old one.
    pub position: i64,
    /// The value of its key: what order is kept within.
    pub key: String,
    /// Its type, such as `events.transfers.submitted.usdc`.
    pub event_type: String,
    /// Whose it is.
    pub tenant_id: String,
    /// W3C trace context, to be passed on.
    pub traceparent: Option<String>,
    /// When it was committed to the outbox.
    pub created_at: DateTime<Utc>,
    /// The whole event (envelope, key, payload), as text.
    pub body: Box<RawValue>,
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
        /// The bus itself is unwell (unreachable, timing out, throttling, 5xx), not just this message: counts for
        /// the circuit breaker.
        bus_unwell: bool,
        /// The bus asked to be left alone for this long.
        retry_after: Option<Duration>,
    },
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
