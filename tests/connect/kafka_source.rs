//! Kafka as consumers read it, on the mock cluster: the suite for sources, and groups that change in the middle.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use symphony::consumer::{
    Applied, Apply, ApplyError, ConsumerMetrics, ConsumerSettings, Delivery, Received, Source, run,
};
use symphony::event::envelope::{Binding, Envelope, Format};
use symphony::lanes::events::bus::{Bus as _, Message, Publication};
use symphony_connect::buses::kafka::{KafkaBus, KafkaSettings};
use symphony_connect::sources::conformance::{
    Claim, ClaimOutcome, Condition, DeadLetter, Probe, Published, check,
};
use symphony_connect::sources::kafka::{KafkaAddress, KafkaSource, KafkaSourceSettings};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::buses::setup::{Scratch, set_up};
use crate::support::kafka::{Kafka, header};
use crate::support::until;

const PARTITIONS: i32 = 4;

fn real_cluster() -> Option<String> {
    std::env::var("SYMPHONY_KAFKA_SERVERS").ok()
}

async fn open(servers: &str, topic: &str, revoke_wait: Duration) -> KafkaSource {
    let address = KafkaAddress { bootstrap_servers: servers.to_owned(), ..KafkaAddress::default() };
    let settings = KafkaSourceSettings {
        topic: topic.to_owned(),
        group: format!("{topic}-readers"),
        dead_letter_topic: format!("{topic}-dead"),
        revoke_wait,
        // Longer than any claim keeps the brokers away. The mock cluster waits for as long at each change of a group, and
        // takes a member for lost whose heartbeats come during one.
        session_timeout: Duration::from_secs(10),
        wait: Duration::from_millis(500),
    };
    KafkaSource::open(&address, |_| None, settings).await.unwrap()
}

async fn publish(servers: &str, topic: &str, messages: &[Published]) {
    let producer: FutureProducer =
        ClientConfig::new().set("bootstrap.servers", servers).create().unwrap();
    for message in messages {
        let position = message.position.to_string();
        let headers =
            OwnedHeaders::new().insert(Header { key: "position", value: Some(position.as_str()) });
        let record = FutureRecord::to(topic)
            .key(message.key.as_str())
            .payload(message.body.as_str())
            .headers(headers);
        producer.send(record, Duration::from_secs(10)).await.unwrap();
    }
}

fn event(key: &str, position: i64) -> Published {
    let body = serde_json::json!({
        "envelope": {
            "v": 1, "eventId": Uuid::new_v4(), "occurredAt": "2026-11-02T09:30:00Z", "tenantId": "acme",
            "type": "events.transfers.submitted",
        },
        "key": { "transferId": key },
        "payload": {},
    });
    Published { key: key.to_owned(), position, body: body.to_string() }
}

struct KafkaProbe {
    kafka: Kafka,
    /// The mock cannot empty a topic: each claim has one of its own.
    topics: AtomicU32,
    /// Nobody has opened it yet.
    fresh: AtomicBool,
}

impl KafkaProbe {
    fn topic(&self) -> String {
        format!("checked-{}", self.topics.load(Ordering::SeqCst))
    }
}

#[async_trait]
impl Probe for KafkaProbe {
    async fn open(&self) -> Arc<dyn Source> {
        let source = open(&self.kafka.servers(), &self.topic(), Duration::from_secs(30)).await;
        // The mock cluster does not survive the loss of a connection on which a member waits for its group. A second
        // member may have to wait for the first, and no claim with two cuts connections.
        if self.fresh.swap(false, Ordering::SeqCst) {
            assert!(source.joined(Duration::from_mins(1)).await, "the group gives no partitions");
        }
        Arc::new(source)
    }

    async fn clear(&self) {
        self.fresh.store(true, Ordering::SeqCst);
        self.topics.fetch_add(1, Ordering::SeqCst);
        self.kafka.create_topic(&self.topic(), PARTITIONS);
        self.kafka.create_topic(&format!("{}-dead", self.topic()), 1);
    }

    async fn publish(&self, messages: &[Published]) {
        publish(&self.kafka.direct, &self.topic(), messages).await;
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        let reader = self.kafka.reader(&format!("{}-dead", self.topic()), 1);
        let found = tokio::task::block_in_place(|| reader.read(1));
        let letter = |message: &OwnedMessage| DeadLetter {
            reason: header(message, "deadLetterReason").unwrap().to_owned(),
            body: String::from_utf8(message.payload().unwrap().to_vec()).unwrap(),
        };
        found.iter().map(letter).collect()
    }

    async fn make(&self, condition: Condition) -> bool {
        self.kafka.make(condition).await;
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kafka_keeps_every_claim_of_the_suite_for_sources() {
    let report = check(&KafkaProbe {
        kafka: Kafka::start().await,
        topics: AtomicU32::new(0),
        fresh: AtomicBool::new(true),
    })
    .await;
    println!("{report}");
    assert!(report.passed(), "{report}");
    let passed = |claim: &&Claim| claim.outcome == ClaimOutcome::Passed;
    let passed = report.claims.iter().filter(passed).count();
    // The broker's own order, and what is hidden, counted and in the lag.
    assert!(passed + 3 >= report.claims.len(), "{report}");
}

async fn receive(source: &KafkaSource, count: usize) -> Vec<Delivery> {
    let mut found = Vec::new();
    until("they come", async || {
        found.extend(source.receive(100).await.unwrap_or_default());
        found.len() >= count
    })
    .await;
    found
}

fn places(found: &[Delivery]) -> BTreeSet<i64> {
    found.iter().filter_map(|delivery| delivery.position).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_given_away_only_when_what_is_in_hand_of_it_is_finished() {
    let kafka = Kafka::start().await;
    kafka.create_topic("moved", PARTITIONS);
    kafka.create_topic("moved-dead", 1);
    let events: Vec<_> = (1..=20).map(|place| event(&format!("tr_{place}"), place)).collect();
    publish(&kafka.direct, "moved", &events).await;
    let wait = Duration::from_mins(1);
    let first = open(&kafka.direct, "moved", wait).await;
    let held = receive(&first, 20).await;
    let second = Arc::new(open(&kafka.direct, "moved", wait).await);
    // The group has decided, and what it takes from the first is in its hand.
    until("some are to be given away", async || held.iter().any(|one| !first.is_ours(one))).await;
    let look = tokio::time::timeout(Duration::from_secs(3), second.receive(100)).await;
    let seen = look.map(|found| places(&found.unwrap_or_default())).unwrap_or_default();
    assert!(seen.is_empty(), "{seen:?} are in two hands");
    // One of them is finished, the others are left untried.
    let (leaving, staying): (Vec<_>, Vec<_>) = held.iter().partition(|one| !first.is_ours(one));
    let done = leaving.first().unwrap();
    first.acknowledge(done).await.unwrap();
    for one in leaving.iter().skip(1) {
        first.leave(one, Duration::ZERO).await.unwrap();
    }
    for one in &staying {
        first.acknowledge(one).await.unwrap();
    }
    // What was finished behind one that was left comes again; nothing else that was finished does.
    let expected: BTreeSet<_> = leaving.iter().skip(1).filter_map(|one| one.position).collect();
    let again = places(&receive(&second, expected.len()).await);
    assert!(again.is_superset(&expected), "{expected:?} were left, {again:?} came");
    let more: Vec<_> = again.difference(&expected).collect();
    assert!(more.iter().all(|place| Some(**place) == done.position), "{more:?} came again");
    let late = first.acknowledge(leaving.last().unwrap()).await;
    assert!(late.is_err(), "it is another's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_ends_although_the_brokers_are_gone() {
    let kafka = Kafka::start().await;
    kafka.create_topic("gone", 1);
    kafka.create_topic("gone-dead", 1);
    publish(&kafka.direct, "gone", &[event("tr_1", 1)]).await;
    let source = open(&kafka.direct, "gone", Duration::from_mins(1)).await;
    for one in receive(&source, 1).await {
        source.acknowledge(&one).await.unwrap();
    }
    drop(kafka);
    let started = std::time::Instant::now();
    tokio::task::spawn_blocking(move || drop(source)).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

/// What was applied, by key; an event id that comes again is known, as in an inbox.
#[derive(Default)]
struct Ledger {
    known: Mutex<BTreeSet<Uuid>>,
    applied: Mutex<HashMap<String, Vec<i64>>>,
    at_work: Mutex<BTreeSet<String>>,
    overlapped: AtomicBool,
}

#[async_trait]
impl Apply for Ledger {
    async fn apply(&self, received: &Received) -> Result<Applied, ApplyError> {
        let key = received.event.key().to_owned();
        if !self.at_work.lock().unwrap().insert(key.clone()) {
            self.overlapped.store(true, Ordering::SeqCst);
        }
        // A handler takes a moment, in which the group may change.
        let _elapsed =
            tokio::time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
        let new = self.known.lock().unwrap().insert(received.event.event_id());
        if new {
            let mut applied = self.applied.lock().unwrap();
            applied.entry(key.clone()).or_default().push(received.position.unwrap());
        }
        self.at_work.lock().unwrap().remove(&key);
        Ok(if new { Applied::Now } else { Applied::Before })
    }
}

struct Member {
    metrics: Arc<ConsumerMetrics>,
    stop: watch::Sender<bool>,
    task: JoinHandle<usize>,
}

impl Member {
    async fn join(servers: &str, topic: &str, ledger: &Arc<Ledger>) -> Self {
        let source = open(servers, topic, Duration::from_secs(20)).await;
        let metrics = Arc::new(ConsumerMetrics::default());
        let (stop, stopped) = watch::channel(false);
        let (counted, apply) = (metrics.clone(), ledger.clone());
        let task = tokio::spawn(async move {
            run(Arc::new(source), apply, &ConsumerSettings::default(), counted, stopped).await
        });
        Self { metrics, stop, task }
    }

    async fn leave(self) {
        self.stop.send_replace(true);
        assert_eq!(self.task.await.unwrap(), 0, "messages were still in hand");
        assert_eq!(self.metrics.dead_letters(), 0);
    }
}

const KEYS: i64 = 40;

/// While somebody publishes a round of all keys again and again, three processes join one after another; one is lost,
/// one says goodbye. Then it is enough.
async fn come_and_go<R: Future<Output = ()> + Send>(
    servers: &str,
    topic: &str,
    round: impl Fn(i64) -> R + Send + 'static,
) {
    let enough = Arc::new(AtomicBool::new(false));
    let told = enough.clone();
    let publishing = tokio::spawn(async move {
        let mut pace = tokio::time::interval(Duration::from_millis(500));
        let mut rounds = 0;
        while !told.load(Ordering::SeqCst) {
            pace.tick().await;
            rounds += 1;
            round(rounds).await;
        }
        rounds
    });
    let ledger = Arc::new(Ledger::default());
    let count = |ledger: &Ledger| ledger.known.lock().unwrap().len();
    let first = Member::join(servers, topic, &ledger).await;
    until("the first works", async || count(&ledger) > 50).await;
    let second = Member::join(servers, topic, &ledger).await;
    until("the second works", async || second.metrics.applied.get() > 20).await;
    let third = Member::join(servers, topic, &ledger).await;
    until("the third works", async || third.metrics.applied.get() > 20).await;
    second.task.abort();
    first.leave().await;
    enough.store(true, Ordering::SeqCst);
    let rounds = publishing.await.unwrap();
    let all = usize::try_from(KEYS * rounds).unwrap();
    until("all are applied", async || count(&ledger) == all).await;
    third.leave().await;
    let expected: Vec<i64> = (1..=rounds).collect();
    let applied: BTreeMap<_, _> = ledger.applied.lock().unwrap().clone().into_iter().collect();
    for (key, places) in applied {
        assert_eq!(places, expected, "{key}");
    }
    assert!(!ledger.overlapped.load(Ordering::SeqCst), "a key was in two hands at once");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a minute of waiting for the mock cluster; scripts/test --long"]
async fn members_that_come_and_go_in_the_middle_cost_no_event_and_no_order() {
    let kafka = Kafka::start().await;
    kafka.create_topic("shared", 8);
    kafka.create_topic("shared-dead", 1);
    let servers = kafka.direct.clone();
    let round = move |place| {
        let servers = servers.clone();
        async move {
            let events: Vec<_> = (0..KEYS).map(|key| event(&format!("tr_{key}"), place)).collect();
            publish(&servers, "shared", &events).await;
        }
    };
    come_and_go(&kafka.direct, "shared", round).await;
}

/// What the mock cluster cannot show: administration, and groups as a broker runs them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a cluster of Kafka in SYMPHONY_KAFKA_SERVERS: docs/BUSES.md"]
async fn on_a_real_cluster_setup_publishing_and_a_changing_group_keep_their_word() {
    let servers = real_cluster().expect("SYMPHONY_KAFKA_SERVERS");
    let topic = format!("symphony-{}", Uuid::new_v4());
    let config = Scratch::new(&format!(
        r#"
        [buses.main]
        kind = "kafka"
        bootstrap_servers = "{servers}"
        setup.topics = [{{ name = "{topic}", partitions = 8, replicas = 1 }}]
        setup.consumers = [{{ name = "{topic}", topic = "{topic}" }}]
        "#
    ));
    for action in ["create", "keep"] {
        let done = set_up(&config, &[]).await;
        let steps = done["steps"].as_array().unwrap();
        assert!(steps.len() == 2 && steps.iter().all(|step| step["action"] == action), "{done:#}");
    }
    let settings = KafkaSettings { bootstrap_servers: servers.clone(), ..KafkaSettings::default() };
    let bus = Arc::new(KafkaBus::new(&settings, |_| None).unwrap());
    let to = topic.clone();
    let round = move |place| {
        let (bus, to) = (bus.clone(), to.clone());
        async move {
            let format = Format::new(Envelope::Symphony, Binding::Kafka);
            let written = |key| {
                let told = event(&format!("tr_{key}"), place);
                Message::new(&format, &told.body, place, Utc::now()).unwrap()
            };
            let batch: Vec<_> = (0..KEYS).map(written).collect();
            let answers = bus.publish(&to, &batch.iter().collect::<Vec<_>>()).await;
            let taken = |answer: &Publication| matches!(answer, Publication::Accepted { .. });
            assert!(answers.iter().all(taken), "{answers:?}");
        }
    };
    come_and_go(&servers, &topic, round).await;
}
