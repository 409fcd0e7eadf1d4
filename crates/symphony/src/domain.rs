//! The words of the payment lane: ids, payloads, states and outcomes. Nothing here does I/O.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::FieldError;
use crate::json::{self, JsonProblem, Kind};

/// Bounds that the database enforces; repeated here so that callers can size their batches.
pub mod limits {
    /// The most items one enqueue, claim or completion may carry.
    pub const BATCH_ITEMS_MAX: usize = 4096;
    /// Into how many buckets the keys of events fall.
    pub const BUCKETS: usize = 256;
    /// The longest name of a destination; the ledger cuts it off there.
    pub const DESTINATION_CHARACTERS_MAX: usize = 255;
    /// The most topics one registration may carry.
    pub const TOPICS_MAX: usize = 1000;
    /// The longest lease between two renewals.
    pub const LEASE_SECONDS_MAX: i32 = 3600;
    /// The largest payload, as PostgreSQL prints it.
    pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
    /// The number of outcomes after which a retryable one is final.
    pub const ATTEMPTS_BEFORE_CEILING: i32 = 20;
}

macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, sqlx::Type)]
        #[sqlx(transparent)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

uuid_newtype! {
    /// An item of the outbox: the row's name, another one if the row is lost and asked for again.
    OutboxId
}
uuid_newtype! {
    /// What a rail deduplicates by: derived by the database, the same on every try and after every loss of a row.
    RailKey
}
uuid_newtype! {
    /// The proof of a lease. Fresh for every claim of every item.
    LeaseToken
}

/// A payment's payload: a JSON object, kept as the text it was given.
///
/// Text and not a parsed tree, because a tree would turn numbers into floats. Repeated keys are refused:
/// PostgreSQL would silently keep the last, and two readers would see two amounts.
#[derive(Debug, Clone)]
pub struct Payload(Box<RawValue>);

impl Payload {
    /// Check and keep a JSON text.
    ///
    /// # Errors
    /// It is no JSON object, is too large, or has something in it that readers would read differently or PostgreSQL cannot
    /// store.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let refuse = |problem: String| FieldError::new("payload", problem);
        if text.len() > limits::PAYLOAD_BYTES_MAX {
            return Err(refuse(format!("has {} bytes: at most 1 MiB is allowed", text.len())));
        }
        let payload = json::check(text, json::Rules::default()).map_err(|error| {
            let at = format!("(line {}, column {})", error.line, error.column);
            match &error.problem {
                JsonProblem::Syntax(_) => refuse(format!("is not valid JSON {at}")),
                problem if error.path.is_empty() => refuse(format!("{problem} {at}")),
                problem => {
                    FieldError::new(&error.path, format!("{problem} {at}")).within("payload")
                }
            }
        })?;
        if Kind::of(payload) != Kind::Object {
            let example = r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#;
            return Err(refuse(format!("must be a JSON object, such as {example}")));
        }
        Ok(Self(payload.to_owned()))
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    pub(crate) fn as_raw(&self) -> &RawValue {
        &self.0
    }
}

/// One payment asked for. [`PaymentRequest::new`] has what every one needs.
#[derive(Debug, Clone)]
pub struct PaymentRequest {
    /// The business instruction it carries out.
    pub instruction_id: String,
    /// Whose stream it joins.
    pub participant_id: String,
    /// Repeating a request under the same key never pays twice.
    pub idempotency_key: String,
    /// The rail that shall carry it.
    pub rail_type: String,
    /// What the rail is told.
    pub payload: Payload,
    /// W3C trace context, carried along.
    pub traceparent: Option<String>,
}

impl PaymentRequest {
    /// A payment that carries out `instruction_id`, in the stream of `participant_id`, over `rail_type`. Its idempotency key
    /// is the instruction: asked for again, it is paid once.
    ///
    /// ```
    /// use symphony::domain::{Payload, PaymentRequest};
    ///
    /// let payload = Payload::parse(r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#)?;
    /// let request = PaymentRequest::new("invoice-17", "acme", "sepa", payload)
    ///     .idempotency_key("invoice-17/first-half");
    /// assert_eq!(request.rail_type, "sepa");
    /// # Ok::<(), symphony::FieldError>(())
    /// ```
    pub fn new(
        instruction_id: impl Into<String>,
        participant_id: impl Into<String>,
        rail_type: impl Into<String>,
        payload: Payload,
    ) -> Self {
        let instruction_id = instruction_id.into();
        Self {
            idempotency_key: instruction_id.clone(),
            instruction_id,
            participant_id: participant_id.into(),
            rail_type: rail_type.into(),
            payload,
            traceparent: None,
        }
    }

    /// Another key than the instruction: where one instruction is carried out by several payments.
    #[must_use]
    pub fn idempotency_key(self, key: impl Into<String>) -> Self {
        Self { idempotency_key: key.into(), ..self }
    }

    /// W3C trace context, carried along.
    #[must_use]
    pub fn traceparent(self, traceparent: impl Into<String>) -> Self {
        Self { traceparent: Some(traceparent.into()), ..self }
    }
}

/// How a ledger row ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AttemptState {
    /// Kept for older readers, never written.
    Dispatching,
    /// The rail has accepted it. Terminal.
    Dispatched,
    /// Surely not executed, or unknown: it will be tried or inquired after again.
    Retryable,
    /// The money did not move. Terminal.
    Failed,
    /// The worker was lost.
    ZombieRequeue,
}

/// What a worker may say of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Outcome {
    /// The rail has accepted it.
    Dispatched,
    /// Surely not executed; try again.
    Retryable,
    /// Nobody knows whether the money moved: inquire before anything else.
    Unknown,
    /// The rail has refused it; the money did not move.
    Failed,
}

#[cfg(feature = "worker")]
impl Outcome {
    pub(crate) fn state(self) -> &'static str {
        match self {
            Self::Dispatched => "DISPATCHED",
            Self::Retryable | Self::Unknown => "RETRYABLE",
            Self::Failed => "FAILED",
        }
    }
}

/// How a person settles a parked item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The money moved; the rail's reference is the proof.
    Dispatched {
        /// The rail's reference.
        rail_reference: String,
    },
    /// The money did not move and shall not.
    Failed,
    /// The money did not move; send it again.
    Retry,
}

impl Resolution {
    /// The word for it in SQL, and the reference that proves it.
    pub fn words(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Dispatched { rail_reference } => ("DISPATCHED", Some(rail_reference)),
            Self::Failed => ("FAILED", None),
            Self::Retry => ("RETRY", None),
        }
    }
}

/// Who acts on items, and why.
#[derive(Debug, Clone)]
pub struct Act {
    /// The person acting.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// Answer what would change, and change nothing.
    pub dry_run: bool,
    /// Act although the rail never said what became of an earlier try; the reason says how the person knows.
    pub despite_unknown: bool,
}

/// A place whose work can be paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch {
    /// The whole payment lane.
    Payments,
    /// One rail.
    Rail(String),
    /// One participant.
    Participant(String),
    /// The whole event lane.
    Events,
    /// One topic of a bus, as `bus/topic`.
    Topic(String),
    /// The whole trigger lane.
    Triggers,
    /// One app.
    App(String),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn payload_keeps_its_text_to_the_last_digit() {
        let text = r#"{"amount": {"value": "10.00"}, "n": 12345678901234567890.123456789012345}"#;
        assert_eq!(Payload::parse(text).unwrap().as_str(), text);
    }

    #[test]
    fn payload_refuses_what_would_be_misread() {
        let large = format!(r#"{{"x": "{}"}}"#, "a".repeat(2 << 20));
        for (text, expected) in [
            ("", "not valid JSON"),
            ("{", "not valid JSON"),
            ("[1]", "must be a JSON object"),
            ("\"{}\"", "must be a JSON object"),
            ("\n{\n\"a\": 1x}", "payload is not valid JSON (line 3, column 7)"),
            ("{\n\"a\": 1, \"a\": 2}", "payload.a is there twice"),
            ("{\n\"a\": 1, \"a\": 2}", "(line 2, column 11)"),
            (r#"{"b": [{"a": 1, "a": 2}]}"#, "payload.b[0].a is there twice"),
            (r#"{"a": "x\u0000y"}"#, "payload.a has a NUL character (\\u0000)"),
            (r#"{"a\u0000": 1}"#, "payload.? has a NUL character"),
            (r#"{"a": "\ud800"}"#, "half a surrogate pair"),
            (&format!("{{\"a\": {}{}}}", "[".repeat(127), "]".repeat(127)), "nested too deeply"),
            (r#"{"a": 1e351}"#, "payload.a has a number with too many digits"),
            (&large, "at most 1 MiB"),
        ] {
            let error = Payload::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
