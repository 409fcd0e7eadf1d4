//! An event from its parts, for producers in Rust.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::{Event, FieldError};

/// Puts an [`Event`] together; [`build`](Self::build) checks it.
///
/// ```
/// use symphony::event::Event;
///
/// let event = Event::builder("events.orders.shipped", "acme")
///     .key("orderId", "17")
///     .payload(&serde_json::json!({"parcels": 2}))
///     .build()?;
/// assert_eq!((event.key_name(), event.key()), ("orderId", "17"));
/// # Ok::<(), symphony::event::FieldError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct EventBuilder {
    event_id: Uuid,
    occurred_at: Option<DateTime<Utc>>,
    tenant_id: String,
    event_type: String,
    traceparent: Option<String>,
    key: Option<(String, String)>,
    /// `None` if it could not be written as JSON.
    payload: Option<Box<RawValue>>,
}

/// In the contract's order.
#[derive(Serialize)]
struct Parts<'a> {
    envelope: Envelope<'a>,
    key: serde_json::Map<String, serde_json::Value>,
    payload: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    v: u8,
    event_id: Uuid,
    occurred_at: String,
    tenant_id: &'a str,
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
}

impl Event {
    /// An event of this type, of this tenant, with a fresh id. What it still needs is a key; without a payload that is empty,
    /// and without another time it has occurred when it is built.
    pub fn builder(event_type: impl Into<String>, tenant_id: impl Into<String>) -> EventBuilder {
        EventBuilder {
            event_id: Uuid::new_v4(),
            occurred_at: None,
            tenant_id: tenant_id.into(),
            event_type: event_type.into(),
            traceparent: None,
            key: None,
            payload: RawValue::from_string("{}".to_owned()).ok(),
        }
    }
}

impl EventBuilder {
    /// The id it is known by for ever: an event that is told again under the same id is told once.
    pub fn event_id(self, event_id: Uuid) -> Self {
        Self { event_id, ..self }
    }

    /// When it happened.
    pub fn occurred_at(self, at: DateTime<Utc>) -> Self {
        Self { occurred_at: Some(at), ..self }
    }

    /// W3C trace context, carried along.
    pub fn traceparent(self, traceparent: impl Into<String>) -> Self {
        Self { traceparent: Some(traceparent.into()), ..self }
    }

    /// What order is kept within, such as `("orderId", "17")`.
    pub fn key(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: Some((name.into(), value.into())), ..self }
    }

    /// What there is to say: a JSON object.
    pub fn payload(self, payload: &impl Serialize) -> Self {
        Self { payload: to_raw_value(payload).ok(), ..self }
    }

    /// The event, if it keeps every rule.
    pub fn build(self) -> Result<Event, FieldError> {
        let Some(payload) = &self.payload else {
            return Err(FieldError::new("payload", "cannot be written as JSON"));
        };
        let occurred_at = self.occurred_at.unwrap_or_else(Utc::now);
        let parts = Parts {
            envelope: Envelope {
                v: 1,
                event_id: self.event_id,
                occurred_at: occurred_at.to_rfc3339_opts(SecondsFormat::Millis, true),
                tenant_id: &self.tenant_id,
                r#type: &self.event_type,
                traceparent: self.traceparent.as_deref(),
            },
            key: self.key.into_iter().map(|(name, value)| (name, value.into())).collect(),
            payload,
        };
        let text = serde_json::to_string(&parts)
            .map_err(|_| FieldError::new("event", "cannot be written as JSON"))?;
        Event::parse(&text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_checked_like_what_is_read() {
        let built = |builder: EventBuilder| builder.build().map_err(|defect| defect.field);
        let good = || Event::builder("events.orders.shipped", "acme").key("orderId", "17");
        let id = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
        let event = built(good().event_id(id)).unwrap();
        assert_eq!((event.event_id(), event.tenant_id()), (id, "acme"));
        let again = Event::parse(event.body().get()).unwrap();
        assert_eq!(again.occurred_at(), event.occurred_at());
        for (builder, field) in [
            (Event::builder("events.orders.shipped", "acme"), "key"),
            (good().key("orderId", ""), "key"),
            (good().payload(&17), "payload"),
            (good().traceparent("no"), "envelope.traceparent"),
            (Event::builder("Not A Type", "acme").key("orderId", "17"), "envelope.type"),
        ] {
            assert_eq!(built(builder).unwrap_err(), field);
        }
    }
}
