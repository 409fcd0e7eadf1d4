//! The sources against real brokers, by the suite that every source must pass.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::{self, consumer::pull, stream};
use async_trait::async_trait;
use aws_sdk_sqs::types::{MessageAttributeValue, QueueAttributeName};
use futures_util::StreamExt as _;
use symphony::consumer::Source;
use symphony_connect::aws::{Aws, AwsSettings};
use symphony_connect::sources::conformance::{
    ClaimOutcome, Condition, DeadLetter, Probe, Published, Report, check,
};
use symphony_connect::sources::jetstream::{
    JetStreamSettings, JetStreamSource, NatsAddress, connect,
};
use symphony_connect::sources::sqs::{SqsSettings, SqsSource};
use uuid::Uuid;

use crate::support::brokers::{Moto, NatsServer, required_or_skip};
use crate::support::valve::Valve;

const VISIBILITY: Duration = Duration::from_secs(3);
const WAIT: Duration = Duration::from_secs(1);

/// Through the valve, or straight to it.
fn sqs(port: u16) -> aws_sdk_sqs::Client {
    let settings = AwsSettings {
        region: Some(Moto::REGION.to_owned()),
        endpoint_url: Some(format!("http://127.0.0.1:{port}")),
        ..AwsSettings::default()
    };
    let key = |name: &str| ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].contains(&name);
    let environment = |name: &str| key(name).then(|| "test".to_owned());
    Aws::new(&settings, environment).unwrap().sqs(Duration::from_secs(3), Duration::from_secs(30))
}

struct SqsProbe {
    moto: Moto,
    valve: Valve,
    /// The queue and its dead letters; others for each claim.
    queues: Mutex<(String, String)>,
}

impl SqsProbe {
    fn queues(&self) -> (String, String) {
        self.queues.lock().unwrap().clone()
    }
}

#[async_trait]
impl Probe for SqsProbe {
    async fn open(&self) -> Arc<dyn Source> {
        let (queue, dead) = self.queues();
        let settings = SqsSettings {
            dead_letter_url: Some(dead),
            visibility: VISIBILITY,
            wait: WAIT,
            ..SqsSettings::new(queue)
        };
        Arc::new(SqsSource::open(sqs(self.valve.port), settings).await.unwrap())
    }

    async fn clear(&self) {
        let client = sqs(self.moto.port);
        let mut urls = Vec::new();
        for _ in 0..2 {
            let made = client.create_queue().queue_name(format!("{}.fifo", Uuid::new_v4()));
            let made = made.attributes(QueueAttributeName::FifoQueue, "true").send().await.unwrap();
            urls.push(made.queue_url.unwrap());
        }
        *self.queues.lock().unwrap() = (urls.remove(0), urls.remove(0));
    }

    async fn publish(&self, messages: &[Published]) {
        let client = sqs(self.moto.port);
        for message in messages {
            let plain = message.key.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let position = MessageAttributeValue::builder()
                .data_type("Number")
                .string_value(message.position.to_string())
                .build()
                .unwrap();
            let call = client.send_message().queue_url(self.queues().0);
            call.message_body(&message.body)
                .message_group_id(if plain { &message.key } else { "odd" })
                .message_deduplication_id(Uuid::new_v4().to_string())
                .message_attributes("position", position)
                .send()
                .await
                .unwrap();
        }
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        let call = sqs(self.moto.port).receive_message().queue_url(self.queues().1);
        let call = call.max_number_of_messages(10).message_attribute_names("All");
        let found = call.visibility_timeout(0).send().await.unwrap();
        let letter = |message: &aws_sdk_sqs::types::Message| DeadLetter {
            reason: message.message_attributes().unwrap()["deadLetterReason"]
                .string_value()
                .unwrap()
                .to_owned(),
            body: message.body().unwrap().to_owned(),
        };
        found.messages().iter().map(letter).collect()
    }

    async fn make(&self, condition: Condition) -> bool {
        self.valve.make(condition).await;
        true
    }
}

struct NatsProbe {
    _server: NatsServer,
    valve: Valve,
    context: jetstream::Context,
}

const DURABLE: &str = "checked";

#[async_trait]
impl Probe for NatsProbe {
    async fn open(&self) -> Arc<dyn Source> {
        let url = format!("nats://127.0.0.1:{}", self.valve.port);
        let client =
            connect(&NatsAddress { url, ..NatsAddress::default() }, |_| None).await.unwrap();
        let settings = JetStreamSettings {
            stream: "EVENTS".to_owned(),
            durable: DURABLE.to_owned(),
            filter_subject: None,
            dead_letter_subject: "dead.checked".to_owned(),
            visibility: VISIBILITY,
            wait: WAIT,
        };
        Arc::new(JetStreamSource::open(client, settings).await.unwrap())
    }

    async fn clear(&self) {
        let events = self.context.get_stream("EVENTS").await.unwrap();
        // At first there is none.
        let _none = events.delete_consumer(DURABLE).await;
        events.purge().await.unwrap();
        self.context.get_stream("DEAD").await.unwrap().purge().await.unwrap();
    }

    async fn publish(&self, messages: &[Published]) {
        for message in messages {
            let mut headers = async_nats::HeaderMap::new();
            headers.insert("position", message.position.to_string());
            let body = message.body.clone().into();
            let subject = "events.conformance.checked";
            let stored = self.context.publish_with_headers(subject, headers, body).await.unwrap();
            stored.await.unwrap();
        }
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        let stream = self.context.get_stream("DEAD").await.unwrap();
        let consumer = stream.create_consumer(pull::Config::default()).await.unwrap();
        let mut batch = consumer.fetch().max_messages(10).messages().await.unwrap();
        let mut found = Vec::new();
        while let Some(message) = batch.next().await {
            let message = message.unwrap();
            let headers = message.headers.as_ref().unwrap();
            found.push(DeadLetter {
                reason: headers.get("Symphony-Dead-Letter-Reason").unwrap().to_string(),
                body: String::from_utf8(message.payload.to_vec()).unwrap(),
            });
        }
        found
    }

    async fn make(&self, condition: Condition) -> bool {
        self.valve.make(condition).await;
        true
    }
}

fn not_applicable(report: &Report) -> Vec<&'static str> {
    let claims = report.claims.iter();
    let skipped = claims.filter(|claim| matches!(claim.outcome, ClaimOutcome::NotApplicable(_)));
    skipped.map(|claim| claim.name).collect()
}

#[tokio::test]
async fn sqs_keeps_every_claim_of_the_suite_for_sources() {
    required_or_skip!();
    let moto = Moto::start().await;
    let valve = Valve::before(moto.port).await;
    let report = check(&SqsProbe { moto, valve, queues: Mutex::default() }).await;
    assert!(report.passed(), "{report}");
    assert!(not_applicable(&report).is_empty(), "{report}");
}

#[tokio::test]
async fn jetstream_keeps_every_claim_of_the_suite_for_sources() {
    required_or_skip!();
    let server = NatsServer::start().await;
    let valve = Valve::before(server.port).await;
    let context = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    for (name, subject) in [("EVENTS", "events.>"), ("DEAD", "dead.>")] {
        let config = stream::Config {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            ..stream::Config::default()
        };
        context.create_stream(config).await.unwrap();
    }
    let report = check(&NatsProbe { _server: server, valve, context }).await;
    assert!(report.passed(), "{report}");
    let expected = ["later messages of a group wait for the first, if promised"];
    assert_eq!(not_applicable(&report), expected, "{report}");
}
