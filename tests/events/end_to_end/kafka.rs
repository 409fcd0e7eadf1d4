//! Kafka: three brokers of the mock cluster, leaders that move, a broker that is gone for a while, a group that changes;
//! read by ours and by confluent-kafka.

use std::sync::Arc;
use std::time::Duration;

use symphony::consumer::Source;
use symphony_connect::buses::conformance::Condition;
use symphony_connect::sources::kafka::{KafkaAddress, KafkaSource, KafkaSourceSettings};

use super::dispatchers::{Dispatchers, WORKER};
use super::faults::wait;
use super::stage::Stage;
use super::{effects, story};
use crate::payments::chaos::dice::Dice;
use crate::support::brokers::{python, required_or_skip};
use crate::support::kafka::Kafka;

const TOPIC: &str = "transfers";
const PARTITIONS: i32 = 12;

fn config(servers: &str) -> String {
    format!(
        r#"
        [buses.main]
        kind = "kafka"
        bootstrap_servers = "{servers}"
        timeout_ms = 2_500
        connect_timeout_ms = 1_000
        breaker_open_ms = 500
        breaker_open_max_ms = 1_000
        {}"#,
        WORKER.replace("TOPIC", TOPIC)
    )
}

/// Whenever a few more hundredths of the events are sent, something happens to the cluster or to the way to it.
async fn weather(stage: &Stage, kafka: &Kafka) {
    let mut dice = Dice::of(stage.seed, "weather");
    for share in (4..90).step_by(6) {
        stage.until("it goes on", share, |now| now.sent).await;
        if share == 46 {
            kafka.tell("broker_down 2");
            elect(kafka, &[1, 3]);
            wait(dice.duration_ms(300, 1_000)).await;
            kafka.tell("broker_up 2");
            stage.tally.add("broker gone");
            continue;
        }
        if share % 4 == 0 {
            let first = i32::try_from(dice.between(0, 2)).unwrap();
            elect(kafka, &[first + 1, (first + 1) % 3 + 1]);
            stage.tally.add("leaders moved");
            continue;
        }
        let (condition, name, lasts) = match dice.between(1, 4) {
            1 => (Condition::Down, "cut", dice.duration_ms(10, 300)),
            2 => (Condition::AnswersLost, "answers lost", dice.duration_ms(50, 300)),
            3 => (Condition::Hanging, "hanging", dice.duration_ms(500, 1_500)),
            _ => (Condition::Slow(dice.duration_ms(20, 100)), "slow", dice.duration_ms(300, 800)),
        };
        kafka.make(condition).await;
        wait(lasts).await;
        // Also after a hang: who hangs is cut off in the end.
        kafka.make(Condition::Down).await;
        kafka.make(Condition::Well).await;
        stage.tally.add(name);
    }
}

/// These lead the partitions from now on, in turns.
fn elect(kafka: &Kafka, brokers: &[i32]) {
    for (partition, broker) in (0..PARTITIONS).zip(brokers.iter().cycle()) {
        kafka.tell(&format!("leader {TOPIC} {partition} {broker}"));
    }
}

async fn prove(keys: usize) {
    let kafka = Kafka::start().await;
    let stage = Stage::new("kafka", keys).await;
    kafka.create_topic(TOPIC, PARTITIONS);
    kafka.create_topic("ledger-dead", 1);
    // The mock cluster does not survive the loss of a connection on which a member waits for its group.
    kafka.tell(&format!("coordinator {} 1", effects::NAME));
    let config = stage.write("symphony.toml", &config(&kafka.servers()));
    let open = async || {
        let address =
            KafkaAddress { bootstrap_servers: kafka.direct.clone(), ..KafkaAddress::default() };
        let settings = KafkaSourceSettings {
            topic: TOPIC.to_owned(),
            group: effects::NAME.to_owned(),
            dead_letter_topic: "ledger-dead".to_owned(),
            revoke_wait: Duration::from_secs(20),
            session_timeout: Duration::from_secs(6),
            wait: Duration::from_secs(1),
        };
        let source = KafkaSource::open(&address, |_| None, settings).await.unwrap();
        Arc::new(source) as Arc<dyn Source>
    };
    let script = concat!(include_str!("judge.py"), include_str!("kafka_client.py"));
    let (expected, finished) = (stage.expected(), stage.finished());
    let partitions = PARTITIONS.to_string();
    let (expected, finished) = (expected.to_str().unwrap(), finished.to_str().unwrap());
    let arguments = [&kafka.direct, TOPIC, &partitions, expected, finished];

    let mut dispatchers = Dispatchers::start(&stage, &config);
    let ((), (), (), (), ghosts, verdict) = tokio::join!(
        async {
            dispatchers.die_in_the_middle().await;
            dispatchers.leave().await;
        },
        weather(&stage, &kafka),
        effects::consume(&stage, &open),
        effects::lend_a_hand(&stage, &open),
        story::produce(stage.clone()),
        python(script, &arguments),
    );
    stage.hear(&verdict);
    assert_eq!(stage.tally.sum("broker gone"), 1);
    assert_eq!(stage.tally.sum("lent a hand"), 1);
    stage.judge(&ghosts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_event_over_kafka_is_applied_once_and_in_order_while_everything_fails() {
    required_or_skip!();
    Box::pin(prove(200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "minutes: scripts/test --long"]
async fn ten_thousand_events_over_kafka_are_applied_once_and_in_order_while_everything_fails() {
    required_or_skip!();
    Box::pin(prove(1_000)).await;
}
