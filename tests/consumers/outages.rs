//! A program that is away, restarts, fails or says that it is busy, behind `symphony consume` on what `symphony bus
//! setup` makes: nothing is lost, nothing is counted, order is kept, and the lag rises.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::process::Command;
use uuid::Uuid;

use super::ground::{Told, event};
use super::program::{
    Consuming, Program, consume_nats, consume_sqs, figure, figure_is, figures, started, terminate,
};
use crate::connect::buses::setup::{Scratch, set_up};
use crate::support::brokers::{Moto, NatsServer, python, required_or_skip};
#[cfg(feature = "kafka")]
use crate::support::kafka::Kafka;
use crate::support::until;

/// What setup made for the consumer `balances`, with its defaults; only time runs faster.
enum Made {
    Sqs {
        moto: Moto,
    },
    Nats {
        server: NatsServer,
    },
    /// The mock cluster has no administration: the topics are made by hand, named as setup names them.
    #[cfg(feature = "kafka")]
    Kafka {
        kafka: Kafka,
    },
}

const VISIBILITY_SECONDS: &str = "5";

impl Made {
    async fn sqs() -> Self {
        let moto = Moto::start().await;
        let config = format!(
            r#"
            [buses.main]
            kind = "sns"
            region = "{}"
            endpoint_url = "{}"
            account_id = "{}"
            setup.topics = [{{ name = "transfers.fifo" }}]
            setup.consumers = [{{ name = "balances", topic = "transfers.fifo" }}]
            "#,
            Moto::REGION,
            moto.url(),
            Moto::ACCOUNT
        );
        set_up(&Scratch::new(&config), &[]).await;
        Self::Sqs { moto }
    }

    async fn nats() -> Self {
        Self::nats_with("").await
    }

    async fn nats_with(more: &str) -> Self {
        let server = NatsServer::start().await;
        let config = format!(
            r#"
            [buses.main]
            kind = "nats"
            url = "{}"
            setup.topics = [{{ name = "EVENTS", types = ["events.*"] }}]
            setup.consumers = [
                {{ name = "balances", topic = "EVENTS", visibility_timeout_seconds = {VISIBILITY_SECONDS} {more} }},
            ]
            "#,
            server.url()
        );
        set_up(&Scratch::new(&config), &[]).await;
        Self::Nats { server }
    }

    #[cfg(feature = "kafka")]
    async fn kafka() -> Self {
        let kafka = Kafka::start().await;
        kafka.create_topic("events", 3);
        kafka.create_topic("balances-dead", 1);
        Self::Kafka { kafka }
    }

    async fn each() -> Vec<Self> {
        vec![
            Self::sqs().await,
            Self::nats().await,
            #[cfg(feature = "kafka")]
            Self::kafka().await,
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Sqs { .. } => "sqs",
            Self::Nats { .. } => "nats",
            #[cfg(feature = "kafka")]
            Self::Kafka { .. } => "kafka",
        }
    }

    fn consume(&self, to: &str) -> Command {
        let mut command = match self {
            Self::Sqs { moto } => {
                let queue = format!("{}/{}/balances.fifo", moto.url(), Moto::ACCOUNT);
                consume_sqs(&moto.url(), &queue, to)
            }
            Self::Nats { server } => consume_nats(&server.url(), "EVENTS", to),
            #[cfg(feature = "kafka")]
            Self::Kafka { kafka } => super::program::consume_kafka(&kafka.direct, "events", to),
        };
        command.env("SYMPHONY__CONSUMER__VISIBILITY_SECONDS", VISIBILITY_SECONDS);
        command
    }

    /// By the brokers' own clients, in this order.
    async fn publish(&self, events: &[Told]) {
        let told: Vec<_> = events
            .iter()
            .map(|event| serde_json::json!({ "key": event.key, "body": event.body }))
            .collect();
        let told = serde_json::Value::from(told).to_string();
        match self {
            Self::Sqs { moto } => {
                let script = "\
import uuid
url = sqs.get_queue_url(QueueName='balances.fifo')['QueueUrl']
for event in json.loads(sys.argv[1]):
    sqs.send_message(QueueUrl=url, MessageBody=event['body'], MessageGroupId=event['key'], MessageDeduplicationId=str(uuid.uuid4()))";
                moto.boto(script, &[&told]).await;
            }
            Self::Nats { server } => {
                let script = "\
import asyncio, json, nats, sys
async def main():
    connection = await nats.connect(sys.argv[1])
    for event in json.loads(sys.argv[2]):
        await connection.jetstream().publish('events.transfers.submitted.usdc', event['body'].encode())
    await connection.close()
asyncio.run(main())";
                python(script, &[&server.url(), &told]).await;
            }
            #[cfg(feature = "kafka")]
            Self::Kafka { kafka } => {
                let script = "\
import json, sys
from confluent_kafka import Producer
producer, failed = Producer({'bootstrap.servers': sys.argv[1], 'enable.idempotence': True, 'linger.ms': 0}), []
for event in json.loads(sys.argv[2]):
    producer.produce('events', key=event['key'], value=event['body'], on_delivery=lambda error, _: error and failed.append(error))
assert producer.flush(20) == 0 and not failed, failed";
                python(script, &[&kafka.direct, &told]).await;
            }
        }
    }

    /// How many dead letters there are, as another client counts them.
    async fn dead_letters(&self) -> u64 {
        let said = match self {
            Self::Sqs { moto } => {
                let script = "\
url = sqs.get_queue_url(QueueName='balances-dead.fifo')['QueueUrl']
print(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=['All'])['Attributes']['ApproximateNumberOfMessages'])";
                moto.boto(script, &[]).await
            }
            Self::Nats { server } => {
                let script = "\
import asyncio, nats, sys
async def main():
    connection = await nats.connect(sys.argv[1])
    print((await connection.jetstream().stream_info('balances-dead')).state.messages)
    await connection.close()
asyncio.run(main())";
                python(script, &[&server.url()]).await
            }
            #[cfg(feature = "kafka")]
            Self::Kafka { kafka } => {
                let script = "\
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': 'x'})
low, high = consumer.get_watermark_offsets(TopicPartition('balances-dead', 0), timeout=20)
print(high - low)";
                python(script, &[&kafka.direct]).await
            }
        };
        said.trim().parse().unwrap()
    }
}

/// Numbers from and to, of keys `a` to `d` in turns.
fn events(from: u32, to: u32) -> Vec<Told> {
    let key = |number: u32| ["a", "b", "c", "d"][number as usize % 4];
    (from..=to).map(|number| event(key(number), number)).collect()
}

async fn lag(consuming: &Consuming) -> u64 {
    figure(&consuming.address, "event_consumer_lag_seconds").await.expect("the lag is known")
}

/// The program goes away in the middle of 28 events, for this long.
async fn is_away_for(made: &Made, away: Duration) {
    let program = Program::default();
    let to = program.start().await;
    made.publish(&events(1, 8)).await;
    let mut consuming = started(made.consume(&to)).await;
    until("the first events are posted", async || program.numbers().len() == 8).await;
    program.stop();
    made.publish(&events(9, 28)).await;
    figure_is(&consuming.address, r#"event_consumer_away{consumer="balances"} 1"#).await;
    let (since, first) = (Instant::now(), lag(&consuming).await);
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    while since.elapsed() < away {
        tick.tick().await;
        assert_eq!(program.numbers().len(), 8);
    }
    let last = lag(&consuming).await;
    assert!(last - first >= away.as_secs() - 1, "{}: {first} to {last}", made.name());

    program.start_again(&to).await;
    let back = Instant::now();
    until("all are posted", async || program.numbers().len() >= 28).await;
    figure_is(&consuming.address, r#"event_consumer_applied_total{consumer="balances"} 28"#).await;
    let resumed = program.posts.lock().unwrap()[8].at - back;
    // A restart costs no more than itself again.
    let limit = if away > Duration::from_secs(1) { 4 } else { 2 };
    assert!(resumed < Duration::from_secs(limit), "{}: resumed after {resumed:?}", made.name());
    println!("{}: away for {away:?}, resumed after {resumed:?}", made.name());
    let numbers = program.numbers();
    for key in 0..4 {
        let of_key: Vec<_> = numbers.iter().copied().filter(|number| number % 4 == key).collect();
        let expected: Vec<_> = (1..=28).filter(|number| number % 4 == key).collect();
        assert_eq!(of_key, expected, "{}: each once, in order", made.name());
    }
    // No delivery was in vain: each message was received once.
    let received = figure(&consuming.address, "event_consumer_received_total").await;
    assert_eq!(received, Some(28), "{}", made.name());
    assert!((0..28).all(|post| program.header(post, "symphony-delivery-count") == "1"));
    let page = figures(&consuming.address).await;
    let counted: Vec<_> =
        page.lines().filter(|line| line.starts_with("dead_letter_count{")).collect();
    assert!(counted.len() == 4 && counted.iter().all(|line| line.ends_with(" 0")), "{counted:?}");
    assert_eq!(made.dead_letters().await, 0, "{}", made.name());
    assert!(terminate(&mut consuming.child).await.success());
}

#[tokio::test]
async fn a_program_that_is_away_on_sqs_loses_nothing_and_the_lag_rises() {
    required_or_skip!();
    is_away_for(&Made::sqs().await, Duration::from_secs(11)).await;
}

#[tokio::test]
async fn a_program_that_is_away_on_nats_loses_nothing_and_the_lag_rises() {
    required_or_skip!();
    is_away_for(&Made::nats().await, Duration::from_secs(11)).await;
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn a_program_that_is_away_on_kafka_loses_nothing_and_the_lag_rises() {
    required_or_skip!();
    is_away_for(&Made::kafka().await, Duration::from_secs(11)).await;
}

#[tokio::test]
async fn a_program_that_restarts_within_a_second_is_posted_to_two_seconds_later_on_sqs() {
    required_or_skip!();
    is_away_for(&Made::sqs().await, Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_program_that_restarts_within_a_second_is_posted_to_two_seconds_later_on_nats() {
    required_or_skip!();
    is_away_for(&Made::nats().await, Duration::from_secs(1)).await;
}

#[tokio::test]
#[ignore = "more than two minutes; scripts/test --long"]
async fn a_program_that_is_away_for_two_minutes_loses_nothing() {
    required_or_skip!();
    let all = Made::each().await;
    join_all(all.iter().map(|made| is_away_for(made, Duration::from_mins(2)))).await;
}

/// What docs/BUSES.md says beside `in_flight_max`: strict, at the price of all keys; or only its own key waits.
#[tokio::test]
async fn on_nats_a_failing_event_stops_every_key_as_setup_makes_it_and_its_own_with_more_in_flight()
{
    required_or_skip!();
    for (more, order) in [("", [1, 1, 1, 2]), (", in_flight_max = 100", [1, 2, 1, 1])] {
        let made = Made::nats_with(more).await;
        let program = Program { fails: Some(1), ..Program::default() };
        let to = program.start().await;
        made.publish(&[event("a", 1), event("b", 2)]).await;
        let mut consuming = started(made.consume(&to)).await;
        figure_is(&consuming.address, r#"event_consumer_applied_total{consumer="balances"} 1"#)
            .await;
        until("all tries are over", async || program.numbers().len() == 4).await;
        let mut numbers = program.numbers();
        if more.is_empty() {
            assert_eq!(numbers, order);
        } else {
            // Both at once.
            numbers[..2].sort_unstable();
            assert_eq!(numbers, order);
        }
        assert!(terminate(&mut consuming.child).await.success());
    }
}

#[tokio::test]
async fn an_event_that_always_fails_takes_none_behind_it_along() {
    required_or_skip!();
    for made in Made::each().await {
        let program = Program { fails: Some(1), ..Program::default() };
        let to = program.start().await;
        made.publish(&[event("a", 1), event("a", 2), event("a", 3)]).await;
        let mut consuming = started(made.consume(&to)).await;
        figure_is(&consuming.address, r#"event_consumer_applied_total{consumer="balances"} 2"#)
            .await;
        assert_eq!(program.numbers(), [1, 1, 1, 2, 3], "{}", made.name());
        let counts: Vec<_> =
            (0..5).map(|post| program.header(post, "symphony-delivery-count")).collect();
        assert_eq!(counts, ["1", "2", "3", "1", "1"], "{}", made.name());
        let line = r#"dead_letter_count{consumer="balances",reason="RECEIVES_EXHAUSTED"} 1"#;
        figure_is(&consuming.address, line).await;
        assert_eq!(made.dead_letters().await, 1, "{}", made.name());
        assert!(terminate(&mut consuming.child).await.success());
        assert!(consuming.log.lock().unwrap().contains(r#""dead-lettered""#), "{}", made.name());
    }
}

#[tokio::test]
async fn a_program_that_says_it_is_unavailable_is_left_alone_as_long_as_it_asks_and_no_try_is_counted()
 {
    required_or_skip!();
    for made in Made::each().await {
        let program = Program::default();
        *program.answers.lock().unwrap() = vec![(429, None), (503, None), (503, Some(2))];
        let to = program.start().await;
        made.publish(&[event("a", 1)]).await;
        let mut command = made.consume(&to);
        command.env("SYMPHONY__CONSUMER__RECEIVES_MAX", "1");
        let mut consuming = started(command).await;
        figure_is(&consuming.address, r#"event_consumer_applied_total{consumer="balances"} 1"#)
            .await;
        assert_eq!(program.numbers(), [1, 1, 1, 1], "{}", made.name());
        let waited = {
            let posts = program.posts.lock().unwrap();
            posts[1].at - posts[0].at
        };
        assert!(waited >= Duration::from_secs(2), "{}: {waited:?}", made.name());
        let failed = figure(&consuming.address, "event_consumer_failed_tries_total").await;
        assert_eq!(failed, Some(0), "{}", made.name());
        assert_eq!(made.dead_letters().await, 0, "{}", made.name());
        assert!(terminate(&mut consuming.child).await.success());
    }
}

#[tokio::test]
async fn a_consumer_restarted_again_and_again_while_its_program_is_away_dead_letters_nothing() {
    required_or_skip!();
    for made in Made::each().await {
        let program = Program::default();
        let to = program.start().await;
        program.stop();
        made.publish(&[event("a", 1), event("a", 2)]).await;
        for _ in 0..5 {
            let mut consuming = started(made.consume(&to)).await;
            figure_is(&consuming.address, r#"event_consumer_away{consumer="balances"} 1"#).await;
            assert!(terminate(&mut consuming.child).await.success());
        }
        program.start_again(&to).await;
        // It fails at first: five deliveries of others are not five tries.
        *program.answers.lock().unwrap() = vec![(500, None)];
        let mut consuming = started(made.consume(&to)).await;
        figure_is(&consuming.address, r#"event_consumer_applied_total{consumer="balances"} 2"#)
            .await;
        assert_eq!(program.numbers(), [1, 1, 2], "{}", made.name());
        assert_eq!(made.dead_letters().await, 0, "{}", made.name());
        assert!(terminate(&mut consuming.child).await.success());
    }
}

#[tokio::test]
async fn what_the_broker_dead_letters_by_itself_is_counted_too() {
    use std::sync::Arc;
    use symphony::consumer::ConsumerMetrics;
    required_or_skip!();
    let made = Made::nats().await;
    let Made::Nats { server } = &made else { unreachable!() };
    // The loop looks every 30 seconds; here at once.
    let metrics = Arc::new(ConsumerMetrics::default());
    let client = async_nats::connect(server.url()).await.unwrap();
    let settings = symphony_connect::sources::jetstream::JetStreamSettings {
        stream: "EVENTS".to_owned(),
        durable: "balances".to_owned(),
        filter_subject: None,
        dead_letter_subject: "dead.balances".to_owned(),
        visibility: Duration::from_secs(1),
        wait: Duration::from_secs(1),
    };
    let source =
        symphony_connect::sources::jetstream::JetStreamSource::open(client.clone(), settings)
            .await
            .unwrap();
    let pause = Duration::from_millis(50);
    let watching = tokio::spawn(symphony::consumer::watch_dead_letters(
        Arc::new(source),
        metrics.clone(),
        pause,
    ));
    until("they are counted", async || metrics.dead_letters_waiting.get() == Some(0)).await;
    let context = async_nats::jetstream::new(client);
    let body = Uuid::new_v4().to_string();
    context.publish("dead.balances", body.into()).await.unwrap().await.unwrap();
    until("it is noticed", async || metrics.dead_letters_broker.get() == 1).await;
    assert_eq!(metrics.dead_letters_waiting.get(), Some(1));
    assert_eq!(metrics.dead_letters(), 1);
    watching.abort();
}
