//! Streams and durable consumers.

use std::time::Duration;

use async_nats::jetstream::consumer::{self, AckPolicy, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{self, StorageType};
use async_nats::jetstream::{Context, ErrorCode};

use serde_json::json;

use super::{
    ConsumerSettings, Policy, Setup, SetupError, SetupSettings, Step, TopicSettings, step,
};
use crate::buses::nats::{NatsConnector, NatsSettings, Subjects, is_stream_name};
use crate::nats::{dead_letter_subject, subject_matches};

const DAY: Duration = Duration::from_hours(24);

/// Look at everything, and unless `dry_run` make it as the settings say.
pub async fn set_up_nats(
    bus: &NatsSettings,
    setup: &SetupSettings,
    environment: impl Fn(&str) -> Option<String>,
    dry_run: bool,
) -> Result<Setup, SetupError> {
    setup.check()?;
    let subjects = Subjects::new(bus.subject_prefix.as_deref())?;
    let connector = NatsConnector::new(bus, environment)?;
    let jetstream = connector.jetstream().await.map_err(SetupError)?;
    let window = Duration::from_secs(bus.duplicate_window_seconds);
    let run = SetupRun { jetstream, subjects, window, dry_run };
    let mut done = Setup::default();
    let mut published = Vec::new();
    for topic in &setup.topics {
        let wanted = run.wanted_stream(topic)?;
        published.extend(wanted.subjects.clone());
        done.steps.push(run.stream(wanted).await?);
    }
    if !published.is_empty() {
        done.policies.push(producer_policy(&published));
    }
    for consumer in &setup.consumers {
        done.steps.push(run.consumer(consumer).await?);
        let letters = run.dead_letter_stream(consumer, &setup.topics, &mut done.steps).await?;
        done.policies.push(consumer_policy(&consumer.name, &consumer.topic, &letters));
    }
    Ok(done)
}

struct SetupRun {
    jetstream: Context,
    subjects: Subjects,
    window: Duration,
    dry_run: bool,
}

impl SetupRun {
    fn wanted_stream(&self, topic: &TopicSettings) -> Result<stream::Config, SetupError> {
        let name = &topic.name;
        if !is_stream_name(name) {
            return Err(SetupError(format!(
                "setup.topics: {name} cannot be a stream's name: letters, digits, - and _"
            )));
        }
        let subjects = self.subjects_of(&topic.types).filter(|subjects| !subjects.is_empty());
        let Some(mut subjects) = subjects else {
            return Err(SetupError(format!(
                "setup.topics: {name} needs types, such as [\"events.transfers.*\"]"
            )));
        };
        subjects.sort();
        Ok(stream::Config {
            name: name.clone(),
            subjects,
            storage: StorageType::File,
            num_replicas: topic.replicas.unwrap_or(1),
            max_age: DAY.saturating_mul(u32::try_from(topic.retention_days).unwrap_or(u32::MAX)),
            duplicate_window: self.window,
            ..stream::Config::default()
        })
    }

    /// Where its dead letters are kept; a topic that takes the subject already will do.
    async fn dead_letter_stream(
        &self,
        consumer: &ConsumerSettings,
        topics: &[TopicSettings],
        steps: &mut Vec<Step>,
    ) -> Result<String, SetupError> {
        let subject = dead_letter_subject(&consumer.name);
        for topic in topics {
            let subjects = self.wanted_stream(topic)?.subjects;
            if subjects.iter().any(|filter| subject_matches(filter, &subject)) {
                return Ok(topic.name.clone());
            }
        }
        let name = format!("{}-dead", consumer.name);
        if let Ok(other) = self.jetstream.stream_by_subject(subject.as_str()).await
            && other != name
        {
            return Ok(other);
        }
        let replicas = topics.iter().find(|topic| topic.name == consumer.topic);
        let wanted = stream::Config {
            name: name.clone(),
            subjects: vec![subject],
            storage: StorageType::File,
            num_replicas: replicas.and_then(|topic| topic.replicas).unwrap_or(1),
            // They wait for a person, however long that takes.
            max_age: Duration::ZERO,
            duplicate_window: self.window,
            ..stream::Config::default()
        };
        steps.push(self.stream(wanted).await?);
        Ok(name)
    }

    fn subjects_of(&self, types: &[String]) -> Option<Vec<String>> {
        types.iter().map(|pattern| self.subjects.of_pattern(pattern)).collect()
    }

    async fn stream(&self, wanted: stream::Config) -> Result<Step, SetupError> {
        let name = wanted.name.clone();
        let Some(present) = self.find_stream(&name).await? else {
            if !self.dry_run {
                let created = self.jetstream.create_stream(wanted).await;
                created.map_err(|error| failed("creating stream", &name, &error))?;
            }
            return Ok(step("stream", &name, None));
        };
        let present = present.cached_info().config.clone();
        let mut there = present.subjects.clone();
        there.sort();
        let differs = [
            ("subjects", there != wanted.subjects),
            ("num_replicas", present.num_replicas != wanted.num_replicas),
            ("max_age", present.max_age != wanted.max_age),
            ("duplicate_window", present.duplicate_window != wanted.duplicate_window),
        ];
        let differs = named(&differs);
        if !differs.is_empty() && !self.dry_run {
            let changed = stream::Config {
                subjects: wanted.subjects,
                num_replicas: wanted.num_replicas,
                max_age: wanted.max_age,
                duplicate_window: wanted.duplicate_window,
                ..present
            };
            let updated = self.jetstream.update_stream(changed).await;
            updated.map_err(|error| failed("changing stream", &name, &error))?;
        }
        Ok(step("stream", &name, Some(differs)))
    }

    async fn find_stream(&self, name: &str) -> Result<Option<stream::Stream>, SetupError> {
        match self.jetstream.get_stream(name).await {
            Ok(stream) => Ok(Some(stream)),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(said)
                    if said.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                {
                    Ok(None)
                }
                _ => Err(failed("looking at stream", name, &error)),
            },
        }
    }

    async fn consumer(&self, consumer: &ConsumerSettings) -> Result<Step, SetupError> {
        let name = format!("{} of {}", consumer.name, consumer.topic);
        let filters = self.subjects_of(&consumer.types).unwrap_or_default();
        let mut wanted = pull::Config {
            durable_name: Some(consumer.name.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: Duration::from_secs(consumer.visibility_timeout_seconds.into()),
            // The server would give up in silence. Consumers count tries themselves, and refuse one that does.
            max_deliver: -1,
            max_ack_pending: consumer.in_flight_max.into(),
            ..pull::Config::default()
        };
        // Servers before 2.10 know one filter only.
        match filters.as_slice() {
            [one] => wanted.filter_subject.clone_from(one),
            _ => wanted.filter_subjects.clone_from(&filters),
        }
        let info = self.find_stream(&consumer.topic).await?;
        let Some(stream) = info else {
            // Only a dry run comes here without its stream.
            return Ok(step("consumer", &name, None));
        };
        let present = match stream.consumer_info(&consumer.name).await {
            Ok(info) => Some(info.config),
            Err(error) if error.kind() == ConsumerInfoErrorKind::NotFound => None,
            Err(error) => return Err(failed("looking at consumer", &name, &error)),
        };
        let differs = present.map(|present| differing(&present, &wanted));
        let needed = differs.as_ref().is_none_or(|differs| !differs.is_empty());
        if needed && !self.dry_run {
            let created = stream.create_consumer(wanted).await;
            let created = created.map_err(|error| failed("creating consumer", &name, &error))?;
            if created.cached_info().config.filter_subjects.len() < filters.len()
                && filters.len() > 1
            {
                return Err(SetupError(format!(
                    "consumer {name} has several types, for which the server must be 2.10 or newer"
                )));
            }
        }
        Ok(step("consumer", &name, differs))
    }
}

fn differing(present: &consumer::Config, wanted: &pull::Config) -> Vec<String> {
    named(&[
        ("ack_wait", present.ack_wait != wanted.ack_wait),
        ("max_deliver", present.max_deliver != wanted.max_deliver),
        ("max_ack_pending", present.max_ack_pending != wanted.max_ack_pending),
        ("filter_subject", present.filter_subject != wanted.filter_subject),
        ("filter_subjects", present.filter_subjects != wanted.filter_subjects),
    ])
}

fn named(differences: &[(&str, bool)]) -> Vec<String> {
    differences.iter().filter(|(_, differs)| *differs).map(|(name, _)| (*name).to_owned()).collect()
}

fn failed(doing: &str, name: &str, error: &dyn std::error::Error) -> SetupError {
    SetupError(format!("{doing} {name} failed: {}", crate::buses::short_line(&error.to_string())))
}

/// For the server's configuration: may publish these subjects, and hear the answers.
fn producer_policy(subjects: &[String]) -> Policy {
    let document =
        json!({ "publish": { "allow": subjects }, "subscribe": { "allow": ["_INBOX.>"] } });
    Policy { party: "producer".to_owned(), document }
}

/// For the server's configuration: may ask its own consumer for messages and acknowledge them, put dead letters where
/// they are kept, and count them. The names of streams tell who keeps them.
fn consumer_policy(name: &str, stream: &str, dead_letter_stream: &str) -> Policy {
    let document = json!({
        "publish": { "allow": [
            format!("$JS.API.CONSUMER.INFO.{stream}.{name}"),
            format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"),
            format!("$JS.ACK.{stream}.{name}.>"),
            "$JS.API.STREAM.NAMES",
            format!("$JS.API.STREAM.INFO.{dead_letter_stream}"),
            dead_letter_subject(name),
        ] },
        "subscribe": { "allow": ["_INBOX.>"] },
    });
    Policy { party: format!("consumer {name}"), document }
}
