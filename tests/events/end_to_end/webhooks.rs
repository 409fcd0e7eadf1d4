//! Signed webhooks to a receiver that refuses, cuts off and hangs; what arrived is applied by two consumers at once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use symphony::consumer::{Applied, Apply as _, ApplyError, InboxApply, Received};
use symphony::db::ActsAs;
use symphony::event::Event;
use symphony_lab::receiver::{Arrival, Receiver, ReceiverFaults, ReceiverSettings};

use super::dispatchers::{Dispatchers, WORKER};
use super::effects::{Effects, NAME};
use super::stage::Stage;
use super::story;

pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn config(url: &str) -> String {
    format!(
        r#"
        [buses.main]
        kind = "http"
        allow_private_addresses = true
        [buses.main.endpoints.ledger]
        url = "{url}"
        secret_env = "PROOF_SECRET"
        timeout_ms = 1_500
        connect_timeout_ms = 1_000
        {}"#,
        WORKER.replace("TOPIC", "ledger")
    )
}

/// First arrivals in order within their key; answers how many were repeated.
fn check_arrivals(stage: &Stage, arrivals: &[Arrival]) -> usize {
    let mut last: HashMap<&str, i64> = HashMap::new();
    let mut seen = HashSet::new();
    let mut late = Vec::new();
    for arrival in arrivals.iter().filter(|arrival| seen.insert(arrival.event_id)) {
        let position = arrival.position.expect("every webhook says its position");
        let before = last.insert(&arrival.key, position);
        if before.is_some_and(|before| before >= position) {
            late.push((&arrival.key, arrival.event_id, position, before));
        }
    }
    assert!(
        late.is_empty(),
        "{} out of order, such as {:?}",
        late.len(),
        late.iter().take(5).collect::<Vec<_>>()
    );
    assert_eq!(seen.len(), stage.total, "of all events so many arrived");
    arrivals.len() - seen.len()
}

/// Apply all arrivals in their order, as one consumer of several; answers how many it applied itself.
async fn apply_all(stage: &Arc<Stage>, effects: Effects, arrivals: &[Arrival]) -> usize {
    let timeout = Duration::from_secs(10);
    let consumer = stage.db.database.consumer();
    let apply = Arc::new(InboxApply::new(
        NAME.to_owned(),
        Arc::new(effects),
        consumer,
        ActsAs::Login,
        timeout,
    ));
    let mut applied = 0;
    for arrival in arrivals {
        let event = Event::parse(arrival.body.get()).unwrap();
        let received = Received { event, position: arrival.position, receives: 1 };
        loop {
            let (apply, received) = (apply.clone(), received.clone());
            // A task of its own, because a handler panics now and then.
            match tokio::spawn(async move { apply.apply(&received).await }).await {
                Ok(Ok(Applied::Now)) => break applied += 1,
                Ok(Ok(Applied::Before)) => break,
                Ok(Err(ApplyError::Again(_))) | Err(_) => {}
                Ok(Err(error)) => panic!("{error}"),
            }
        }
    }
    applied
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_event_over_webhooks_is_applied_once_and_in_order_while_everything_fails() {
    let stage = Stage::new("webhooks", 200).await;
    let faults = ReceiverFaults {
        seed: stage.seed,
        fail_per_mille: 50,
        hang_per_mille: 4,
        drop_per_mille: 30,
    };
    let settings = ReceiverSettings { faults, ..ReceiverSettings::new(SECRET) };
    let receiver = Receiver::start(settings).await.unwrap();
    let config = stage.write("symphony.toml", &config(&receiver.url()));
    let mut dispatchers = Dispatchers::start(&stage, &config);
    let ((), ghosts) = tokio::join!(
        async {
            dispatchers.die_in_the_middle().await;
            dispatchers.leave().await;
        },
        story::produce(stage.clone()),
    );
    let arrivals = receiver.stop().await;
    assert_eq!(arrivals.refused, 0, "every request is signed and is an event");
    let repeated = check_arrivals(&stage, &arrivals.kept);
    println!("webhooks: {} faults, {repeated} repeated", arrivals.faults);
    assert!(arrivals.faults > 0 && repeated > 0);

    let effects = Effects::new(&stage);
    let (one, other) = tokio::join!(
        apply_all(&stage, effects.clone(), &arrivals.kept),
        apply_all(&stage, effects, &arrivals.kept),
    );
    assert_eq!(one + other, stage.total, "each event is applied by one of the two");
    stage.judge(&ghosts).await;
}
