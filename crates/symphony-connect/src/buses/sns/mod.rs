//! SNS FIFO: one topic, any number of queues behind it.
//!
//! The message group is the event's key, so SNS keeps the order within it; the deduplication id is the event id, so
//! SNS swallows what it has seen in the last five minutes. Beyond that a repeated publish is a duplicate, which
//! consumers recognise by the event id.
//!
//! - `entry`: from an event to an entry of a batch, and how large it is.
//! - `reading`: from SNS's answers and errors to what is known of each message.

mod entry;
mod reading;

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sns::Client;
use futures_util::future::join_all;
use serde::Deserialize;
use symphony::event::envelope::Binding;
use symphony::lanes::events::bus::{Bus, Message, Publication, Terms};
use symphony::{FieldError, FieldErrors};

use super::{FailureKind, TIMEOUT_MARGIN, again, limits, refused};
use crate::aws::{Aws, AwsSettings};
use crate::settings::Defects;
use entry::{Entry, MESSAGE_BYTES_MAX};

use crate::bounds::sns::{BATCH_MAX, DEDUP_WINDOW, FILL_WITHIN};
pub use entry::group_id;

/// `[buses.NAME]` with `kind = "sns"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnsSettings {
    /// Such as `eu-central-1`. Without it, `AWS_REGION` of the environment.
    pub region: Option<String>,
    /// Instead of AWS's own: a VPC endpoint, or a server on this machine.
    pub endpoint_url: Option<String>,
    /// Let `endpoint_url` be `http://` where it is not this machine.
    pub allow_plain_http: bool,
    /// The account of topics that are given by name. Not needed where routes give ARNs.
    pub account_id: Option<String>,
    /// The limit on one call.
    pub timeout_ms: u64,
    /// The limit on making a connection.
    pub connect_timeout_ms: u64,
}

impl Default for SnsSettings {
    fn default() -> Self {
        Self {
            region: None,
            endpoint_url: None,
            allow_plain_http: false,
            account_id: None,
            timeout_ms: 10_000,
            connect_timeout_ms: 3_000,
        }
    }
}

impl SnsSettings {
    /// The part that says where AWS is.
    pub fn aws(&self) -> AwsSettings {
        AwsSettings {
            region: self.region.clone(),
            endpoint_url: self.endpoint_url.clone(),
            allow_plain_http: self.allow_plain_http,
        }
    }

    pub(crate) fn limits(&self) -> Result<(Duration, Duration), FieldErrors> {
        limits(self.connect_timeout_ms, self.timeout_ms)
    }
}

/// Publishes to SNS FIFO topics.
#[derive(Debug)]
pub struct SnsBus {
    client: Client,
    arns: Arns,
    terms: Terms,
}

impl SnsBus {
    /// Of these settings; asks nobody anything yet.
    pub fn new(
        settings: &SnsSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        let arns = defects.note(Aws::new(&settings.aws(), environment)).and_then(|aws| {
            let arns = defects.note(Arns::new(&aws, settings.account_id.as_deref()))?;
            Some((aws, arns))
        });
        let limits = defects.note(settings.limits());
        let ((aws, arns), (connect, call)) = defects.finish(arns.zip(limits))?;
        let terms = Terms {
            binding: Binding::Sns,
            timeout: call + TIMEOUT_MARGIN,
            batch_max: BATCH_MAX,
            fill_within: FILL_WITHIN,
            dedup_window: DEDUP_WINDOW,
        };
        Ok(Self { client: aws.sns(connect, call), arns, terms })
    }

    /// One call, one answer per entry.
    async fn call(&self, arn: &str, entries: &[Entry<'_>]) -> Vec<Publication> {
        let built: Result<Vec<_>, _> =
            entries.iter().enumerate().map(|(at, entry)| entry.build(at)).collect();
        let built = match built {
            Ok(built) => built,
            Err(error) => {
                let problem = again("UNSENT", error.to_string(), FailureKind::NotTaken);
                return vec![problem; entries.len()];
            }
        };
        let call = self.client.publish_batch().topic_arn(arn);
        match call.set_publish_batch_request_entries(Some(built)).send().await {
            Ok(answer) => reading::answers(&answer, entries.len()),
            Err(error) => vec![reading::error(&error, arn); entries.len()],
        }
    }

    /// One call; and one for each entry if SNS refused it whole, for then one of them is to blame and not the rest.
    async fn send(&self, arn: &str, entries: &[Entry<'_>]) -> Vec<Publication> {
        let answers = self.call(arn, entries).await;
        let refused_whole = entries.len() > 1
            && answers.iter().all(|answer| matches!(answer, Publication::Refused(_)));
        if !refused_whole {
            return answers;
        }
        let alone = entries.chunks(1).map(|entry| self.call(arn, entry));
        join_all(alone).await.into_iter().flatten().collect()
    }
}

#[async_trait]
impl Bus for SnsBus {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    async fn publish(&self, topic: &str, batch: &[&Message]) -> Vec<Publication> {
        let arn = match self.arns.topic(topic) {
            Ok(arn) => arn,
            Err(problem) => {
                let problem = format!("the route's topic {problem}");
                let answer = again("NO_SUCH_TOPIC", problem, FailureKind::NotTakenUntilMended);
                return vec![answer; batch.len()];
            }
        };
        let entries: Vec<Entry<'_>> = batch.iter().map(|message| Entry::new(message)).collect();
        let fitting: Vec<Entry<'_>> =
            entries.iter().filter(|entry| entry.size <= MESSAGE_BYTES_MAX).cloned().collect();
        let calls = in_calls(&fitting).into_iter().map(|entries| self.send(&arn, entries));
        let mut answers = join_all(calls).await.into_iter().flatten();
        entries
            .iter()
            .map(|entry| {
                if entry.size > MESSAGE_BYTES_MAX {
                    return refused("OVERSIZE", entry.too_large());
                }
                answers.next().unwrap_or_else(reading::unanswered)
            })
            .collect()
    }

    fn check_topic(&self, topic: &str) -> Result<(), String> {
        self.arns.topic(topic).map(drop)
    }
}

/// Cut so that no part is more than one call takes: ten entries, and 256 KiB together.
fn in_calls<'a, 'm>(entries: &'a [Entry<'m>]) -> Vec<&'a [Entry<'m>]> {
    let mut calls = Vec::new();
    let mut rest = entries;
    while !rest.is_empty() {
        let mut size = 0;
        let fitting = rest.iter().take(BATCH_MAX).take_while(|entry| {
            size += entry.size;
            size <= MESSAGE_BYTES_MAX
        });
        // At least one: whoever is too large alone was taken out before.
        let (call, after) = rest.split_at(fitting.count().max(1));
        calls.push(call);
        rest = after;
    }
    calls
}

/// From the names in settings and routes to the ARNs of AWS.
#[derive(Debug, Clone)]
pub(crate) struct Arns {
    partition: &'static str,
    region: String,
    account: Option<String>,
}

impl Arns {
    pub(crate) fn new(aws: &Aws, account: Option<&str>) -> Result<Self, FieldError> {
        if account.is_some_and(|id| id.len() != 12 || !id.bytes().all(|b| b.is_ascii_digit())) {
            return Err(FieldError::new("account_id", "must be 12 digits"));
        }
        Ok(Self {
            partition: aws.partition(),
            region: aws.region().to_owned(),
            account: account.map(str::to_owned),
        })
    }

    /// A topic given as an ARN stays as it is.
    pub(crate) fn topic(&self, topic: &str) -> Result<String, String> {
        if topic.strip_suffix(".fifo").is_none_or(str::is_empty) {
            return Err(format!(
                "is {topic}, which is no FIFO topic: its name must end in .fifo, only those keep order"
            ));
        }
        if topic.starts_with("arn:") {
            return Ok(topic.to_owned());
        }
        let Some(account) = &self.account else {
            return Err(format!(
                "is {topic}, a name: set account_id of the bus, or give the topic's ARN"
            ));
        };
        Ok(format!("arn:{}:sns:{}:{account}:{topic}", self.partition, self.region))
    }

    /// Of a queue in the account of the topic `arn`.
    pub(crate) fn queue_beside(&self, topic_arn: &str, queue: &str) -> String {
        let account = topic_arn.split(':').nth(4).unwrap_or_default();
        format!("arn:{}:sqs:{}:{account}:{queue}", self.partition, self.region)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
