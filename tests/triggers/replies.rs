//! Somebody waits: one attempt, nothing after the deadline, and a wake-up that carries only a name.

use std::time::Duration;

use serde_json::json;
use sqlx::postgres::PgListener;
use uuid::Uuid;

use super::{manifest, quoted};
use crate::support::TestDb;

const EXECUTOR: &str = "symphony_executor";

/// An app with one route, and dead letters.
async fn with_route() -> TestDb {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("d", "dead_letter", "*")]);
    shop["routes"] = json!([{"method": "GET", "path": "/", "script": "run", "attempts": 5}]);
    db.push("shop", &shop).await;
    db
}

#[tokio::test]
async fn what_somebody_waits_for_is_tried_once() {
    let db = with_route().await;
    db.request("shop", Uuid::new_v4()).await;
    let item = db.claim_item("w").await;
    let settled = db.settle("w", &item, "RETRYABLE", json!([])).await;
    assert_eq!(settled.outcome, "FAILED BROKEN");
    assert_eq!(db.count(&format!("trigger_outbox_pending WHERE id = '{}'", item.id)).await, 0);
}

#[tokio::test]
async fn a_route_that_nobody_waits_for_is_tried_as_often_as_it_says() {
    let db = with_route().await;
    let route: Uuid = db.one("SELECT id FROM routes").await;
    let call = format!(
        "SELECT id FROM enqueue_trigger_outbox('shop', 'http', '{route}', {})",
        quoted(&json!({"path": "/"}))
    );
    let id: Uuid = db.one_as("symphony_ingest", &call).await;
    let item = db.claim_item("w").await;
    assert_eq!((item.id, item.source_kind.as_str()), (id, "http"));
    assert_eq!(db.settle("w", &item, "RETRYABLE", json!([])).await.outcome, "RETRYABLE BROKEN");
}

#[tokio::test]
async fn past_the_deadline_it_is_not_claimed_and_repair_ends_it() {
    let db = with_route().await;
    let reply_to = Uuid::new_v4();
    let id = db.request("shop", reply_to).await;
    db.pass_deadlines().await;
    assert!(db.claim_items("w", 10).await.is_empty());
    let failed: bool =
        db.one_as(EXECUTOR, "SELECT failed FROM repair_trigger_outbox_leases(10, 'r')").await;
    assert!(failed);
    assert_eq!(db.item_ledger(id).await, ["1 FAILED REPLY_DEADLINE"]);
    assert_eq!(db.execution(id).await["reply_to"], json!(reply_to));
    assert_eq!(db.claim_item("w").await.source_kind, "dead_letter");
}

#[tokio::test]
async fn a_late_completion_applies_nothing_and_has_failed() {
    let db = with_route().await;
    db.request("shop", Uuid::new_v4()).await;
    let item = db.claim_item("w").await;
    db.pass_deadlines().await;
    let effects = json!([{"kind": "kv_set", "key": "n", "value": 1}]);
    let late = db.settle("w", &item, "DISPATCHED", effects.clone()).await;
    assert_eq!((late.result.as_str(), late.outcome.as_str()), ("OK", "FAILED REPLY_DEADLINE"));
    assert_eq!(db.kv("n").await, None);
    assert_eq!(
        db.execution(item.id).await["result"],
        json!(null),
        "nobody reads an answer that came too late"
    );
    assert_eq!(db.settle("w", &item, "DISPATCHED", effects).await, late, "told again the same");
    db.assert_items_hold().await;
}

#[tokio::test]
async fn an_expired_lease_is_a_lost_worker_and_never_requeued() {
    let db = with_route().await;
    let id = db.request("shop", Uuid::new_v4()).await;
    let item = db.claim_item("w").await;
    db.expire_items().await;
    let failed: bool =
        db.one_as(EXECUTOR, "SELECT failed FROM repair_trigger_outbox_leases(10, 'r')").await;
    assert!(failed);
    assert_eq!(db.item_ledger(id).await, ["1 FAILED WORKER_LOST"]);
    assert_eq!(db.count("trigger_outbox_pending WHERE reply_to IS NOT NULL").await, 0);
    assert_eq!(db.settle("w", &item, "DISPATCHED", json!([])).await.result, "P7001");
}

#[tokio::test]
async fn the_wake_up_carries_only_the_replys_name_and_the_answer_is_in_the_execution() {
    let db = with_route().await;
    let mut listener = PgListener::connect_with(db.database.pool()).await.unwrap();
    listener.listen("trigger_reply").await.unwrap();
    for state in ["DISPATCHED", "FAILED"] {
        let reply_to = Uuid::new_v4();
        let id = db.request("shop", reply_to).await;
        let item = db.claim_items("w", 10).await.into_iter().find(|item| item.id == id).unwrap();
        db.settle("w", &item, state, json!([])).await;
        let told = tokio::time::timeout(Duration::from_secs(10), listener.recv())
            .await
            .expect("a wake-up")
            .unwrap();
        assert_eq!(told.payload(), reply_to.to_string());
        let answer: (String, Option<serde_json::Value>) = sqlx::query_as(
            "SELECT state::text, result FROM trigger_outbox_executions WHERE reply_to = $1",
        )
        .bind(reply_to)
        .fetch_one(&mut db.as_role(EXECUTOR).await)
        .await
        .unwrap();
        assert_eq!(answer, (state.to_owned(), Some(json!({"ok": true}))));
    }
}
