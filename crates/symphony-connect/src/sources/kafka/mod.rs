//! Kafka: a member of a group. Offsets are committed only after what they stand for was applied; a partition is given
//! away when what is in hand of it is finished; dead letters go to a topic of their own.
//!
//! Kafka hands out what is next in a partition, whatever its key, and counts nothing. So tries are counted by the loop,
//! in this process: a restart begins at one. An event that fails holds up the later ones of its key and nobody else; the
//! group's offset stays before it, so a restart delivers again what was applied behind it, and the inbox knows that.
//! What was received is in hand until it is acknowledged, left or dead-lettered, or until this process ends.
//!
//! - `partitions`: what is in hand, and how far each partition is done.
//! - `reader`: the thread that fetches, commits and takes part in the group.

mod partitions;
mod reader;

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use symphony::FieldErrors;
use symphony::consumer::{DeadLetterReason, Delivery, Source, SourceError, SourceTerms};

use super::OpenError;
use crate::bounds::kafka::{
    ANSWER_TIMEOUT, CLOSE_TIMEOUT, COMMIT_INTERVAL, FETCHED_MAX, HELD_MAX, LOOK_INTERVAL,
    SEND_RETRIES, SETTLE_TIMEOUT,
};
use crate::buses::short_line;
use crate::kafka::{Faults, KafkaCluster, KafkaContext, is_topic_name, millis};
use reader::{Member, Shared};

pub use crate::kafka::{KafkaAddress, SaslMechanism};

/// Which topic, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaSourceSettings {
    /// The topic.
    pub topic: String,
    /// The group: processes of one group share the topic's partitions.
    pub group: String,
    /// Where dead letters are published.
    pub dead_letter_topic: String,
    /// How long what is in hand of a partition may take before it is given away all the same: longer than a handler.
    pub revoke_wait: Duration,
    /// How long a process may be silent before its partitions go to others. Brokers take 6 seconds to 30 minutes.
    pub session_timeout: Duration,
    /// How long one call waits for messages.
    pub wait: Duration,
}

/// A topic to consume from.
pub struct KafkaSource {
    settings: KafkaSourceSettings,
    terms: SourceTerms,
    cluster: KafkaCluster,
    shared: Arc<Shared>,
    producer: FutureProducer<KafkaContext>,
    faults: Arc<Faults>,
    /// Nothing is ever sent: it is disconnected when the thread has ended.
    reader_ended: Mutex<mpsc::Receiver<()>>,
}

/// Why there is no source.
#[derive(Debug, thiserror::Error)]
pub enum KafkaOpenError {
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] FieldErrors),
    /// Nobody is there, or a topic is missing.
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl KafkaSource {
    /// Look at both topics, and join the group.
    pub async fn open(
        address: &KafkaAddress,
        environment: impl Fn(&str) -> Option<String>,
        settings: KafkaSourceSettings,
    ) -> Result<Self, KafkaOpenError> {
        let cluster = KafkaCluster::new(address, environment)?;
        if settings.topic == settings.dead_letter_topic {
            let problem = "dead letters would be read as events: give them a topic of their own";
            return Err(OpenError::new(problem).into());
        }
        for topic in [&settings.topic, &settings.dead_letter_topic] {
            if !is_topic_name(topic) {
                let problem = format!(
                    "{topic} cannot be a topic's name: 1 to 249 letters, digits, ., - and _"
                );
                return Err(OpenError::new(problem).into());
            }
        }
        let failed = |error: KafkaError| OpenError::new(format!("no client of Kafka: {error}"));
        let context = cluster.context();
        let faults = context.faults.clone();
        let producer: FutureProducer<KafkaContext> = cluster
            .config(ANSWER_TIMEOUT, ANSWER_TIMEOUT)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("partitioner", "murmur2_random")
            .set("message.timeout.ms", millis(ANSWER_TIMEOUT))
            .set("message.send.max.retries", SEND_RETRIES.to_string())
            .create_with_context(context.clone())
            .map_err(failed)?;
        for topic in [&settings.topic, &settings.dead_letter_topic] {
            let (client, name) = (producer.clone(), topic.clone());
            let partitions = blocking(move || partitions_of(&client, &name)).await;
            match partitions {
                Ok(Ok(_)) => {}
                Ok(Err(code)) => {
                    let fix = "create it with `symphony bus setup`";
                    let problem = format!("topic {topic} cannot be used: {code}; {fix}");
                    return Err(OpenError::new(problem).into());
                }
                Err(error) => {
                    return Err(OpenError::new(cluster.unreachable(&faults, &error).message).into());
                }
            }
        }
        let shared = Arc::new(Shared::default());
        let member = Member {
            context,
            shared: shared.clone(),
            topic: settings.topic.clone(),
            revoke_wait: settings.revoke_wait,
        };
        let consumer: BaseConsumer<Member> =
            consumer_config(&cluster, &settings).create_with_context(member).map_err(failed)?;
        consumer.subscribe(&[&settings.topic]).map_err(failed)?;
        let (state, topic) = (shared.clone(), settings.topic.clone());
        let (running, ended) = mpsc::channel::<()>();
        std::thread::Builder::new()
            .name("kafka consumer".to_owned())
            .spawn(move || {
                reader::read(consumer, &state, &topic);
                drop(running);
            })
            .map_err(|error| OpenError::new(format!("no thread for the consumer: {error}")))?;
        let terms = SourceTerms {
            visibility: LOOK_INTERVAL,
            batch_max: FETCHED_MAX,
            held_max: HELD_MAX,
            held_time_max: None,
            keeps_group_order: false,
            broker_receives_max: None,
        };
        let reader_ended = Mutex::new(ended);
        Ok(Self { settings, terms, cluster, shared, producer, faults, reader_ended })
    }

    /// Wait for the group to say which partitions are this process's, so long at most.
    pub async fn joined(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        loop {
            let news = self.shared.news.notified();
            if self.shared.partitions().is_member() {
                return true;
            }
            if tokio::time::timeout_at(until.into(), news).await.is_err() {
                return false;
            }
        }
    }

    /// Whether the brokers answer, though an error was told meanwhile.
    async fn answers(&self) -> Result<(), SourceError> {
        let Some(trouble) = self.shared.trouble() else { return Ok(()) };
        let (client, name) = (self.producer.clone(), self.settings.topic.clone());
        match blocking(move || partitions_of(&client, &name)).await {
            Ok(Ok(_)) => {
                self.shared.set_trouble(None);
                Ok(())
            }
            Ok(Err(code)) => Err(SourceError::new(format!("Kafka: {code}"))),
            Err(_) => Err(SourceError::new(format!("Kafka: {}", short_line(&trouble)))),
        }
    }
}

fn consumer_config(
    cluster: &KafkaCluster,
    settings: &KafkaSourceSettings,
) -> rdkafka::ClientConfig {
    let mut config = cluster.config(ANSWER_TIMEOUT, ANSWER_TIMEOUT);
    config
        .set("group.id", &settings.group)
        // Only what moves is given away; the rest goes on meanwhile.
        .set("partition.assignment.strategy", "cooperative-sticky")
        // It commits what we store, which is what was applied: every so often, and before it gives partitions away.
        .set("enable.auto.commit", "true")
        .set("auto.commit.interval.ms", millis(COMMIT_INTERVAL))
        .set("enable.auto.offset.store", "false")
        // A new group begins with the oldest: nothing is passed over in silence.
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "true")
        .set("session.timeout.ms", millis(settings.session_timeout))
        .set("heartbeat.interval.ms", millis(settings.session_timeout / 6))
        // Longer than a partition that is given away is waited for.
        .set("max.poll.interval.ms", millis(settings.revoke_wait * 2 + Duration::from_mins(5)))
        .set("queued.min.messages", FETCHED_MAX.to_string())
        .set("queued.max.messages.kbytes", "16384");
    config
}

#[async_trait]
impl Source for KafkaSource {
    fn terms(&self) -> &SourceTerms {
        &self.terms
    }

    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let started = Instant::now();
        let (quiet_after, give_up_after) =
            (started + self.settings.wait, started + self.settings.wait.max(SETTLE_TIMEOUT));
        loop {
            let news = self.shared.news.notified();
            let now = Instant::now();
            let (found, next_due, unsettled) = {
                let mut state = self.shared.partitions();
                (state.take(max.max(1), now), state.next_due(), state.unsettled())
            };
            if !found.is_empty() {
                return Ok(found);
            }
            if now >= quiet_after {
                self.answers().await?;
                match unsettled {
                    None => return Ok(Vec::new()),
                    Some(why) if now >= give_up_after => {
                        return Err(SourceError::new(format!("Kafka: {why}")));
                    }
                    Some(_) => {}
                }
            }
            let until =
                if now < quiet_after { quiet_after } else { now + Duration::from_millis(100) };
            let until = next_due.map_or(until, |due| due.min(until));
            let _elapsed = tokio::time::timeout_at(until.into(), news).await;
        }
    }

    async fn acknowledge(&self, delivery: &Delivery) -> Result<(), SourceError> {
        let ours = self.shared.partitions().acknowledge(delivery);
        self.shared.finished();
        if ours { Ok(()) } else { Err(elsewhere()) }
    }

    async fn extend(&self, _: &[Arc<Delivery>]) -> Result<(), SourceError> {
        // A partition is ours until the group says otherwise.
        Ok(())
    }

    async fn leave(&self, delivery: &Delivery, delay: Duration) -> Result<(), SourceError> {
        self.shared.partitions().leave(delivery, Instant::now() + delay);
        self.shared.finished();
        self.shared.news.notify_waiters();
        Ok(())
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery,
        reason: &DeadLetterReason,
    ) -> Result<(), SourceError> {
        let original = self.shared.partitions().original(delivery);
        let (key, headers) = original.ok_or_else(elsewhere)?;
        let position = delivery.position.map(|position| position.to_string());
        let mut headers = headers.unwrap_or_else(|| {
            let position = position.as_deref();
            OwnedHeaders::new().insert(Header { key: "position", value: position })
        });
        let message = short_line(&reason.message);
        for (name, value) in [
            ("deadLetterReason", reason.code.as_str()),
            ("deadLetterMessage", message.as_str()),
            ("deadLetterSource", delivery.message_id.as_str()),
        ] {
            headers = headers.insert(Header { key: name, value: Some(value) });
        }
        let topic = &self.settings.dead_letter_topic;
        let mut record = FutureRecord::to(topic).payload(&delivery.body).headers(headers);
        if let Some(key) = &key {
            record = record.key(key);
        }
        let sent = self.producer.send_result(record).map_err(|(error, _)| trouble(&error))?;
        match tokio::time::timeout(ANSWER_TIMEOUT + LOOK_INTERVAL, sent).await {
            Ok(Ok(Ok(_))) => {}
            Ok(Ok(Err((error, _)))) => return Err(trouble(&error)),
            Ok(Err(_)) | Err(_) => {
                return Err(SourceError::new("Kafka did not take the dead letter in time"));
            }
        }
        self.acknowledge(delivery).await
    }

    fn is_ours(&self, delivery: &Delivery) -> bool {
        self.shared.partitions().is_ours(delivery)
    }

    /// Those that the topic still has: whoever has dealt with them deletes them (`kafka-delete-records`).
    async fn dead_letters_waiting(&self) -> Result<Option<u64>, SourceError> {
        let (client, name) = (self.producer.clone(), self.settings.dead_letter_topic.clone());
        let counted = blocking(move || {
            let count = match partitions_of(&client, &name)? {
                Ok(count) => count,
                Err(code) => return Err(KafkaError::MetadataFetch(code)),
            };
            let mut waiting = 0_u64;
            for partition in 0..count {
                let (low, high) =
                    client.client().fetch_watermarks(&name, partition, ANSWER_TIMEOUT)?;
                waiting =
                    waiting.saturating_add(u64::try_from(high.saturating_sub(low)).unwrap_or(0));
            }
            Ok(waiting)
        });
        counted.await.map(Some).map_err(|error| trouble(&error))
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.shared.stop();
        // What was applied is committed and the group is left. Without a coordinator that would take for ever.
        let ended = self.reader_ended.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _disconnected = ended.recv_timeout(CLOSE_TIMEOUT);
    }
}

impl std::fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSource")
            .field("settings", &self.settings)
            .field("cluster", &self.cluster)
            .field("faults", &self.faults)
            .finish_non_exhaustive()
    }
}

/// What blocks does so elsewhere.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, KafkaError> + Send + 'static,
) -> Result<T, KafkaError> {
    tokio::task::spawn_blocking(call).await.unwrap_or(Err(KafkaError::Canceled))
}

/// How many partitions a topic has, or why it has none.
fn partitions_of(
    client: &FutureProducer<KafkaContext>,
    topic: &str,
) -> Result<Result<i32, Code>, KafkaError> {
    let metadata = client.client().fetch_metadata(Some(topic), ANSWER_TIMEOUT)?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Ok(Err(Code::UnknownTopicOrPartition));
    };
    match found.error() {
        Some(error) => Ok(Err(error.into())),
        None => Ok(Ok(i32::try_from(found.partitions().len()).unwrap_or(i32::MAX))),
    }
}

fn elsewhere() -> SourceError {
    SourceError::new("its partition went to another process of the group")
}

fn trouble(error: &KafkaError) -> SourceError {
    SourceError::new(format!("Kafka: {}", short_line(&error.to_string())))
}
