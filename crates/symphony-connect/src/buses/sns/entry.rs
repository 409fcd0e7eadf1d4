//! From an event to an entry of a batch.

use aws_sdk_sns::error::BuildError;
use aws_sdk_sns::types::{MessageAttributeValue, PublishBatchRequestEntry};
use sha2::{Digest, Sha256};
use symphony::lanes::events::bus::Message;

/// SNS's limit on one message with its attributes, and on all messages of one call together.
pub(super) const SIZE_MAX: usize = 256 * 1024;

const TEXT: &str = "String";
const NUMBER: &str = "Number";

/// One event, ready to be sent.
#[derive(Debug, Clone)]
pub(super) struct Entry<'m> {
    message: &'m Message,
    attributes: Vec<(&'static str, &'static str, String)>,
    /// As SNS counts it: the body, and name, type and value of every attribute.
    pub(super) size: usize,
}

impl<'m> Entry<'m> {
    pub(super) fn new(message: &'m Message) -> Self {
        let mut attributes = vec![
            ("type", TEXT, message.event_type.clone()),
            ("tenantId", TEXT, message.tenant_id.clone()),
            ("eventId", TEXT, message.event_id.to_string()),
            ("position", NUMBER, message.position.to_string()),
        ];
        if let Some(traceparent) = &message.traceparent {
            attributes.push(("traceparent", TEXT, traceparent.clone()));
        }
        let of_attributes: usize = attributes
            .iter()
            .map(|(name, kind, value)| name.len() + kind.len() + value.len())
            .sum();
        let size = message.body.get().len() + of_attributes;
        Self { message, attributes, size }
    }

    /// Under this number in its batch.
    pub(super) fn build(&self, at: usize) -> Result<PublishBatchRequestEntry, BuildError> {
        let mut entry = PublishBatchRequestEntry::builder()
            .id(at.to_string())
            .message(self.message.body.get())
            .message_group_id(group_id(&self.message.key))
            .message_deduplication_id(self.message.event_id.to_string());
        for (name, kind, value) in &self.attributes {
            let value =
                MessageAttributeValue::builder().data_type(*kind).string_value(value).build()?;
            entry = entry.message_attributes(*name, value);
        }
        entry.build()
    }

    /// Why it is refused.
    pub(super) fn too_large(&self) -> String {
        format!(
            "the event is {} bytes with its attributes, and SNS takes {SIZE_MAX}: publish a reference to the data instead",
            self.size
        )
    }
}

/// The message group of a key: the key itself where SNS allows it (1 to 128 visible ASCII characters), else
/// `sha256-` and its hash in hexadecimal. The same key is always the same group.
pub fn group_id(key: &str) -> String {
    let allowed = (1..=128).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    if allowed {
        return key.to_owned();
    }
    let hash = Sha256::digest(key.as_bytes());
    let mut group = "sha256-".to_owned();
    for byte in hash {
        group.push_str(&format!("{byte:02x}"));
    }
    group
}
