//! Topics, and one for the dead letters of each consumer.
//!
//! What cannot be changed without harm is refused, not done: with more partitions a key moves to another one, and its
//! order with it.

use std::collections::BTreeMap;

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigResource, ConfigSource, NewTopic,
    ResourceSpecifier, TopicReplication,
};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::{FutureProducer, Producer as _};
use serde_json::json;

use super::{Policy, Setup, SetupError, SetupSettings, Step, TopicSettings, step};
use crate::bounds::kafka::ADMINISTRATION_TIMEOUT;
use crate::buses::kafka::KafkaSettings;
use crate::kafka::{KafkaCluster, KafkaContext, SaslMechanism, is_topic_name};

/// Look at everything, and unless `dry_run` make it as the settings say.
pub async fn set_up_kafka(
    bus: &KafkaSettings,
    setup: &SetupSettings,
    environment: impl Fn(&str) -> Option<String>,
    dry_run: bool,
) -> Result<Setup, SetupError> {
    setup.check()?;
    if bus.sasl_mechanism == Some(SaslMechanism::OauthBearer) {
        return Err(SetupError(
            "sasl_mechanism: setup cannot log in with OAUTHBEARER, because librdkafka's client for administration asks nobody for \
             a token. Run it with an administrator's SCRAM login or certificate in a configuration of its own; \
             the bus and its consumers may use OAUTHBEARER"
                .to_owned(),
        ));
    }
    let cluster = KafkaCluster::new(&bus.address(), environment)?;
    let (connect, request) = bus.limits()?;
    let context = cluster.context();
    let no_client = |error| SetupError(format!("no client of Kafka could be made: {error}"));
    let config = cluster.config(connect, request);
    let admin = config.create_with_context(context.clone()).map_err(no_client)?;
    let looker = config.create_with_context(context.clone()).map_err(no_client)?;
    let run = SetupRun { cluster, context, admin, looker, dry_run };
    let mut done = Setup::default();
    for topic in &setup.topics {
        done.steps.push(run.topic("topic", &WantedTopic::new(topic)?).await?);
    }
    let servers = run.cluster.place();
    if !setup.topics.is_empty() {
        let names: Vec<_> = setup.topics.iter().map(|topic| topic.name.as_str()).collect();
        done.policies.push(producer_policy(servers, &names));
    }
    for consumer in &setup.consumers {
        let name = &consumer.name;
        if !consumer.types.is_empty() {
            return Err(SetupError(format!(
                "setup.consumers: {name} has types, and Kafka gives a consumer all of a topic: route these types to a topic of their own"
            )));
        }
        let Some(topic) = setup.topics.iter().find(|topic| topic.name == consumer.topic) else {
            // The check above has seen it.
            continue;
        };
        let dead = WantedTopic::dead_letters(name, topic)?;
        done.steps.push(run.topic("dead-letter topic", &dead).await?);
        done.policies.push(consumer_policy(servers, name, &topic.name, &dead.name));
    }
    Ok(done)
}

/// The topic of a consumer's dead letters.
pub fn dead_letter_topic(consumer: &str) -> String {
    format!("{consumer}-dead")
}

struct WantedTopic {
    name: String,
    partitions: i32,
    replicas: i32,
    configs: BTreeMap<&'static str, String>,
}

impl WantedTopic {
    fn new(topic: &TopicSettings) -> Result<Self, SetupError> {
        let retention_ms = match i64::try_from(topic.retention_days).unwrap_or(i64::MAX) {
            // For ever.
            0 => -1,
            days => days.saturating_mul(86_400_000),
        };
        Self::of(topic, topic.name.clone(), topic.partitions.unwrap_or(PARTITIONS), retention_ms)
    }

    /// They are few, and wait for a person.
    fn dead_letters(consumer: &str, topic: &TopicSettings) -> Result<Self, SetupError> {
        Self::of(topic, dead_letter_topic(consumer), 1, -1)
    }

    fn of(
        topic: &TopicSettings,
        name: String,
        partitions: u32,
        retention_ms: i64,
    ) -> Result<Self, SetupError> {
        if !is_topic_name(&name) {
            return Err(SetupError(format!(
                "setup.topics: {name} cannot be a topic's name: 1 to 249 letters, digits, ., - and _"
            )));
        }
        let replicas = topic.replicas.unwrap_or(REPLICAS);
        let in_sync = topic.min_insync_replicas.unwrap_or(replicas.saturating_sub(1).max(1));
        let configs = BTreeMap::from([
            // Compaction would throw away all but a key's last event.
            ("cleanup.policy", "delete".to_owned()),
            ("min.insync.replicas", in_sync.to_string()),
            ("retention.ms", retention_ms.to_string()),
            // A replica that has fallen behind would forget events that were acknowledged.
            ("unclean.leader.election.enable", "false".to_owned()),
        ]);
        Ok(Self {
            name,
            partitions: i32::try_from(partitions).unwrap_or(i32::MAX),
            replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
            configs,
        })
    }
}

/// Enough for a dozen consumers side by side; more can never be taken back.
const PARTITIONS: u32 = 12;
/// One may fail while another is being replaced.
const REPLICAS: usize = 3;

struct SetupRun {
    cluster: KafkaCluster,
    context: KafkaContext,
    admin: AdminClient<KafkaContext>,
    /// Hears why a login is refused; the client for administration hears only answers.
    looker: FutureProducer<KafkaContext>,
    dry_run: bool,
}

/// A topic as it is.
struct Present {
    partitions: i32,
    replicas: i32,
}

impl SetupRun {
    async fn topic(&self, what: &'static str, wanted: &WantedTopic) -> Result<Step, SetupError> {
        let name = &wanted.name;
        let Some(present) = self.find(name).await? else {
            if !self.dry_run {
                self.create(wanted).await?;
            }
            return Ok(step(what, name, None));
        };
        if present.partitions < wanted.partitions {
            return Err(SetupError(format!(
                "topic {name} has {} partitions and setup says {}: more would move keys to other partitions and break their order; \
                 stop its producers, let its consumers read to the end, then add them with kafka-topics --alter",
                present.partitions, wanted.partitions
            )));
        }
        if present.replicas < wanted.replicas {
            return Err(SetupError(format!(
                "topic {name} has {} replicas and setup says {}: add them with kafka-reassign-partitions, or set replicas = {}",
                present.replicas, wanted.replicas, present.replicas
            )));
        }
        let configs = self.configs(name).await?;
        let differs: Vec<String> = wanted
            .configs
            .iter()
            .filter(|(key, value)| {
                configs.get(key).and_then(|entry| entry.value.as_ref()) != Some(value)
            })
            .map(|(key, _)| (*key).to_owned())
            .collect();
        if !differs.is_empty() && !self.dry_run {
            self.change(wanted, &configs).await?;
        }
        Ok(step(what, name, Some(differs)))
    }

    async fn find(&self, name: &str) -> Result<Option<Present>, SetupError> {
        let (looker, asked) = (self.looker.clone(), name.to_owned());
        let answer = tokio::task::spawn_blocking(move || look(&looker, &asked)).await;
        let doing = "looking at topic";
        match answer {
            Ok(Ok(Ok(present))) => Ok(Some(present)),
            Ok(Ok(Err(Code::UnknownTopicOrPartition | Code::UnknownTopic))) => Ok(None),
            Ok(Ok(Err(code))) => Err(failed(doing, name, code)),
            Ok(Err(error)) => {
                Err(SetupError(self.cluster.unreachable(&self.context.faults, &error).message))
            }
            Err(_) => Err(SetupError(format!("{doing} {name} failed: nobody could be asked"))),
        }
    }

    async fn create(&self, wanted: &WantedTopic) -> Result<(), SetupError> {
        let name = &wanted.name;
        let mut topic =
            NewTopic::new(name, wanted.partitions, TopicReplication::Fixed(wanted.replicas));
        for (key, value) in &wanted.configs {
            topic = topic.set(key, value);
        }
        let created = self.admin.create_topics([&topic], &options()).await;
        match self.answer("creating topic", name, created)? {
            Ok(_) | Err((_, Code::TopicAlreadyExists)) => Ok(()),
            Err((_, Code::InvalidReplicationFactor)) => Err(SetupError(format!(
                "creating topic {name} failed: there are fewer than {} brokers; set replicas of the topic, 1 for a trial",
                wanted.replicas
            ))),
            Err((_, code)) => Err(failed("creating topic", name, code)),
        }
    }

    async fn configs(&self, name: &str) -> Result<Configs, SetupError> {
        let doing = "looking at the configuration of topic";
        let asked = [ResourceSpecifier::Topic(name)];
        let described = self.admin.describe_configs(&asked, &options()).await;
        match self.answer(doing, name, described)? {
            Ok(resource) => Ok(Configs(resource)),
            Err(code) => Err(failed(doing, name, code)),
        }
    }

    /// This call replaces all of a topic's own configuration: what others have set goes with it.
    async fn change(&self, wanted: &WantedTopic, present: &Configs) -> Result<(), SetupError> {
        let (name, doing) = (&wanted.name, "changing topic");
        let mut all = present.of_the_topic();
        all.extend(wanted.configs.iter().map(|(key, value)| (*key, value.as_str())));
        let mut change = AlterConfig::new(ResourceSpecifier::Topic(name));
        for (key, value) in all {
            change = change.set(key, value);
        }
        let altered = self.admin.alter_configs([&change], &options()).await;
        match self.answer(doing, name, altered)? {
            Ok(_) => Ok(()),
            Err((_, code)) => Err(failed(doing, name, code)),
        }
    }

    /// The one answer to a question about one topic.
    fn answer<T>(
        &self,
        doing: &str,
        name: &str,
        answers: Result<Vec<T>, rdkafka::error::KafkaError>,
    ) -> Result<T, SetupError> {
        let answers = answers.map_err(|error| match error.rdkafka_error_code() {
            Some(Code::BrokerTransportFailure | Code::AllBrokersDown) => {
                SetupError(self.cluster.unreachable(&self.context.faults, &error).message)
            }
            Some(code) => failed(doing, name, code),
            None => SetupError(format!("{doing} {name} failed: {error}")),
        })?;
        let answer = answers.into_iter().next();
        answer.ok_or_else(|| SetupError(format!("{doing} {name} failed: Kafka's answer is empty")))
    }
}

/// Blocks until the cluster answers.
fn look(
    looker: &FutureProducer<KafkaContext>,
    name: &str,
) -> Result<Result<Present, Code>, rdkafka::error::KafkaError> {
    let metadata = looker.client().fetch_metadata(Some(name), ADMINISTRATION_TIMEOUT / 3)?;
    let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
        return Ok(Err(Code::UnknownTopicOrPartition));
    };
    if let Some(error) = topic.error() {
        return Ok(Err(error.into()));
    }
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let replicas = topic.partitions().iter().map(|partition| partition.replicas().len()).min();
    Ok(Ok(Present {
        partitions: count(topic.partitions().len()),
        replicas: count(replicas.unwrap_or(0)),
    }))
}

struct Configs(ConfigResource);

impl Configs {
    fn get(&self, key: &str) -> Option<&rdkafka::admin::ConfigEntry> {
        self.0.get(key)
    }

    /// What was set for this topic, and is not a broker's or Kafka's default.
    fn of_the_topic(&self) -> BTreeMap<&str, &str> {
        let own = self.0.entries.iter().filter(|entry| entry.source == ConfigSource::DynamicTopic);
        own.filter_map(|entry| Some((entry.name.as_str(), entry.value.as_deref()?))).collect()
    }
}

fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(ADMINISTRATION_TIMEOUT))
        .operation_timeout(Some(ADMINISTRATION_TIMEOUT))
}

fn failed(doing: &str, name: &str, code: Code) -> SetupError {
    let hint = match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            "; setup needs Create, Describe, DescribeConfigs and AlterConfigs on its topics"
        }
        _ => "",
    };
    SetupError(format!("{doing} {name} failed: {code}{hint}"))
}

/// For the administrator's shell. Writing to a topic includes idempotent writing since Kafka 2.8.
fn producer_policy(servers: &str, topics: &[&str]) -> Policy {
    let allow = topics.iter().map(|topic| {
        acl(servers, "PRODUCER", &format!("--operation Write --operation Describe --topic {topic}"))
    });
    Policy { party: "producer".to_owned(), document: json!(allow.collect::<Vec<_>>()) }
}

/// Reads one topic as one group, and writes its own dead letters.
fn consumer_policy(servers: &str, name: &str, topic: &str, dead: &str) -> Policy {
    let allow = [
        acl(servers, name, &format!("--operation Read --operation Describe --topic {topic}")),
        acl(servers, name, &format!("--operation Read --group {name}")),
        acl(servers, name, &format!("--operation Write --operation Describe --topic {dead}")),
    ];
    Policy { party: format!("consumer {name}"), document: json!(allow) }
}

fn acl(servers: &str, principal: &str, what: &str) -> String {
    format!(
        "kafka-acls --bootstrap-server {servers} --add --allow-principal User:{principal} {what}"
    )
}
