//! What races: producers against each other and against dispatchers, dispatchers against each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use symphony::db::{Database, EventClaim, EventOutcome, EventState};
use symphony::event::Event;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::{event, event_with};
use crate::support::{TestDb, run};

#[tokio::test(flavor = "multi_thread")]
async fn racing_producers_of_one_event_make_one_event_at_every_isolation_level() {
    let db = TestDb::new().await;
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let told = event_with(Uuid::new_v4(), "k", r#"{"n": 1}"#);
        let mut producers = JoinSet::new();
        for _ in 0..8 {
            let (options, told) = (db.options.clone(), told.clone());
            producers.spawn(async move {
                use sqlx::ConnectOptions as _;
                let mut connection = options.connect().await.unwrap();
                loop {
                    let begin = format!(
                        "BEGIN ISOLATION LEVEL {isolation}; SET LOCAL ROLE symphony_ingest"
                    );
                    run(&mut connection, &begin).await.unwrap();
                    let answer = symphony::events::enqueue(&mut connection, &told).await;
                    let committed = match &answer {
                        Ok(_) => run(&mut connection, "COMMIT").await,
                        Err(_) => run(&mut connection, "ROLLBACK").await.and(Ok(())),
                    };
                    match (answer, committed) {
                        (Ok(enqueued), Ok(())) => return enqueued.log_position,
                        (Err(error), _) | (_, Err(error)) => {
                            assert_eq!(error.code(), "40001", "{error}");
                        }
                    }
                }
            });
        }
        let positions = producers.join_all().await;
        assert!(positions.iter().all(|one| *one == positions[0]), "{isolation}: {positions:?}");
    }
    assert_eq!(db.count("event_outbox_log").await, 3);
    assert_eq!(db.count("event_outbox_identities").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_over_the_same_keys_in_any_order_never_deadlock() {
    let db = TestDb::new().await;
    let mut producers = JoinSet::new();
    for producer in 0..6usize {
        let database = db.database.clone();
        producers.spawn(async move {
            for round in 0..10 {
                let mut events: Vec<Event> =
                    (0..40).map(|n| event(&format!("key_{n}"), round)).collect();
                if producer % 2 == 1 {
                    events.reverse();
                }
                let bodies: Vec<_> = events.iter().map(Event::body).collect();
                database.producer().enqueue_events(&bodies).await.unwrap();
            }
        });
    }
    producers.join_all().await;
    assert_eq!(db.count("event_outbox_log").await, 6 * 10 * 40);
}

/// What was published, key and position, in its order.
pub(super) type Published = Arc<std::sync::Mutex<Vec<(String, i64)>>>;

/// One dispatcher that fails, loses and returns things by dice, and notes what it published and in which order.
pub(super) async fn dispatch(
    database: Database,
    worker: String,
    seed: u64,
    told: Arc<AtomicBool>,
    out: Published,
) {
    let executor = database.worker();
    let mut dice = seed;
    let mut roll = move || {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        dice % 100
    };
    loop {
        let over = told.load(Ordering::SeqCst);
        let claim =
            EventClaim { worker_id: &worker, buckets_max: 4, window_max: 7, lease_seconds: 60 };
        let events = executor.claim_events(&claim).await.unwrap().events;
        if events.is_empty() {
            if over {
                return;
            }
            tokio::task::yield_now().await;
            continue;
        }
        if roll() < 5 {
            // Lost: the lease is let run out, here by setting the time in the row.
            let lease = events[0].lease();
            sqlx::query("UPDATE symphony.event_outbox_cursors SET lease_expires_at = clock_timestamp() WHERE lease_token = $1")
                .bind(lease.lease_token)
                .execute(database.pool())
                .await
                .unwrap();
            continue;
        }
        let mut blocked: Vec<&str> = Vec::new();
        let mut outcomes = Vec::new();
        for event in &events {
            if blocked.contains(&event.event_key.as_str()) {
                continue;
            }
            let outcome =
                EventOutcome::new(event.lease(), event.log_position, EventState::Dispatched);
            if roll() < 8 {
                blocked.push(&event.event_key);
                let state = if roll() < 50 {
                    EventState::Retryable { unknown: true }
                } else {
                    EventState::Unsent
                };
                outcomes.push(EventOutcome { state, retry_delay_seconds: Some(0), ..outcome });
            } else {
                out.lock().unwrap().push((event.event_key.clone(), event.log_position));
                outcomes.push(outcome);
            }
        }
        // In parts, in another order.
        let half = outcomes.len() / 2;
        outcomes.rotate_left(half);
        for part in outcomes.chunks(5) {
            executor.complete_events(&worker, &part.iter().collect::<Vec<_>>()).await.unwrap();
        }
        // Whatever was left out by chance.
        executor.return_unsent(&worker, &super::leases(&events)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_rolled_back_producers_and_failing_dispatchers_nothing_is_lost_inverted_or_doubled() {
    let db = TestDb::new().await;
    let told = Arc::new(AtomicBool::new(false));
    let out = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut dispatchers = JoinSet::new();
    for n in 0..3u64 {
        dispatchers.spawn(dispatch(
            db.database.clone(),
            format!("w{n}"),
            0x9e37_79b9 + n,
            told.clone(),
            out.clone(),
        ));
    }
    let committed = Arc::new(AtomicUsize::new(0));
    let mut producers = JoinSet::new();
    for producer in 0..4usize {
        let (database, committed) = (db.database.clone(), committed.clone());
        producers.spawn(async move {
            for round in 0..60 {
                let events: Vec<Event> = (0..8)
                    .map(|n| {
                        event(&format!("key_{}", (producer * 7 + round * 3 + n * 5) % 40), round)
                    })
                    .collect();
                let bodies: Vec<_> = events.iter().map(Event::body).collect();
                let mut transaction = database.begin(symphony::db::Role::Producer).await.unwrap();
                symphony::events::enqueue_batch_unchecked(transaction.connection(), &bodies)
                    .await
                    .unwrap();
                if (producer + round) % 5 == 0 {
                    drop(transaction);
                } else {
                    transaction.commit().await.unwrap();
                    committed.fetch_add(8, Ordering::SeqCst);
                }
            }
        });
    }
    producers.join_all().await;
    told.store(true, Ordering::SeqCst);
    // A dispatcher ends when a claim finds nothing; what others then hold or let wait comes back to those that go on.
    dispatchers.join_all().await;
    dispatch(db.database.clone(), "last".to_owned(), 1, told, out.clone()).await;
    assert_published(&db, &out, committed.load(Ordering::SeqCst)).await;
}

/// Everything that was committed is out, once, and in order within its key.
pub(super) async fn assert_published(db: &TestDb, out: &Published, committed: usize) {
    let out = out.lock().unwrap().clone();
    assert_eq!(out.len(), committed, "each published once");
    let mut last: std::collections::HashMap<String, i64> = std::collections::HashMap::new();
    for (key, position) in out {
        let before = last.insert(key.clone(), position);
        assert!(
            before.is_none_or(|before| before < position),
            "{key}: {before:?} before {position}"
        );
    }
    db.assert_events_hold().await;
    let figures = db.database.auditor().event_figures().await.unwrap();
    assert_eq!((figures.pending, figures.failed), (0, 0));
}
