//! Envelopes over real wires: what is published is read by CloudEvents' own SDK, and by our sources as the same event.

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use futures_util::StreamExt as _;
use serde_json::json;
use symphony::consumer::Source;
use symphony::event::Event;
use symphony::event::envelope::{Envelope, Format};
use symphony::lanes::events::bus::{Bus, Message, Publication};
use uuid::Uuid;

use super::buses::{nats, sns};
use super::webhooks;
use crate::consumers::ground::Broker;
use crate::support::brokers::{python, required_or_skip};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const PAYLOAD: &str =
    r#"{"n": 1.10, "big": 123456789012345678901234567890.00, "text": "ü \" %41"}"#;
const CLOUD_EVENTS: [Envelope; 2] = [Envelope::CloudEventsStructured, Envelope::CloudEventsBinary];

/// As the outbox hands it out.
fn event(key: &str) -> String {
    let id = Uuid::new_v4();
    format!(
        r#"{{"key": {{"transferId": "{key}"}}, "payload": {PAYLOAD}, "envelope": {{"v": 1, "type": "events.transfers.submitted", "eventId": "{id}", "tenantId": "tnt é", "occurredAt": "2026-11-02T09:30:00.120+02:00", "traceparent": "{TRACE}"}}}}"#
    )
}

fn message(bus: &dyn Bus, envelope: Envelope, event: &str, position: i64) -> Message {
    let format = Format::new(envelope, bus.terms().binding);
    Message::new(&format, event, position, Utc::now()).unwrap()
}

async fn publish(bus: &dyn Bus, topic: &str, message: &Message) {
    for _ in 0..3 {
        let answers = bus.publish(topic, &[message]).await;
        if matches!(answers[..], [Publication::Accepted { .. }]) {
            return;
        }
    }
    panic!("not accepted");
}

/// Each line: headers, body, event. The SDK must say of all that they are the events.
async fn judged_by_the_sdk(messages: &[serde_json::Value]) {
    let script = "\
import json, sys
from decimal import Decimal
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
for headers, body, event in json.loads(sys.argv[1]):
    event = json.loads(event, parse_float=Decimal)
    envelope, (name, key) = event['envelope'], list(event['key'].items())[0]
    read = from_http_event(HTTPMessage(headers=headers, body=body.encode()))
    said = read.get_attributes()
    expected = dict(id=envelope['eventId'], type=envelope['type'], subject=key, tenantid=envelope['tenantId'], keyname=name,
                    traceparent=envelope['traceparent'], source='/symphony', specversion='1.0', datacontenttype='application/json')
    for attribute, value in expected.items():
        assert said[attribute] == value, (attribute, said[attribute], value)
    assert said['time'].isoformat() == '2026-11-02T09:30:00.120000+02:00', said['time']
    assert int(said['sequence']) > 0 and len(said['sequence']) == 19
    whole = json.loads(body, parse_float=Decimal)
    assert whole.get('data', whole) == event['payload'], 'the payload is another'
    assert read.get_data()['text'] == event['payload']['text']
    print('read', end=' ')
";
    let told = python(script, &[&serde_json::to_string(messages).unwrap()]).await;
    assert_eq!(told.split_whitespace().count(), messages.len(), "{told}");
}

#[tokio::test]
async fn the_cloudevents_sdk_reads_what_is_posted() {
    required_or_skip!();
    let (url, captured) = webhooks::capturing().await;
    let bus = webhooks::bus(&url, webhooks::NEW);
    let mut messages = Vec::new();
    for (position, envelope) in (7..).zip(CLOUD_EVENTS) {
        let event = event("two words");
        publish(&bus, "billing", &message(&bus, envelope, &event, position)).await;
        let last = captured.lock().unwrap().last().cloned().unwrap();
        messages.push(json!([last.headers, last.body, event]));
    }
    judged_by_the_sdk(&messages).await;
}

/// The SDK has no binding for NATS: so what the protocol's binding says is written down here.
#[tokio::test]
async fn a_stream_holds_the_headers_that_the_binding_for_nats_asks_for() {
    required_or_skip!();
    let broker = Broker::nats().await;
    let Broker::Nats { server, client } = &broker else { return };
    let bus = nats::bus(server.port);
    let told: Vec<String> = (0..3).map(|_| event("ключ 1")).collect();
    let envelopes =
        [Envelope::CloudEventsBinary, Envelope::CloudEventsStructured, Envelope::Debezium];
    for ((position, envelope), event) in (7..).zip(envelopes).zip(&told) {
        publish(&bus, "EVENTS", &message(&bus, envelope, event, position)).await;
    }
    let stream = async_nats::jetstream::new(client.clone()).get_stream("EVENTS").await.unwrap();
    let consumer = stream
        .create_consumer(async_nats::jetstream::consumer::pull::Config::default())
        .await
        .unwrap();
    let mut found = consumer.fetch().max_messages(3).messages().await.unwrap();
    let mut read = Vec::new();
    while let Some(Ok(found)) = found.next().await {
        let mut headers: Vec<String> = found
            .headers
            .iter()
            .flat_map(async_nats::HeaderMap::iter)
            .map(|(name, values)| format!("{name}: {}", values[0]))
            // What the bus asks of the server.
            .filter(|header| !header.starts_with("Nats-Expected-Stream: "))
            .collect();
        headers.sort();
        read.push((headers, String::from_utf8(found.payload.to_vec()).unwrap()));
    }
    let id = |at: usize| Event::parse(&told[at]).unwrap().event_id().to_string();
    let binary = [
        format!("Nats-Msg-Id: {}", id(0)),
        "ce-datacontenttype: application/json".to_owned(),
        format!("ce-id: {}", id(0)),
        "ce-keyname: transferId".to_owned(),
        "ce-sequence: 0000000000000000007".to_owned(),
        "ce-source: /symphony".to_owned(),
        "ce-specversion: 1.0".to_owned(),
        "ce-subject: %D0%BA%D0%BB%D1%8E%D1%87%201".to_owned(),
        "ce-tenantid: tnt%20%C3%A9".to_owned(),
        "ce-time: 2026-11-02T09:30:00.120+02:00".to_owned(),
        format!("ce-traceparent: {TRACE}"),
        "ce-type: events.transfers.submitted".to_owned(),
        "content-type: application/json".to_owned(),
    ];
    assert_eq!(read[0], (binary.to_vec(), PAYLOAD.to_owned()));
    let structured = [
        format!("Nats-Msg-Id: {}", id(1)),
        "content-type: application/cloudevents+json".to_owned(),
        format!("eventId: {}", id(1)),
        "key: ключ 1".to_owned(),
        "position: 8".to_owned(),
        "tenantId: tnt é".to_owned(),
        format!("traceparent: {TRACE}"),
        "type: events.transfers.submitted".to_owned(),
    ];
    assert_eq!(read[1].0, structured);
    let whole: serde_json::Value = serde_json::from_str(&read[1].1).unwrap();
    assert_eq!((&whole["id"], &whole["subject"]), (&json!(id(1)), &json!("ключ 1")));
    let debezium = [
        format!("Nats-Msg-Id: {}", id(2)),
        "eventType: events.transfers.submitted".to_owned(),
        format!("id: {}", id(2)),
        "key: %D0%BA%D0%BB%D1%8E%D1%87%201".to_owned(),
        "keyName: transferId".to_owned(),
        "occurredAt: 2026-11-02T09:30:00.120+02:00".to_owned(),
        "position: 9".to_owned(),
        "tenantId: tnt%20%C3%A9".to_owned(),
        format!("traceparent: {TRACE}"),
    ];
    assert_eq!(read[2], (debezium.to_vec(), PAYLOAD.to_owned()));
}

#[cfg(feature = "kafka")]
#[tokio::test(flavor = "multi_thread")]
async fn the_cloudevents_sdk_reads_what_a_topic_holds_and_debeziums_record_is_the_routers() {
    use rdkafka::message::{Headers as _, Message as _};
    use symphony_connect::buses::kafka::{KafkaBus, KafkaSettings};
    required_or_skip!();
    let kafka = crate::support::kafka::Kafka::start().await;
    kafka.create_topic("told", 1);
    let settings =
        KafkaSettings { bootstrap_servers: kafka.direct.clone(), ..KafkaSettings::default() };
    let bus = KafkaBus::new(&settings, |_| None).unwrap();
    let told: Vec<String> = (0..3).map(|_| event("ключ 1")).collect();
    let envelopes =
        [Envelope::CloudEventsBinary, Envelope::CloudEventsStructured, Envelope::Debezium];
    for ((position, envelope), event) in (7..).zip(envelopes).zip(&told) {
        publish(&bus, "told", &message(&bus, envelope, event, position)).await;
    }
    let reader = kafka.reader("told", 1);
    let found = tokio::task::block_in_place(|| reader.read(3));
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    let records: Vec<_> = found
        .iter()
        .map(|record| {
            let headers: serde_json::Map<_, _> = record
                .headers()
                .unwrap()
                .iter()
                .map(|header| (header.key.to_owned(), json!(text(header.value))))
                .collect();
            json!([headers, text(record.key()), text(record.payload())])
        })
        .collect();
    let script = "\
import json, sys
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
for (headers, key, value), event in zip(json.loads(sys.argv[1]), json.loads(sys.argv[2])):
    event = json.loads(event)
    read = from_kafka_event(KafkaMessage(headers={name: value.encode() for name, value in headers.items()}, key=key, value=value.encode()))
    said, envelope = read.get_attributes(), event['envelope']
    expected = dict(id=envelope['eventId'], type=envelope['type'], subject='ключ 1', tenantid='tnt é', keyname='transferId',
                    traceparent=envelope['traceparent'], source='/symphony', specversion='1.0', datacontenttype='application/json')
    for attribute, value in expected.items():
        assert said[attribute] == value, (attribute, said[attribute], value)
    assert said['time'].isoformat() == '2026-11-02T09:30:00.120000+02:00', said['time']
    assert read.get_data()['text'] == event['payload']['text']
    print('read', end=' ')
";
    let read = json!(records[..2]).to_string();
    let judged = python(script, &[&read, &json!(told[..2]).to_string()]).await;
    assert_eq!(judged.split_whitespace().count(), 2, "{judged}");
    let id = Event::parse(&told[2]).unwrap().event_id().to_string();
    let headers = json!({
        "id": id, "eventType": "events.transfers.submitted", "key": "ключ 1", "keyName": "transferId", "tenantId": "tnt é",
        "occurredAt": "2026-11-02T09:30:00.120+02:00", "position": "9", "traceparent": TRACE,
    });
    assert_eq!(records[2], json!([headers, "ключ 1", PAYLOAD]));
}

#[tokio::test]
async fn the_cloudevents_sdk_reads_what_a_queue_holds() {
    required_or_skip!();
    let broker = Broker::sqs().await;
    if let Broker::Sqs { moto, queue, .. } = &broker {
        subscribe(moto, queue).await;
        let bus = sns::bus(moto.port);
        let event = event("tr_1");
        let structured = Envelope::CloudEventsStructured;
        publish(&bus, "told.fifo", &message(&bus, structured, &event, 9)).await;
        let script = "\
got = sqs.receive_message(QueueUrl=sys.argv[1], MessageAttributeNames=['All'], WaitTimeSeconds=5)['Messages'][0]
print(json.dumps([{name: value['StringValue'] for name, value in got['MessageAttributes'].items()}, got['Body']]))";
        let found = moto.boto(script, &[queue]).await;
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        judged_by_the_sdk(&[json!([found[0], found[1], event])]).await;
    }
}

async fn subscribe(moto: &crate::support::brokers::Moto, queue: &str) {
    let script = "\
topic = sns.create_topic(Name='told.fifo', Attributes={'FifoTopic': 'true'})['TopicArn']
arn = sqs.get_queue_attributes(QueueUrl=sys.argv[1], AttributeNames=['QueueArn'])['Attributes']['QueueArn']
sns.subscribe(TopicArn=topic, Protocol='sqs', Endpoint=arn, Attributes={'RawMessageDelivery': 'true'})";
    moto.boto(script, &[queue]).await;
}

#[tokio::test]
async fn our_sources_read_every_envelope_back_as_the_same_text() {
    required_or_skip!();
    for broker in Broker::each().await {
        let (bus, topic): (Arc<dyn Bus>, &str) = match &broker {
            Broker::Sqs { moto, queue, .. } => {
                subscribe(moto, queue).await;
                (Arc::new(sns::bus(moto.port)), "told.fifo")
            }
            Broker::Nats { server, .. } => (Arc::new(nats::bus(server.port)), "EVENTS"),
        };
        let source = broker.source("reader").await;
        for (position, envelope) in (40..).zip(Envelope::ALL) {
            let event = event(&format!("key {position} %41 €"));
            publish(&*bus, topic, &message(&*bus, envelope, &event, position)).await;
            let (text, place) = received(&source).await;
            let case = format!("{} {envelope:?}", broker.name());
            assert_eq!(text, event, "{case}");
            assert_eq!(place, Some(position), "{case}");
            assert_eq!(
                Event::parse(&text).unwrap().key(),
                format!("key {position} %41 €"),
                "{case}"
            );
        }
    }
}

async fn received(source: &Arc<dyn Source>) -> (String, Option<i64>) {
    let found = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            if let Some(found) = source.receive(1).await.unwrap().pop() {
                break found;
            }
        }
    })
    .await
    .unwrap();
    source.acknowledge(&found).await.unwrap();
    assert_eq!(found.defect, None);
    (String::from_utf8(found.body).unwrap(), found.position)
}
