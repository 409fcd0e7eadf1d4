//! The buses against real brokers, by the suite that every bus must pass; and their setup.

#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_front;
pub mod nats;
pub mod setup;
pub mod sns;

use chrono::Utc;
use symphony::event::envelope::{Binding, Format};
use symphony::lanes::events::bus::{Message, Publication};
use uuid::Uuid;

/// An event of this type.
pub fn message(event_type: &str) -> Message {
    let event_id = Uuid::new_v4();
    let event = serde_json::json!({
        "envelope": {
            "v": 1, "eventId": event_id, "occurredAt": "2026-11-02T09:30:00Z", "tenantId": "acme", "type": event_type
        },
        "key": { "transferId": "tr_1" },
        "payload": {},
    });
    Message::new(&Format::own(Binding::Nats), &event.to_string(), 1, Utc::now()).unwrap()
}

/// The code of a message that must be published again.
fn again_code(answers: &[Publication]) -> &str {
    match answers {
        [Publication::Again { trouble, unknown: false, .. }] => &trouble.code,
        other => panic!("{other:?}"),
    }
}
