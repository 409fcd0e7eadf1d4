//! How an event looks on a bus: in Symphony's own envelope, as a CloudEvent or as Debezium's outbox event router writes
//! it. Written once here, for every bus, and read back to the same event.
//!
//! - [`Envelope`]: the choice; [`Binding`]: how a bus carries what stands beside the body.
//! - [`Format::write`]: body, content type and headers, ready for the wire.
//! - [`restore`]: from a message that was received to the event, whichever of the envelopes it has.
//!
//! | envelope | body | beside it |
//! |---|---|---|
//! | symphony | the whole event | type, tenant, id, position, trace |
//! | cloudevents-structured | a CloudEvent 1.0 in JSON, the payload in `data` | the same, and the content type |
//! | cloudevents-binary | the payload | every attribute of the CloudEvent |
//! | debezium | the payload | id, type, key, tenant, time, position, trace |

mod binding;
mod cloud_event;
mod read;
mod write;

#[cfg(test)]
mod tests;

use serde::Deserialize;

pub use self::binding::Binding;
pub use self::read::{Restored, restore};
pub use self::write::{Format, Written};

/// What a CloudEvent says of its source, unless the bus is told otherwise.
pub const DEFAULT_SOURCE: &str = "/symphony";
/// The longest source, in bytes.
pub const SOURCE_BYTES_MAX: usize = 255;

/// How events look on a bus.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
pub enum Envelope {
    /// The event as it was told: envelope, key and payload.
    #[default]
    #[serde(rename = "symphony")]
    Symphony,
    /// CloudEvents 1.0, all of it in the body.
    #[serde(rename = "cloudevents-structured")]
    CloudEventsStructured,
    /// CloudEvents 1.0, the payload in the body and the attributes in headers.
    #[serde(rename = "cloudevents-binary")]
    CloudEventsBinary,
    /// As Debezium's outbox event router writes it: the payload in the body, the rest in headers.
    #[serde(rename = "debezium")]
    Debezium,
}

impl Envelope {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Symphony, Self::CloudEventsStructured, Self::CloudEventsBinary, Self::Debezium];

    /// As configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Symphony => "symphony",
            Self::CloudEventsStructured => "cloudevents-structured",
            Self::CloudEventsBinary => "cloudevents-binary",
            Self::Debezium => "debezium",
        }
    }
}

/// What there is beside the body, by its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    EventId,
    EventType,
    TenantId,
    OccurredAt,
    KeyName,
    Key,
    Position,
    Traceparent,
}

/// The headers of Debezium's shape: on a broker, and over HTTP, where such plain names would be anybody's.
const DEBEZIUM: [(Field, &str, &str); 8] = [
    (Field::EventId, "id", "x-debezium-id"),
    (Field::EventType, "eventType", "x-debezium-eventtype"),
    (Field::Key, "key", "x-debezium-key"),
    (Field::KeyName, "keyName", "x-debezium-keyname"),
    (Field::TenantId, "tenantId", "x-debezium-tenantid"),
    (Field::OccurredAt, "occurredAt", "x-debezium-occurredat"),
    (Field::Position, "position", "x-debezium-position"),
    (Field::Traceparent, "traceparent", "traceparent"),
];
