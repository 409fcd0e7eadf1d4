//! Who waits for whom: the app first, everywhere, so that nobody waits in a circle.

use serde_json::json;
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use super::{Item, manifest, quoted, settle_on};
use crate::support::{TestDb, run, until};

const DELETE: &str = "SELECT * FROM delete_app('shop', 'dana', 'test')";

/// Run something on a connection of its own, which will have to wait for somebody.
fn start(mut connection: PgConnection, sql: String) -> JoinHandle<String> {
    tokio::spawn(async move {
        match run(&mut connection, &sql).await {
            Ok(()) => "OK".to_owned(),
            Err(error) => error.code().to_owned(),
        }
    })
}

/// So many sessions of this database wait for a lock.
async fn until_waiting(db: &TestDb, sessions: i64) {
    until("sessions wait for a lock", async || {
        db.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
            .await
            == sessions
    })
    .await;
}

/// An app with a clock, a dead letter and two items, held by `w`.
async fn with_two_items() -> (TestDb, Vec<Item>) {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &manifest(&[("q", "queue", "jobs"), ("c", "cron", "* * * * *"), ("d", "dead_letter", "*")]),
    )
    .await;
    for n in 0..2 {
        db.send("shop", "jobs", &json!(n)).await;
    }
    let items = db.claim_items("w", 10).await;
    (db, items)
}

/// One transaction does the first, then a deletion comes, then the transaction does the second: it must not be a victim.
async fn outlives_a_deletion(db: &TestDb, first: &str, second: &str) {
    let mut worker = db.as_role("symphony_executor").await;
    run(&mut worker, "BEGIN").await.unwrap();
    run(&mut worker, first).await.unwrap();
    let deletion = start(db.as_role("symphony_operator").await, DELETE.to_owned());
    until_waiting(db, 1).await;
    run(&mut worker, second).await.unwrap_or_else(|error| panic!("{second}: {error}"));
    run(&mut worker, "COMMIT").await.unwrap();
    assert_eq!(deletion.await.unwrap(), "OK");
    assert_eq!(db.count("apps").await + db.count("trigger_outbox_pending").await, 0);
    db.assert_items_hold().await;
}

#[tokio::test]
async fn a_completion_and_a_deletion_do_not_wait_in_a_circle() {
    let (db, items) = with_two_items().await;
    let complete = |item: &Item, effects: &str| {
        format!(
            "SELECT * FROM complete_trigger_outbox_attempts('w', '{{{}}}', '{{{}}}', '{{DISPATCHED}}', p_effects => ARRAY['{effects}'::jsonb])",
            item.id, item.token
        )
    };
    let effects = r#"[{"kind": "kv_set", "key": "a", "value": 1}]"#;
    outlives_a_deletion(&db, &complete(&items[0], "[]"), &complete(&items[1], effects)).await;
    assert_eq!(db.count("trigger_outbox_attempts WHERE state = 'DISPATCHED'").await, 2);
}

#[tokio::test]
async fn a_repair_and_a_deletion_do_not_wait_in_a_circle() {
    let (db, items) = with_two_items().await;
    db.expire_items().await;
    // The first is tried again; the second has failed, and fires a dead letter.
    db.sql(&format!(
        "UPDATE trigger_outbox_pending SET attempt_count = 2, lease_expires_at = lease_expires_at + INTERVAL '0.5 seconds' WHERE id = '{}'",
        items[1].id
    ))
    .await;
    let repair = "SELECT * FROM repair_trigger_outbox_leases(1, 'r')";
    outlives_a_deletion(&db, repair, repair).await;
    assert_eq!(db.item_ledger(items[1].id).await, ["1 FAILED WORKER_LOST"]);
}

#[tokio::test]
async fn a_tick_and_a_deletion_do_not_wait_in_a_circle() {
    let (db, _) = with_two_items().await;
    db.sql("UPDATE trigger_cron SET next_tick_at = '2026-01-01T00:00:00Z'").await;
    let trigger: uuid::Uuid = db.one("SELECT id FROM triggers WHERE source_kind = 'cron'").await;
    let tick = |minute: i32, fire: bool| {
        format!(
            "SELECT fire_cron_tick('{trigger}', '2026-01-01T00:0{minute}:00Z', '2026-01-01T00:0{}:00Z', {fire})",
            minute + 1
        )
    };
    outlives_a_deletion(&db, &tick(0, false), &tick(1, true)).await;
}

#[tokio::test]
async fn of_two_deletions_one_deletes_and_the_other_finds_nothing() {
    let (db, _) = with_two_items().await;
    let mut producer = db.as_role("symphony_ingest").await;
    run(&mut producer, "BEGIN; SELECT kv_set('shop', 'a', '1')").await.unwrap();
    let deletions = [0, 1].map(|_| db.as_role("symphony_operator"));
    let mut started = Vec::new();
    for connection in deletions {
        started.push(start(connection.await, DELETE.to_owned()));
    }
    until_waiting(&db, 2).await;
    run(&mut producer, "COMMIT").await.unwrap();
    let mut answers = Vec::new();
    for deletion in started {
        answers.push(deletion.await.unwrap());
    }
    answers.sort();
    assert_eq!(answers, ["OK", "P7007"]);
}

#[tokio::test]
async fn a_push_that_waited_for_a_deletion_makes_the_app_anew() {
    let (db, _) = with_two_items().await;
    let mut operator = db.as_role("symphony_operator").await;
    run(&mut operator, &format!("BEGIN; {DELETE}")).await.unwrap();
    let push = format!("SELECT push_app('shop', {}, 'dana')", quoted(&manifest(&[])));
    let pushing = start(db.as_role("symphony_operator").await, push);
    until_waiting(&db, 1).await;
    run(&mut operator, "COMMIT").await.unwrap();
    assert_eq!(pushing.await.unwrap(), "OK");
    assert_eq!(db.count("apps").await, 1);
}

#[tokio::test]
async fn the_second_of_two_who_write_a_new_key_at_once_is_told_what_the_first_wrote() {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("k", "kv", "*")])).await;
    let mut first = db.as_role("symphony_ingest").await;
    run(&mut first, "BEGIN; SELECT kv_set('shop', 'new', '1')").await.unwrap();
    let second =
        start(db.as_role("symphony_ingest").await, "SELECT kv_set('shop', 'new', '2')".to_owned());
    until_waiting(&db, 1).await;
    run(&mut first, "COMMIT").await.unwrap();
    assert_eq!(second.await.unwrap(), "OK");
    let items = db.claim_items("w", 10).await;
    let told: Vec<_> =
        items.iter().map(|item| (&item.payload["previous"], &item.payload["value"])).collect();
    assert_eq!(told, [(&json!(null), &json!(1)), (&json!(1), &json!(2))]);
}

#[tokio::test]
async fn a_sender_with_an_older_snapshot_than_the_consumer_is_told_to_repeat() {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[])).await;
    let mut sender = db.as_role("symphony_ingest").await;
    run(&mut sender, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
    let refused = run(&mut sender, "SELECT send_to_queue('shop', 'jobs', '1')").await.unwrap_err();
    assert_eq!(refused.code(), "40001", "its message would wait for the next push");
    run(&mut sender, "ROLLBACK").await.unwrap();
    assert!(db.send("shop", "jobs", &json!(1)).await);
}

#[tokio::test]
async fn a_completion_that_waited_for_a_deletion_is_told_that_the_item_has_ended() {
    let (db, items) = with_two_items().await;
    let mut operator = db.as_role("symphony_operator").await;
    run(&mut operator, &format!("BEGIN; {DELETE}")).await.unwrap();
    let (mut worker, item) = (db.as_role("symphony_executor").await, items[0].clone());
    let completing = tokio::spawn(async move {
        let effects = json!([{"kind": "kv_set", "key": "a", "value": 1}]);
        settle_on(&mut worker, "w", &item, "DISPATCHED", &effects).await.unwrap()
    });
    until_waiting(&db, 1).await;
    run(&mut operator, "COMMIT").await.unwrap();
    assert_eq!(completing.await.unwrap().result, "P7001");
}
