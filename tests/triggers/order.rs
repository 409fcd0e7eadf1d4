//! Messages in order, in SQL: those of one key, and those of a serial queue, one after another.

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use super::{Item, manifest};
use crate::support::TestDb;

/// A message with a key, from a service.
async fn send_in_order(db: &TestDb, queue: &str, message: i32, key: &str) {
    let send = format!("SELECT send_to_queue('shop', '{queue}', '{message}', p_key => '{key}')");
    db.one_as::<bool>("symphony_ingest", &send).await;
}

fn messages(items: &[Item]) -> Vec<Value> {
    items.iter().map(|item| item.payload["message"].clone()).collect()
}

#[tokio::test]
async fn messages_with_one_key_run_one_after_another_and_keys_side_by_side() {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[])).await;
    // Before anybody consumes them, too.
    for (message, key) in [(1, "a"), (2, "a"), (11, "b")] {
        send_in_order(&db, "jobs", message, key).await;
    }
    db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
    send_in_order(&db, "jobs", 3, "a").await;
    db.send("shop", "jobs", &json!(21)).await;
    let first = db.claim_items("w", 10).await;
    assert_eq!(messages(&first), [json!(1), json!(11), json!(21)]);
    assert!(db.claim_items("other", 10).await.is_empty(), "the rest awaits its turn");
    // Tried again later: what comes after it waits.
    let settled = db.settle("w", &first[0], "RETRYABLE", json!([])).await;
    assert_eq!(settled.outcome, "RETRYABLE BROKEN");
    assert!(db.claim_items("w", 10).await.is_empty());
    db.make_items_due().await;
    let again = db.claim_item("w").await;
    assert_eq!(again.payload["message"], json!(1));
    // A lost worker's comes back first, and one that has failed for good lets the next go.
    db.sql("UPDATE trigger_outbox_pending SET attempt_count = 2 WHERE lease_token IS NOT NULL")
        .await;
    db.expire_items().await;
    db.one_as::<i64>(
        "symphony_executor",
        "SELECT count(*) FROM repair_trigger_outbox_leases(10, 'r')",
    )
    .await;
    assert_eq!(db.item_ledger(again.id).await, ["1 RETRYABLE BROKEN", "2 FAILED WORKER_LOST"]);
    let second = db.claim_item("w").await;
    assert_eq!(second.payload["message"], json!(2));
    let more = json!([{ "kind": "queue_send", "queue": "jobs", "message": 4, "key": "a" }]);
    db.done("w", &second, more).await;
    for message in [3, 4] {
        let item = db.claim_item("w").await;
        assert_eq!(item.payload["message"], json!(message));
        db.done("w", &item, json!([])).await;
    }
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
    db.assert_items_hold().await;
}

#[tokio::test]
async fn a_replayed_message_of_a_serial_queue_waits_for_its_turn() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("q", "queue", "jobs"), ("m", "queue", "mail")]);
    shop["queues"] = json!([{ "name": "jobs", "serial": true }, "mail"]);
    db.push("shop", &shop).await;
    let replay = async |id: uuid::Uuid| {
        let act =
            format!("SELECT replay_id FROM replay_trigger_execution('{id}', 'dana', 'fixed')");
        db.one_as::<uuid::Uuid>("symphony_operator", &act).await
    };
    db.send("shop", "jobs", &json!(1)).await;
    let failed = db.claim_item("w").await;
    db.settle("w", &failed, "FAILED", json!([])).await;
    db.send("shop", "jobs", &json!(2)).await;
    let running = db.claim_item("w").await;
    let again = replay(failed.id).await;
    assert!(db.claim_items("other", 10).await.is_empty(), "the replay is not beside message 2");
    db.done("w", &running, json!([])).await;
    let second = db.claim_item("w").await;
    assert_eq!((second.id, &second.payload["message"]), (again, &json!(1)));
    db.send("shop", "jobs", &json!(3)).await;
    assert!(db.claim_items("other", 10).await.is_empty(), "nor is message 3 beside the replay");
    db.done("w", &second, json!([])).await;
    let third = db.claim_item("w").await;
    assert_eq!(third.payload["message"], json!(3));
    db.done("w", &third, json!([])).await;
    // Without an order nothing waits.
    db.send("shop", "mail", &json!(4)).await;
    let failed = db.claim_item("w").await;
    db.settle("w", &failed, "FAILED", json!([])).await;
    db.send("shop", "mail", &json!(5)).await;
    replay(failed.id).await;
    assert_eq!(db.claim_items("w", 10).await.len(), 2);
    db.assert_items_hold().await;
}

#[tokio::test]
async fn a_message_keeps_the_order_it_was_sent_in_when_its_queue_becomes_serial_or_no_longer_is() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("q", "queue", "jobs")]);
    db.push("shop", &shop).await;
    db.send("shop", "jobs", &json!("before")).await;
    shop["queues"] = json!([{ "name": "jobs", "serial": true }, "mail"]);
    db.push("shop", &shop).await;
    db.send("shop", "jobs", &json!(1)).await;
    db.send("shop", "jobs", &json!(2)).await;
    let first = db.claim_items("w", 10).await;
    assert_eq!(messages(&first), [json!("before"), json!(1)], "the first has no order");
    shop["queues"] = json!(["jobs", "mail"]);
    db.push("shop", &shop).await;
    db.send("shop", "jobs", &json!("after")).await;
    assert_eq!(messages(&db.claim_items("w", 10).await), [json!("after")], "2 still waits for 1");
    db.done("w", &first[1], json!([])).await;
    assert_eq!(db.claim_item("w").await.payload["message"], json!(2));
}

#[tokio::test]
async fn a_serial_queue_runs_one_message_at_a_time() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("q", "queue", "jobs")]);
    shop["queues"] = json!([{ "name": "jobs", "serial": true }, "mail"]);
    db.push("shop", &shop).await;
    send_in_order(&db, "jobs", 1, "a").await;
    send_in_order(&db, "jobs", 2, "b").await;
    db.send("shop", "jobs", &json!(3)).await;
    for message in 1..=3 {
        let item = db.claim_item("w").await;
        assert_eq!(item.payload["message"], json!(message));
        db.done("w", &item, json!([])).await;
    }
    for (queues, expected) in [
        (json!([{ "name": "jobs", "serial": 1 }]), "P7005 queues[0].serial must be true or false"),
        (
            json!([{ "name": "jobs", "fifo": true }]),
            "P7005 queues[0].fifo is not known: it has name, serial",
        ),
        (
            json!([{ "serial": true }]),
            "P7005 queues must be names of letters, digits, dots, hyphens and underscores",
        ),
        (json!(["jobs", { "name": "jobs" }]), "P7005 queue jobs is there twice"),
    ] {
        shop["queues"] = queues;
        let push = format!("SELECT push_app('shop', {}, 'dana')", super::quoted(&shop));
        assert_eq!(db.refusal("symphony_operator", &push).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_and_workers_that_race_over_one_key_leave_nothing_behind() {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
    let (senders, each) = (4, 25);
    let mut tasks = tokio::task::JoinSet::new();
    for sender in 0..senders {
        let mut connection = db.as_role("symphony_ingest").await;
        tasks.spawn(async move {
            for n in 0..each {
                let sql = format!(
                    "SELECT send_to_queue('shop', 'jobs', '{}', p_key => 'k{}')",
                    sender * each + n,
                    n % 2
                );
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
            }
        });
    }
    let done = std::sync::Arc::new(std::sync::atomic::AtomicI32::new(0));
    for n in 0..3 {
        let (mut connection, done) = (db.as_role("symphony_executor").await, done.clone());
        tasks.spawn(async move {
            let worker = format!("w{n}");
            while done.load(std::sync::atomic::Ordering::SeqCst) < senders * each {
                let items = super::claim_on(&mut connection, &worker, 5).await;
                assert!(items.len() <= 2, "two keys, one of each at a time");
                for item in items {
                    let settled =
                        super::settle_on(&mut connection, &worker, &item, "DISPATCHED", &json!([]))
                            .await
                            .unwrap();
                    assert_eq!(settled.outcome, "DISPATCHED");
                    done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                }
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(
        db.count("trigger_outbox_pending").await,
        0,
        "nothing awaits a turn that never comes"
    );
    db.assert_items_hold().await;
}
