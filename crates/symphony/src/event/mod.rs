//! What an event is: the envelope, the key and the payload, checked. Pure functions: no I/O, numbers stay text, and no
//! error repeats a value.
//!
//! - [`Event::parse`]: every rule of the contract, in the order in which they are checked.
//! - [`Header`]: the few fields a dispatcher needs of an event that was accepted already.
//! - [`rules`]: limits and patterns, word for word the same in SQL and in `schemas/event.schema.json`.

mod header;
pub mod rules;
mod walk;

#[cfg(test)]
mod corpus_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use uuid::Uuid;

use self::rules::Rule;
use self::walk::Walk;

pub use self::header::Header;

/// The contract as a JSON Schema (2020-12), for producers in other languages.
pub const JSON_SCHEMA: &str = include_str!("../../../../schemas/event.schema.json");

/// Why something is no event. Never contains a value of it; names of members only where they look like names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub struct Defect {
    /// The field's path, such as `envelope.eventId`, or `event` for the whole.
    pub field: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl Defect {
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

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
    pub fn parse(text: &str) -> Result<Self, Defect> {
        if text.len() > rules::EVENT_BYTES_MAX {
            let problem = format!("is over {} bytes", rules::EVENT_BYTES_MAX);
            return Err(Defect::new("event", problem));
        }
        let body: Box<RawValue> =
            serde_json::from_str(text).map_err(|_| Defect::new("event", "is not valid JSON"))?;
        check_texts(body.get())?;

        let event = members("event", &body, &["envelope", "key", "payload"], &[])?;
        let envelope = member("envelope", event.get("envelope"), "a JSON object")?;
        let envelope = members(
            "envelope",
            envelope,
            &["v", "eventId", "occurredAt", "tenantId", "type"],
            &["traceparent"],
        )?;
        let text = |field: &'static str, rule: Rule| {
            let name = field.rsplit('.').next().unwrap_or(field);
            rule.read(field, member(field, envelope.get(name), rule.wanted())?)
        };
        let version = member("envelope.v", envelope.get("v"), "the number 1")?;
        if !rules::is_one(version.get()) {
            return Err(Defect::new("envelope.v", "must be the number 1"));
        }
        let event_id = text("envelope.eventId", Rule::EventId)?;
        let event_id = Uuid::parse_str(&event_id)
            .map_err(|_| Defect::new("envelope.eventId", "must be a UUID"))?;
        let occurred_at = text("envelope.occurredAt", Rule::OccurredAt)?;
        let tenant_id = text("envelope.tenantId", Rule::TenantId)?;
        let event_type = text("envelope.type", Rule::EventType)?;
        let traceparent = match envelope.get("traceparent") {
            None => None,
            Some(_) => Some(text("envelope.traceparent", Rule::Traceparent)?),
        };

        let (key_name, key) = read_key(member("key", event.get("key"), KEY_WANTED)?)?;
        let payload = member("payload", event.get("payload"), "a JSON object")?;
        object("payload", payload)?;
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

fn read_key(key: &RawValue) -> Result<(String, String), Defect> {
    let problem = || Defect::new("key", format!("must be {KEY_WANTED}"));
    let mut members = object("key", key)?.into_iter();
    let (Some((name, value)), None) = (members.next(), members.next()) else {
        return Err(problem());
    };
    if name.is_empty() {
        return Err(Defect::new("key", "must have a name that is not empty"));
    }
    Ok((name, Rule::Key.read("key", value)?))
}

/// What two readers could read differently, or no database can keep, anywhere in the event.
fn check_texts(event: &str) -> Result<(), Defect> {
    let mut walk = Walk::new(event);
    while let Some(text) = walk.next_text() {
        let problem = match &text.content {
            None => "has half a surrogate pair, which is no text",
            Some(content) if content.contains('\0') => {
                "has a NUL character (\\u0000), which no database can keep"
            }
            Some(_) if text.is_repeated => "is there twice: readers would disagree on its value",
            Some(_) => continue,
        };
        return Err(Defect::new(walk.path(), problem));
    }
    Ok(())
}

type Members<'a> = BTreeMap<String, &'a RawValue>;

fn object<'a>(field: &'static str, value: &'a RawValue) -> Result<Members<'a>, Defect> {
    let refuse = || {
        let problem = format!("must be a JSON object, not {}", rules::kind_in_words(value.get()));
        Defect::new(field, problem)
    };
    if !value.get().starts_with('{') {
        return Err(refuse());
    }
    serde_json::from_str(value.get()).map_err(|_| refuse())
}

/// An object's members, if no other than these are there. Which are missing is said where they are read.
fn members<'a>(
    field: &'static str,
    value: &'a RawValue,
    required: &[&str],
    optional: &[&str],
) -> Result<Members<'a>, Defect> {
    let found = object(field, value)?;
    if found.keys().any(|name| !required.iter().chain(optional).any(|known| known == name)) {
        let known: Vec<&str> = required.iter().chain(optional).copied().collect();
        let problem = format!("has an unknown member: it may have {}", known.join(", "));
        return Err(Defect::new(field, problem));
    }
    Ok(found)
}

fn member<'a>(
    field: &'static str,
    value: Option<&&'a RawValue>,
    wanted: &str,
) -> Result<&'a RawValue, Defect> {
    value.copied().ok_or_else(|| Defect::new(field, format!("is missing: it must be {wanted}")))
}
