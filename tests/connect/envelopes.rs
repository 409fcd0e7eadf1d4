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

#[tokio::test]
async fn the_cloudevents_sdk_reads_what_a_stream_and_a_queue_hold() {
    required_or_skip!();
    let mut messages = Vec::new();
    let broker = Broker::nats().await;
    if let Broker::Nats { server, client } = &broker {
        let bus = nats::bus(server.port);
        for (position, envelope) in (7..).zip(CLOUD_EVENTS) {
            let event = event("ключ 1");
            publish(&bus, "EVENTS", &message(&bus, envelope, &event, position)).await;
            messages.push(event);
        }
        let stream = async_nats::jetstream::new(client.clone()).get_stream("EVENTS").await.unwrap();
        let consumer = stream
            .create_consumer(async_nats::jetstream::consumer::pull::Config::default())
            .await
            .unwrap();
        let mut found = consumer.fetch().max_messages(2).messages().await.unwrap();
        let mut read = Vec::new();
        while let Some(Ok(found)) = found.next().await {
            let headers: serde_json::Map<_, _> = found
                .headers
                .iter()
                .flat_map(async_nats::HeaderMap::iter)
                .map(|(name, values)| (name.to_string().to_lowercase(), json!(values[0].as_str())))
                .collect();
            let body = String::from_utf8(found.payload.to_vec()).unwrap();
            read.push(json!([headers, body, messages[read.len()]]));
        }
        assert_eq!(read.len(), 2);
        judged_by_the_sdk(&read).await;
    }
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
