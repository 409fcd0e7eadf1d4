//! The least that each party needs at NATS.

use serde_json::json;

use super::Policy;

/// For the server's configuration: may publish these subjects, and hear the answers.
pub(super) fn nats_producer(subjects: &[String]) -> Policy {
    let document =
        json!({ "publish": { "allow": subjects }, "subscribe": { "allow": ["_INBOX.>"] } });
    Policy { party: "producer".to_owned(), document }
}

/// For the server's configuration: may ask its own consumer for messages and acknowledge them.
pub(super) fn nats_consumer(name: &str, stream: &str) -> Policy {
    let document = json!({
        "publish": { "allow": [
            format!("$JS.API.CONSUMER.INFO.{stream}.{name}"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"),
            format!("$JS.ACK.{stream}.{name}.>"),
        ] },
        "subscribe": { "allow": ["_INBOX.>"] },
    });
    Policy { party: format!("consumer {name}"), document }
}
