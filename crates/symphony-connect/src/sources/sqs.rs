//! SQS FIFO: long polling, visibility extended while a message is in hand, dead letters sent by us to the queue that the
//! redrive policy names. SQS counts every delivery, tried or not, and moves a message in silence when there were too many:
//! a policy that allows few is refused.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::operation::get_queue_attributes::GetQueueAttributesError;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, Message,
    MessageAttributeValue, MessageSystemAttributeName as System, QueueAttributeName as Attribute,
};
use serde::Deserialize;
use symphony::consumer::{DeadLetterReason, Delivery, Source, SourceError, SourceTerms};
use symphony::event::envelope::{Binding, Restored, restore};

use super::OpenError;
use crate::bounds::setup::{RECEIVES_MAX, RECEIVES_MAX_MIN};
use crate::bounds::sns::{HELD_MAX, HELD_TIME_MAX, VISIBILITY_MAX};

/// SQS answers with at most this many messages, and takes as many changes at once.
const BATCH_MAX: usize = 10;
/// The message attribute that carries an event's place in the producer's log.
const POSITION: &str = "position";

/// Which queue, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqsSettings {
    /// The queue, a FIFO one.
    pub queue_url: String,
    /// Where dead letters are sent, a FIFO queue. Without it, the one that the queue's redrive policy names.
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
    dead_letter_url: String,
    terms: SourceTerms,
    /// Receipts that SQS knows no more: their messages were delivered again, or will be.
    lost: Mutex<HashSet<String>>,
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
        let policy =
            attribute(Attribute::RedrivePolicy).map(String::as_str).map(RedrivePolicy::read);
        let policy = policy.transpose()?;
        if let Some(most) = policy.as_ref().map(|policy| policy.receives_max)
            && most < RECEIVES_MAX_MIN
        {
            return Err(OpenError::new(format!(
                "the queue's maxReceiveCount is {most}, and SQS counts deliveries that were never tried: an outage would \
                 dead-letter events; `symphony bus setup` makes it {RECEIVES_MAX}, at least {RECEIVES_MAX_MIN} is needed"
            )));
        }
        let broker_receives_max = policy.as_ref().map(|policy| policy.receives_max);
        let beside = policy.and_then(|policy| queue_beside(&settings.queue_url, &policy.target));
        let Some(dead_letter_url) = settings.dead_letter_url.clone().or(beside) else {
            return Err(OpenError::new(
                "the queue has no redrive policy: name a dead-letter queue, or a message that always fails would block its key for days",
            ));
        };
        let terms = SourceTerms {
            visibility: settings.visibility,
            batch_max: BATCH_MAX,
            held_max: HELD_MAX,
            held_time_max: Some(HELD_TIME_MAX.saturating_sub(settings.visibility)),
            keeps_group_order: true,
            broker_receives_max,
        };
        Ok(Self { client, settings, dead_letter_url, terms, lost: Mutex::default() })
    }

    fn forget(&self, delivery: &Delivery) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).remove(&delivery.receipt);
    }
}

/// What the queue does with messages that were received too often.
#[derive(Debug, PartialEq, Eq)]
struct RedrivePolicy {
    target: String,
    receives_max: u32,
}

impl RedrivePolicy {
    fn read(text: &str) -> Result<Self, OpenError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Policy {
            #[serde(default)]
            dead_letter_target_arn: String,
            max_receive_count: serde_json::Value,
        }
        let unreadable = || OpenError::new("the queue's redrive policy has no maxReceiveCount");
        let policy: Policy = serde_json::from_str(text).map_err(|_| unreadable())?;
        // Written as a number or as text, depending on who set it.
        let count = policy.max_receive_count.to_string();
        let receives_max = count.trim_matches('"').parse().map_err(|_| unreadable())?;
        Ok(Self { target: policy.dead_letter_target_arn, receives_max })
    }
}

/// The URL of a queue of the same account and region, by its ARN: a dead-letter queue always is.
fn queue_beside(queue_url: &str, arn: &str) -> Option<String> {
    let (front, _) = queue_url.rsplit_once('/')?;
    let name = arn.rsplit(':').next().filter(|name| !name.is_empty())?;
    Some(format!("{front}/{name}"))
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
        self.forget(delivery);
        Ok(())
    }

    async fn extend(&self, deliveries: &[Arc<Delivery>]) -> Result<(), SourceError> {
        let in_hand: HashSet<_> = deliveries.iter().map(|delivery| &delivery.receipt).collect();
        let is_in_hand = |receipt: &String| in_hand.contains(receipt);
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).retain(is_in_hand);
        let mut result = Ok(());
        for chunk in deliveries.chunks(BATCH_MAX) {
            if let Err(error) = self.extend_batch(chunk).await {
                result = Err(error);
            }
        }
        result
    }

    async fn leave(&self, delivery: &Delivery, delay: Duration) -> Result<(), SourceError> {
        let lost =
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).remove(&delivery.receipt);
        if lost {
            return Ok(());
        }
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
    ) -> Result<(), SourceError> {
        // An attribute may not be empty, and counts towards the message's size.
        let text = |value: &str| {
            let value: String = value.chars().filter(|c| !c.is_control()).take(500).collect();
            let value = if value.is_empty() { "-".to_owned() } else { value };
            MessageAttributeValue::builder().data_type("String").string_value(value).build().ok()
        };
        let mut call = self
            .client
            .send_message()
            .queue_url(&self.dead_letter_url)
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
        self.acknowledge(delivery).await
    }

    fn is_ours(&self, delivery: &Delivery) -> bool {
        !self.lost.lock().unwrap_or_else(PoisonError::into_inner).contains(&delivery.receipt)
    }

    async fn unacknowledged(&self) -> Result<Option<u64>, SourceError> {
        let counted = self.count(&self.settings.queue_url).await;
        let counted = counted.map_err(|error| trouble("count messages", &error))?;
        // An answer without a number is no proof that there is nothing.
        Ok(Some(counted.unwrap_or(1)))
    }

    async fn dead_letters_waiting(&self) -> Result<Option<u64>, SourceError> {
        let counted = self.count(&self.dead_letter_url).await;
        counted.map_err(|error| trouble("count dead letters", &error))
    }
}

impl SqsSource {
    /// What a queue holds, also what somebody has hidden for a while or has sent with a delay.
    async fn count(
        &self,
        queue_url: &str,
    ) -> Result<Option<u64>, SdkError<GetQueueAttributesError>> {
        let answer = self
            .client
            .get_queue_attributes()
            .queue_url(queue_url)
            .attribute_names(Attribute::ApproximateNumberOfMessages)
            .attribute_names(Attribute::ApproximateNumberOfMessagesNotVisible)
            .attribute_names(Attribute::ApproximateNumberOfMessagesDelayed)
            .send()
            .await?;
        let count = |name| answer.attributes()?.get(&name)?.parse::<u64>().ok();
        let visible = count(Attribute::ApproximateNumberOfMessages);
        let hidden = count(Attribute::ApproximateNumberOfMessagesNotVisible).unwrap_or(0);
        let delayed = count(Attribute::ApproximateNumberOfMessagesDelayed).unwrap_or(0);
        Ok(visible.map(|visible| visible.saturating_add(hidden).saturating_add(delayed)))
    }

    /// At most ten.
    async fn extend_batch(&self, deliveries: &[Arc<Delivery>]) -> Result<(), SourceError> {
        let mut call =
            self.client.change_message_visibility_batch().queue_url(&self.settings.queue_url);
        for (at, delivery) in deliveries.iter().enumerate() {
            let entry = ChangeMessageVisibilityBatchRequestEntry::builder()
                .id(at.to_string())
                .receipt_handle(&delivery.receipt)
                .visibility_timeout(seconds(self.settings.visibility))
                .build()
                .map_err(|error| SourceError::new(error.to_string()))?;
            call = call.entries(entry);
        }
        let answer = call.send().await.map_err(|error| trouble("extend", &error))?;
        // Acknowledged meanwhile, or lost: is_ours tells. What SQS blames itself for may be ours still.
        let (gone, unwell): (Vec<_>, Vec<_>) =
            answer.failed.iter().partition(|entry| entry.sender_fault);
        let receipt = |entry: &&BatchResultErrorEntry| {
            Some(deliveries.get(entry.id.parse::<usize>().ok()?)?.receipt.clone())
        };
        let gone: Vec<_> = gone.iter().filter_map(receipt).collect();
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        match unwell.len() {
            0 => Ok(()),
            failed => Err(SourceError::new(format!("SQS did not extend {failed} messages"))),
        }
    }
}

fn delivery(message: Message) -> Delivery {
    let system = |name| message.attributes().and_then(|all| all.get(&name)).cloned();
    let attributes: Vec<(String, String)> = message
        .message_attributes()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name.clone(), value.string_value()?.to_owned())))
        .collect();
    let group = system(System::MessageGroupId);

    let receives =
        system(System::ApproximateReceiveCount).and_then(|text| text.parse().ok()).unwrap_or(1);
    let (body, attributes) = unwrap_notification(message.body.unwrap_or_default(), attributes);
    let Restored { body, position, defect } = restore(Binding::Sns, attributes, body.into_bytes());
    Delivery {
        receipt: message.receipt_handle.unwrap_or_default(),
        message_id: message.message_id.unwrap_or_default(),
        group,
        // The broker keeps the order.
        order: 0,
        receives,
        position,
        body,
        defect,
    }
}

/// SNS puts its own envelope around a message, unless the subscription has raw message delivery. Events have no
/// `Type`, so one cannot be taken for the other.
fn unwrap_notification(
    body: String,
    attributes: Vec<(String, String)>,
) -> (String, Vec<(String, String)>) {
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
        Ok(wrapped) if wrapped.r#type == "Notification" => {
            let inner = wrapped.message_attributes.into_iter();
            let inner = inner.map(|(name, found)| (name, found.value));
            (wrapped.message, inner.chain(attributes).collect())
        }
        _ => (body, attributes),
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
        let attribute = |value: &str| vec![("position".to_owned(), value.to_owned())];
        assert_eq!(
            unwrap_notification(wrapped.to_owned(), Vec::new()),
            (r#"{"a": 1}"#.to_owned(), attribute("42"))
        );
        for plain in
            [r#"{"envelope": {"v": 1}}"#, "garbage", r#"{"Type": "Other", "Message": "m"}"#]
        {
            assert_eq!(
                unwrap_notification(plain.to_owned(), attribute("7")),
                (plain.to_owned(), attribute("7"))
            );
        }
    }

    #[test]
    fn a_redrive_policy_is_read_however_it_was_written() {
        let read =
            |text| RedrivePolicy::read(text).map(|policy| (policy.receives_max, policy.target));
        let arn = r#"{"maxReceiveCount": 5, "deadLetterTargetArn": "arn:aws:sqs:r:1:d.fifo"}"#;
        assert_eq!(read(arn), Ok((5, "arn:aws:sqs:r:1:d.fifo".to_owned())));
        assert_eq!(read(r#"{"maxReceiveCount": "7"}"#), Ok((7, String::new())));
        assert!(read("{}").is_err());
    }

    #[test]
    fn the_dead_letter_queue_is_beside_its_queue() {
        let queue = "https://sqs.eu-central-1.amazonaws.com/123/ledger.fifo";
        let found = queue_beside(queue, "arn:aws:sqs:eu-central-1:123:ledger-dead.fifo");
        let expected = "https://sqs.eu-central-1.amazonaws.com/123/ledger-dead.fifo";
        assert_eq!(found.as_deref(), Some(expected));
        assert_eq!(queue_beside(queue, ""), None);
    }

    #[test]
    fn delays_are_rounded_up_and_bounded() {
        assert_eq!(seconds(Duration::ZERO), 0);
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_hours(25)), 43_200);
    }
}
