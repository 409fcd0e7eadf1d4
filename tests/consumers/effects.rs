//! Effects happen once, in order within a key, and what cannot be applied is found among the dead letters; on each
//! broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use symphony::consumer::{ConsumerSettings, Source};

use super::ground::{
    Broker, Effects, Failure, LosesAcknowledgements, Running, VISIBILITY, applied, event, garbage,
    settings,
};
use crate::support::brokers::required_or_skip;
use crate::support::{TestDb, until};

async fn ground() -> TestDb {
    let db = TestDb::new().await;
    Effects::table(&db).await;
    db
}

async fn until_applied(db: &TestDb, count: i64) {
    until("all events are applied", async || db.count("effects").await >= count).await;
}

#[tokio::test]
async fn an_event_delivered_many_times_is_applied_once() {
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        let (first, second) = (event("a", 1), event("b", 2));
        broker.publish(&[&first, &first, &second, &first, &second]).await;
        let effects = Effects::default();
        let running = Running::start(&db, broker.source("balances").await, &effects);
        until("all messages are done with", async || {
            running.metrics.applied.get() + running.metrics.duplicates.get() == 5
        })
        .await;
        assert_eq!(running.metrics.duplicates.get(), 3, "{}", broker.name());
        assert_eq!(running.stop().await, 0);
        assert_eq!(db.count("effects").await, 2, "{}", broker.name());
        assert_eq!(db.count("event_inbox").await, 2, "{}", broker.name());
        assert!(db.one::<bool>("SELECT bool_and(position IS NOT NULL) FROM effects").await);
    }
}

#[tokio::test]
async fn a_consumer_killed_between_commit_and_acknowledgement_applies_nothing_twice() {
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        let told = event("a", 1);
        broker.publish(&[&told]).await;
        let effects = Effects::default();
        let losing: Arc<dyn Source> = Arc::new(LosesAcknowledgements {
            inner: broker.source("balances").await,
            lost: AtomicUsize::new(0),
            lose: usize::MAX,
        });
        let killed = Running::start(&db, losing, &effects);
        until_applied(&db, 1).await;
        until("it is committed", async || killed.metrics.applied.get() == 1).await;
        killed.kill();
        let next = Running::start(&db, broker.source("balances").await, &effects);
        until("the message comes again", async || next.metrics.duplicates.get() == 1).await;
        next.stop().await;
        assert_eq!(db.count("effects").await, 1, "{}", broker.name());
        assert_eq!(effects.calls.load(Ordering::SeqCst), 1, "{}", broker.name());
    }
}

#[tokio::test]
async fn a_consumer_killed_in_its_handler_lets_go_of_the_message() {
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        broker.publish(&[&event("a", 1), &event("a", 2)]).await;
        let effects = Effects::default();
        let closed = effects.gate.clone().lock_owned().await;
        let killed = Running::start(&db, broker.source("balances").await, &effects);
        until("it is in its handler", async || effects.calls.load(Ordering::SeqCst) == 1).await;
        killed.kill();
        drop(closed);
        let next = Running::start(&db, broker.source("balances").await, &effects);
        until_applied(&db, 2).await;
        assert_eq!(applied(&db, "a").await, [1, 2], "{}", broker.name());
        next.stop().await;
    }
}

#[tokio::test]
async fn two_consumers_racing_for_one_event_apply_it_once() {
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        let told = event("a", 1);
        // Two messages of one event in two groups: both are handed out at once.
        let mut again = event("b", 1);
        again.body.clone_from(&told.body);
        broker.publish(&[&told, &again]).await;
        let effects = Effects::default();
        let closed = effects.gate.clone().lock_owned().await;
        let one = Running::start(&db, broker.source("balances").await, &effects);
        let other = Running::start(&db, broker.source("balances").await, &effects);
        until("one is in its handler", async || effects.calls.load(Ordering::SeqCst) == 1).await;
        drop(closed);
        until("both messages are done with", async || {
            let sum =
                |m: &symphony::consumer::ConsumerMetrics| m.applied.get() + m.duplicates.get();
            sum(&one.metrics) + sum(&other.metrics) == 2
        })
        .await;
        one.stop().await;
        other.stop().await;
        assert_eq!(db.count("effects").await, 1, "{}", broker.name());
        assert_eq!(effects.calls.load(Ordering::SeqCst), 1, "{}", broker.name());
    }
}

#[tokio::test]
async fn order_within_a_key_survives_a_failing_handler_and_other_keys_go_on() {
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        let told: Vec<_> = (1..=5)
            .map(|n| event("a", n))
            .chain((11..=13).map(|n| event("b", n)))
            .chain((6..=8).map(|n| event("a", n)))
            .collect();
        broker.publish(&told.iter().collect::<Vec<_>>()).await;
        let effects = Effects::default().fail(2, Failure::Again(2)).fail(6, Failure::Panic(1));
        let settings = ConsumerSettings { retry_delay: Duration::from_millis(300), ..settings() };
        let running = Running::start_with(&db, broker.source("balances").await, &effects, settings);
        until_applied(&db, 11).await;
        assert_eq!(applied(&db, "a").await, [1, 2, 3, 4, 5, 6, 7, 8], "{}", broker.name());
        assert_eq!(applied(&db, "b").await, [11, 12, 13], "{}", broker.name());
        assert_eq!(running.metrics.failed_tries.get(), 3, "{}", broker.name());
        assert_eq!(running.metrics.dead_letters(), 0, "{}", broker.name());
        assert_eq!(running.stop().await, 0);
    }
}

#[tokio::test]
async fn what_is_no_event_or_is_rejected_or_fails_too_often_is_dead_lettered_with_its_reason() {
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        let told = [
            garbage("a"),
            event("b", 1),
            event("b", 2),
            event("c", 3),
            event("c", 4),
            event("a", 5),
        ];
        broker.publish(&told.iter().collect::<Vec<_>>()).await;
        let effects = Effects::default().fail(1, Failure::Reject).fail(3, Failure::Again(99));
        let running = Running::start(&db, broker.source("balances").await, &effects);
        until("all are done with", async || {
            running.metrics.applied.get() == 3 && running.metrics.dead_letters() == 3
        })
        .await;
        assert_eq!(running.metrics.dead_letters_poison.get(), 1);
        assert_eq!(running.metrics.dead_letters_rejected.get(), 1);
        assert_eq!(running.metrics.dead_letters_exhausted.get(), 1);
        // Tried as often as it may be, and what is behind it was never counted down with it.
        assert_eq!(effects.calls.load(Ordering::SeqCst), 1 + 1 + 3 + 1 + 1, "{}", broker.name());
        running.stop().await;
        let mut letters = broker.dead_letters().await;
        letters.sort();
        let expected = [
            ("POISON".to_owned(), told[0].body.clone()),
            ("RECEIVES_EXHAUSTED".to_owned(), told[3].body.clone()),
            ("REJECTED".to_owned(), told[1].body.clone()),
        ];
        assert_eq!(letters, expected, "{}", broker.name());
    }
}

#[tokio::test]
async fn a_handler_slower_than_the_visibility_keeps_its_message_hidden() {
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        let (slow, behind, later) = (event("a", 1), event("a", 2), event("b", 3));
        broker.publish(&[&slow, &behind]).await;
        let effects = Effects::default();
        let closed = effects.gate.clone().lock_owned().await;
        let one = Running::start(&db, broker.source("balances").await, &effects);
        until("it is in its handler", async || effects.calls.load(Ordering::SeqCst) == 1).await;
        let other = Running::start(&db, broker.source("balances").await, &effects);
        let started = std::time::Instant::now();
        until("twice the visibility is over", async || started.elapsed() > VISIBILITY * 2).await;
        // The other one is awake and well, and has not seen it.
        broker.publish(&[&later]).await;
        until_applied(&db, 1).await;
        let seen = one.metrics.received.get() + other.metrics.received.get();
        assert_eq!(seen, 3, "{}", broker.name());
        drop(closed);
        until_applied(&db, 3).await;
        assert_eq!(applied(&db, "a").await, [1, 2], "{}", broker.name());
        one.stop().await;
        other.stop().await;
        assert_eq!(effects.calls.load(Ordering::SeqCst), 3, "{}", broker.name());
    }
}

#[tokio::test]
async fn a_handler_that_hides_an_error_or_ends_the_transaction_is_not_believed() {
    required_or_skip!();
    let db = ground().await;
    let broker = Broker::nats().await;
    broker.publish(&[&event("a", 1), &event("b", 2)]).await;
    let effects = Effects::default().fail(1, Failure::Swallowed(1)).fail(2, Failure::RollsBack(1));
    let running = Running::start(&db, broker.source("balances").await, &effects);
    until_applied(&db, 2).await;
    running.stop().await;
    assert_eq!(db.count("effects").await, 2);
    assert_eq!(db.count("event_inbox").await, 2);
    assert_eq!(effects.calls.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn events_that_share_a_domain_key_are_applied_once() {
    required_or_skip!();
    let db = ground().await;
    let broker = Broker::sqs().await;
    broker.publish(&[&event("a", 1), &event("a", 2), &event("b", 3)]).await;
    let effects = Effects { by_key_and_type: true, ..Effects::default() };
    let running = Running::start(&db, broker.source("balances").await, &effects);
    until("all are done with", async || {
        running.metrics.applied.get() + running.metrics.duplicates.get() == 3
    })
    .await;
    running.stop().await;
    assert_eq!(applied(&db, "a").await, [1]);
    assert_eq!(applied(&db, "b").await, [3]);
}

#[tokio::test]
async fn stopping_finishes_what_is_in_flight_and_gives_back_what_was_not_begun() {
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        broker.publish(&[&event("a", 1), &event("a", 2)]).await;
        let effects = Effects::default();
        let closed = effects.gate.clone().lock_owned().await;
        let running = Running::start(&db, broker.source("balances").await, &effects);
        until("it is in its handler", async || {
            effects.calls.load(Ordering::SeqCst) == 1 && running.metrics.received.get() == 2
        })
        .await;
        let stopped = tokio::spawn(running.stop());
        drop(closed);
        assert_eq!(stopped.await.unwrap(), 0);
        assert_eq!(applied(&db, "a").await, [1], "{}", broker.name());
        let next = Running::start(&db, broker.source("balances").await, &effects);
        until_applied(&db, 2).await;
        assert_eq!(next.metrics.duplicates.get(), 0, "{}", broker.name());
        next.stop().await;
    }
}

#[tokio::test]
async fn while_the_database_is_away_no_try_is_counted() {
    required_or_skip!();
    let db = ground().await;
    let broker = Broker::nats().await;
    // As it looks to a consumer whose grant is missing: not the event's fault.
    db.sql("ALTER FUNCTION record_event_inbox RENAME TO record_event_inbox_away").await;
    broker.publish(&[&event("a", 1)]).await;
    let effects = Effects::default();
    let tight = ConsumerSettings { receives_max: 1, ..settings() };
    let running = Running::start_with(&db, broker.source("balances").await, &effects, tight);
    until("it was tried several times", async || {
        running.metrics.handler_latency.cumulative().last() >= Some(&3)
    })
    .await;
    assert_eq!(running.metrics.received.get(), 1, "it stays in hand");
    assert_eq!(running.metrics.away.get(), 1);
    assert_eq!(running.metrics.dead_letters(), 0);
    db.sql("ALTER FUNCTION record_event_inbox_away RENAME TO record_event_inbox").await;
    until_applied(&db, 1).await;
    running.stop().await;
}

#[tokio::test]
async fn the_lag_is_unknown_at_first_grows_while_a_handler_fails_and_is_0_when_the_source_is_empty()
{
    required_or_skip!();
    for broker in Broker::each().await {
        let db = ground().await;
        let effects = Effects::default().fail(1, Failure::Again(1));
        let settings = ConsumerSettings {
            retry_delay: Duration::from_secs(3),
            retry_delay_max: Duration::from_secs(3),
            ..settings()
        };
        let running = Running::start_with(&db, broker.source("balances").await, &effects, settings);
        let lag = || running.metrics.lag.seconds();
        assert_eq!(lag(), None, "{}: nothing was heard of the source", broker.name());
        until("the source says that it is empty", async || lag() == Some(0)).await;
        broker.publish(&[&event("a", 1)]).await;
        until("its try fails", async || running.metrics.failed_tries.get() == 1).await;
        let first = lag().unwrap();
        assert!(first > 0, "{}", broker.name());
        until("the lag grows", async || lag() > Some(first)).await;
        until_applied(&db, 1).await;
        until("the source is empty again", async || lag() == Some(0)).await;
        running.stop().await;
    }
}
