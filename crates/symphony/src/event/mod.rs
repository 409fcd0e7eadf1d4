//! What an event is: the envelope, the key and the payload, checked. Pure functions: no I/O, numbers stay text, and no
//! error repeats a value: names of members only where they look like names.
//!
//! - [`Event::parse`]: every rule of the contract, in the order in which they are checked; [`Event::builder`]: from parts.
//! - [`Parts`]: what an event says that was accepted already.
//! - `envelope`: how it looks on a bus, and how it is read back (with the feature `worker` or `consumer`).
//! - [`rules`]: limits and patterns, word for word the same in SQL and in `schemas/event.schema.json`.

mod builder;
#[cfg(any(feature = "consumer", feature = "worker"))]
pub mod envelope;
mod parts;
pub mod rules;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod tests;

use serde_json::value::RawValue;
use uuid::Uuid;

use self::rules::Rule;
use crate::json::{self, JsonProblem, Members};

pub use self::builder::EventBuilder;
pub use self::parts::Parts;
pub use crate::FieldError;

/// The contract as a JSON Schema (2020-12), for producers in other languages.
pub const JSON_SCHEMA: &str = include_str!("../../schemas/event.schema.json");

/// An event that keeps every rule. There is no other way to make one than to check it.
#[derive(Debug, Clone)]
#[allow(clippy::struct_field_names)] // The contract's own words.
pub struct Event {
    event_id: Uuid,
    occurred_at: String,
    tenant_id: String,
    event_type: String,
    traceparent: Option<String>,
    key_name: String,
    key: String,
    body: Box<RawValue>,
}

impl Event {
    /// Check an event and take it apart.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        if text.len() > rules::EVENT_BYTES_MAX {
            let problem = format!("is over {} bytes", rules::EVENT_BYTES_MAX);
            return Err(FieldError::new("event", problem));
        }
        let body = json::check(text, RULES).map_err(|error| match error.problem {
            JsonProblem::Syntax(_) => FieldError::new("event", "is not valid JSON"),
            _ => error.into_field("event"),
        })?;

        let event = members("event", body, &["envelope", "key", "payload"])?;
        let envelope = members(
            "envelope",
            event.need("envelope", "a JSON object")?,
            &["v", "eventId", "occurredAt", "tenantId", "type", "traceparent"],
        )?;
        let text = |field: &'static str, rule: Rule| {
            rule.read(field, envelope.need(field, rule.wanted())?)
        };
        let version = envelope.need("envelope.v", "the number 1")?;
        if !rules::is_one(version.get()) {
            return Err(FieldError::new("envelope.v", "must be the number 1"));
        }
        let event_id = text("envelope.eventId", Rule::EventId)?;
        let event_id = Uuid::parse_str(&event_id)
            .map_err(|_| FieldError::new("envelope.eventId", "must be a UUID"))?;
        let occurred_at = text("envelope.occurredAt", Rule::OccurredAt)?;
        let tenant_id = text("envelope.tenantId", Rule::TenantId)?;
        let event_type = text("envelope.type", Rule::EventType)?;
        let traceparent = match envelope.get("traceparent") {
            None => None,
            Some(_) => Some(text("envelope.traceparent", Rule::Traceparent)?),
        };

        let (key_name, key) = read_key(event.need("key", KEY_WANTED)?)?;
        Members::read("payload", event.need("payload", "a JSON object")?)?;
        let body = body.to_owned();
        Ok(Self { event_id, occurred_at, tenant_id, event_type, traceparent, key_name, key, body })
    }

    /// Constant across retries and redrives.
    pub fn event_id(&self) -> Uuid {
        self.event_id
    }

    /// When it happened, as it was written.
    pub fn occurred_at(&self) -> &str {
        &self.occurred_at
    }

    /// Whose it is.
    pub fn tenant_id(&self) -> &str {
        &self.tenant_id
    }

    /// Its type, such as `events.transfers.submitted.usdc`.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// W3C trace context.
    pub fn traceparent(&self) -> Option<&str> {
        self.traceparent.as_deref()
    }

    /// Its trace: what it names, or one of its own.
    #[cfg(any(feature = "consumer", feature = "worker"))]
    pub fn trace_id(&self) -> crate::trace::TraceId {
        crate::trace::TraceId::of(self.traceparent(), self.event_id)
    }

    /// The name of its key, such as `transferId`.
    pub fn key_name(&self) -> &str {
        &self.key_name
    }

    /// The value of its key: what order is kept within.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The whole event as text, byte for byte as it was given, spaces around it apart.
    pub fn body(&self) -> &RawValue {
        &self.body
    }
}

const KEY_WANTED: &str =
    "an object with exactly one member, a non-empty string of at most 255 characters";

/// What PostgreSQL's numbers can hold; the depth is for it to judge.
const RULES: json::Rules =
    json::Rules { names_may_repeat: false, depth_max: usize::MAX, digits_max: 131_072 };

fn read_key(key: &RawValue) -> Result<(String, String), FieldError> {
    let members = Members::read("key", key)?;
    let mut members = members.iter();
    let (Some((name, value)), None) = (members.next(), members.next()) else {
        return Err(FieldError::new("key", format!("must be {KEY_WANTED}")));
    };
    if name.is_empty() {
        return Err(FieldError::new("key", "must have a name that is not empty"));
    }
    if name.chars().count() > rules::CHARACTERS_MAX {
        return Err(FieldError::new("key", "must have a name of at most 255 characters"));
    }
    Ok((name.to_owned(), Rule::Key.read("key", value)?))
}

/// An object's members, if no other than these are there. Which are missing is said where they are read.
fn members<'a>(
    field: &str,
    value: &'a RawValue,
    known: &[&str],
) -> Result<Members<'a>, FieldError> {
    let found = Members::read(field, value)?;
    if found.names().any(|name| !known.contains(&name)) {
        let problem = format!("has an unknown member: it may have {}", known.join(", "));
        return Err(FieldError::new(field, problem));
    }
    Ok(found)
}
