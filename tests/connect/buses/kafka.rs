//! Kafka, on librdkafka's mock cluster; read by us and by another client.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use chrono::Utc;
use rdkafka::message::{Message as _, OwnedMessage};
use serde_json::Value;
use symphony::event::envelope::{Binding, Envelope, Format};
use symphony::lanes::events::bus::{Bus, Cause, Message, Publication};
use symphony_connect::buses::conformance::{Arrival, ClaimOutcome, Condition, Probe, check};
use symphony_connect::buses::kafka::{KafkaBus, KafkaSettings};
use uuid::Uuid;

use super::again_code;
use crate::support::brokers::{python, required_or_skip};
use crate::support::kafka::{Kafka, Reader, header};
use crate::support::until;

const PARTITIONS: i32 = 4;

fn settings(servers: &str) -> KafkaSettings {
    KafkaSettings {
        bootstrap_servers: servers.to_owned(),
        timeout_ms: 3_000,
        connect_timeout_ms: 1_500,
        ..KafkaSettings::default()
    }
}

fn bus(servers: &str) -> KafkaBus {
    KafkaBus::new(&settings(servers), |_| None).unwrap()
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn of_key(key: &str, position: i64) -> Message {
    written(Envelope::Symphony, key, position)
}

fn written(envelope: Envelope, key: &str, position: i64) -> Message {
    let event = serde_json::json!({
        "envelope": {
            "v": 1, "eventId": Uuid::new_v4(), "occurredAt": "2026-11-02T09:30:00Z", "tenantId": "acme",
            "traceparent": TRACE, "type": "events.transfers.submitted",
        },
        "key": { "transferId": key },
        "payload": { "amount": "1.10" },
    });
    let format = Format::new(envelope, Binding::Kafka);
    Message::new(&format, &event.to_string(), position, Utc::now()).unwrap()
}

fn accepted(answers: &[Publication]) -> bool {
    answers.iter().all(|answer| matches!(answer, Publication::Accepted { .. }))
}

struct KafkaProbe {
    kafka: Kafka,
    reader: Mutex<Reader>,
}

#[async_trait]
impl Probe for KafkaProbe {
    fn topic(&self) -> &'static str {
        "checked"
    }

    fn missing_topic(&self) -> Option<String> {
        Some("missing".to_owned())
    }

    async fn received(&self, expected: usize) -> Vec<Arrival> {
        let found = tokio::task::block_in_place(|| self.reader.lock().unwrap().read(expected));
        found.iter().map(arrival).collect()
    }

    async fn make(&self, condition: Condition) -> bool {
        self.kafka.make(condition).await;
        true
    }

    fn oversize_bytes(&self) -> Option<usize> {
        None
    }
}

fn arrival(message: &OwnedMessage) -> Arrival {
    let header = |name: &str| header(message, name).unwrap();
    assert_eq!(header("tenantId"), "tnt_conformance");
    Arrival {
        event_id: header("eventId").parse().unwrap(),
        position: header("position").parse().unwrap(),
        event_type: header("type").to_owned(),
        body: String::from_utf8(message.payload().unwrap().to_vec()).unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kafka_bus_keeps_every_claim_on_a_mock_cluster() {
    let kafka = Kafka::start().await;
    kafka.create_topic("checked", PARTITIONS);
    let bus = bus(&kafka.servers());
    let reader = Mutex::new(kafka.reader("checked", PARTITIONS));
    let probe = KafkaProbe { kafka, reader };
    let report = check(&bus, &probe).await;
    println!("{report}");
    assert!(report.passed(), "{report}");
    let passed = report.claims.iter().filter(|claim| claim.outcome == ClaimOutcome::Passed).count();
    assert!(passed + 2 >= report.claims.len(), "all but size and refusals apply: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_client_reads_key_headers_and_body_as_they_were_published_and_in_order() {
    required_or_skip!();
    let kafka = Kafka::start().await;
    kafka.create_topic("transfers", PARTITIONS);
    let bus = bus(&kafka.servers());
    let mut published = Vec::new();
    for round in 0..20 {
        let envelope = Envelope::ALL[usize::try_from(round).unwrap() % Envelope::ALL.len()];
        let batch: Vec<_> = (0..5)
            .map(|key| written(envelope, &format!("ключ {key}"), round * 5 + key + 1))
            .collect();
        let answers = bus.publish("transfers", &batch.iter().collect::<Vec<_>>()).await;
        assert!(accepted(&answers), "{answers:?}");
        published.extend(batch);
    }
    let script = "\
import json, sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'other', 'enable.auto.commit': False})
consumer.assign([TopicPartition('transfers', n, 0) for n in range(int(sys.argv[2]))])
found = []
while len(found) < int(sys.argv[3]):
    message = consumer.poll(10)
    assert message is not None and message.error() is None, message and message.error()
    headers = {name: value.decode() for name, value in message.headers()}
    found.append({'key': message.key().decode(), 'value': message.value().decode(), 'headers': headers,
                  'partition': message.partition()})
assert consumer.poll(0.5) is None
print(json.dumps(found))
";
    let count = published.len().to_string();
    let said = python(script, &[&kafka.direct, &PARTITIONS.to_string(), &count]).await;
    let found: Vec<Value> = serde_json::from_str(&said).unwrap();
    let mut by_key: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for record in &found {
        by_key.entry(record["key"].as_str().unwrap()).or_default().push(record);
    }
    assert_eq!(by_key.len(), 5);
    for (key, records) in by_key {
        let ours: Vec<_> = published.iter().filter(|message| message.key == key).collect();
        assert_eq!(records.len(), ours.len(), "{key}");
        for (record, message) in records.iter().zip(ours) {
            assert_eq!(record["partition"], records[0]["partition"], "a key is in one partition");
            assert_eq!(record["value"], message.body.as_str());
            let expected: BTreeMap<_, _> =
                message.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert!(!expected.is_empty());
            assert_eq!(record["headers"], serde_json::json!(expected));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_can_mend_is_surely_not_taken_and_goes_out_once_it_is_mended() {
    let kafka = Kafka::start().await;
    kafka.create_topic("transfers", 1);
    let bus = bus(&kafka.servers());
    let event = of_key("tr_1", 1);
    for (error, code) in [
        ("not_enough_replicas", "NOT_ENOUGH_REPLICAS"),
        ("too_large", "OVERSIZE"),
        ("not_allowed", "NOT_AUTHORIZED"),
    ] {
        // The producer's own tries included.
        kafka.tell(&format!("answer {error} 20"));
        let answers = bus.publish("transfers", &[&event]).await;
        kafka.tell("answer_well");
        assert_eq!(again_code(&answers), code);
    }
    until("it goes out", async || accepted(&bus.publish("transfers", &[&event]).await)).await;
    let found = kafka.reader("transfers", 1).read(1);
    assert_eq!(found.len(), 1, "what was surely not taken is not there");
}

#[tokio::test(flavor = "multi_thread")]
async fn few_replicas_for_a_moment_and_a_leader_that_moves_are_nobodys_trouble() {
    let kafka = Kafka::start().await;
    kafka.create_topic("transfers", 1);
    let bus = bus(&kafka.servers());
    for (round, broker) in [1, 2, 3, 1, 2, 3].into_iter().enumerate() {
        let position = i64::try_from(round).unwrap() + 1;
        kafka.tell(&format!("leader transfers 0 {broker}"));
        let error = if round % 2 == 0 { "not_enough_replicas" } else { "not_leader" };
        kafka.tell(&format!("answer {error} 1"));
        let event = of_key("tr_1", position);
        let answers = bus.publish("transfers", &[&event]).await;
        assert!(accepted(&answers), "{answers:?}");
    }
    let found = kafka.reader("transfers", 1).read(6);
    let positions: Vec<_> = found.iter().map(|found| header(found, "position").unwrap()).collect();
    assert_eq!(positions, ["1", "2", "3", "4", "5", "6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_dies_in_the_middle_costs_no_record_and_no_order() {
    let kafka = Kafka::start().await;
    kafka.create_topic("transfers", 1);
    kafka.tell("leader transfers 0 1");
    let bus = bus(&kafka.servers());
    let mut unknown = 0;
    for position in 1..=12 {
        if position == 4 {
            kafka.tell("broker_down 1");
        }
        if position == 8 {
            kafka.tell("broker_up 1");
        }
        let event = of_key("tr_1", position);
        let mut tries = 0;
        until("it is taken", async || {
            let answers = bus.publish("transfers", &[&event]).await;
            if !accepted(&answers) {
                tries += 1;
                assert!(
                    matches!(answers[..], [Publication::Again { cause: Cause::Destination, .. }]),
                    "{answers:?}"
                );
                // The cluster elects another leader; the mock waits to be told.
                kafka.tell("leader transfers 0 2");
            }
            accepted(&answers)
        })
        .await;
        unknown += tries;
    }
    assert!(unknown >= 1, "nobody noticed that the leader was gone");
    let found = kafka.reader("transfers", 1).read(12);
    let mut positions: Vec<i64> =
        found.iter().map(|found| header(found, "position").unwrap().parse().unwrap()).collect();
    positions.dedup();
    assert_eq!(positions, (1..=12).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_never_handed_over_is_surely_not_taken() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let event = of_key("tr_1", 1);
    let bus = bus(&address);
    assert_eq!(again_code(&bus.publish("transfers", &[&event]).await), "UNREACHABLE");
    let kafka = Kafka::start().await;
    let bus = KafkaBus::new(&settings(&kafka.servers()), |_| None).unwrap();
    assert_eq!(again_code(&bus.publish("nobody_made_it", &[&event]).await), "NO_SUCH_TOPIC");
    // And publishing has not made it either.
    assert_eq!(again_code(&bus.publish("nobody_made_it", &[&event]).await), "NO_SUCH_TOPIC");
    kafka.create_topic("nobody_made_it", 1);
    until("it is seen", async || accepted(&bus.publish("nobody_made_it", &[&event]).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_without_tls_is_not_spoken_to_unless_it_is_this_machine_or_allowed() {
    let kafka = Kafka::start().await;
    kafka.create_topic("transfers", 1);
    // Not known to be this machine, and yet it is.
    let elsewhere = kafka.direct.replace("127.0.0.1", "0.0.0.0");
    let event = of_key("tr_1", 1);
    let refused = bus(&elsewhere).publish("transfers", &[&event]).await;
    assert_eq!(again_code(&refused), "UNREACHABLE");
    let allowed = KafkaSettings { allow_plain_text: true, ..settings(&elsewhere) };
    let bus = KafkaBus::new(&allowed, |_| None).unwrap();
    assert!(accepted(&bus.publish("transfers", &[&event]).await));
}
