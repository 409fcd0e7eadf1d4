//! When an event is given up: after its bus was away for a day, by itself and without a break, and not before.

use symphony::db::{EventOutcome, EventState};

use super::RETRYABLE;
use crate::support::TestDb;

/// Whose fault a try was.
#[derive(Clone, Copy)]
enum Trouble {
    Away,
    Setup,
    Message,
}
use Trouble::{Away, Message, Setup};

/// Claim the only event; answers for how long it has been tried.
async fn tried_seconds(db: &TestDb) -> i32 {
    db.make_keys_due().await;
    let events = db.claim_events("w", 10).await;
    assert_eq!(events.len(), 1);
    let lease = events[0].lease();
    db.database.worker().return_unsent("w", &[lease]).await.unwrap();
    events[0].tried_seconds
}

/// One try that ended so, and then so much time.
async fn try_once(db: &TestDb, trouble: Trouble, then: &str) {
    db.make_keys_due().await;
    let events = db.claim_events("w", 10).await;
    let outcome = EventOutcome::new(events[0].lease(), events[0].log_position, RETRYABLE);
    let outcome = EventOutcome {
        spends_attempt: matches!(trouble, Message),
        bus_away: matches!(trouble, Away),
        ..outcome
    };
    db.database.worker().complete_events("w", &[&outcome]).await.unwrap();
    pass(db, then).await;
}

/// So much time passes: all that happened is so much longer ago.
async fn pass(db: &TestDb, interval: &str) {
    db.sql(&format!(
        "ALTER TABLE event_outbox_attempts DISABLE TRIGGER event_outbox_attempts_only_grow; \
         UPDATE event_outbox_attempts SET completed_at = completed_at - INTERVAL '{interval}'; \
         ALTER TABLE event_outbox_attempts ENABLE ALWAYS TRIGGER event_outbox_attempts_only_grow"
    ))
    .await;
}

const DAY: i32 = 86_400;

async fn with_one_event() -> TestDb {
    let db = TestDb::new().await;
    db.tell_of("k", 1).await;
    db
}

#[tokio::test]
async fn a_bus_that_was_away_all_day_is_given_up() {
    let db = with_one_event().await;
    assert_eq!(tried_seconds(&db).await, 0);
    for _ in 0..48 {
        assert!(tried_seconds(&db).await < DAY);
        try_once(&db, Away, "30 minutes").await;
    }
    assert!((DAY..DAY + 300).contains(&tried_seconds(&db).await));
}

#[tokio::test]
async fn what_an_operator_had_to_mend_is_no_time_the_bus_was_away() {
    let db = with_one_event().await;
    for _ in 0..50 {
        try_once(&db, Setup, "30 minutes").await;
    }
    assert_eq!(tried_seconds(&db).await, 0, "mended, and the first publication is throttled");
    try_once(&db, Away, "10 minutes").await;
    assert!((600..660).contains(&tried_seconds(&db).await));
}

#[tokio::test]
async fn a_weekend_in_which_nobody_tried_is_no_time_the_bus_was_away() {
    let db = with_one_event().await;
    try_once(&db, Away, "63 hours").await;
    let tried = tried_seconds(&db).await;
    assert!((3_600..3_660).contains(&tried), "{tried}");
}

#[tokio::test]
async fn a_bus_that_answered_meanwhile_was_not_away_since_before() {
    let db = with_one_event().await;
    for _ in 0..30 {
        try_once(&db, Away, "1 hour").await;
    }
    assert!(tried_seconds(&db).await >= DAY);
    try_once(&db, Message, "1 minute").await;
    assert_eq!(tried_seconds(&db).await, 0);
    try_once(&db, Away, "5 minutes").await;
    // A lost worker says nothing of the bus.
    db.make_keys_due().await;
    assert_eq!(db.claim_events("lost", 10).await.len(), 1);
    db.expire_buckets().await;
    assert_eq!(tried_seconds(&db).await / 60, 5);
    assert_eq!(db.count("event_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'").await, 1);
    assert_eq!(db.count("event_outbox_attempts WHERE bus_away").await, 31);
}

#[tokio::test]
async fn only_what_was_surely_not_taken_can_be_called_away() {
    let db = with_one_event().await;
    let events = db.claim_events("w", 10).await;
    let state = EventState::Retryable { unknown: false };
    // It spends a try: so it is the event's own trouble, whatever else is said.
    let outcome = EventOutcome::new(events[0].lease(), events[0].log_position, state);
    let outcome = EventOutcome { bus_away: true, ..outcome };
    db.database.worker().complete_events("w", &[&outcome]).await.unwrap();
    assert_eq!(db.count("event_outbox_attempts WHERE bus_away").await, 0);
}
