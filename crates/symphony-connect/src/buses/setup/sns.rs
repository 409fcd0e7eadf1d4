//! Topics, queues, dead-letter queues, their policies, subscriptions.

use std::collections::HashMap;
use std::error::Error;

use aws_sdk_sns::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};

use super::{ConsumerSettings, Setup, SetupError, SetupSettings, Step, iam, step};
use crate::aws::Aws;
use crate::bounds::sns::{ADMINISTRATION_TIMEOUT, RETENTION_SECONDS};
use crate::buses::short_line;
use crate::buses::sns::{Arns, SnsSettings};

/// AWS's own key: free, and everybody who may publish may use it.
const KMS_KEY: &str = "alias/aws/sns";

type Attributes = HashMap<String, String>;

/// Look at everything, and unless `dry_run` make it as the settings say.
pub async fn set_up_sns(
    bus: &SnsSettings,
    setup: &SetupSettings,
    environment: impl Fn(&str) -> Option<String>,
    dry_run: bool,
) -> Result<Setup, SetupError> {
    setup.check()?;
    let aws = Aws::new(&bus.aws(), environment).map_err(|error| SetupError(error.to_string()))?;
    let arns = Arns::new(&aws, bus.account_id.as_deref())?;
    let kms_key = setup.kms_key.as_deref().unwrap_or(KMS_KEY);
    let own_key = (kms_key != KMS_KEY).then_some(kms_key);
    if own_key.is_some_and(|key| !key.starts_with("arn:")) {
        return Err(SetupError(format!("setup.kms_key must be {KMS_KEY} or the key's ARN")));
    }
    let (connect, _) = bus.limits()?;
    let run = SetupRun {
        sns: aws.sns(connect, ADMINISTRATION_TIMEOUT),
        sqs: aws.sqs(connect, ADMINISTRATION_TIMEOUT),
        arns,
        dry_run,
    };
    let mut done = Setup::default();
    let mut topic_arns = Vec::new();
    for topic in &setup.topics {
        let arn = run.arns.topic(&topic.name).map_err(SetupError)?;
        done.steps.push(run.topic(&arn, kms_key).await?);
        topic_arns.push(arn);
    }
    if !topic_arns.is_empty() {
        done.policies.push(iam::sns_producer(&topic_arns, own_key));
    }
    for consumer in &setup.consumers {
        let topic_arn = run.arns.topic(&consumer.topic).map_err(SetupError)?;
        let queues = run.consumer(consumer, &topic_arn, &mut done.steps).await?;
        done.policies.push(iam::sqs_consumer(&consumer.name, &queues.own, &queues.dead));
    }
    Ok(done)
}

/// The ARNs of a consumer's queues.
struct Queues {
    own: String,
    dead: String,
}

struct SetupRun {
    sns: aws_sdk_sns::Client,
    sqs: aws_sdk_sqs::Client,
    arns: Arns,
    dry_run: bool,
}

impl SetupRun {
    async fn topic(&self, arn: &str, kms_key: &str) -> Result<Step, SetupError> {
        let name = arn.rsplit(':').next().unwrap_or(arn);
        let wanted: Attributes = [
            ("FifoTopic", "true"),
            ("ContentBasedDeduplication", "false"),
            ("KmsMasterKeyId", kms_key),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let present = match self.sns.get_topic_attributes().topic_arn(arn).send().await {
            Ok(answer) => Some(answer.attributes.unwrap_or_default()),
            Err(error) if is_missing(&error) => None,
            Err(error) => return Err(failed("looking at topic", name, &error)),
        };
        let Some(present) = present else {
            if !self.dry_run {
                let call = self.sns.create_topic().name(name).set_attributes(Some(wanted));
                call.send().await.map_err(|error| failed("creating topic", name, &error))?;
            }
            return Ok(step("topic", name, None));
        };
        let differs = differing(&present, &wanted);
        for attribute in differs.iter().filter(|_| !self.dry_run) {
            let call = self.sns.set_topic_attributes().topic_arn(arn).attribute_name(attribute);
            let call = call.set_attribute_value(wanted.get(attribute).cloned());
            call.send().await.map_err(|error| failed("changing topic", name, &error))?;
        }
        Ok(step("topic", name, Some(differs)))
    }

    /// Its queues and its subscription; the ARNs of the queues.
    async fn consumer(
        &self,
        consumer: &ConsumerSettings,
        topic_arn: &str,
        steps: &mut Vec<Step>,
    ) -> Result<Queues, SetupError> {
        let (queue, dead) =
            (format!("{}.fifo", consumer.name), format!("{}-dead.fifo", consumer.name));
        let queue_arn = self.arns.queue_beside(topic_arn, &queue);
        let dead_arn = self.arns.queue_beside(topic_arn, &dead);
        let redrive = json!({ "deadLetterTargetArn": dead_arn });
        let redrive_counted =
            json!({ "deadLetterTargetArn": dead_arn, "maxReceiveCount": consumer.receives_max });
        // The dead-letter queue also takes what SNS could not deliver to the queue.
        let of_dead = queue_attributes(&dead_arn, topic_arn, consumer);
        steps.push(self.queue(&dead, of_dead).await?);
        let mut of_queue = queue_attributes(&queue_arn, topic_arn, consumer);
        of_queue.insert("RedrivePolicy".to_owned(), redrive_counted.to_string());
        steps.push(self.queue(&queue, of_queue).await?);
        let mut of_subscription: Attributes = [
            ("RawMessageDelivery".to_owned(), "true".to_owned()),
            ("RedrivePolicy".to_owned(), redrive.to_string()),
        ]
        .into();
        if let Some(filter) = filter_policy(&consumer.types) {
            of_subscription.insert("FilterPolicy".to_owned(), filter.to_string());
        }
        steps.push(self.subscription(topic_arn, &queue_arn, of_subscription).await?);
        Ok(Queues { own: queue_arn, dead: dead_arn })
    }

    async fn queue(&self, name: &str, wanted: Attributes) -> Result<Step, SetupError> {
        let for_sqs = |attributes: &Attributes| -> HashMap<QueueAttributeName, String> {
            let name = |name: &String| QueueAttributeName::from(name.as_str());
            attributes.iter().map(|(key, value)| (name(key), value.clone())).collect()
        };
        let url = match self.sqs.get_queue_url().queue_name(name).send().await {
            Ok(answer) => answer.queue_url.unwrap_or_default(),
            Err(error) if is_missing(&error) => {
                if !self.dry_run {
                    let call = self.sqs.create_queue().queue_name(name);
                    let call = call.set_attributes(Some(for_sqs(&wanted)));
                    call.send().await.map_err(|error| failed("creating queue", name, &error))?;
                }
                return Ok(step("queue", name, None));
            }
            Err(error) => return Err(failed("looking at queue", name, &error)),
        };
        let present = self
            .sqs
            .get_queue_attributes()
            .queue_url(&url)
            .attribute_names(QueueAttributeName::All)
            .send()
            .await
            .map_err(|error| failed("looking at queue", name, &error))?
            .attributes
            .unwrap_or_default();
        let present: Attributes =
            present.into_iter().map(|(key, value)| (key.as_str().to_owned(), value)).collect();
        let differs = differing(&present, &wanted);
        if !differs.is_empty() && !self.dry_run {
            let changes = wanted.into_iter().filter(|(key, _)| differs.contains(key)).collect();
            let call = self.sqs.set_queue_attributes().queue_url(&url);
            let call = call.set_attributes(Some(for_sqs(&changes)));
            call.send().await.map_err(|error| failed("changing queue", name, &error))?;
        }
        Ok(step("queue", name, Some(differs)))
    }

    async fn subscription(
        &self,
        topic_arn: &str,
        queue_arn: &str,
        wanted: Attributes,
    ) -> Result<Step, SetupError> {
        let last = |arn: &str| arn.rsplit(':').next().unwrap_or_default().to_owned();
        let name = format!("{} to {}", last(topic_arn), last(queue_arn));
        let Some(arn) = self.find_subscription(topic_arn, queue_arn, &name).await? else {
            if !self.dry_run {
                let call = self.sns.subscribe().topic_arn(topic_arn).protocol("sqs");
                let call = call.endpoint(queue_arn).set_attributes(Some(wanted));
                call.send().await.map_err(|error| failed("subscribing", &name, &error))?;
            }
            return Ok(step("subscription", &name, None));
        };
        let present = self
            .sns
            .get_subscription_attributes()
            .subscription_arn(&arn)
            .send()
            .await
            .map_err(|error| failed("looking at subscription", &name, &error))?
            .attributes
            .unwrap_or_default();
        let mut differs = differing(&present, &wanted);
        // A filter that is wanted no more would go on hiding events.
        let filters = present.get("FilterPolicy").is_some_and(|filter| filter != "{}");
        if filters && !wanted.contains_key("FilterPolicy") {
            differs.push("FilterPolicy".to_owned());
        }
        for attribute in differs.iter().filter(|_| !self.dry_run) {
            let value = wanted.get(attribute).map_or("{}", String::as_str);
            let call = self.sns.set_subscription_attributes().subscription_arn(&arn);
            let call = call.attribute_name(attribute).attribute_value(value);
            call.send().await.map_err(|error| failed("changing subscription", &name, &error))?;
        }
        Ok(step("subscription", &name, Some(differs)))
    }

    async fn find_subscription(
        &self,
        topic_arn: &str,
        queue_arn: &str,
        name: &str,
    ) -> Result<Option<String>, SetupError> {
        let mut next = None;
        loop {
            let call = self.sns.list_subscriptions_by_topic().topic_arn(topic_arn);
            let page = match call.set_next_token(next).send().await {
                Ok(page) => page,
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) => return Err(failed("looking at subscription", name, &error)),
            };
            let found = page.subscriptions().iter().find(|one| one.endpoint() == Some(queue_arn));
            if let Some(found) = found {
                return Ok(found.subscription_arn().map(str::to_owned));
            }
            next = page.next_token;
            if next.is_none() {
                return Ok(None);
            }
        }
    }
}

fn queue_attributes(queue_arn: &str, topic_arn: &str, consumer: &ConsumerSettings) -> Attributes {
    [
        ("FifoQueue", "true".to_owned()),
        ("ContentBasedDeduplication", "false".to_owned()),
        ("SqsManagedSseEnabled", "true".to_owned()),
        // By key and not by queue: else a queue takes 300 calls a second. An event never changes its key.
        ("DeduplicationScope", "messageGroup".to_owned()),
        ("FifoThroughputLimit", "perMessageGroupId".to_owned()),
        ("MessageRetentionPeriod", RETENTION_SECONDS.to_string()),
        ("VisibilityTimeout", consumer.visibility_timeout_seconds.to_string()),
        ("Policy", iam::queue(queue_arn, topic_arn).to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

/// On the attribute `type`. `None`: everything.
fn filter_policy(types: &[String]) -> Option<Value> {
    if types.is_empty() || types.iter().any(|pattern| pattern == "*") {
        return None;
    }
    let of_type = |pattern: &String| match pattern.strip_suffix('*') {
        Some(prefix) => json!({ "prefix": prefix }),
        None => json!(pattern),
    };
    Some(json!({ "type": types.iter().map(of_type).collect::<Vec<_>>() }))
}

/// The names of what is not as wanted; JSON is compared as JSON.
fn differing(present: &Attributes, wanted: &Attributes) -> Vec<String> {
    let same = |one: &str, other: &str| {
        let json = |text: &str| serde_json::from_str::<Value>(text).ok();
        // AWS writes booleans as it likes.
        one.eq_ignore_ascii_case(other) || (json(one).is_some() && json(one) == json(other))
    };
    let mut names: Vec<_> = wanted
        .iter()
        .filter(|(name, value)| !present.get(*name).is_some_and(|there| same(there, value)))
        .map(|(name, _)| name.clone())
        .collect();
    names.sort();
    names
}

fn is_missing<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> bool {
    let code = error.as_service_error().and_then(ProvideErrorMetadata::code).unwrap_or_default();
    ["NotFound", "NotFoundException", "QueueDoesNotExist"].contains(&code)
        || code.ends_with("NonExistentQueue")
}

fn failed<E, R>(doing: &str, name: &str, error: &SdkError<E, R>) -> SetupError
where
    E: ProvideErrorMetadata + Error + 'static,
    R: std::fmt::Debug + 'static,
{
    let why = match error.as_service_error() {
        Some(said) => {
            let code = said.code().unwrap_or("an error");
            short_line(&format!("{code}: {}", said.message().unwrap_or_default()))
        }
        None => "AWS could not be called: check region, endpoint_url and credentials".to_owned(),
    };
    SetupError(format!("{doing} {name} failed: {why}"))
}
