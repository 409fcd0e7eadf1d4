//! From what arrived back to the event.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::cloud_event::{self, ATTRIBUTES};
use super::{Binding, DEBEZIUM, Field};
use crate::FieldError;
use crate::event::Parts;
use crate::json::{self, Members};

/// A message that was received, in Symphony's own envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The event's text; the body as it came, if it cannot be told which event it is.
    pub body: Vec<u8>,
    /// Its place in the producer's log, if the message says so.
    pub position: Option<i64>,
    /// Why it cannot be told. Never with anything of the message's values.
    pub defect: Option<FieldError>,
}

/// Read a message in whichever envelope it has. What has none is given back as it is: the event's own check judges it.
pub fn restore<N: AsRef<str>, V: AsRef<str>>(
    binding: Binding,
    headers: impl IntoIterator<Item = (N, V)>,
    body: Vec<u8>,
) -> Restored {
    let headers = Headers {
        binding,
        all: headers
            .into_iter()
            .map(|(name, value)| (name.as_ref().to_ascii_lowercase(), value.as_ref().to_owned()))
            .collect(),
    };
    let text = std::str::from_utf8(&body).ok();
    let restored = match text {
        Some(text) if headers.get(headers.specversion()).is_some() => Some(headers.binary(text)),
        Some(text) if headers.is_structured(text) => Some(structured(text)),
        Some(text) if headers.is_debezium() => Some(headers.debezium(text)),
        _ => None,
    };
    match restored {
        None => {
            let position =
                headers.number("position").or_else(|| headers.number("symphony-position"));
            Restored { body, position, defect: None }
        }
        Some(Ok((event, position))) => Restored {
            body: event.into_bytes(),
            position: position.or_else(|| headers.number("position")),
            defect: None,
        },
        Some(Err(defect)) => Restored { body, position: None, defect: Some(defect) },
    }
}

type Read = Result<(String, Option<i64>), FieldError>;

struct Headers {
    binding: Binding,
    /// Names in lower case.
    all: Vec<(String, String)>,
}

impl Headers {
    fn get(&self, name: &str) -> Option<Cow<'_, str>> {
        let (_, value) = self.all.iter().find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        Some(self.binding.decode(value))
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(|value| value.parse().ok())
    }

    fn specversion(&self) -> &'static str {
        if self.binding == Binding::Kafka { "ce_specversion" } else { "ce-specversion" }
    }

    /// A broker may lose headers; an event of Symphony's own has no `specversion`.
    fn is_structured(&self, body: &str) -> bool {
        let said = self.get("content-type");
        if said.is_some_and(|said| said.starts_with(cloud_event::CONTENT_TYPE)) {
            return true;
        }
        let mut found = false;
        json::each_member(body, |name, _| {
            found = name == "specversion";
            !found && !matches!(&*name, "envelope" | "key" | "payload")
        });
        found
    }

    fn binary(&self, body: &str) -> Read {
        let specversion = self.get(self.specversion());
        require_version(self.specversion(), specversion.as_deref())?;
        parts(payload(body)?, |field| {
            let attribute = ATTRIBUTES.iter().find(|attribute| attribute.field == field)?;
            let name = match (self.binding, field) {
                (Binding::Kafka, _) => attribute.underscore,
                (Binding::Sns, Field::EventType) => "type",
                _ => attribute.dash,
            };
            Some((name, self.get(name)))
        })
    }

    fn debezium_name(&self, field: Field) -> Option<&'static str> {
        let (_, broker, http) = DEBEZIUM.into_iter().find(|(own, _, _)| *own == field)?;
        Some(if self.binding == Binding::Http { http } else { broker })
    }

    fn is_debezium(&self) -> bool {
        let has = |field| self.debezium_name(field).is_some_and(|name| self.get(name).is_some());
        has(Field::EventId) && has(Field::EventType)
    }

    fn debezium(&self, body: &str) -> Read {
        parts(payload(body)?, |field| {
            let name = self.debezium_name(field)?;
            Some((name, self.get(name)))
        })
    }
}

fn structured(body: &str) -> Read {
    let whole: &RawValue = serde_json::from_str(body)
        .map_err(|_| FieldError::new("event", "is no CloudEvent: it is not valid JSON"))?;
    let members = Members::read("event", whole)?;
    let text = |name: &str| members.get(name).and_then(json::text);
    require_version("specversion", text("specversion").as_deref())?;
    let data = members.need("data", "a JSON object, the event's payload")?;
    parts(data, |field| {
        let attribute = ATTRIBUTES.iter().find(|attribute| attribute.field == field)?;
        Some((attribute.name, text(attribute.name)))
    })
}

fn require_version(field: &str, version: Option<&str>) -> Result<(), FieldError> {
    match version {
        Some(cloud_event::SPECVERSION) => Ok(()),
        _ => Err(FieldError::new(field, "must be 1.0")),
    }
}

fn payload(body: &str) -> Result<&RawValue, FieldError> {
    serde_json::from_str(body).map_err(|_| FieldError::new("payload", "is not valid JSON"))
}

/// The event of these values; `get` says under which name each field is looked for, and what is there.
fn parts<'a>(
    payload: &'a RawValue,
    get: impl Fn(Field) -> Option<(&'static str, Option<Cow<'a, str>>)>,
) -> Read {
    let need = |field| match get(field) {
        Some((_, Some(value))) => Ok(value),
        Some((name, None)) => {
            Err(FieldError::new(name, "is missing: without it nobody can tell which event it is"))
        }
        None => Err(FieldError::new("event", "has an envelope that cannot be read")),
    };
    let optional = |field| get(field).and_then(|(_, value)| value);
    let parts = Parts {
        event_id: need(Field::EventId)?,
        occurred_at: need(Field::OccurredAt)?,
        tenant_id: need(Field::TenantId)?,
        event_type: need(Field::EventType)?,
        traceparent: optional(Field::Traceparent),
        key_name: need(Field::KeyName)?,
        key: need(Field::Key)?,
        payload,
    };
    let position = optional(Field::Position).and_then(|value| value.parse().ok());
    Ok((parts.to_event(), position))
}
