//! The outbox: claims and their shares, retries, leases, repair, evidence, pauses, and a ledger that only grows.

use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use super::{Item, Settled, manifest};
use crate::support::TestDb;

const EXECUTOR: &str = "symphony_executor";

/// One app whose only item is held by `w`.
async fn with_one_item() -> (TestDb, Item) {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("t", "kv", "*")])).await;
    db.kv_set("shop", "a", &json!(1)).await;
    let item = db.claim_item("w").await;
    (db, item)
}

async fn repair(db: &TestDb) -> Vec<(Uuid, bool)> {
    sqlx::query("SELECT * FROM repair_trigger_outbox_leases(100, 'r')")
        .fetch_all(&mut db.as_role(EXECUTOR).await)
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get("id"), row.get("failed")))
        .collect()
}

#[tokio::test]
async fn retries_go_by_the_triggers_own_list_and_then_it_has_failed() {
    let (db, mut item) = with_one_item().await;
    for (attempt, pause) in [(1, 10.0), (2, 100.0)] {
        let settled = db.settle("w", &item, "RETRYABLE", json!([])).await;
        assert_eq!(
            settled,
            Settled {
                result: "OK".into(),
                attempt_no: Some(attempt),
                outcome: "RETRYABLE BROKEN".into()
            }
        );
        let wait: f64 = db
            .one("SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::float8 FROM trigger_outbox_pending")
            .await;
        assert!(wait > pause - 5.0 && wait <= pause, "after attempt {attempt}: {wait}");
        assert!(db.claim_items("w", 10).await.is_empty(), "not before its time");
        db.make_items_due().await;
        item = db.claim_item("w").await;
        assert_eq!(item.attempt_count, attempt);
    }
    let last = db.settle("w", &item, "RETRYABLE", json!([])).await;
    assert_eq!(last.outcome, "FAILED BROKEN");
    assert_eq!(
        db.item_ledger(item.id).await,
        ["1 RETRYABLE BROKEN", "2 RETRYABLE BROKEN", "3 FAILED BROKEN"]
    );
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
    assert_eq!(db.execution(item.id).await["attempts"], json!(3));
    db.assert_items_hold().await;
}

/// Nobody was there to take it.
async fn away(db: &TestDb, item: &Item) -> String {
    db.one_as(
        EXECUTOR,
        &format!(
            "SELECT concat_ws(' ', attempt_no, state, error_code) FROM complete_trigger_outbox_attempts('w', \
             ARRAY['{}'::uuid], ARRAY['{}'::uuid], ARRAY['RETRYABLE'], p_error_codes => ARRAY['CONNECT_FAILED'], \
             p_spends_attempts => ARRAY[false])",
            item.id, item.token
        ),
    )
    .await
}

#[tokio::test]
async fn where_nobody_is_there_to_take_it_no_attempt_is_counted_until_a_day_is_over() {
    let (db, mut item) = with_one_item().await;
    for attempt in 1..=12 {
        assert_eq!(away(&db, &item).await, format!("{attempt} RETRYABLE CONNECT_FAILED"));
        let wait: f64 = db
            .one("SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::float8 FROM trigger_outbox_pending")
            .await;
        let pause = f64::from(300.min(1 << (attempt - 1)));
        assert!(wait > pause - 5.0 && wait <= pause, "after {attempt}: {wait}");
        db.make_items_due().await;
        item = db.claim_item("w").await;
        assert_eq!(item.attempt_count, 0);
    }
    db.sql("ALTER TABLE trigger_outbox_attempts DISABLE TRIGGER USER").await;
    for attempt in 13.. {
        // Nobody tried for two hours, of which one counts.
        db.sql(
            "UPDATE trigger_outbox_attempts SET completed_at = completed_at - INTERVAL '2 hours'",
        )
        .await;
        if attempt == 36 {
            break;
        }
        assert_eq!(away(&db, &item).await, format!("{attempt} RETRYABLE CONNECT_FAILED"));
        db.make_items_due().await;
        item = db.claim_item("w").await;
    }
    assert_eq!(away(&db, &item).await, "36 FAILED GIVEN_UP");
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
}

#[tokio::test]
async fn the_last_pause_of_the_list_is_repeated() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("t", "kv", "*")]);
    shop["triggers"][0]["attempts"] = json!(5);
    shop["triggers"][0]["backoffSeconds"] = json!([1, 50]);
    db.push("shop", &shop).await;
    db.kv_set("shop", "a", &json!(1)).await;
    for _ in 0..4 {
        let item = db.claim_item("w").await;
        db.settle("w", &item, "RETRYABLE", json!([])).await;
        let wait: f64 = db
            .one("SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::float8 FROM trigger_outbox_pending")
            .await;
        assert!(wait <= if item.attempt_count == 0 { 1.0 } else { 50.0 });
        assert!(item.attempt_count == 0 || wait > 45.0);
        db.make_items_due().await;
    }
}

#[tokio::test]
async fn a_repeated_completion_is_answered_as_the_first_and_applies_once() {
    let (db, item) = with_one_item().await;
    db.sql("DELETE FROM triggers").await;
    let effects = json!([{"kind": "kv_set", "key": "n", "value": 1}]);
    let first = db.settle("w", &item, "DISPATCHED", effects.clone()).await;
    let second = db.settle("w", &item, "DISPATCHED", effects).await;
    assert_eq!(first, second);
    assert_eq!(db.count("kv_entries WHERE key = 'n' AND version = 1").await, 1);
    assert_eq!(db.item_ledger(item.id).await, ["1 DISPATCHED"]);
    let other = db.settle("w2", &item, "FAILED", json!([])).await;
    assert_eq!(other.result, "P7001", "another worker is told that it has ended");
}

#[tokio::test]
async fn a_repeated_retry_is_answered_as_the_first_while_another_worker_has_the_item() {
    let (db, item) = with_one_item().await;
    let first = db.settle("w", &item, "RETRYABLE", json!([])).await;
    db.make_items_due().await;
    let again = db.claim_item("w2").await;
    assert_eq!(db.settle("w", &item, "RETRYABLE", json!([])).await, first);
    assert_eq!(db.item_ledger(item.id).await, ["1 RETRYABLE BROKEN"]);
    db.done("w2", &again, json!([])).await;
}

#[tokio::test]
async fn a_lost_lease_can_neither_complete_nor_apply() {
    let (db, item) = with_one_item().await;
    let effects = json!([{"kind": "kv_set", "key": "n", "value": 1}]);
    let thief = Item { token: Uuid::new_v4(), ..item.clone() };
    assert_eq!(db.settle("w", &thief, "DISPATCHED", effects.clone()).await.result, "P7002");
    assert_eq!(db.settle("x", &item, "DISPATCHED", effects.clone()).await.result, "P7002");
    db.expire_items().await;
    assert_eq!(db.settle("w", &item, "DISPATCHED", effects.clone()).await.result, "P7002");
    assert_eq!(repair(&db).await, [(item.id, false)]);
    assert_eq!(db.settle("w", &item, "DISPATCHED", effects.clone()).await.result, "P7002");
    db.make_items_due().await;
    let second = db.claim_item("w2").await;
    assert_eq!(db.settle("w", &item, "DISPATCHED", effects).await.result, "P7002");
    assert_eq!(db.kv("n").await, None);
    db.done("w2", &second, json!([])).await;
    assert_eq!(db.item_ledger(item.id).await, ["1 ZOMBIE_REQUEUE WORKER_LOST", "2 DISPATCHED"]);
}

#[tokio::test]
async fn a_worker_lost_in_the_last_attempt_has_failed_the_item_and_cannot_take_it_back() {
    let (db, _) = with_one_item().await;
    db.expire_items().await;
    db.sql("UPDATE trigger_outbox_pending SET attempt_count = 2").await;
    let (id, token): (Uuid, Uuid) = (
        db.one("SELECT id FROM trigger_outbox_pending").await,
        db.one("SELECT lease_token FROM trigger_outbox_pending").await,
    );
    assert_eq!(repair(&db).await, [(id, true)]);
    assert_eq!(db.item_ledger(id).await, ["1 FAILED WORKER_LOST"]);
    let item = Item {
        id,
        token,
        source_kind: "kv".into(),
        script_id: None,
        payload: Value::Null,
        depth: 0,
        root: id,
        attempt_count: 2,
    };
    let late = db
        .settle("w", &item, "DISPATCHED", json!([{"kind": "kv_set", "key": "n", "value": 1}]))
        .await;
    assert_eq!(late.result, "P7001", "the repair's row is not this worker's own report");
    assert_eq!(db.kv("n").await, None);
}

#[tokio::test]
async fn a_lost_workers_outcome_is_kept_as_evidence_only() {
    let (db, item) = with_one_item().await;
    db.expire_items().await;
    repair(&db).await;
    let late = |token: Uuid, state: &str| {
        format!(
            "SELECT event_no FROM record_late_trigger_outcome('{}', '{token}', 'w', '{state}', 'E', 'm')",
            item.id
        )
    };
    db.one_as::<i64>(EXECUTOR, &late(item.token, "DISPATCHED")).await;
    assert_eq!(db.item_ledger(item.id).await, ["1 ZOMBIE_REQUEUE WORKER_LOST"]);
    assert_eq!(db.count("trigger_outbox_pending").await, 1);
    let details: Value =
        db.one("SELECT details FROM trigger_outbox_events WHERE event_type = 'LATE_OUTCOME'").await;
    assert_eq!(
        (&details["state"], &details["lease_token"]),
        (&json!("DISPATCHED"), &json!(item.token))
    );
    assert!(db.refusal(EXECUTOR, &late(Uuid::new_v4(), "DISPATCHED")).await.starts_with("P7002"));
    assert!(db.refusal(EXECUTOR, &late(item.token, "PENDING")).await.starts_with("P7003"));
}

#[tokio::test]
async fn repair_leaves_leases_that_hold_and_is_told_in_the_narrative() {
    let (db, item) = with_one_item().await;
    assert!(repair(&db).await.is_empty());
    db.expire_items().await;
    assert_eq!(repair(&db).await, [(item.id, false)]);
    assert!(repair(&db).await.is_empty());
    let details: Value = db
        .one(
            "SELECT details FROM trigger_outbox_events WHERE event_type = 'LEASE_EXPIRED_REPAIRED'",
        )
        .await;
    assert_eq!((&details["claimed_by"], &details["failed"]), (&json!("w"), &json!(false)));
}

#[tokio::test]
async fn what_is_returned_unsent_is_due_at_once_and_counts_no_attempt() {
    let (db, item) = with_one_item().await;
    let give_back = format!(
        "SELECT returned FROM return_unsent_trigger_outbox_leases('w', '{{{}}}', '{{{}}}')",
        item.id, item.token
    );
    assert!(db.one_as::<bool>(EXECUTOR, &give_back).await);
    assert!(!db.one_as::<bool>(EXECUTOR, &give_back).await, "it is not held any more");
    assert!(db.item_ledger(item.id).await.is_empty());
    let again = db.claim_item("w2").await;
    assert_eq!((again.id, again.attempt_count), (item.id, 0));
    assert_eq!(db.settle("w", &item, "DISPATCHED", json!([])).await.result, "P7002");
}

#[tokio::test]
async fn a_renewal_extends_what_is_held_and_revives_nothing() {
    let (db, item) = with_one_item().await;
    let renew = |seconds: i32| {
        format!(
            "SELECT renewed FROM renew_trigger_outbox_leases('w', '{{{}}}', '{{{}}}', {seconds})",
            item.id, item.token
        )
    };
    assert!(db.one_as::<bool>(EXECUTOR, &renew(3600)).await);
    let held: f64 = db.one("SELECT extract(epoch FROM lease_expires_at - clock_timestamp())::float8 FROM trigger_outbox_pending").await;
    assert!(held > 3500.0);
    assert!(db.one_as::<bool>(EXECUTOR, &renew(1)).await);
    assert_eq!(db.count("trigger_outbox_pending WHERE lease_expires_at > clock_timestamp() + INTERVAL '3500 seconds'").await, 1, "never shortened");
    db.expire_items().await;
    assert!(!db.one_as::<bool>(EXECUTOR, &renew(60)).await);
}

#[tokio::test]
async fn an_app_with_a_deep_backlog_does_not_keep_another_apps_item_out_of_the_next_claim() {
    let db = TestDb::new().await;
    for app in ["big", "small"] {
        db.push(app, &manifest(&[("t", "kv", "*")])).await;
    }
    db.sql("SELECT count(kv_set('big', 'k' || n, '1')) FROM generate_series(1, 5000) n").await;
    db.kv_set("small", "only", &json!(1)).await;
    let first = db.claim_items("w", 10).await;
    assert_eq!(first.len(), 10);
    assert_eq!(first.iter().filter(|item| item.payload["key"] == json!("only")).count(), 1);
    // What the small one does not use goes to the big one.
    assert_eq!(db.claim_items("w", 100).await.len(), 100);
    let capped: i64 = db
        .one_as(EXECUTOR, "SELECT count(*) FROM claim_trigger_outbox_batch(100, 'w', 60, 7)")
        .await;
    assert_eq!(capped, 7, "at most so many of one app");
    assert_eq!(db.count("trigger_outbox_pending WHERE lease_token IS NULL").await, 5001 - 117);
}

#[tokio::test]
async fn what_is_due_longest_is_handed_out_first_and_nothing_twice() {
    let db = TestDb::new().await;
    db.push("shop", &manifest(&[("t", "kv", "*")])).await;
    for n in 0..6 {
        db.kv_set("shop", &format!("k{n}"), &json!(n)).await;
    }
    let mut keys = Vec::new();
    loop {
        let items = db.claim_items("w", 4).await;
        if items.is_empty() {
            break;
        }
        keys.extend(items.iter().map(|item| item.payload["key"].as_str().unwrap().to_owned()));
    }
    assert_eq!(keys, ["k0", "k1", "k2", "k3", "k4", "k5"]);
}

#[tokio::test]
async fn a_paused_app_or_lane_hands_nothing_out_and_loses_nothing() {
    let db = TestDb::new().await;
    for app in ["shop", "other"] {
        db.push(app, &manifest(&[("t", "kv", "*")])).await;
    }
    let configure =
        |rest: &str| format!("SELECT paused FROM configure_trigger_lane('dana', 'test', {rest})");
    let operator = "symphony_operator";
    assert!(db.one_as::<bool>(operator, &configure("p_app => 'shop', p_paused => true")).await);
    db.kv_set("shop", "a", &json!(1)).await;
    db.kv_set("other", "b", &json!(1)).await;
    let item = db.claim_item("w").await;
    assert_eq!(item.payload["key"], json!("b"));
    assert!(db.one_as::<bool>(operator, &configure("p_paused => true")).await);
    assert!(!db.one_as::<bool>(operator, &configure("p_app => 'shop', p_paused => false")).await);
    assert!(db.claim_items("w", 10).await.is_empty());
    db.done("w", &item, json!([])).await;
    assert!(!db.one_as::<bool>(operator, &configure("p_paused => false")).await);
    assert_eq!(db.claim_item("w").await.payload["key"], json!("a"));
    let told: Vec<String> = db
        .one("SELECT array_agg(event_type ORDER BY event_no) FROM trigger_outbox_events WHERE event_type IN ('PAUSED', 'RESUMED')")
        .await;
    assert_eq!(told, ["PAUSED", "PAUSED", "RESUMED", "RESUMED"]);
    for (rest, expected) in [
        ("p_depth_max => 101", "P7005 p_depth_max is 101"),
        ("p_app => 'shop', p_depth_max => 3", "P7005 p_app: only p_paused"),
        ("p_app => 'none', p_paused => true", "P7007"),
        ("'DANA', p_paused => true", "P7008"),
    ] {
        let refusal = db.refusal(operator, &configure(rest)).await;
        assert!(refusal.starts_with(expected), "{rest}: {refusal}");
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_together_are_refused_whole() {
    let (db, item) = with_one_item().await;
    let complete = |rest: &str| format!("SELECT * FROM complete_trigger_outbox_attempts({rest})");
    let (id, token) = (item.id, item.token);
    for (call, expected) in [
        (complete("'w', '{}', '{}', '{}'"), "P7005 p_ids is 0"),
        (complete(&format!("' ', '{{{id}}}', '{{{token}}}', '{{DISPATCHED}}'")), "P7005 p_worker_id is blank"),
        (complete(&format!("'w', '{{{id}}}', '{{}}', '{{DISPATCHED}}'")), "P7005 p_lease_tokens"),
        (complete(&format!("'w', '{{{id}}}', '{{{token}}}', '{{DISPATCHED}}', '{{}}'")), "P7005 p_results"),
        (complete(&format!("'w', '{{{id},{id}}}', '{{{token},{token}}}', '{{DISPATCHED,FAILED}}'")), "P7005 p_ids names an item twice"),
        (complete(&format!("'w', '{{{id},NULL}}', '{{{token},NULL}}', '{{DISPATCHED,FAILED}}'")), "P7005 p_ids names an item twice"),
        ("SELECT * FROM claim_trigger_outbox_batch(0, 'w', 60)".into(), "P7005 p_batch_size is 0"),
        ("SELECT * FROM claim_trigger_outbox_batch(1, 'w', 3601)".into(), "P7005 p_lease_seconds is 3601"),
        ("SELECT * FROM claim_trigger_outbox_batch(1, 'w', 60, 0)".into(), "P7005 p_app_items_max is 0"),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT * FROM claim_trigger_outbox_batch(1, 'w', 60)".into(), "P7005 transaction_isolation"),
    ] {
        let refusal = db.refusal(EXECUTOR, &call).await;
        assert!(refusal.starts_with(expected), "{call}: {refusal}");
    }
    assert_eq!(db.settle("w", &item, "PENDING", json!([])).await.result, "P7003");
    db.done("w", &item, json!([])).await;
}

#[tokio::test]
async fn the_ledger_and_the_narrative_only_grow() {
    let (db, item) = with_one_item().await;
    db.done("w", &item, json!([])).await;
    for table in ["trigger_outbox_attempts", "trigger_outbox_events"] {
        for sql in [
            format!("UPDATE {table} SET worker_id = 'x'"),
            format!("DELETE FROM {table}"),
            format!("TRUNCATE {table}"),
            format!("SET session_replication_role = replica; DELETE FROM {table}"),
        ] {
            assert_ne!(db.refusal("NONE", &sql).await, "OK", "{sql}");
        }
        assert!(db.count(table).await > 0);
    }
}

#[tokio::test]
async fn an_item_has_one_terminal_outcome_even_by_hand() {
    let (db, item) = with_one_item().await;
    db.done("w", &item, json!([])).await;
    let second = "INSERT INTO trigger_outbox_attempts (id, attempt_no, app_id, source_kind, root_execution_id, state, worker_id) \
                  SELECT id, 2, app_id, source_kind, root_execution_id, 'FAILED', 'x' FROM trigger_outbox_attempts";
    assert!(db.refusal("NONE", second).await.starts_with("23505"));
}

#[tokio::test]
async fn no_function_that_shuns_sequential_scans_leaves_jit_on() {
    // The inflated cost of a scan that cannot be avoided switches it on: 15 ms for each row that fires.
    let db = TestDb::new().await;
    assert_eq!(
        db.count(
            "pg_proc WHERE proname ~ '(trigger|app|kv|message|cron)' AND 'enable_seqscan=off' = ANY (proconfig) \
             AND NOT 'jit=off' = ANY (proconfig)"
        )
        .await,
        0
    );
}
