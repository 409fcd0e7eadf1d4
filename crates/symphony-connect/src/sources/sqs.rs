//! SQS FIFO: long polling, visibility extended while a handler runs, dead letters by us or by the queue's own policy.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{
    ChangeMessageVisibilityBatchRequestEntry, Message, MessageAttributeValue,
    MessageSystemAttributeName as System, QueueAttributeName as Attribute,
};
use serde::Deserialize;
use symphony::consumer::{
    DeadLetterReason, DeadLettered, Delivery, Source, SourceError, SourceTerms,
};

use super::OpenError;

/// SQS answers with at most this many messages, and takes as many changes at once.
const BATCH_MAX: usize = 10;
/// SQS hides a message for at most this long.
const VISIBILITY_MAX: Duration = Duration::from_hours(12);
/// The message attribute that carries an event's place in the producer's log.
const POSITION: &str = "position";

/// Which queue, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsSettings {
    /// The queue, a FIFO one.
    pub queue_url: String,
    /// Where dead letters are sent, a FIFO queue. Without it the queue's own redrive policy does it.
    pub dead_letter_url: Option<String>,
    /// How long a message stays hidden between two extensions: at least twice the handler's 99th percentile.
    pub visibility: Duration,
    /// How long one call waits for messages, at most 20 seconds. The client must allow calls that take longer.
    pub wait: Duration,
}

impl SqsSettings {
    /// This queue, a minute of visibility and ten seconds of waiting.
    pub fn new(queue_url: impl Into<String>) -> Self {
        Self {
            queue_url: queue_url.into(),
            dead_letter_url: None,
            visibility: Duration::from_mins(1),
            wait: Duration::from_secs(10),
        }
    }
}

/// A queue to consume from.
#[derive(Debug)]
pub struct SqsSource {
    client: Client,
    settings: SqsSettings,
    terms: SourceTerms,
}

impl SqsSource {
    /// Look at the queue, and refuse it if order or dead letters could be lost.
    pub async fn open(client: Client, settings: SqsSettings) -> Result<Self, OpenError> {
        if !(Duration::from_secs(1)..=VISIBILITY_MAX).contains(&settings.visibility) {
            return Err(OpenError::new("visibility must be between 1 second and 12 hours"));
        }
        if settings.wait > Duration::from_secs(20) {
            return Err(OpenError::new("wait must be at most 20 seconds"));
        }
        let answer = client
            .get_queue_attributes()
            .queue_url(&settings.queue_url)
            .attribute_names(Attribute::FifoQueue)
            .attribute_names(Attribute::RedrivePolicy)
            .send()
            .await
            .map_err(|error| {
                OpenError::new(format!("cannot read the queue's attributes: {}", words(&error)))
            })?;
        let attribute = |name| answer.attributes().and_then(|all| all.get(&name));
        if attribute(Attribute::FifoQueue).map(String::as_str) != Some("true") {
            return Err(OpenError::new(
                "the queue is not a FIFO queue: events of one key would overtake each other",
            ));
        }
        let broker_receives_max = match attribute(Attribute::RedrivePolicy) {
            Some(policy) => Some(receives_max(policy)?),
            None => None,
        };
        if broker_receives_max.is_none() && settings.dead_letter_url.is_none() {
            return Err(OpenError::new(
                "the queue has no redrive policy: name a dead-letter queue, or a message that always fails would block its key for days",
            ));
        }
        let terms = SourceTerms {
            visibility: settings.visibility,
            batch_max: BATCH_MAX,
            keeps_group_order: true,
            broker_receives_max,
        };
        Ok(Self { client, settings, terms })
    }
}

fn receives_max(policy: &str) -> Result<u32, OpenError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Policy {
        max_receive_count: serde_json::Value,
    }
    let unreadable = || OpenError::new("the queue's redrive policy has no maxReceiveCount");
    let policy: Policy = serde_json::from_str(policy).map_err(|_| unreadable())?;
    // Written as a number or as text, depending on who set it.
    let text = policy.max_receive_count.to_string();
    text.trim_matches('"').parse().map_err(|_| unreadable())
}

#[async_trait]
impl Source for SqsSource {
    fn terms(&self) -> &SourceTerms {
        &self.terms
    }

    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let answer = self
            .client
            .receive_message()
            .queue_url(&self.settings.queue_url)
            .max_number_of_messages(i32::try_from(max.clamp(1, BATCH_MAX)).unwrap_or(1))
            .wait_time_seconds(seconds(self.settings.wait))
            .visibility_timeout(seconds(self.settings.visibility))
            .message_system_attribute_names(System::ApproximateReceiveCount)
            .message_system_attribute_names(System::MessageGroupId)
            .message_attribute_names("All")
            .send()
            .await
            .map_err(|error| trouble("receive", &error))?;
        Ok(answer.messages.unwrap_or_default().into_iter().map(delivery).collect())
    }

    async fn acknowledge(&self, delivery: &Delivery) -> Result<(), SourceError> {
        self.client
            .delete_message()
            .queue_url(&self.settings.queue_url)
            .receipt_handle(&delivery.receipt)
            .send()
            .await
            .map_err(|error| trouble("delete", &error))?;
        Ok(())
    }

    async fn extend(&self, deliveries: &[Arc<Delivery>]) -> Result<(), SourceError> {
        let mut failed = 0;
        for chunk in deliveries.chunks(BATCH_MAX) {
            let mut call =
                self.client.change_message_visibility_batch().queue_url(&self.settings.queue_url);
            for (at, delivery) in chunk.iter().enumerate() {
                let entry = ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(at.to_string())
                    .receipt_handle(&delivery.receipt)
                    .visibility_timeout(seconds(self.settings.visibility))
                    .build()
                    .map_err(|error| SourceError::new(error.to_string()))?;
                call = call.entries(entry);
            }
            let answer = call.send().await.map_err(|error| trouble("extend", &error))?;
            failed += answer.failed.len();
        }
        if failed > 0 {
            return Err(SourceError::new(format!("SQS did not extend {failed} messages")));
        }
        Ok(())
    }

    async fn leave(&self, delivery: &Delivery, delay: Duration) -> Result<(), SourceError> {
        self.client
            .change_message_visibility()
            .queue_url(&self.settings.queue_url)
            .receipt_handle(&delivery.receipt)
            .visibility_timeout(seconds(delay))
            .send()
            .await
            .map_err(|error| trouble("give back", &error))?;
        Ok(())
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery,
        reason: &DeadLetterReason,
    ) -> Result<DeadLettered, SourceError> {
        let Some(url) = &self.settings.dead_letter_url else {
            return Ok(DeadLettered::LeftToBroker);
        };
        // An attribute may not be empty, and counts towards the message's size.
        let text = |value: &str| {
            let value: String = value.chars().filter(|c| !c.is_control()).take(500).collect();
            let value = if value.is_empty() { "-".to_owned() } else { value };
            MessageAttributeValue::builder().data_type("String").string_value(value).build().ok()
        };
        let mut call = self
            .client
            .send_message()
            .queue_url(url)
            .message_body(String::from_utf8_lossy(&delivery.body))
            .message_group_id(delivery.group.as_deref().unwrap_or("none"))
            // Sent twice, if we are killed before it is deleted here: the queue keeps one.
            .message_deduplication_id(&delivery.message_id);
        for (name, value) in [
            ("deadLetterReason", text(reason.code.as_str())),
            ("deadLetterMessage", text(&reason.message)),
            (POSITION, delivery.position.and_then(|position| text(&position.to_string()))),
        ] {
            call = match value {
                Some(value) => call.message_attributes(name, value),
                None => call,
            };
        }
        call.send().await.map_err(|error| trouble("dead-letter", &error))?;
        self.acknowledge(delivery).await?;
        Ok(DeadLettered::Moved)
    }
}

fn delivery(message: Message) -> Delivery {
    let system = |name| message.attributes().and_then(|all| all.get(&name)).cloned();
    let attribute = message
        .message_attributes()
        .and_then(|all| all.get(POSITION))
        .and_then(MessageAttributeValue::string_value)
        .map(str::to_owned);
    let group = system(System::MessageGroupId);

    let receives =
        system(System::ApproximateReceiveCount).and_then(|text| text.parse().ok()).unwrap_or(1);
    let (body, position) = unwrap_notification(message.body.unwrap_or_default(), attribute);
    Delivery {
        receipt: message.receipt_handle.unwrap_or_default(),
        message_id: message.message_id.unwrap_or_default(),
        group,
        // The broker keeps the order.
        order: 0,
        receives,
        position: position.and_then(|text| text.parse().ok()),
        body: body.into_bytes(),
    }
}

/// SNS puts its own envelope around a message, unless the subscription has raw message delivery. Events have no
/// `Type`, so one cannot be taken for the other.
fn unwrap_notification(body: String, position: Option<String>) -> (String, Option<String>) {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Notification {
        r#type: String,
        message: String,
        #[serde(default)]
        message_attributes: std::collections::HashMap<String, NotificationAttribute>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct NotificationAttribute {
        value: String,
    }
    match serde_json::from_str::<Notification>(&body) {
        Ok(mut wrapped) if wrapped.r#type == "Notification" => {
            let inner = wrapped.message_attributes.remove(POSITION).map(|found| found.value);
            (wrapped.message, inner.or(position))
        }
        _ => (body, position),
    }
}

/// Whole seconds, up: a message must not be seen before its delay is over.
fn seconds(duration: Duration) -> i32 {
    let up = duration.min(VISIBILITY_MAX).as_millis().div_ceil(1_000);
    i32::try_from(up).unwrap_or(i32::MAX)
}

fn trouble<E: ProvideErrorMetadata + Debug>(what: &str, error: &SdkError<E>) -> SourceError {
    SourceError::new(format!("SQS, {what}: {}", words(error)))
}

/// What went wrong, without anything of a request.
fn words<E: ProvideErrorMetadata + Debug>(error: &SdkError<E>) -> String {
    match error {
        SdkError::TimeoutError(_) => "no answer in time".to_owned(),
        SdkError::DispatchFailure(_) => {
            "not reachable; is the endpoint right, and are there credentials?".to_owned()
        }
        SdkError::ServiceError(answer) => {
            answer.err().code().unwrap_or("refused without a code").to_owned()
        }
        _ => "an answer that cannot be read".to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_of_sns_is_taken_off_and_an_event_is_left_alone() {
        let wrapped = r#"{"Type": "Notification", "TopicArn": "arn", "Message": "{\"a\": 1}",
            "MessageAttributes": {"position": {"Type": "Number", "Value": "42"}}}"#;
        assert_eq!(
            unwrap_notification(wrapped.to_owned(), None),
            (r#"{"a": 1}"#.to_owned(), Some("42".to_owned()))
        );
        for plain in
            [r#"{"envelope": {"v": 1}}"#, "garbage", r#"{"Type": "Other", "Message": "m"}"#]
        {
            let position = Some("7".to_owned());
            assert_eq!(
                unwrap_notification(plain.to_owned(), position.clone()),
                (plain.to_owned(), position)
            );
        }
    }

    #[test]
    fn a_redrive_policy_is_read_however_it_was_written() {
        assert_eq!(receives_max(r#"{"maxReceiveCount": 5, "deadLetterTargetArn": "a"}"#), Ok(5));
        assert_eq!(receives_max(r#"{"maxReceiveCount": "7"}"#), Ok(7));
        assert!(receives_max("{}").is_err());
    }

    #[test]
    fn delays_are_rounded_up_and_bounded() {
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_hours(25)), 43_200);
    }
}
