//! What the consumer's tests stand on: a broker with a queue and a place for dead letters, a database with a table of
//! effects, and a source that loses acknowledgements on demand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream;
use async_trait::async_trait;
use aws_sdk_sqs::types::MessageAttributeValue;
use futures_util::StreamExt as _;
use sqlx::PgConnection;
use symphony::consumer::{
    ApplyError, ConsumerLoop, ConsumerMetrics, ConsumerSettings, DeadLetterReason, Delivery,
    Handler, Received, Source, SourceError, SourceTerms,
};
use symphony::db::Database;
use symphony_connect::aws::{Aws, AwsSettings};
use symphony_connect::sources::jetstream::{JetStreamSettings, JetStreamSource, NatsAddress};
use symphony_connect::sources::sqs::{SqsSettings, SqsSource};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::support::TestDb;
use crate::support::brokers::{Moto, NatsServer};

/// An event of a key, with a number.
pub struct Told {
    pub key: String,
    pub body: String,
}

pub fn event(key: &str, number: u32) -> Told {
    let id = Uuid::new_v4();
    let body = format!(
        r#"{{"envelope": {{"v": 1, "eventId": "{id}", "occurredAt": "2026-11-15T12:00:00Z", "tenantId": "tnt_1",
            "type": "events.transfers.submitted.usdc"}}, "key": {{"transferId": "{key}"}}, "payload": {{"number": {number}}}}}"#
    );
    Told { key: key.to_owned(), body }
}

/// A message that is no event.
pub fn garbage(key: &str) -> Told {
    Told { key: key.to_owned(), body: r#"{"hello": "secret"}"#.to_owned() }
}

/// A broker, real, with a queue of its own.
#[allow(clippy::large_enum_variant)] // one a test
pub enum Broker {
    Sqs { moto: Moto, aws: Aws, queue: String, dead: String },
    Nats { server: NatsServer, client: async_nats::Client },
}

pub const VISIBILITY: Duration = Duration::from_secs(3);

impl Broker {
    pub async fn sqs() -> Self {
        let moto = Moto::start().await;
        let settings = AwsSettings {
            region: Some(Moto::REGION.to_owned()),
            endpoint_url: Some(moto.url()),
            ..AwsSettings::default()
        };
        let aws = Aws::new(&settings, |name| {
            name.starts_with("AWS_").then(|| "test".to_owned()).filter(|_| !name.contains("REGION"))
        })
        .unwrap();
        let script = "\
for name in ('q', 'dead'):
    print(sqs.create_queue(QueueName=name + '.fifo', Attributes={'FifoQueue': 'true'})['QueueUrl'])";
        let urls = moto.boto(script, &[]).await;
        let mut urls = urls.lines().map(str::to_owned);
        let (queue, dead) = (urls.next().unwrap(), urls.next().unwrap());
        Self::Sqs { moto, aws, queue, dead }
    }

    pub async fn nats() -> Self {
        let server = NatsServer::start().await;
        let client = async_nats::connect(server.url()).await.unwrap();
        let context = jetstream::new(client.clone());
        for (name, subject) in [("EVENTS", "events.>"), ("DEAD", "dead.>")] {
            let config = jetstream::stream::Config {
                name: name.to_owned(),
                subjects: vec![subject.to_owned()],
                ..jetstream::stream::Config::default()
            };
            context.create_stream(config).await.unwrap();
        }
        Self::Nats { server, client }
    }

    /// Both, one after the other.
    pub async fn each() -> [Self; 2] {
        [Self::sqs().await, Self::nats().await]
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::Sqs { .. } => "sqs",
            Self::Nats { .. } => "nats",
        }
    }

    /// Publish in this order. The broker must not recognise repeated ones: that is the consumer's business here.
    pub async fn publish(&self, events: &[&Told]) {
        for (at, event) in events.iter().enumerate() {
            let position = i64::try_from(at).unwrap() + 1;
            match self {
                Self::Sqs { aws, queue, .. } => {
                    let place = MessageAttributeValue::builder()
                        .data_type("Number")
                        .string_value(position.to_string())
                        .build()
                        .unwrap();
                    aws.sqs(Duration::from_secs(3), Duration::from_secs(30))
                        .send_message()
                        .queue_url(queue)
                        .message_body(&event.body)
                        .message_group_id(&event.key)
                        .message_deduplication_id(Uuid::new_v4().to_string())
                        .message_attributes("position", place)
                        .send()
                        .await
                        .unwrap();
                }
                Self::Nats { client, .. } => {
                    let mut headers = async_nats::HeaderMap::new();
                    headers.insert("position", position.to_string());
                    jetstream::new(client.clone())
                        .publish_with_headers(
                            "events.transfers.submitted.usdc",
                            headers,
                            event.body.clone().into(),
                        )
                        .await
                        .unwrap()
                        .await
                        .unwrap();
                }
            }
        }
    }

    pub async fn source(&self, durable: &str) -> Arc<dyn Source> {
        match self {
            Self::Sqs { aws, queue, dead, .. } => {
                let settings = SqsSettings {
                    dead_letter_url: Some(dead.clone()),
                    visibility: VISIBILITY,
                    wait: Duration::from_secs(1),
                    ..SqsSettings::new(queue)
                };
                let client = aws.sqs(Duration::from_secs(3), Duration::from_secs(30));
                Arc::new(SqsSource::open(client, settings).await.unwrap())
            }
            Self::Nats { server, .. } => {
                let address = NatsAddress { url: server.url(), ..NatsAddress::default() };
                let client = symphony_connect::sources::jetstream::connect(&address, |_| None)
                    .await
                    .unwrap();
                let settings = nats_settings(durable);
                Arc::new(JetStreamSource::open(client, settings).await.unwrap())
            }
        }
    }

    /// The reasons of all dead letters, and their bodies.
    pub async fn dead_letters(&self) -> Vec<(String, String)> {
        match self {
            Self::Sqs { moto, dead, .. } => {
                let script = "\
found = sqs.receive_message(QueueUrl=sys.argv[1], MaxNumberOfMessages=10, MessageAttributeNames=['All'], VisibilityTimeout=0)
print(json.dumps([(m['MessageAttributes'].get('deadLetterReason', {}).get('StringValue', ''), m['Body']) for m in found.get('Messages', [])]))";
                serde_json::from_str(&moto.boto(script, &[dead]).await).unwrap()
            }
            Self::Nats { client, .. } => {
                use async_nats::jetstream::consumer::pull;
                let stream = jetstream::new(client.clone()).get_stream("DEAD").await.unwrap();
                let consumer = stream.create_consumer(pull::Config::default()).await.unwrap();
                let mut batch = consumer.fetch().max_messages(10).messages().await.unwrap();
                let mut found = Vec::new();
                while let Some(message) = batch.next().await {
                    let message = message.unwrap();
                    let headers = message.headers.clone().unwrap();
                    let reason = headers.get("Symphony-Dead-Letter-Reason").unwrap().to_string();
                    found.push((reason, String::from_utf8(message.payload.to_vec()).unwrap()));
                }
                found
            }
        }
    }
}

pub fn nats_settings(durable: &str) -> JetStreamSettings {
    JetStreamSettings {
        stream: "EVENTS".to_owned(),
        durable: durable.to_owned(),
        filter_subject: None,
        dead_letter_subject: "dead.events".to_owned(),
        visibility: VISIBILITY,
        wait: Duration::from_secs(1),
    }
}

/// Quick tries.
pub fn settings() -> ConsumerSettings {
    ConsumerSettings {
        retry_delay: Duration::ZERO,
        receives_max: 3,
        shutdown: Duration::from_secs(10),
        ..ConsumerSettings::default()
    }
}

/// Writes one row per application, and fails as it is told to.
#[derive(Clone, Default)]
pub struct Effects {
    /// How often the event with this number fails before it is applied.
    pub failures: Arc<Mutex<HashMap<u64, Failure>>>,
    /// Every call, whether it was committed or not.
    pub calls: Arc<AtomicUsize>,
    /// Held while the handler of number 1 shall not end.
    pub gate: Arc<tokio::sync::Mutex<()>>,
    pub by_key_and_type: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Failure {
    Again(usize),
    Reject,
    Panic(usize),
    /// A failed statement whose error is passed over in silence.
    Swallowed(usize),
    /// The handler ends the transaction by itself.
    RollsBack(usize),
}

impl Effects {
    pub async fn table(db: &TestDb) {
        db.sql("CREATE TABLE effects (place bigserial, event_id uuid, key text, number bigint, position bigint)").await;
    }

    pub fn fail(self, number: u64, failure: Failure) -> Self {
        self.failures.lock().unwrap().insert(number, failure);
        self
    }

    fn next_failure(&self, number: u64) -> Option<Failure> {
        let mut failures = self.failures.lock().unwrap();
        let failure = failures.get_mut(&number)?;
        let now = *failure;
        match failure {
            Failure::Again(left)
            | Failure::Panic(left)
            | Failure::Swallowed(left)
            | Failure::RollsBack(left) => {
                if *left == 0 {
                    return None;
                }
                *left -= 1;
            }
            Failure::Reject => {}
        }
        Some(now)
    }
}

#[async_trait]
impl Handler for Effects {
    async fn handle(
        &self,
        received: &Received,
        connection: &mut PgConnection,
    ) -> Result<(), ApplyError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let body: serde_json::Value = serde_json::from_str(received.event.body().get()).unwrap();
        let number = body["payload"]["number"].as_u64().unwrap();
        if number == 1 {
            drop(self.gate.lock().await);
        }
        sqlx::query(
            "INSERT INTO effects (event_id, key, number, position) VALUES ($1, $2, $3, $4)",
        )
        .bind(received.event.event_id())
        .bind(received.event.key())
        .bind(i64::try_from(number).unwrap())
        .bind(received.position)
        .execute(&mut *connection)
        .await?;
        match self.next_failure(number) {
            None => Ok(()),
            Some(Failure::Again(_)) => Err(ApplyError::Again("told to fail".to_owned())),
            Some(Failure::Reject) => Err(ApplyError::Reject("told to reject".to_owned())),
            Some(Failure::Panic(_)) => panic!("told to panic"),
            Some(Failure::Swallowed(_)) => {
                assert!(sqlx::query("SELECT 1 / 0").execute(connection).await.is_err());
                Ok(())
            }
            Some(Failure::RollsBack(_)) => {
                sqlx::query("ROLLBACK").execute(connection).await?;
                Ok(())
            }
        }
    }

    fn dedupe_key(&self, received: &Received) -> Option<String> {
        let event = &received.event;
        self.by_key_and_type.then(|| format!("{} {}", event.key(), event.event_type()))
    }
}

/// A consumer at work.
pub struct Running {
    pub metrics: Arc<ConsumerMetrics>,
    stop: watch::Sender<bool>,
    task: JoinHandle<usize>,
}

impl Running {
    pub fn start(db: &TestDb, source: Arc<dyn Source>, effects: &Effects) -> Self {
        Self::start_with(db, source, effects, settings())
    }

    pub fn start_with(
        db: &TestDb,
        source: Arc<dyn Source>,
        effects: &Effects,
        settings: ConsumerSettings,
    ) -> Self {
        Self::start_on(&db.database, source, effects, settings)
    }

    pub fn start_on(
        database: &Database,
        source: Arc<dyn Source>,
        effects: &Effects,
        settings: ConsumerSettings,
    ) -> Self {
        let consumer = ConsumerLoop::new("balances", effects.clone());
        let metrics = consumer.metrics();
        let (stop, stopped) = watch::channel(false);
        let database = database.clone();
        let task = tokio::spawn(async move {
            consumer.run(&database, source, settings, stopped).await.unwrap()
        });
        Self { metrics, stop, task }
    }

    /// In order; answers how many messages were left in hand.
    pub async fn stop(self) -> usize {
        self.stop.send(true).unwrap();
        self.task.await.unwrap()
    }

    /// As if the process were killed.
    pub fn kill(self) {
        self.task.abort();
    }
}

/// The numbers of the effects of a key, in the order in which they were made.
pub async fn applied(db: &TestDb, key: &str) -> Vec<i64> {
    let sql = "SELECT coalesce(array_agg(number ORDER BY place), '{}') FROM effects WHERE key = $1";
    sqlx::query_scalar(sql).bind(key).fetch_one(&mut db.admin().await).await.unwrap()
}

/// The real source, except that acknowledgements are lost, as if we were killed after the commit.
pub struct LosesAcknowledgements {
    pub inner: Arc<dyn Source>,
    pub lost: AtomicUsize,
    pub lose: usize,
}

#[async_trait]
impl Source for LosesAcknowledgements {
    fn terms(&self) -> &SourceTerms {
        self.inner.terms()
    }

    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        self.inner.receive(max).await
    }

    async fn acknowledge(&self, delivery: &Delivery) -> Result<(), SourceError> {
        if self.lost.fetch_add(1, Ordering::SeqCst) < self.lose {
            return Err(SourceError::new("lost"));
        }
        self.inner.acknowledge(delivery).await
    }

    async fn extend(&self, deliveries: &[Arc<Delivery>]) -> Result<(), SourceError> {
        self.inner.extend(deliveries).await
    }

    async fn leave(&self, delivery: &Delivery, delay: Duration) -> Result<(), SourceError> {
        self.inner.leave(delivery, delay).await
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery,
        reason: &DeadLetterReason,
    ) -> Result<(), SourceError> {
        self.inner.dead_letter(delivery, reason).await
    }

    fn is_ours(&self, delivery: &Delivery) -> bool {
        self.inner.is_ours(delivery)
    }
}
