//! Pausing one topic: its keys wait, others go on, and a resume publishes what has gathered, in order.

use std::sync::Arc;

use symphony::db::{EventOutcome, EventState};
use symphony::domain::{Act, Switch};
use symphony::engine::Engine;
use symphony::event::Event;
use symphony::lanes::events::{OnFailed, Route};
use uuid::Uuid;

use super::lane::{Reply, ScriptedBus, never_open, quick, route, start_with, until_sent};
use super::{event, event_of_type};
use crate::support::{TestDb, act, code, run, until};

/// Of another topic than [`event`].
fn order(key: &str, n: usize) -> Event {
    event_of_type("events.orders.placed", Uuid::new_v4(), key, &format!(r#"{{"n": {n}}}"#))
}

/// Transfers go to topic `t`, orders to topic `o`.
fn start(db: &TestDb, bus: &Arc<ScriptedBus>) -> Engine {
    let orders = Route { topic: "o".to_owned(), ..route("events.orders.*", OnFailed::Block) };
    let routes = vec![orders, route("*", OnFailed::Block)];
    start_with(db, bus, routes, never_open(), quick())
}

fn transfers() -> Switch {
    Switch::Topic("test/t".to_owned())
}

/// Say of the claimed events that they were not sent, as a worker does that knows their topic as paused.
async fn leave_alone(db: &TestDb, worker: &str, events: &[symphony::db::ClaimedEvent]) {
    let outcomes: Vec<EventOutcome> = events
        .iter()
        .map(|event| EventOutcome {
            destination: Some("test/t".into()),
            retry_delay_seconds: Some(0),
            ..EventOutcome::new(event.lease(), event.log_position, EventState::Unsent)
        })
        .collect();
    let outcomes: Vec<&EventOutcome> = outcomes.iter().collect();
    let recorded = db.database.worker().complete_events(worker, &outcomes).await.unwrap();
    assert!(recorded.iter().all(super::is_recorded), "{recorded:?}");
}

/// One key, set aside for its paused topic.
async fn paused_key(db: &TestDb, events: usize) -> Vec<Uuid> {
    db.database.worker().register_topics(&["test/t"]).await.unwrap();
    db.database.operator().pause(&transfers(), &act()).await.unwrap();
    let told = db.tell_of("k", events).await;
    leave_alone(db, "w", &db.claim_events("w", 50).await[..1]).await;
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_topic_keeps_its_events_and_no_others_until_it_is_resumed() {
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|_, _| Reply::Take);
    let engine = start(&db, &bus);
    let operator = db.database.operator();
    until("the topics are known", async || db.count("event_outbox_topics").await == 2).await;
    operator.pause(&transfers(), &act()).await.unwrap();

    let own: Vec<Event> = (0..3).map(|n| event("paused", n)).collect();
    // Its first is paused, and its second would not be: order within the key goes first.
    let mixed = [event("mixed", 0), order("mixed", 1)];
    let others: Vec<Event> = (0..4).map(|n| order("other", n)).collect();
    let mut told: Vec<Event> = own.clone();
    told.extend(mixed.iter().cloned());
    told.extend(others.iter().cloned());
    db.tell(&told).await;
    until_sent(&db, 4).await;
    until("both keys are set aside", async || {
        db.count("event_outbox_blocked WHERE paused_topic = 'test/t'").await == 2
    })
    .await;
    let ids = |events: &[Event]| events.iter().map(Event::event_id).collect::<Vec<_>>();
    assert_eq!(bus.of_key("other"), ids(&others));
    assert!(bus.of_key("paused").is_empty() && bus.of_key("mixed").is_empty());
    assert!(db.event_ledger(own[0].event_id()).await.is_empty(), "no attempt, and nothing written");
    assert!(db.claim_events("another", 50).await.is_empty(), "nobody looks again and again");
    let status = db.database.auditor().status().await.unwrap().remove(1);
    assert_eq!(
        (status.waiting_count, status.scheduled_count, status.due_unleased_count),
        (5, 0, 0)
    );

    // Another worker knows it, too.
    assert_eq!(engine.stop().await, 0);
    let engine = start(&db, &bus);
    let late = event("paused", 3);
    db.tell(&[late.clone(), event("new", 0), order("other", 4)]).await;
    until_sent(&db, 5).await;
    until("the new key is set aside", async || {
        db.count("event_outbox_blocked WHERE paused_topic = 'test/t'").await == 3
    })
    .await;
    assert!(bus.of_key("paused").is_empty() && bus.of_key("new").is_empty());

    operator.resume(&transfers(), &act()).await.unwrap();
    until_sent(&db, 12).await;
    assert_eq!(engine.stop().await, 0);
    let mut in_order = ids(&own);
    in_order.push(late.event_id());
    assert_eq!(bus.of_key("paused"), in_order);
    assert_eq!(bus.of_key("mixed"), ids(&mixed));
    assert_eq!(db.event_ledger(own[0].event_id()).await, ["0.1 DISPATCHED"]);
    let figures = db.database.auditor().event_figures().await.unwrap();
    assert!(figures.holds() && figures.inversions == 0, "{figures:?}");
    db.assert_events_hold().await;
}

#[tokio::test]
async fn what_was_set_aside_in_ignorance_of_the_resume_is_due_at_once() {
    let db = TestDb::new().await;
    db.database.worker().register_topics(&["test/t"]).await.unwrap();
    let operator = db.database.operator();
    operator.pause(&transfers(), &act()).await.unwrap();
    let told = db.tell_of("k", 2).await;
    let claimed = db.claim_events("w", 50).await;
    operator.resume(&transfers(), &act()).await.unwrap();
    leave_alone(&db, "w", &claimed[..1]).await;
    assert_eq!(db.publish_all("w").await, told);
    db.assert_events_hold().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_waits_for_whoever_sets_a_key_aside_and_misses_none() {
    let db = TestDb::new().await;
    db.database.worker().register_topics(&["test/t"]).await.unwrap();
    db.database.operator().pause(&transfers(), &act()).await.unwrap();
    let told = db.tell_of("k", 2).await;
    let claimed = db.claim_events("w", 50).await.remove(0);
    let mut worker = db.as_role("symphony_executor").await;
    let complete = format!(
        "BEGIN; SELECT symphony.complete_event_outbox_attempts('w', ARRAY[{}::smallint], ARRAY[{}::bigint], ARRAY['{}'::uuid], \
         ARRAY[NULL]::text[], ARRAY['test/t'], p_retry_delays_seconds => ARRAY[0])",
        claimed.bucket, claimed.log_position, claimed.lease_token.0
    );
    run(&mut worker, &complete).await.unwrap();
    let operator = db.database.operator();
    let resume = tokio::spawn(async move { operator.resume(&transfers(), &act()).await });
    until("the resume waits", async || {
        db.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
            .await
            == 1
    })
    .await;
    run(&mut worker, "COMMIT").await.unwrap();
    resume.await.unwrap().unwrap();
    assert_eq!(db.publish_all("w").await, told);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn neither_a_bus_that_is_well_again_nor_an_hour_ends_the_pause() {
    let db = TestDb::new().await;
    let told = paused_key(&db, 2).await;
    assert_eq!(db.database.worker().hasten_events("test", 100).await.unwrap(), 0);
    assert!(db.claim_events("w", 50).await.is_empty());
    let minutes: i32 = db
        .one("SELECT (extract(epoch FROM due_at - clock_timestamp()) / 60)::int FROM event_outbox_blocked")
        .await;
    assert!((59..=60).contains(&minutes), "looked at again after {minutes} minutes");
    db.make_keys_due().await;
    leave_alone(&db, "w", &db.claim_events("w", 50).await[..1]).await;
    assert!(db.claim_events("w", 50).await.is_empty(), "set aside again");
    db.database.operator().resume(&transfers(), &act()).await.unwrap();
    assert_eq!(db.publish_all("w").await, told);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_resume_lets_no_redriven_event_out_that_the_bus_would_swallow() {
    let db = TestDb::new().await;
    paused_key(&db, 2).await;
    db.sql("UPDATE event_outbox_waiting SET not_before = clock_timestamp() + INTERVAL '5 minutes' WHERE position = (SELECT min(position) FROM event_outbox_waiting)")
        .await;
    db.database.operator().resume(&transfers(), &act()).await.unwrap();
    assert_eq!(
        db.count("event_outbox_blocked WHERE due_at > clock_timestamp() + INTERVAL '4 minutes' AND paused_topic IS NULL").await,
        1
    );
}

#[tokio::test]
async fn only_a_topic_that_a_worker_has_named_can_be_paused_and_a_dry_run_changes_nothing() {
    let db = TestDb::new().await;
    let operator = db.database.operator();
    assert_eq!(code(operator.pause(&transfers(), &act()).await), "P7007", "nobody has named it");
    paused_key(&db, 1).await;
    let dry = Act { dry_run: true, ..act() };
    let answer = operator.resume(&transfers(), &dry).await.unwrap();
    assert_eq!((answer.state_before.as_str(), answer.state_after.as_str()), ("PAUSED", "RUNNING"));
    assert!(db.claim_events("w", 50).await.is_empty(), "a dry run resumes nothing");
    let narrative: Vec<String> = db
        .one("SELECT array_agg(concat_ws(' ', event_type, details->>'topic', actor, reason)) FROM event_outbox_events")
        .await;
    assert_eq!(narrative, ["PAUSED test/t dana a test"]);
    let paused = db.database.auditor().paused().await.unwrap();
    assert_eq!((paused[0].kind.as_str(), paused[0].name.as_str()), ("topic", "test/t"));
    assert_eq!(paused[0].actor.as_deref(), Some("dana"));
}
