//! SNS FIFO with SQS behind it, on moto.

use std::time::Duration;

use async_trait::async_trait;
use aws_sdk_sqs::types::Message as Received;
use symphony::lanes::events::bus::{Bus, Message};
use symphony_connect::aws::{Aws, AwsSettings};
use symphony_connect::buses::conformance::{Arrival, ClaimOutcome, Condition, Probe, check};
use symphony_connect::buses::sns::{SnsBus, SnsSettings};

use super::{again_code, message};
use crate::support::brokers::{Moto, required_or_skip};
use crate::support::valve::Valve;

const LIMIT: Duration = Duration::from_secs(10);

/// moto takes any keys, but some.
pub fn keys(name: &str) -> Option<String> {
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].contains(&name).then(|| "test".to_owned())
}

pub fn aws(moto: &Moto) -> Aws {
    let settings = AwsSettings {
        region: Some(Moto::REGION.to_owned()),
        endpoint_url: Some(moto.url()),
        allow_plain_http: false,
    };
    Aws::new(&settings, keys).unwrap()
}

pub fn bus(port: u16) -> SnsBus {
    bus_waiting(port, 2_000)
}

/// For so many milliseconds.
pub fn bus_waiting(port: u16, timeout_ms: u64) -> SnsBus {
    let settings = SnsSettings {
        region: Some(Moto::REGION.to_owned()),
        endpoint_url: Some(format!("http://127.0.0.1:{port}")),
        account_id: Some(Moto::ACCOUNT.to_owned()),
        timeout_ms,
        connect_timeout_ms: 1_000,
        ..SnsSettings::default()
    };
    SnsBus::new(&settings, keys).unwrap()
}

struct SnsProbe {
    valve: Valve,
    sqs: aws_sdk_sqs::Client,
    queue: String,
}

impl SnsProbe {
    async fn new(moto: &Moto) -> Self {
        let script = "\
fifo = {'FifoQueue': 'true'}
topic = sns.create_topic(Name='checked.fifo', Attributes={'FifoTopic': 'true'})['TopicArn']
queue = sqs.create_queue(QueueName='checked.fifo', Attributes=fifo)['QueueUrl']
arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=['QueueArn'])['Attributes']['QueueArn']
sns.subscribe(TopicArn=topic, Protocol='sqs', Endpoint=arn, Attributes={'RawMessageDelivery': 'true'})
print(queue)
";
        let queue = moto.boto(script, &[]).await.trim().to_owned();
        let sqs = aws(moto).sqs(LIMIT, LIMIT);
        Self { valve: Valve::before(moto.port).await, sqs, queue }
    }

    async fn receive(&self, wait_seconds: i32) -> Vec<Arrival> {
        let answer = self
            .sqs
            .receive_message()
            .queue_url(&self.queue)
            .max_number_of_messages(10)
            .wait_time_seconds(wait_seconds)
            .message_attribute_names("All")
            .send()
            .await
            .unwrap();
        let messages = answer.messages.unwrap_or_default();
        for message in &messages {
            let handle = message.receipt_handle().unwrap();
            self.sqs
                .delete_message()
                .queue_url(&self.queue)
                .receipt_handle(handle)
                .send()
                .await
                .unwrap();
        }
        messages.iter().map(arrival).collect()
    }
}

fn arrival(message: &Received) -> Arrival {
    let attributes = message.message_attributes().unwrap();
    let attribute = |name: &str| attributes[name].string_value().unwrap();
    assert_eq!(attribute("tenantId"), "tnt_conformance");
    Arrival {
        event_id: attribute("eventId").parse().unwrap(),
        position: attribute("position").parse().unwrap(),
        event_type: attribute("type").to_owned(),
        body: message.body().unwrap().to_owned(),
    }
}

#[async_trait]
impl Probe for SnsProbe {
    fn topic(&self) -> &'static str {
        "checked.fifo"
    }

    fn missing_topic(&self) -> Option<String> {
        Some("missing.fifo".to_owned())
    }

    async fn received(&self, expected: usize) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        for _ in 0..20 {
            if arrivals.len() >= expected {
                break;
            }
            arrivals.extend(self.receive(1).await);
        }
        loop {
            let further = self.receive(0).await;
            if further.is_empty() {
                return arrivals;
            }
            arrivals.extend(further);
        }
    }

    async fn make(&self, condition: Condition) -> bool {
        self.valve.make(condition).await;
        true
    }

    fn oversize_bytes(&self) -> Option<usize> {
        Some(256 * 1024)
    }

    fn spoil(&self, message: &mut Message) -> bool {
        // An attribute without a value makes SNS refuse the whole call.
        message.headers.push(("empty", String::new()));
        true
    }
}

#[tokio::test]
async fn the_sns_bus_keeps_every_claim_against_moto() {
    required_or_skip!();
    let moto = Moto::start().await;
    let probe = SnsProbe::new(&moto).await;
    let report = check(&bus(probe.valve.port), &probe).await;
    println!("{report}");
    assert!(report.passed(), "{report}");
    assert!(report.claims.iter().all(|claim| claim.outcome == ClaimOutcome::Passed), "{report}");
}

#[tokio::test]
async fn without_a_topic_or_an_account_an_event_waits_for_its_operator() {
    required_or_skip!();
    let moto = Moto::start().await;
    let event = message("events.transfers.submitted");
    let named = bus(moto.port).publish("gone.fifo", &[&event]).await;
    assert_eq!(again_code(&named), "NO_SUCH_TOPIC");
    let not_fifo = bus(moto.port).publish("plain", &[&event]).await;
    assert_eq!(again_code(&not_fifo), "NO_SUCH_TOPIC");
}
