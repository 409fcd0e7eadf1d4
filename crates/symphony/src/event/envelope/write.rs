//! From an event to what goes out.

use super::cloud_event::{self, ATTRIBUTES};
use super::{Binding, DEBEZIUM, DEFAULT_SOURCE, Envelope, Field};
use crate::event::Parts;

const JSON: &str = "application/json";

/// How a bus's events look: the envelope that was chosen for it, on the wire that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// Which envelope.
    pub envelope: Envelope,
    /// Which wire.
    pub binding: Binding,
    /// The `source` of CloudEvents.
    pub source: String,
}

/// An event, ready for the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// JSON text.
    pub body: String,
    /// What the body is.
    pub content_type: &'static str,
    /// What stands beside it, encoded as the binding has it; the content type too, except over HTTP.
    pub headers: Vec<(&'static str, String)>,
}

impl Format {
    /// Symphony's own envelope on this wire.
    pub fn own(binding: Binding) -> Self {
        Self::new(Envelope::Symphony, binding)
    }

    /// An envelope on a wire, from the usual source.
    pub fn new(envelope: Envelope, binding: Binding) -> Self {
        Self { envelope, binding, source: DEFAULT_SOURCE.to_owned() }
    }

    /// Write an event at its place in the log; `parts` are its own.
    pub fn write(&self, event: &str, parts: &Parts<'_>, position: i64) -> Written {
        let mut headers = Vec::new();
        let (body, content_type) = match self.envelope {
            Envelope::Symphony => {
                self.own_headers(parts, position, &mut headers);
                (event.to_owned(), JSON)
            }
            Envelope::CloudEventsStructured => {
                self.own_headers(parts, position, &mut headers);
                self.content_type(cloud_event::CONTENT_TYPE, &mut headers);
                (self.structured(parts, position), cloud_event::CONTENT_TYPE)
            }
            Envelope::CloudEventsBinary => {
                self.attributes(parts, position, &mut headers);
                (parts.payload.get().to_owned(), JSON)
            }
            Envelope::Debezium => {
                self.debezium(parts, position, &mut headers);
                (parts.payload.get().to_owned(), JSON)
            }
        };
        Written { body, content_type, headers }
    }

    fn own_headers(
        &self,
        parts: &Parts<'_>,
        position: i64,
        headers: &mut Vec<(&'static str, String)>,
    ) {
        let http = self.binding == Binding::Http;
        let name = |broker, over_http| if http { over_http } else { broker };
        let own = [
            (Some(name("type", "symphony-event-type")), &*parts.event_type),
            (Some(name("tenantId", "symphony-tenant-id")), &*parts.tenant_id),
            // Over HTTP it is the webhook's id.
            ((!http).then_some("eventId"), &*parts.event_id),
            // SNS and Kafka have a place of their own for it.
            ((self.binding == Binding::Nats).then_some("key"), &*parts.key),
            (Some("traceparent"), parts.traceparent.as_deref().unwrap_or_default()),
        ];
        headers.push((name("position", "symphony-position"), position.to_string()));
        for (name, value) in own {
            let Some(name) = name.filter(|_| !value.is_empty()) else { continue };
            headers.extend(self.binding.own(value).map(|value| (name, value)));
        }
    }

    fn structured(&self, parts: &Parts<'_>, position: i64) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let mut text = format!(
            "{{\"specversion\": \"{}\", \"source\": {}",
            cloud_event::SPECVERSION,
            quoted(&self.source)
        );
        for attribute in &ATTRIBUTES {
            if let Some(value) = value(attribute.field, parts, position, true) {
                text.push_str(&format!(", \"{}\": {}", attribute.name, quoted(&value)));
            }
        }
        text.push_str(&format!(", \"datacontenttype\": \"{JSON}\", \"data\": "));
        text.push_str(parts.payload.get());
        text.push('}');
        text
    }

    fn attributes(
        &self,
        parts: &Parts<'_>,
        position: i64,
        headers: &mut Vec<(&'static str, String)>,
    ) {
        let kafka = self.binding == Binding::Kafka;
        let (specversion, source) =
            if kafka { ("ce_specversion", "ce_source") } else { ("ce-specversion", "ce-source") };
        headers.push((specversion, cloud_event::SPECVERSION.to_owned()));
        headers.push((source, self.binding.encode(&self.source)));
        for attribute in &ATTRIBUTES {
            let name = match (self.binding, attribute.field) {
                (Binding::Kafka, _) => attribute.underscore,
                // What subscriptions filter by; with a second one there would be eleven, and SNS takes ten.
                (Binding::Sns, Field::EventType) => "type",
                _ => attribute.dash,
            };
            if let Some(value) = value(attribute.field, parts, position, true) {
                headers.push((name, self.binding.encode(&value)));
            }
        }
        if self.binding == Binding::Http
            && let Some(traceparent) = &parts.traceparent
        {
            headers.push(("traceparent", traceparent.to_string()));
        }
        if self.binding == Binding::Nats {
            // NATS has no content type of its own: its binding makes the attribute a header as all others are.
            headers.push(("ce-datacontenttype", JSON.to_owned()));
        }
        self.content_type(JSON, headers);
    }

    fn debezium(
        &self,
        parts: &Parts<'_>,
        position: i64,
        headers: &mut Vec<(&'static str, String)>,
    ) {
        for (field, broker, http) in DEBEZIUM {
            let name = if self.binding == Binding::Http { http } else { broker };
            if let Some(value) = value(field, parts, position, false) {
                headers.push((name, self.binding.encode(&value)));
            }
        }
        if self.binding == Binding::Sns {
            // What subscriptions filter by.
            headers.push(("type", parts.event_type.to_string()));
        }
    }

    /// HTTP has a place of its own for it; in SNS's ten attributes there is none left, and JSON is what is assumed.
    fn content_type(&self, is: &str, headers: &mut Vec<(&'static str, String)>) {
        let none = match self.binding {
            Binding::Http => true,
            Binding::Sns => is == JSON,
            Binding::Nats | Binding::Kafka => false,
        };
        if !none {
            headers.push(("content-type", is.to_owned()));
        }
    }
}

fn value(field: Field, parts: &Parts<'_>, position: i64, sequence: bool) -> Option<String> {
    Some(match field {
        Field::EventId => parts.event_id.to_string(),
        Field::EventType => parts.event_type.to_string(),
        Field::TenantId => parts.tenant_id.to_string(),
        Field::OccurredAt => parts.occurred_at.to_string(),
        Field::KeyName => parts.key_name.to_string(),
        Field::Key => parts.key.to_string(),
        Field::Position if sequence => cloud_event::sequence(position),
        Field::Position => position.to_string(),
        Field::Traceparent => parts.traceparent.as_ref()?.to_string(),
    })
}
