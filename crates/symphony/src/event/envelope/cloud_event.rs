//! CloudEvents 1.0: which attribute means what.

use super::Field;

/// The version of the specification.
pub(super) const SPECVERSION: &str = "1.0";
/// A CloudEvent in JSON.
pub(super) const CONTENT_TYPE: &str = "application/cloudevents+json";

/// An attribute of a CloudEvent, and its header over HTTP, NATS and SNS (`-`) and over Kafka (`_`).
pub(super) struct Attribute {
    pub(super) field: Field,
    pub(super) name: &'static str,
    pub(super) dash: &'static str,
    pub(super) underscore: &'static str,
}

const fn attribute(
    field: Field,
    name: &'static str,
    dash: &'static str,
    underscore: &'static str,
) -> Attribute {
    Attribute { field, name, dash, underscore }
}

/// Those an event fills. `traceparent` and `sequence` are extensions that CloudEvents documents; `tenantid` and
/// `keyname` are ours, so that the event can be read back.
pub(super) const ATTRIBUTES: [Attribute; 8] = [
    attribute(Field::EventId, "id", "ce-id", "ce_id"),
    attribute(Field::EventType, "type", "ce-type", "ce_type"),
    attribute(Field::Key, "subject", "ce-subject", "ce_subject"),
    attribute(Field::OccurredAt, "time", "ce-time", "ce_time"),
    attribute(Field::TenantId, "tenantid", "ce-tenantid", "ce_tenantid"),
    attribute(Field::KeyName, "keyname", "ce-keyname", "ce_keyname"),
    attribute(Field::Position, "sequence", "ce-sequence", "ce_sequence"),
    attribute(Field::Traceparent, "traceparent", "ce-traceparent", "ce_traceparent"),
];

/// A position as `sequence` has it: compared as text, so every one is as long as the longest.
pub(super) fn sequence(position: i64) -> String {
    format!("{position:019}")
}
