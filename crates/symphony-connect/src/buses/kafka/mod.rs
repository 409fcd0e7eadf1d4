//! Kafka: a record in a topic, with the event's key as its key.
//!
//! The producer is idempotent and waits for all replicas in sync, so a connection that breaks in the middle neither
//! loses nor doubles a record by itself. Kafka does not know event ids: what is published again after an unknown
//! outcome is a second record, which consumers recognise by the event id. Records of one key are in one partition, so
//! what is published one after another is read in that order.
//!
//! - `reading`: from Kafka's error codes to what is known of a message.

mod reading;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::metadata::MetadataTopic;
use rdkafka::producer::{FutureProducer, FutureRecord, Producer as _};
use serde::Deserialize;
use symphony::FieldErrors;
use symphony::event::envelope::Binding;
use symphony::lanes::events::bus::{Bus, Message, Publication, Terms};
use tokio::time::Instant;

use super::{FailureKind, TIMEOUT_MARGIN, again, limits};
use crate::bounds::kafka::{BATCH_MAX, SEND_RETRIES};
use crate::kafka::{Faults, KafkaAddress, KafkaCluster, KafkaContext, is_topic_name, millis};
use crate::settings::Defects;

pub use crate::kafka::SaslMechanism;

/// `[buses.NAME]` with `kind = "kafka"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaSettings {
    /// Such as `127.0.0.1:9092`; several of one cluster with commas between.
    pub bootstrap_servers: String,
    /// `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`, if the brokers want one.
    pub sasl_mechanism: Option<SaslMechanism>,
    /// With PLAIN and SCRAM.
    pub username: Option<String>,
    /// The environment variable that holds the password, with PLAIN and SCRAM.
    pub password_env: Option<String>,
    /// With OAUTHBEARER: a file that holds the token; read again before it expires.
    pub token_file: Option<String>,
    /// With OAUTHBEARER: a program and its arguments that prints the token; run again before it expires.
    pub token_command: Vec<String>,
    /// Speak TLS to this machine as well; to others it is spoken unless `allow_plain_text`.
    pub tls: bool,
    /// PEM; without it, the system's.
    pub ca_file: Option<String>,
    /// PEM, to prove who we are; with `client_key_file`.
    pub client_certificate_file: Option<String>,
    /// PEM.
    pub client_key_file: Option<String>,
    /// Connect without TLS to brokers that are not this machine.
    pub allow_plain_text: bool,
    /// How records are compressed.
    pub compression: Compression,
    /// The limit on one call, connecting included.
    pub timeout_ms: u64,
    /// The limit on making a connection.
    pub connect_timeout_ms: u64,
}

/// How records are compressed. The others of Kafka would need further libraries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Quickly.
    Lz4,
    /// For consumers that do not know LZ4.
    Snappy,
}

impl Default for KafkaSettings {
    fn default() -> Self {
        Self {
            bootstrap_servers: String::new(),
            sasl_mechanism: None,
            username: None,
            password_env: None,
            token_file: None,
            token_command: Vec::new(),
            tls: false,
            ca_file: None,
            client_certificate_file: None,
            client_key_file: None,
            allow_plain_text: false,
            compression: Compression::None,
            timeout_ms: 10_000,
            connect_timeout_ms: 3_000,
        }
    }
}

impl KafkaSettings {
    /// Where the cluster is.
    pub fn address(&self) -> KafkaAddress {
        KafkaAddress {
            bootstrap_servers: self.bootstrap_servers.clone(),
            sasl_mechanism: self.sasl_mechanism,
            username: self.username.clone(),
            password_env: self.password_env.clone(),
            token_file: self.token_file.clone(),
            token_command: self.token_command.clone(),
            tls: self.tls,
            ca_file: self.ca_file.clone(),
            client_certificate_file: self.client_certificate_file.clone(),
            client_key_file: self.client_key_file.clone(),
            allow_plain_text: self.allow_plain_text,
        }
    }

    pub(crate) fn limits(&self) -> Result<(Duration, Duration), FieldErrors> {
        limits(self.connect_timeout_ms, self.timeout_ms)
    }
}

/// Publishes to Kafka topics.
#[derive(Debug)]
pub struct KafkaBus {
    cluster: KafkaCluster,
    compression: Compression,
    connect_timeout: Duration,
    timeout: Duration,
    terms: Terms,
    current: Mutex<Option<Arc<Connection>>>,
}

impl KafkaBus {
    /// Of these settings; connects at the first publish.
    pub fn new(
        settings: &KafkaSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        let cluster = defects.note(KafkaCluster::new(&settings.address(), environment));
        let limits = defects.note(settings.limits());
        let (cluster, (connect_timeout, timeout)) = defects.finish(cluster.zip(limits))?;
        let terms = Terms {
            binding: Binding::Kafka,
            timeout: timeout + TIMEOUT_MARGIN,
            batch_max: BATCH_MAX,
            // The producer fills its own requests.
            fill_within: Duration::ZERO,
            // Kafka knows its own retries, and no event ids.
            dedup_window: Duration::ZERO,
        };
        let compression = settings.compression;
        let current = Mutex::new(None);
        Ok(Self { cluster, compression, connect_timeout, timeout, terms, current })
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present one, or a new one. It connects by itself, whenever it must.
    fn connection(&self) -> Result<Arc<Connection>, KafkaError> {
        let mut current = self.current();
        if let Some(connection) = current.as_ref() {
            return Ok(connection.clone());
        }
        let context = self.cluster.context();
        let faults = context.faults.clone();
        let producer = self.config().create_with_context(context)?;
        let connection = Arc::new(Connection { producer, faults, well: Mutex::default() });
        *current = Some(connection.clone());
        Ok(connection)
    }

    fn config(&self) -> rdkafka::ClientConfig {
        let mut config = self.cluster.config(self.connect_timeout, self.timeout);
        // It gives up before we do, so that its reason is heard. It looks once a second.
        let message_timeout =
            self.timeout.saturating_sub(self.connect_timeout).max(self.timeout / 2);
        let compression = match self.compression {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Snappy => "snappy",
        };
        config
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // As Kafka's own clients have it: a key is in the same partition whoever publishes it.
            .set("partitioner", "murmur2_random")
            .set("compression.type", compression)
            .set("linger.ms", "1")
            .set("message.timeout.ms", millis(message_timeout))
            .set("request.timeout.ms", millis(message_timeout))
            // After these the broker's reason is told, which a time limit would hide.
            .set("message.send.max.retries", SEND_RETRIES.to_string())
            .set("retry.backoff.ms", "50")
            .set("retry.backoff.max.ms", "500");
        config
    }

    /// A producer that gave up for good is of no use to the next call.
    async fn discard(&self, connection: &Arc<Connection>) {
        let discarded = {
            let mut current = self.current();
            match current.as_ref() {
                Some(present) if Arc::ptr_eq(present, connection) => current.take(),
                _ => None,
            }
        };
        if discarded.is_some() {
            // Its end waits for what it still holds, for half a second at most.
            let _ended = tokio::task::spawn_blocking(move || drop(discarded)).await;
        }
    }

    /// Ask about the topic unless the last call to it went well: what is handed to the producer may be sent, and then
    /// nobody knows; what is never handed over surely is not.
    async fn look(&self, connection: &Arc<Connection>, topic: &str) -> Result<(), Publication> {
        if connection.is_well(topic) {
            return Ok(());
        }
        let (asked, name) = (connection.clone(), topic.to_owned());
        let within = self.connect_timeout;
        let answer = tokio::task::spawn_blocking(move || {
            let client = asked.producer.client();
            let metadata = client.fetch_metadata(Some(&name), within)?;
            let found = metadata.topics().iter().find(|found| found.name() == name);
            Ok(found.and_then(MetadataTopic::error).map(RDKafkaErrorCode::from))
        });
        match answer.await {
            Ok(Ok(None)) => Ok(()),
            Ok(Ok(Some(code))) => Err(reading::failure(code, topic, false)),
            Ok(Err(error)) => {
                let trouble = self.cluster.unreachable(&connection.faults, &error);
                let (code, kind) = if trouble.not_authorized {
                    ("NOT_AUTHORIZED", FailureKind::NotTakenUntilMended)
                } else {
                    ("UNREACHABLE", FailureKind::NotTakenUnwell)
                };
                Err(again(code, trouble.message, kind))
            }
            Err(_) => Err(again(
                "UNSENT",
                "the topic could not be asked about",
                FailureKind::NotTakenUnwell,
            )),
        }
    }
}

#[async_trait]
impl Bus for KafkaBus {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    async fn publish(&self, topic: &str, batch: &[&Message]) -> Vec<Publication> {
        let until = Instant::now() + self.timeout;
        if batch.is_empty() {
            return Vec::new();
        }
        if let Err(problem) = self.check_topic(topic) {
            let problem = again(
                "NO_SUCH_TOPIC",
                format!("the route's topic {problem}"),
                FailureKind::NotTakenUntilMended,
            );
            return vec![problem; batch.len()];
        }
        let connection = match self.connection() {
            Ok(connection) => connection,
            Err(error) => {
                let problem = format!("no producer could be made: {error}");
                return vec![again("UNSENT", problem, FailureKind::NotTakenUnwell); batch.len()];
            }
        };
        if let Err(trouble) = self.look(&connection, topic).await {
            if connection.is_over() {
                self.discard(&connection).await;
            }
            return vec![trouble; batch.len()];
        }
        let faults = connection.faults.count();
        // All are handed over before the first is waited for.
        let handed: Vec<_> =
            batch.iter().map(|message| connection.hand_over(topic, message)).collect();
        let answers = join_all(handed.into_iter().map(async |delivery| {
            let delivery = match delivery {
                Ok(delivery) => delivery,
                Err(error) => return reading::not_handed_over(&error, topic),
            };
            match tokio::time::timeout_at(until, delivery).await {
                Ok(Ok(Ok(taken))) => Publication::Accepted {
                    reference: format!("{topic}:{}:{}", taken.partition, taken.offset),
                },
                Ok(Ok(Err((error, _)))) => {
                    // A connection that broke may have carried an earlier try of the producer's own.
                    let in_doubt = connection.faults.count() != faults;
                    reading::not_delivered(&error, topic, in_doubt)
                }
                Ok(Err(_)) => reading::unanswered(),
                Err(_elapsed) => reading::too_slow(),
            }
        }))
        .await;
        let well = answers.iter().all(|answer| matches!(answer, Publication::Accepted { .. }));
        connection.learn(topic, well.then_some(faults));
        if connection.is_over() {
            self.discard(&connection).await;
        }
        answers
    }

    fn check_topic(&self, topic: &str) -> Result<(), String> {
        if is_topic_name(topic) {
            Ok(())
        } else {
            Err(format!(
                "is {topic}, which cannot be a topic's name: 1 to 249 letters, digits, ., - and _"
            ))
        }
    }
}

/// A producer, with what is known of its connections.
struct Connection {
    producer: FutureProducer<KafkaContext>,
    faults: Arc<Faults>,
    /// Topics whose last call went well, and how many faults there had been then.
    well: Mutex<HashMap<String, u64>>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("faults", &self.faults).finish_non_exhaustive()
    }
}

impl Connection {
    fn well(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.well.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_well(&self, topic: &str) -> bool {
        self.well().get(topic) == Some(&self.faults.count())
    }

    fn learn(&self, topic: &str, well_at: Option<u64>) {
        match well_at {
            Some(faults) => self.well().insert(topic.to_owned(), faults),
            None => self.well().remove(topic),
        };
    }

    /// It will never take anything again.
    fn is_over(&self) -> bool {
        self.producer.client().fatal_error().is_some()
    }

    fn hand_over(
        &self,
        topic: &str,
        message: &Message,
    ) -> Result<rdkafka::producer::future_producer::DeliveryFuture, KafkaError> {
        let record = FutureRecord::to(topic)
            .key(message.key.as_str())
            .payload(message.body.as_str())
            .headers(headers(message));
        self.producer.send_result(record).map_err(|(error, _)| error)
    }
}

fn headers(message: &Message) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
    for (name, value) in &message.headers {
        headers = headers.insert(Header { key: name, value: Some(value) });
    }
    headers
}
