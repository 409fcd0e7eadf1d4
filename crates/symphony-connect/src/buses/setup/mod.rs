//! Creates what a bus publishes to and its consumers read from; says who needs which permission.
//!
//! Each resource is looked at first, then created or changed only where it differs, so running it again changes
//! nothing. Nothing is ever deleted.
//!
//! - `sns`: topics, queues, dead-letter queues, their policies, subscriptions.
//! - `nats`: streams and durable consumers.
//! - `kafka`: topics, and those for dead letters.

#[cfg(feature = "sns")]
mod iam;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "sns")]
mod sns;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use symphony::{FieldError, FieldErrors};

use crate::bounds::setup::{RECEIVES_MAX, RECEIVES_MAX_MIN};
use crate::settings::Defects;

#[cfg(feature = "kafka")]
pub use kafka::{dead_letter_topic, set_up_kafka};
#[cfg(feature = "nats")]
pub use nats::set_up_nats;
#[cfg(feature = "sns")]
pub use sns::set_up_sns;

/// `[buses.NAME.setup]`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetupSettings {
    /// What is published to.
    pub topics: Vec<TopicSettings>,
    /// Who reads.
    pub consumers: Vec<ConsumerSettings>,
    /// sns: the key that topics are encrypted with, `alias/aws/sns` or the ARN of one's own.
    pub kms_key: Option<String>,
}

/// A topic of SNS or Kafka, or a stream of NATS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicSettings {
    /// As routes name it.
    pub name: String,
    /// nats: the types it stores, such as `events.transfers.*`. SNS takes all.
    #[serde(default)]
    pub types: Vec<String>,
    /// nats, kafka: on how many servers of the cluster it is stored. Without it 1 on NATS and 3 on Kafka.
    pub replicas: Option<usize>,
    /// kafka: how many of them must have a record before it counts. Without it, all but one.
    pub min_insync_replicas: Option<usize>,
    /// kafka: how many parts it has, and so how many processes can read it side by side. Without it, 12.
    pub partitions: Option<u32>,
    /// nats, kafka: how long it keeps messages.
    #[serde(default = "defaults::retention_days")]
    pub retention_days: u64,
}

/// A reader of one topic: on SNS a queue with a dead-letter queue, on NATS a durable consumer, on Kafka a group with a
/// dead-letter topic.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsumerSettings {
    /// Its queues are `NAME.fifo` and `NAME-dead.fifo`; its durable consumer is `NAME`, with a stream `NAME-dead` for the
    /// subject `dead.NAME`; its group is `NAME`, with a topic `NAME-dead`.
    pub name: String,
    /// Which topic it reads.
    pub topic: String,
    /// Only these types, such as `events.transfers.*`. All, if empty.
    #[serde(default)]
    pub types: Vec<String>,
    /// How long a message is its own before it is given out again.
    #[serde(default = "defaults::visibility_timeout_seconds")]
    pub visibility_timeout_seconds: u32,
    /// sns: SQS itself gives up what was received more often, in silence. Consumers count tries and dead-letter before:
    /// leave it as it is. On NATS the server never does.
    #[serde(default = "defaults::receives_max")]
    pub receives_max: u32,
    /// nats: so many may be unacknowledged at a time. With 1, order holds even when one is given out again, and one
    /// that fails stops every key until it is applied or dead-lettered. With more, others go on, and order breaks where
    /// a process dies: the server hands out later messages while what that process had is hidden.
    #[serde(default = "defaults::in_flight_max")]
    pub in_flight_max: u32,
}

mod defaults {
    pub(super) fn retention_days() -> u64 {
        14
    }
    pub(super) fn visibility_timeout_seconds() -> u32 {
        60
    }
    pub(super) fn receives_max() -> u32 {
        super::RECEIVES_MAX
    }
    pub(super) fn in_flight_max() -> u32 {
        1
    }
}

impl SetupSettings {
    /// What no kind of bus takes.
    pub fn check(&self) -> Result<(), FieldErrors> {
        let mut defects = Defects::default();
        let topics: BTreeSet<_> = self.topics.iter().map(|topic| topic.name.as_str()).collect();
        if topics.len() != self.topics.len() {
            defects.add("setup.topics", "has a name twice");
        }
        for topic in &self.topics {
            let mut refuse = |problem: String| {
                defects.add("setup.topics", format!("{}: {problem}", topic.name));
            };
            if topic.replicas.is_some_and(|replicas| !(1..=5).contains(&replicas)) {
                refuse("replicas must be 1 to 5".to_owned());
            }
            if topic.min_insync_replicas.is_some_and(|in_sync| {
                in_sync == 0 || topic.replicas.is_some_and(|replicas| in_sync > replicas)
            }) {
                refuse("min_insync_replicas must be 1 to replicas".to_owned());
            }
            if topic.partitions.is_some_and(|partitions| !(1..=10_000).contains(&partitions)) {
                refuse("partitions must be 1 to 10000".to_owned());
            }
        }
        let mut names = BTreeSet::new();
        for consumer in &self.consumers {
            let name = &consumer.name;
            let mut refuse =
                |problem: &str| defects.add("setup.consumers", format!("{name}: {problem}"));
            let well_formed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            // A queue's name has 80 characters, and ours add "-dead.fifo".
            if name.is_empty() || name.len() > 70 || !name.bytes().all(well_formed) {
                refuse("a name must be 1 to 70 letters, digits, - and _");
            }
            if !names.insert(name) {
                refuse("the name is there twice");
            }
            if !topics.contains(consumer.topic.as_str()) {
                refuse(&format!("reads {}, which is not in setup.topics", consumer.topic));
            }
            if !(1..=43_200).contains(&consumer.visibility_timeout_seconds) {
                refuse("visibility_timeout_seconds must be between 1 and 43200");
            }
            if !(RECEIVES_MAX_MIN..=RECEIVES_MAX).contains(&consumer.receives_max) {
                refuse(&format!(
                    "receives_max must be between {RECEIVES_MAX_MIN} and {RECEIVES_MAX}: SQS counts deliveries that were \
                     never tried; consumer.receives_max is the number of tries"
                ));
            }
            if consumer.in_flight_max == 0 {
                refuse("in_flight_max must be at least 1");
            }
            if !consumer.types.iter().all(|pattern| is_pattern(pattern)) {
                refuse("a type is such as events.transfers.submitted or events.transfers.*");
            }
        }
        defects.into_result()
    }
}

/// A type, or the beginning of types with `*` as its last word.
fn is_pattern(text: &str) -> bool {
    let start = text.strip_suffix(".*").unwrap_or(text);
    text == "*"
        || start.split('.').all(|word| {
            !word.is_empty()
                && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        })
}

/// What was done, or would be; and who must be allowed what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Setup {
    /// In the order they are done.
    pub steps: Vec<Step>,
    /// The least that each party needs.
    pub policies: Vec<Policy>,
}

/// One resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// `topic`, `dead-letter topic`, `queue`, `subscription`, `stream` or `consumer`.
    pub what: &'static str,
    /// Which.
    pub name: String,
    /// What it needed.
    pub action: Action,
    /// What differed.
    pub differs: Vec<String>,
}

/// What a resource needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is as it should be.
    Keep,
    /// It was not there.
    Create,
    /// Something differed.
    Change,
}

/// The permissions of one party: a policy of IAM, the `permissions` of a NATS user, or commands for Kafka's ACLs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Policy {
    /// `producer`, or `consumer NAME`.
    pub party: String,
    /// As the administrator pastes it.
    pub document: Value,
}

/// Why it could not be set up: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub(crate) String);

impl From<FieldError> for SetupError {
    fn from(error: FieldError) -> Self {
        Self(error.to_string())
    }
}

impl From<FieldErrors> for SetupError {
    fn from(error: FieldErrors) -> Self {
        Self(error.to_string())
    }
}

pub(crate) fn step(what: &'static str, name: &str, differs: Option<Vec<String>>) -> Step {
    let (action, differs) = match differs {
        None => (Action::Create, Vec::new()),
        Some(differs) if differs.is_empty() => (Action::Keep, differs),
        Some(differs) => (Action::Change, differs),
    };
    Step { what, name: name.to_owned(), action, differs }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn check(toml_like: Value) -> Result<(), String> {
        let settings: SetupSettings =
            serde_json::from_value(toml_like).map_err(|error| error.to_string())?;
        settings.check().map_err(|error| error.to_string())
    }

    #[test]
    fn a_consumer_reads_a_topic_that_is_set_up_under_a_name_of_its_own() {
        let consumer = |name: &str, topic: &str| serde_json::json!({ "name": name, "topic": topic, "types": ["events.a.*"] });
        let with = |consumers: Vec<Value>| {
            check(serde_json::json!({ "topics": [{ "name": "t.fifo" }], "consumers": consumers }))
        };
        assert_eq!(with(vec![consumer("ledger", "t.fifo")]), Ok(()));
        assert!(with(vec![consumer("ledger", "other.fifo")]).unwrap_err().contains("setup.topics"));
        let twice = vec![consumer("ledger", "t.fifo"), consumer("ledger", "t.fifo")];
        assert!(with(twice).unwrap_err().contains("twice"));
        assert!(with(vec![consumer("the ledger", "t.fifo")]).is_err());
    }

    #[test]
    fn a_pattern_has_its_star_at_the_end_only() {
        for fine in ["*", "events.a", "events.a.*"] {
            assert!(is_pattern(fine), "{fine}");
        }
        for wrong in ["", "events.*.a", "events.a*", ".*", "events..a", "a.**"] {
            assert!(!is_pattern(wrong), "{wrong}");
        }
    }
}
