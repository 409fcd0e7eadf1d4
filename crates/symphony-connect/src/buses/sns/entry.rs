//! From an event to an entry of a batch.

pub(super) use crate::bounds::sns::MESSAGE_BYTES_MAX;
use aws_sdk_sns::error::BuildError;
use aws_sdk_sns::types::{MessageAttributeValue, PublishBatchRequestEntry};
use sha2::{Digest, Sha256};
use symphony::lanes::events::bus::Message;

/// One event, ready to be sent.
#[derive(Debug, Clone)]
pub(super) struct Entry<'m> {
    message: &'m Message,
    /// As SNS counts it: the body, and name, type and value of every attribute.
    pub(super) size: usize,
}

impl<'m> Entry<'m> {
    pub(super) fn new(message: &'m Message) -> Self {
        let of_attribute =
            |(name, value): &(&str, String)| name.len() + kind(name).len() + value.len();
        let of_attributes: usize = message.headers.iter().map(of_attribute).sum();
        Self { message, size: message.body.len() + of_attributes }
    }

    /// Under this number in its batch.
    pub(super) fn build(&self, at: usize) -> Result<PublishBatchRequestEntry, BuildError> {
        let mut entry = PublishBatchRequestEntry::builder()
            .id(at.to_string())
            .message(&self.message.body)
            .message_group_id(group_id(&self.message.key))
            .message_deduplication_id(self.message.event_id.to_string());
        for (name, value) in &self.message.headers {
            let value = MessageAttributeValue::builder()
                .data_type(kind(name))
                .string_value(value)
                .build()?;
            entry = entry.message_attributes(*name, value);
        }
        entry.build()
    }

    /// Why it is refused.
    pub(super) fn too_large(&self) -> String {
        format!(
            "the event is {} bytes with its attributes, and SNS takes {MESSAGE_BYTES_MAX}: publish a reference to the data instead",
            self.size
        )
    }
}

/// A number, so that subscriptions can compare it.
fn kind(name: &str) -> &'static str {
    if name == "position" { "Number" } else { "String" }
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
