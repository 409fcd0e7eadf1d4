//! A producer never waits for a stranger, however long that keeps its transaction open; and nothing is passed over.

use sqlx::{ConnectOptions as _, PgConnection};
use symphony::event::Event;
use tokio::task::JoinSet;

use super::event;
use crate::support::shell::symphony;
use crate::support::{TestDb, code, run, until};

/// A producer that gives up when it has to wait for anybody's transaction. Not at once: a file that grows is locked, too.
async fn impatient(db: &TestDb) -> PgConnection {
    let mut connection = db.as_role("symphony_ingest").await;
    run(&mut connection, "SET lock_timeout = '2s'").await.unwrap();
    connection
}

async fn begin(connection: &mut PgConnection) {
    run(connection, "BEGIN").await.unwrap();
}

async fn commit(connection: &mut PgConnection) {
    run(connection, "COMMIT").await.unwrap();
}

async fn tell_in(connection: &mut PgConnection, keys: &[String]) {
    let events: Vec<Event> = keys.iter().map(|key| event(key, 1)).collect();
    for answer in symphony::events::enqueue_batch(connection, &events).await.unwrap() {
        answer.unwrap();
    }
}

fn keys(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}_{n}")).collect()
}

impl TestDb {
    /// A key that stays behind an open producer of that one, however long: of the same group of buckets.
    async fn neighbour_of(&self, key: &str) -> String {
        self.one(&format!(
            "SELECT 'beside_' || n FROM generate_series(1, 100000) n \
              WHERE event_bucket('beside_' || n) / 8 = event_bucket('{key}') / 8 LIMIT 1"
        ))
        .await
    }

    /// A key that an open producer of that one holds up for half a second only.
    async fn stranger_of(&self, key: &str) -> String {
        self.one(&format!(
            "SELECT 'far_' || n FROM generate_series(1, 100000) n \
              WHERE event_bucket('far_' || n) / 8 <> event_bucket('{key}') / 8 LIMIT 1"
        ))
        .await
    }

    /// Let half a second have passed since the last look at who is open.
    async fn open_for_long(&self) {
        self.sql("SELECT setval('event_outbox_epoch_began_ms', 0)").await;
    }
}

#[tokio::test]
async fn nobody_waits_for_an_open_event_of_another_key() {
    let db = TestDb::new().await;
    let mut open = impatient(&db).await;
    begin(&mut open).await;
    tell_in(&mut open, &keys("open", 1)).await;
    // Enough to be in every bucket.
    for producer in 0..30 {
        let mut other = impatient(&db).await;
        begin(&mut other).await;
        for call in 0..10 {
            tell_in(&mut other, &keys(&format!("other_{producer}_{call}"), 5)).await;
        }
        commit(&mut other).await;
    }
    assert_eq!(db.count("event_outbox_log").await, 30 * 10 * 5);
    commit(&mut open).await;
    assert_eq!(db.publish_all("w").await.len(), 1 + 30 * 10 * 5);
}

#[tokio::test]
async fn the_largest_batch_left_open_blocks_no_other_of_the_same_size() {
    let db = TestDb::new().await;
    let (mut one, mut two) = (impatient(&db).await, impatient(&db).await);
    begin(&mut one).await;
    begin(&mut two).await;
    for call in 0..3 {
        // Keys the database has never seen, and then ones it has.
        tell_in(&mut one, &keys("one", 4096)).await;
        tell_in(&mut two, &keys("two", 4096)).await;
        if call == 1 {
            commit(&mut one).await;
            begin(&mut one).await;
        }
    }
    commit(&mut two).await;
    commit(&mut one).await;
    assert_eq!(db.count("event_outbox_log").await, 6 * 4096);
}

#[tokio::test]
async fn many_calls_in_opposite_orders_never_deadlock_while_their_keys_differ() {
    let db = TestDb::new().await;
    let mut producers = JoinSet::new();
    for producer in 0..16usize {
        let mut connection = impatient(&db).await;
        producers.spawn(async move {
            for round in 0..5 {
                let mut order = keys(&format!("key_{producer}_{}", round % 2), 10);
                if (producer + round) % 2 == 1 {
                    order.reverse();
                }
                begin(&mut connection).await;
                for key in &order {
                    tell_in(&mut connection, std::slice::from_ref(key)).await;
                }
                commit(&mut connection).await;
            }
        });
    }
    producers.join_all().await;
    assert_eq!(db.count("event_outbox_log").await, 16 * 5 * 10);
    assert_eq!(db.publish_all("w").await.len(), 16 * 5 * 10);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn producers_of_the_same_key_meet_whether_it_is_new_or_known() {
    let db = TestDb::new().await;
    for of in ["new", "known"] {
        let mut open = impatient(&db).await;
        begin(&mut open).await;
        tell_in(&mut open, &keys("k", 1)).await;
        let mut other = impatient(&db).await;
        run(&mut other, "SET lock_timeout = '50ms'").await.unwrap();
        assert_eq!(
            code(symphony::events::enqueue(&mut other, &event("k_0", 2)).await),
            "SYM05",
            "{of}"
        );
        // So does a batch in which one key is the other's.
        let several = [event("a", 1), event("k_0", 2), event("z", 1)];
        assert_eq!(
            code(symphony::events::enqueue_batch(&mut other, &several).await),
            "SYM05",
            "{of}"
        );
        commit(&mut open).await;
        run(&mut other, "RESET lock_timeout").await.unwrap();
        symphony::events::enqueue(&mut other, &event("k_0", 3)).await.unwrap();
    }
}

#[tokio::test]
async fn what_lies_behind_an_open_producer_is_published_when_that_ends_and_in_its_order() {
    let db = TestDb::new().await;
    let behind = db.neighbour_of("open_0").await;
    for (end, published) in [("COMMIT", 2), ("ROLLBACK", 1)] {
        let mut open = impatient(&db).await;
        begin(&mut open).await;
        tell_in(&mut open, &keys("open", 1)).await;
        db.tell_of(&behind, 1).await;
        assert!(db.publish_all("w").await.is_empty(), "it lies behind something undecided");
        assert!(db.publish_all("w").await.is_empty(), "however often one looks");
        assert!(db.database.worker().are_events_beyond_horizon().await.unwrap());
        run(&mut open, end).await.unwrap();
        assert_eq!(db.publish_all("w").await.len(), published, "{end}");
        assert!(!db.database.worker().are_events_beyond_horizon().await.unwrap());
    }
    db.assert_events_hold().await;
}

#[tokio::test]
async fn what_was_committed_before_another_began_is_not_delayed_by_it() {
    let db = TestDb::new().await;
    db.tell_of("before", 3).await;
    // One look is enough, whoever opens afterwards.
    let first = db.claim_events("w", 1).await;
    assert_eq!(first.len(), 1);
    let mut open = impatient(&db).await;
    begin(&mut open).await;
    tell_in(&mut open, &keys("open", 1)).await;
    db.report("w", &[(&first[0], symphony::db::EventState::Dispatched)]).await;
    assert_eq!(db.publish_all("w").await.len(), 2);
}

#[tokio::test]
async fn a_transaction_that_tells_nothing_delays_nothing() {
    let db = TestDb::new().await;
    db.sql("CREATE TABLE orders (id INT)").await;
    let mut writer = db.admin().await;
    run(&mut writer, "BEGIN; INSERT INTO orders VALUES (1)").await.unwrap();
    let mut reader = db.admin().await;
    run(&mut reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders")
        .await
        .unwrap();
    db.tell_of("k", 1).await;
    assert_eq!(db.publish_all("w").await.len(), 1);
}

#[tokio::test]
async fn a_savepoint_takes_its_events_and_its_registration_with_it() {
    let db = TestDb::new().await;
    let mut open = impatient(&db).await;
    begin(&mut open).await;
    run(&mut open, "SAVEPOINT one").await.unwrap();
    tell_in(&mut open, &keys("gone", 1)).await;
    run(&mut open, "ROLLBACK TO one").await.unwrap();
    db.tell_of("behind", 1).await;
    assert_eq!(db.publish_all("w").await.len(), 1, "nothing of the open one is left");
    tell_in(&mut open, &keys("kept", 1)).await;
    run(&mut open, "SAVEPOINT two").await.unwrap();
    tell_in(&mut open, &keys("gone too", 1)).await;
    run(&mut open, "ROLLBACK TO two").await.unwrap();
    db.tell_of(&db.neighbour_of("kept_0").await, 1).await;
    assert!(
        db.publish_all("w").await.is_empty(),
        "what was told before the savepoint is open still"
    );
    commit(&mut open).await;
    assert_eq!(db.publish_all("w").await.len(), 2);
    db.assert_events_hold().await;
}

#[tokio::test]
async fn a_prepared_transaction_is_an_open_one() {
    let db = TestDb::new().await;
    // PostgreSQL prepares nothing that has notified.
    db.sql("ALTER TABLE event_outbox_log DISABLE TRIGGER event_outbox_log_wakes_workers").await;
    let mut open = impatient(&db).await;
    begin(&mut open).await;
    tell_in(&mut open, &keys("prepared", 300)).await;
    let name = crate::support::unique("prepared");
    run(&mut open, &format!("PREPARE TRANSACTION '{name}'")).await.unwrap();
    drop(open);
    let mut other = impatient(&db).await;
    tell_in(&mut other, &keys("behind", 300)).await;
    for _ in 0..3 {
        assert!(db.publish_all("w").await.is_empty());
        db.open_for_long().await;
    }
    db.sql(&format!("COMMIT PREPARED '{name}'")).await;
    assert_eq!(db.publish_all("w").await.len(), 600);
}

#[tokio::test]
async fn an_operator_finds_who_is_open() {
    let db = TestDb::new().await;
    let mut open = impatient(&db).await;
    run(&mut open, "SET application_name = 'a slow service'").await.unwrap();
    begin(&mut open).await;
    let found = "open_event_producers() WHERE application = 'a slow service' AND login IS NOT NULL";
    assert_eq!(db.count(found).await, 0, "open, but it has told nothing");
    tell_in(&mut open, &keys("k", 2)).await;
    tell_in(&mut open, &keys("k", 2)).await;
    let mut operator = db.as_role("symphony_operator").await;
    let count = format!("SELECT count(*) FROM {found}");
    let seen: i64 =
        sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut operator).await.unwrap();
    assert_eq!(seen, 1);
    assert_eq!(db.count("open_event_producers() WHERE delays_since IS NOT NULL").await, 0);
    db.tell_of(&db.neighbour_of("k_0").await, 1).await;
    assert!(db.claim_events("w", 50).await.is_empty());
    let waits = "open_event_producers() p JOIN event_outbox_log l ON l.created_at = p.delays_since";
    assert_eq!(db.count(waits).await, 1, "it delays what a worker would have taken");
    let other = TestDb::new().await;
    assert_eq!(other.count("open_event_producers()").await, 0, "of another database");
    commit(&mut open).await;
    assert_eq!(db.count("open_event_producers()").await, 0);
}

#[tokio::test]
async fn doctor_names_whoever_others_wait_for() {
    let db = TestDb::new().await;
    // Before anybody is open: the table is locked for it.
    db.sql("ALTER TABLE event_outbox_log DISABLE TRIGGER event_outbox_log_only_grows").await;
    let mut open = impatient(&db).await;
    run(&mut open, "SET application_name = 'a slow service'").await.unwrap();
    begin(&mut open).await;
    tell_in(&mut open, &keys("k", 1)).await;
    db.tell_of(&db.neighbour_of("k_0").await, 1).await;
    assert!(db.claim_events("w", 50).await.is_empty());
    db.open_for_long().await;
    assert!(db.claim_events("w", 50).await.is_empty(), "passed, and its neighbours wait still");
    db.sql("UPDATE event_outbox_log SET created_at = created_at - INTERVAL '1 minute'").await;
    let login = db.login("symphony_operator").await;
    let told = symphony(login.to_url_lossy().as_str(), &[], "doctor", &[], "").await;
    let line = told.output.lines().find(|line| line.contains("producers"));
    let line = line.unwrap_or_else(|| panic!("{}{}", told.output, told.error));
    assert!(line.contains("a slow service") && line.contains("has waited for 6"), "{line}");
    commit(&mut open).await;
}

#[tokio::test]
async fn a_restored_dump_whose_horizon_lies_beyond_its_log_finds_it_anew() {
    let db = TestDb::new().await;
    // As a dump leaves it that read these sequences later than the log's own.
    db.sql(
        "SELECT setval('event_outbox_horizon', 1000), setval('event_outbox_next_horizon', 1000); \
         UPDATE symphony_installation SET database_oid = 1",
    )
    .await;
    let mut operator = db.as_role("symphony_operator").await;
    run(&mut operator, "SELECT * FROM accept_symphony_server('dana', 'restored last night')")
        .await
        .unwrap();
    let mut open = impatient(&db).await;
    begin(&mut open).await;
    tell_in(&mut open, &keys("open", 1)).await;
    db.tell_of(&db.neighbour_of("open_0").await, 1).await;
    assert!(db.publish_all("w").await.is_empty(), "it lies behind something undecided");
    commit(&mut open).await;
    assert_eq!(db.publish_all("w").await.len(), 2);
}

#[tokio::test]
async fn a_worker_that_stops_in_the_middle_of_a_claim_keeps_the_horizon_from_nobody() {
    let db = TestDb::new().await;
    db.tell_of("taken", 1).await;
    let mut stopped = db.as_role("symphony_executor").await;
    run(&mut stopped, "BEGIN; SELECT * FROM claim_event_outbox_batch(1, 'stopped', 60)")
        .await
        .unwrap();
    let mut producer = impatient(&db).await;
    tell_in(&mut producer, &keys("later", 3)).await;
    assert_eq!(db.publish_all("w").await.len(), 3);
}

#[tokio::test]
async fn a_transaction_that_tells_and_claims_moves_no_horizon_past_itself() {
    let db = TestDb::new().await;
    let mut both = db.admin().await;
    begin(&mut both).await;
    tell_in(&mut both, &keys("own", 300)).await;
    run(&mut both, "SELECT * FROM claim_event_outbox_batch(500, 'both', 60)").await.unwrap();
    tell_in(&mut impatient(&db).await, &keys("others", 300)).await;
    assert!(db.publish_all("w").await.is_empty());
    db.open_for_long().await;
    run(&mut both, "SELECT * FROM claim_event_outbox_batch(500, 'both', 60)").await.unwrap();
    assert!(db.publish_all("w").await.is_empty());
    commit(&mut both).await;
    assert_eq!(db.publish_all("w").await.len(), 600);
}

#[tokio::test]
async fn a_producer_that_stays_open_holds_up_its_neighbours_and_nobody_else() {
    let db = TestDb::new().await;
    let (near, far) = (db.neighbour_of("open_0").await, db.stranger_of("open_0").await);
    let mut open = impatient(&db).await;
    begin(&mut open).await;
    tell_in(&mut open, &keys("open", 1)).await;
    let mut strangers = Vec::new();
    for round in 0..3 {
        db.tell_of(&near, 1).await;
        strangers.extend(db.tell_of(&far, 2).await);
        if round == 0 {
            assert!(db.publish_all("w").await.is_empty(), "it may end at any moment");
            db.open_for_long().await;
        }
        let published = db.publish_all("w").await;
        assert_eq!(published, strangers[round * 2..], "round {round}");
        assert!(db.database.worker().are_events_beyond_horizon().await.unwrap());
    }
    // It goes on telling, elsewhere too: nobody waits for half a second again.
    tell_in(&mut open, &["elsewhere".to_owned(), db.neighbour_of("elsewhere").await]).await;
    let told = db.tell_of(&far, 2).await;
    assert_eq!(db.publish_all("w").await, told);
    commit(&mut open).await;
    let rest = db.publish_all("w").await;
    assert_eq!(rest.len(), 3 + 3);
    assert!(!db.database.worker().are_events_beyond_horizon().await.unwrap());
    db.assert_events_hold().await;
}

#[tokio::test]
async fn of_two_that_stay_open_each_lets_go_of_its_own_when_it_ends() {
    let db = TestDb::new().await;
    let other_key = db.stranger_of("open_0").await;
    let (near, near_other) = (db.neighbour_of("open_0").await, db.neighbour_of(&other_key).await);
    let mut open = impatient(&db).await;
    begin(&mut open).await;
    tell_in(&mut open, &keys("open", 1)).await;
    db.tell_of(&near, 1).await;
    assert!(db.publish_all("w").await.is_empty());
    db.open_for_long().await;
    assert!(db.publish_all("w").await.is_empty());
    let mut other = impatient(&db).await;
    begin(&mut other).await;
    tell_in(&mut other, std::slice::from_ref(&other_key)).await;
    db.tell_of(&near_other, 1).await;
    for _ in 0..2 {
        assert!(db.publish_all("w").await.is_empty());
        db.open_for_long().await;
    }
    commit(&mut open).await;
    assert_eq!(db.publish_all("w").await.len(), 2);
    run(&mut other, "ROLLBACK").await.unwrap();
    assert_eq!(db.publish_all("w").await.len(), 1);
    db.assert_events_hold().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_whoever_stays_open_loses_inverts_and_doubles_nothing() {
    use super::races::{assert_published, dispatch};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    let db = TestDb::new().await;
    let (told, out) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let mut dispatchers = JoinSet::new();
    for n in 0..3u64 {
        let (database, told) = (db.database.clone(), told.clone());
        dispatchers.spawn(dispatch(database, format!("w{n}"), 77 + n, told, Arc::clone(&out)));
    }
    // Everybody who is open is passed at once, again and again.
    let (mut hurry, over) = (db.admin().await, told.clone());
    dispatchers.spawn(async move {
        while !over.load(Ordering::SeqCst) {
            run(&mut hurry, "SELECT setval('symphony.event_outbox_epoch_began_ms', 0)")
                .await
                .unwrap();
        }
    });
    let committed = Arc::new(AtomicUsize::new(0));
    let mut producers = JoinSet::new();
    for producer in 0..8usize {
        let (mut connection, committed) = (db.as_role("symphony_ingest").await, committed.clone());
        producers.spawn(async move {
            for round in 0..40 {
                begin(&mut connection).await;
                let mut kept = 0;
                for call in 0..=(round % 4) {
                    // Sorted over the calls of a transaction: producers of one key do meet.
                    let key = format!("key_{call}_{:02}", (producer + round * 3) % 20);
                    if call % 2 == 1 {
                        run(&mut connection, "SAVEPOINT s").await.unwrap();
                    }
                    tell_in(&mut connection, std::slice::from_ref(&key)).await;
                    if call % 2 == 1 && round % 3 == 0 {
                        run(&mut connection, "ROLLBACK TO s").await.unwrap();
                    } else {
                        kept += 1;
                    }
                }
                if (producer + round) % 5 == 0 {
                    run(&mut connection, "ROLLBACK").await.unwrap();
                } else {
                    commit(&mut connection).await;
                    committed.fetch_add(kept, Ordering::SeqCst);
                }
            }
        });
    }
    producers.join_all().await;
    told.store(true, Ordering::SeqCst);
    dispatchers.join_all().await;
    dispatch(db.database.clone(), "last".to_owned(), 1, told, Arc::clone(&out)).await;
    assert_published(&db, &out, committed.load(Ordering::SeqCst)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_rolled_back_producer_delayed_is_published_without_a_poll() {
    use super::lane::{Reply, ScriptedBus, seldom, start_seldom};
    let db = TestDb::new().await;
    let bus = ScriptedBus::new(|_, _| Reply::Take);
    let engine = start_seldom(&db, &bus).await;
    let mut open = impatient(&db).await;
    begin(&mut open).await;
    tell_in(&mut open, &keys("open", 1)).await;
    let metrics = engine.metrics().clone();
    let claims = metrics.claim_batches.get();
    let behind = db.neighbour_of("open_0").await;
    let mut told = 0;
    // More than one: whoever tells in the same 50 ms as the open one leaves the hint to it, and it never commits.
    until("the worker has looked, in vain", async || {
        db.tell_of(&behind, 1).await;
        told += 1;
        metrics.claim_batches.get() > claims + 1
    })
    .await;
    assert!(bus.taken().is_empty());
    let started = std::time::Instant::now();
    run(&mut open, "ROLLBACK").await.unwrap();
    until("all are out", async || bus.taken().len() == told).await;
    assert!(started.elapsed() < seldom().poll.0 / 2, "not by a poll");
    engine.stop().await;
}
