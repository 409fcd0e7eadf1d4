//! JetStream: two durable consumers, one read by ours, one by nats-py; the server is killed in the middle.

use std::sync::Arc;
use std::time::Duration;

use symphony::consumer::Source;
use symphony_connect::buses::conformance::Condition;
use symphony_connect::sources::jetstream::{
    JetStreamSettings, JetStreamSource, NatsAddress, connect,
};

use super::dispatchers::{Dispatchers, WORKER, set_up_bus};
use super::faults::wait;
use super::stage::Stage;
use super::{effects, story};
use crate::payments::chaos::dice::Dice;
use crate::support::brokers::{NatsServer, python, required_or_skip};
use crate::support::valve::Valve;

fn config(port: u16) -> String {
    format!(
        r#"
        [buses.main]
        kind = "nats"
        url = "nats://127.0.0.1:{port}"
        timeout_ms = 1_500
        connect_timeout_ms = 1_000
        breaker_open_ms = 500
        breaker_open_max_ms = 1_000
        setup.topics = [
            {{ name = "TRANSFERS", types = ["events.transfers.*"] }},
            {{ name = "DEAD", types = ["dead.*"] }},
        ]
        setup.consumers = [
            {{ name = "ledger", topic = "TRANSFERS", visibility_timeout_seconds = 3, in_flight_max = 1 }},
            {{ name = "audit", topic = "TRANSFERS", visibility_timeout_seconds = 5, in_flight_max = 200 }},
        ]
        {}"#,
        WORKER.replace("TOPIC", "TRANSFERS")
    )
}

/// Whenever a few more hundredths of the events are sent, something happens to the connections; once the server dies.
async fn weather(stage: &Stage, server: &mut NatsServer, valve: &Valve) {
    let mut dice = Dice::of(stage.seed, "weather");
    for share in (4..90).step_by(6) {
        stage.until("it goes on", share, |now| now.sent).await;
        if share == 46 {
            server.kill().await;
            wait(dice.duration_ms(50, 500)).await;
            server.restart().await;
            stage.tally.add("server killed");
            continue;
        }
        let (condition, name, lasts) = match dice.between(1, 4) {
            1 => (Condition::Down, "cut", dice.duration_ms(10, 300)),
            2 => (Condition::AnswersLost, "answers lost", dice.duration_ms(50, 300)),
            3 => (Condition::Hanging, "hanging", dice.duration_ms(500, 2_000)),
            _ => (Condition::Slow(dice.duration_ms(20, 200)), "slow", dice.duration_ms(300, 800)),
        };
        valve.make(condition).await;
        wait(lasts).await;
        // Also after a hang: who hangs is cut off in the end.
        valve.make(Condition::Down).await;
        valve.make(Condition::Well).await;
        stage.tally.add(name);
    }
}

async fn prove(keys: usize) {
    let mut server = NatsServer::start().await;
    let stage = Stage::new("nats", keys).await;
    let valve = Valve::before(server.port).await;
    let config = stage.write("symphony.toml", &config(valve.port));
    set_up_bus(&config).await;
    let url = server.url();
    let open = async || {
        let address = NatsAddress { url: url.clone(), ..NatsAddress::default() };
        let settings = JetStreamSettings {
            stream: "TRANSFERS".to_owned(),
            durable: effects::NAME.to_owned(),
            filter_subject: None,
            dead_letter_subject: "dead.ledger".to_owned(),
            visibility: Duration::from_secs(3),
            wait: Duration::from_secs(1),
        };
        let client = connect(&address, |_| None).await.unwrap();
        let source = JetStreamSource::open(client, settings).await.unwrap();
        Arc::new(source) as Arc<dyn Source>
    };
    let script = concat!(include_str!("judge.py"), include_str!("nats_client.py"));
    let (expected, finished) = (stage.expected(), stage.finished());
    let arguments =
        [&url, "TRANSFERS", "audit", expected.to_str().unwrap(), finished.to_str().unwrap()];

    let mut dispatchers = Dispatchers::start(&stage, &config);
    let ((), (), (), ghosts, verdict) = tokio::join!(
        async {
            dispatchers.die_in_the_middle().await;
            dispatchers.leave().await;
        },
        weather(&stage, &mut server, &valve),
        effects::consume(&stage, &open),
        story::produce(stage.clone()),
        python(script, &arguments),
    );
    stage.hear(&verdict);
    assert_eq!(stage.tally.sum("server killed"), 1);
    stage.judge(&ghosts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_event_over_jetstream_is_applied_once_and_in_order_while_everything_fails() {
    required_or_skip!();
    Box::pin(prove(200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "minutes: scripts/test --long"]
async fn ten_thousand_events_over_jetstream_are_applied_once_and_in_order_while_everything_fails() {
    required_or_skip!();
    Box::pin(prove(1_000)).await;
}
