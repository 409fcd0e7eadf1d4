//! The parts of an event that was accepted already.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::FieldError;
use crate::json::{self, Members};

/// What an accepted event says, borrowed from its text.
///
/// Only that everything is there is checked: the rest was, when the event was accepted. This is called for every event
/// that is published.
#[derive(Debug, Clone)]
pub struct Parts<'a> {
    /// As it was written.
    pub event_id: Cow<'a, str>,
    /// As it was written.
    pub occurred_at: Cow<'a, str>,
    /// Whose it is.
    pub tenant_id: Cow<'a, str>,
    /// Such as `events.transfers.submitted.usdc`.
    pub event_type: Cow<'a, str>,
    /// W3C trace context.
    pub traceparent: Option<Cow<'a, str>>,
    /// The name of the key's only member, such as `transferId`.
    pub key_name: Cow<'a, str>,
    /// Its value.
    pub key: Cow<'a, str>,
    /// What there is to say.
    pub payload: &'a RawValue,
}

impl<'a> Parts<'a> {
    /// Take an event apart.
    pub fn read(event: &'a str) -> Result<Self, FieldError> {
        let (mut envelope, mut key, mut payload) = (None, None, None);
        json::each_member(event, |name, value| {
            match &*name {
                "envelope" => envelope = Some(value),
                "key" => key = Some(value),
                "payload" => payload = Some(value),
                _ => {}
            }
            true
        });
        let missing = |field: &'static str| {
            move || FieldError::new(field, "is missing: was this event accepted?")
        };
        let envelope = envelope.and_then(Members::of).ok_or_else(missing("envelope"))?;
        let text = |field: &'static str| {
            let name = field.rsplit('.').next().unwrap_or(field);
            envelope.get(name).and_then(json::text)
        };
        let need = |field: &'static str| text(field).ok_or_else(missing(field));
        let mut members = None;
        if let Some(key) = key {
            json::each_member(key.get(), |name, value| {
                members = Some((name, value));
                false
            });
        }
        let (key_name, key) = members.ok_or_else(missing("key"))?;
        Ok(Self {
            event_id: need("envelope.eventId")?,
            occurred_at: need("envelope.occurredAt")?,
            tenant_id: need("envelope.tenantId")?,
            event_type: need("envelope.type")?,
            traceparent: text("envelope.traceparent"),
            key_name,
            key: json::text(key).ok_or_else(missing("key"))?,
            payload: payload.ok_or_else(missing("payload"))?,
        })
    }

    /// The event they came from, as PostgreSQL writes it: so one that went through the outbox is the same text again.
    pub fn to_event(&self) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let traceparent = match &self.traceparent {
            Some(traceparent) => format!(", \"traceparent\": {}", quoted(traceparent)),
            None => String::new(),
        };
        format!(
            "{{\"key\": {{{}: {}}}, \"payload\": {}, \"envelope\": {{\"v\": 1, \"type\": {}, \"eventId\": {}, \
             \"tenantId\": {}, \"occurredAt\": {}{traceparent}}}}}",
            quoted(&self.key_name),
            quoted(&self.key),
            self.payload.get(),
            quoted(&self.event_type),
            quoted(&self.event_id),
            quoted(&self.tenant_id),
            quoted(&self.occurred_at),
        )
    }
}
