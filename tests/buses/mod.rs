//! The buses against real brokers, by the suite that every bus must pass; and their setup.

mod nats;
mod setup;
pub mod sns;

use chrono::Utc;
use serde_json::value::RawValue;
use symphony::lanes::events::bus::{Message, Publication};
use uuid::Uuid;

/// An event of this type.
pub fn message(event_type: &str) -> Message {
    let event_id = Uuid::new_v4();
    let body = serde_json::json!({ "envelope": { "eventId": event_id, "type": event_type } });
    Message {
        event_id,
        position: 1,
        key: "tr_1".to_owned(),
        event_type: event_type.to_owned(),
        tenant_id: "acme".to_owned(),
        traceparent: None,
        created_at: Utc::now(),
        body: RawValue::from_string(body.to_string()).unwrap(),
    }
}

/// The code of a message that must be published again.
fn again_code(answers: &[Publication]) -> &str {
    match answers {
        [Publication::Again { trouble, unknown: false, .. }] => &trouble.code,
        other => panic!("{other:?}"),
    }
}
