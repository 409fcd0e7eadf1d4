//! The inbox itself: who applies an event when several try, at every isolation level, and for how long it is remembered.

use symphony::db::{ActsAs, Consumer};
use uuid::Uuid;

use crate::support::{TestDb, code, run, until, verdict};

/// Record an event in a transaction that stays open.
async fn record(
    connection: &mut sqlx::PgConnection,
    event: Uuid,
    key: Option<&str>,
) -> Result<bool, symphony::db::DbError> {
    Consumer::record(connection, "balances", event, key).await
}

async fn begin(db: &TestDb, isolation: &str) -> sqlx::PgConnection {
    let mut connection = db.as_role("symphony_consumer").await;
    run(&mut connection, &format!("BEGIN ISOLATION LEVEL {isolation}")).await.unwrap();
    connection
}

/// Somebody waits for somebody else's transaction.
async fn until_one_waits(db: &TestDb) {
    until("the second delivery waits for the first", async || {
        db.count("pg_locks l JOIN pg_database d ON d.datname = current_database() JOIN pg_stat_activity a ON a.pid = l.pid AND a.datid = d.oid WHERE NOT l.granted")
            .await
            > 0
    })
    .await;
}

#[tokio::test]
async fn the_first_record_of_an_event_answers_true_and_every_later_one_false() {
    let db = TestDb::new().await;
    let event = Uuid::new_v4();
    let mut connection = db.as_role("symphony_consumer").await;
    assert!(record(&mut connection, event, None).await.unwrap());
    assert!(!record(&mut connection, event, None).await.unwrap());
    assert!(Consumer::record(&mut connection, "statements", event, None).await.unwrap());
    assert!(record(&mut connection, Uuid::new_v4(), None).await.unwrap());
}

#[tokio::test]
async fn a_racing_delivery_waits_and_is_told_that_the_first_committed() {
    let db = TestDb::new().await;
    let event = Uuid::new_v4();
    let mut first = begin(&db, "READ COMMITTED").await;
    assert!(record(&mut first, event, None).await.unwrap());
    let mut second = begin(&db, "READ COMMITTED").await;
    let waiting = tokio::spawn(async move { record(&mut second, event, None).await });
    until_one_waits(&db).await;
    run(&mut first, "COMMIT").await.unwrap();
    assert!(!waiting.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_racing_delivery_takes_over_when_the_first_rolls_back() {
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let db = TestDb::new().await;
        let event = Uuid::new_v4();
        let mut first = begin(&db, isolation).await;
        assert!(record(&mut first, event, Some("transfer-1")).await.unwrap());
        let mut second = begin(&db, isolation).await;
        let waiting = tokio::spawn(async move {
            let first_time = record(&mut second, event, Some("transfer-1")).await?;
            run(&mut second, "COMMIT").await?;
            Ok::<_, symphony::db::DbError>(first_time)
        });
        until_one_waits(&db).await;
        run(&mut first, "ROLLBACK").await.unwrap();
        assert!(waiting.await.unwrap().unwrap(), "{isolation}");
        assert_eq!(db.count("event_inbox").await, 1, "{isolation}");
    }
}

#[tokio::test]
async fn above_read_committed_a_racing_delivery_must_repeat_its_transaction() {
    for isolation in ["REPEATABLE READ", "SERIALIZABLE"] {
        let db = TestDb::new().await;
        let event = Uuid::new_v4();
        let mut second = begin(&db, isolation).await;
        // Its snapshot is from before the other's commit.
        run(&mut second, "SELECT 1").await.unwrap();
        let mut first = begin(&db, isolation).await;
        assert!(record(&mut first, event, None).await.unwrap());
        run(&mut first, "COMMIT").await.unwrap();
        assert_eq!(code(record(&mut second, event, None).await), "40001", "{isolation}");
        run(&mut second, &format!("ROLLBACK; BEGIN ISOLATION LEVEL {isolation}")).await.unwrap();
        assert!(!record(&mut second, event, None).await.unwrap(), "{isolation}");
    }
}

#[tokio::test]
async fn of_many_events_with_one_domain_key_a_single_one_is_applied() {
    let db = TestDb::new().await;
    let mut racers = tokio::task::JoinSet::new();
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(8));
    for _ in 0..8 {
        let (mut connection, barrier) = (begin(&db, "READ COMMITTED").await, barrier.clone());
        racers.spawn(async move {
            barrier.wait().await;
            let first =
                record(&mut connection, Uuid::new_v4(), Some("tr_1 submitted")).await.unwrap();
            run(&mut connection, "COMMIT").await.unwrap();
            first
        });
    }
    let firsts = racers.join_all().await.into_iter().filter(|first| *first).count();
    assert_eq!(firsts, 1);
    assert_eq!(db.count("event_inbox_keys").await, 1);
}

#[tokio::test]
async fn an_event_whose_domain_key_changed_between_releases_is_still_known() {
    let db = TestDb::new().await;
    let mut connection = db.as_role("symphony_consumer").await;
    let event = Uuid::new_v4();
    assert!(record(&mut connection, event, Some("old way")).await.unwrap());
    assert!(!record(&mut connection, event, Some("new way")).await.unwrap());
    assert!(!record(&mut connection, event, None).await.unwrap());
}

#[tokio::test]
async fn bad_arguments_of_the_inbox_are_refused_by_name() {
    let db = TestDb::new().await;
    let long = "x".repeat(256);
    for (call, argument) in [
        ("record_event_inbox(' ', gen_random_uuid())".to_owned(), "p_consumer"),
        ("record_event_inbox(NULL, gen_random_uuid())".to_owned(), "p_consumer"),
        ("record_event_inbox('c', NULL)".to_owned(), "p_event_id"),
        ("record_event_inbox('c', gen_random_uuid(), '')".to_owned(), "p_dedupe_key"),
        (format!("record_event_inbox('c', gen_random_uuid(), '{long}')"), "p_dedupe_key"),
        ("retire_event_inbox('', 2592000, 10)".to_owned(), "p_consumer"),
        ("retire_event_inbox('c', 1295999, 10)".to_owned(), "p_older_than_seconds"),
        ("retire_event_inbox('c', NULL, 10)".to_owned(), "p_older_than_seconds"),
        ("retire_event_inbox('c', 2592000, 0)".to_owned(), "p_batch_size"),
        ("retire_event_inbox('c', 2592000, 10001)".to_owned(), "p_batch_size"),
    ] {
        let mut connection = db.as_role("symphony_consumer").await;
        let error = run(&mut connection, &format!("SELECT {call}")).await.unwrap_err();
        assert_eq!(error.code(), "P7005", "{call}");
        assert!(error.to_string().contains(argument), "{call}: {error}");
    }
}

#[tokio::test]
async fn a_consumer_may_use_the_inbox_and_nothing_else() {
    let db = TestDb::new().await;
    let role = "symphony_consumer";
    let id = Uuid::new_v4();
    assert_eq!(verdict(&db, role, &format!("SELECT record_event_inbox('c', '{id}')")).await, "OK");
    assert_eq!(verdict(&db, role, "SELECT retire_event_inbox('c', 2592000, 10)").await, "OK");
    for forbidden in [
        "SELECT * FROM event_inbox",
        "DELETE FROM event_inbox",
        "INSERT INTO event_inbox VALUES ('c', gen_random_uuid(), now())",
        "SELECT * FROM event_inbox_keys",
        "SELECT * FROM symphony_schema",
        "SELECT enqueue_payment_outbox('i', 'p', 'k', 'ach', '{}')",
        "SELECT claim_outbox_batch(1, 'w', 60)",
    ] {
        assert_eq!(verdict(&db, role, forbidden).await, "42501", "{forbidden}");
    }
    for other in ["symphony_ingest", "symphony_executor", "symphony_readonly"] {
        let call = "SELECT record_event_inbox('c', gen_random_uuid())";
        assert_eq!(verdict(&db, other, call).await, "42501", "{other}");
    }
}

#[tokio::test]
async fn retention_forgets_what_is_old_in_batches_and_nothing_else() {
    let db = TestDb::new().await;
    db.sql(
        "INSERT INTO event_inbox SELECT 'balances', gen_random_uuid(), now() - INTERVAL '31 days' FROM generate_series(1, 25);
         INSERT INTO event_inbox SELECT 'balances', gen_random_uuid(), now() - INTERVAL '29 days' FROM generate_series(1, 5);
         INSERT INTO event_inbox SELECT 'statements', gen_random_uuid(), now() - INTERVAL '31 days' FROM generate_series(1, 5);
         INSERT INTO event_inbox_keys VALUES ('balances', 'old', gen_random_uuid(), now() - INTERVAL '31 days'),
                                             ('balances', 'new', gen_random_uuid(), now())",
    )
    .await;
    let consumer = db.database.consumer();
    let month = 30 * 86_400;
    assert_eq!(consumer.retire("balances", month, 10).await.unwrap(), 11);
    assert_eq!(consumer.retire("balances", month, 10).await.unwrap(), 10);
    assert_eq!(consumer.retire("balances", month, 10).await.unwrap(), 5);
    assert_eq!(consumer.retire("balances", month, 10).await.unwrap(), 0);
    assert_eq!(db.count("event_inbox WHERE consumer = 'balances'").await, 5);
    assert_eq!(db.count("event_inbox WHERE consumer = 'statements'").await, 5);
    assert_eq!(db.one::<String>("SELECT dedupe_key FROM event_inbox_keys").await, "new");
}

#[tokio::test]
async fn one_process_at_a_time_retires_the_rows_of_a_consumer() {
    let db = TestDb::new().await;
    db.sql("INSERT INTO event_inbox SELECT 'balances', gen_random_uuid(), now() - INTERVAL '31 days' FROM generate_series(1, 5)").await;
    let mut working = begin(&db, "READ COMMITTED").await;
    run(&mut working, "SELECT retire_event_inbox('balances', 2592000, 2)").await.unwrap();
    let consumer = db.database.consumer();
    assert_eq!(consumer.retire("balances", 30 * 86_400, 10).await.unwrap(), 0);
    run(&mut working, "COMMIT").await.unwrap();
    assert_eq!(consumer.retire("balances", 30 * 86_400, 10).await.unwrap(), 3);
}

#[tokio::test]
async fn the_running_consumer_retires_by_itself() {
    let db = TestDb::new().await;
    db.sql("INSERT INTO event_inbox SELECT 'balances', gen_random_uuid(), now() - INTERVAL '31 days' FROM generate_series(1, 2500)").await;
    let keeper = tokio::spawn(symphony::consumer::keep_retention(
        db.database.consumer(),
        "balances".to_owned(),
        30,
    ));
    until("all old rows are gone", async || db.count("event_inbox").await == 0).await;
    keeper.abort();
}

#[tokio::test]
async fn the_server_ends_a_transaction_whose_consumer_was_lost() {
    let db = TestDb::new().await;
    let event = Uuid::new_v4();
    let short = std::time::Duration::from_millis(100);
    let mut lost = db.database.consumer().begin(ActsAs::Login, short).await.unwrap();
    assert!(record(lost.connection(), event, None).await.unwrap());
    // Nobody commits, nobody rolls back; the next delivery waits for no more than that.
    let mut next = db.as_role("symphony_consumer").await;
    assert!(record(&mut next, event, None).await.unwrap());
    drop(lost);
}
