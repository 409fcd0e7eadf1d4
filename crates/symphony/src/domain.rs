//! The words of the payment lane: ids, payloads, states and outcomes. Nothing here does I/O.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

/// Bounds that the database enforces; repeated here so that callers can size their batches.
pub mod limits {
    /// The most items one enqueue, claim or completion may carry.
    pub const BATCH_ITEMS_MAX: usize = 4096;
    /// Into how many buckets the keys of events fall.
    pub const BUCKETS: usize = 256;
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

/// Why a text is no payload. Never contains any of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Not JSON at all.
    #[error("payload is not valid JSON (line {line}, column {column})")]
    NotJson {
        /// Where reading stopped.
        line: usize,
        /// Where reading stopped.
        column: usize,
    },
    /// JSON, but a list, a string, a number, ...
    #[error(
        "payload must be a JSON object, such as {{\"amount\": {{\"value\": \"10.00\", \"currency\": \"EUR\"}}}}"
    )]
    NotAnObject,
    /// The same key twice in one object.
    #[error(
        "payload repeats a key inside one object (line {line}, column {column}): readers would disagree on its value"
    )]
    RepeatedKey {
        /// Where the second one ends.
        line: usize,
        /// Where the second one ends.
        column: usize,
    },
    /// PostgreSQL cannot store it.
    #[error("payload contains the character \\u0000, which PostgreSQL cannot store")]
    NulCharacter,
    /// Over the limit.
    #[error("payload has {bytes} bytes: at most 1 MiB is allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl Payload {
    /// Check and keep a JSON text.
    pub fn parse(text: &str) -> Result<Self, PayloadError> {
        if text.len() > limits::PAYLOAD_BYTES_MAX {
            return Err(PayloadError::TooLarge { bytes: text.len() });
        }
        let raw: Box<RawValue> = serde_json::from_str(text)
            .map_err(|e| PayloadError::NotJson { line: e.line(), column: e.column() })?;
        if !raw.get().starts_with('{') {
            return Err(PayloadError::NotAnObject);
        }
        let mut seen = json::Seen::default();
        let mut reader = serde_json::Deserializer::from_str(raw.get());
        if let Err(error) = serde::de::DeserializeSeed::deserialize(&mut seen, &mut reader) {
            // The only error this walk raises itself; everything else is the reader's.
            let (line, column) = (error.line(), error.column());
            return Err(if error.to_string().starts_with(json::REPEATED_KEY) {
                PayloadError::RepeatedKey { line, column }
            } else {
                PayloadError::NotJson { line, column }
            });
        }
        if seen.nul_character {
            return Err(PayloadError::NulCharacter);
        }
        Ok(Self(raw))
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    pub(crate) fn as_raw(&self) -> &RawValue {
        &self.0
    }
}

/// Walks a JSON text once, looking for what [`Payload`] refuses. Values are not kept.
mod json {
    use std::collections::HashSet;
    use std::fmt;

    use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

    pub(super) const REPEATED_KEY: &str = "repeated key";

    #[derive(Default)]
    pub(super) struct Seen {
        pub(super) nul_character: bool,
    }

    impl<'de> DeserializeSeed<'de> for &mut Seen {
        type Value = ();
        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            deserializer.deserialize_any(self)
        }
    }

    impl<'de> Visitor<'de> for &mut Seen {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }
        fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
            Ok(())
        }
        fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
            Ok(())
        }
        fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
            Ok(())
        }
        fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
            Ok(())
        }
        fn visit_unit<E: Error>(self) -> Result<(), E> {
            Ok(())
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
            self.nul_character |= text.contains('\0');
            Ok(())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
            while items.next_element_seed(&mut *self)?.is_some() {}
            Ok(())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
            let mut keys = HashSet::new();
            while let Some(key) = entries.next_key::<String>()? {
                self.nul_character |= key.contains('\0');
                if !keys.insert(key) {
                    return Err(A::Error::custom(REPEATED_KEY));
                }
                entries.next_value_seed(&mut *self)?;
            }
            Ok(())
        }
    }
}

/// One payment asked for.
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

/// Who acts on items, why, and who approved it.
#[derive(Debug, Clone)]
pub struct Act {
    /// The person acting.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The second person, where approval is required.
    pub approver: Option<String>,
    /// Answer what would change, and change nothing.
    pub dry_run: bool,
    /// Act although the rail never said what became of an earlier try; the reason says how the person knows.
    pub despite_unknown: bool,
}

/// A place whose work can be paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch {
    /// The whole payment lane.
    Lane,
    /// One rail.
    Rail(String),
    /// One participant.
    Participant(String),
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
            (r#"{"a": 1, "a": 2}"#, "repeats a key"),
            (r#"{"b": [{"a": 1, "a": 2}]}"#, "repeats a key"),
            (r#"{"a": "x\u0000y"}"#, "u0000"),
            (r#"{"a\u0000": 1}"#, "u0000"),
            (&large, "at most 1 MiB"),
        ] {
            let error = Payload::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
