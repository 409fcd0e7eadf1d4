//! What fires scripts, and what they fire in turn.

use serde_json::json;
use symphony::lanes::triggers::Ticker;

use super::{Platform, request, route, script, trigger};
use crate::support::{TestDb, run, until};

#[tokio::test]
async fn a_request_an_entry_and_a_message_make_one_tree_and_every_effect_is_applied_once() {
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [
            script("take", "export default r => { kv.set('order/' + r.payload.body.id, r.payload.body); return { status: 201 } }"),
            script("watch", "export default r => { queue.send('receipts', { id: r.payload.value.id }) }"),
            script("receipt", "export default r => { kv.set('receipt/' + r.payload.message.id, true); pubsub.publish('sold', r.payload.message) }"),
            script("count", "export default () => { kv.set('count', (kv.get('count') ?? 0) + 1) }"),
        ],
        "routes": [route("POST", "/orders", "take")],
        "triggers": [
            trigger("orders", "kv", "order/*", "watch"),
            trigger("receipts", "queue", "receipts", "receipt"),
            trigger("sold", "pubsub", "sold", "count"),
        ],
        "queues": ["receipts"], "topics": ["sold"],
    }))
    .await;
    let platform = Platform::start(&db).await;
    let answer =
        request(platform.http(), "POST", "/apps/shop/orders", r#"{"id": "17"}"#).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    until("everything has run", async || db.entry("shop", "count").await.is_some()).await;
    assert_eq!(db.entry("shop", "count").await.as_deref(), Some("1"));
    assert_eq!(db.entry("shop", "receipt/17").await.as_deref(), Some("true"));
    let tree: Vec<String> = sqlx::query_scalar(
        "SELECT trigger_depth || ' ' || source_kind || ' ' || script_name FROM trigger_outbox_executions ORDER BY trigger_depth",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!(tree, ["0 http take", "1 kv watch", "2 queue receipt", "3 pubsub count"]);
    assert_eq!(
        db.one::<i64>("SELECT count(DISTINCT root_execution_id) FROM trigger_outbox_executions")
            .await,
        1
    );
    platform.stop().await;
}

#[tokio::test]
async fn an_entry_that_is_rolled_back_fires_nothing() {
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [script("s", "export default r => { kv.set('seen/' + r.payload.key, r.payload) }")],
        "triggers": [trigger("t", "kv", "a/*", "s")],
    }))
    .await;
    let platform = Platform::start(&db).await;
    let value = serde_json::value::to_raw_value(&json!(1)).unwrap();
    for (key, end) in [("a/kept", "COMMIT"), ("a/dropped", "ROLLBACK")] {
        let mut service = db.as_role("symphony_ingest").await;
        run(&mut service, "BEGIN").await.unwrap();
        symphony::triggers::kv_set(&mut service, "shop", key, &value, None).await.unwrap();
        run(&mut service, end).await.unwrap();
    }
    until("the kept one has fired", async || db.entry("shop", "seen/a/kept").await.is_some()).await;
    assert_eq!(db.count("trigger_outbox_executions").await, 1);
    platform.stop().await;
}

#[tokio::test]
async fn a_circle_of_triggers_stops_at_the_limit_and_a_failure_reaches_its_dead_letter_script() {
    let db = TestDb::new().await;
    db.push("loops", &json!({
        "scripts": [
            script("again", "export default r => { kv.set('n', (kv.get('n') ?? 0) + 1) }"),
            script("bury", "export default r => { kv.set('dead/' + r.payload.errorCode, r.payload.executionId) }"),
            script("fails", "export default () => { throw new Error('always') }"),
        ],
        "triggers": [
            trigger("circle", "kv", "n", "again"),
            trigger("start", "kv", "start", "again"),
            trigger("bad", "kv", "bad", "fails"),
            trigger("dead", "dead_letter", "*", "bury"),
        ],
    }))
    .await;
    let platform = Platform::start(&db).await;
    let one = serde_json::value::to_raw_value(&json!(1)).unwrap();
    let mut service = db.as_role("symphony_ingest").await;
    symphony::triggers::kv_set(&mut service, "loops", "start", &one, None).await.unwrap();
    until("the circle is stopped", async || {
        db.entry("loops", "dead/TRIGGER_DEPTH_EXCEEDED").await.is_some()
    })
    .await;
    // start at 0, then n at 1 to 8: nine runs wrote, the tenth was refused.
    assert_eq!(db.entry("loops", "n").await.as_deref(), Some("9"));
    symphony::triggers::kv_set(&mut service, "loops", "bad", &one, None).await.unwrap();
    until("the failure is buried", async || db.entry("loops", "dead/SCRIPT_ERROR").await.is_some())
        .await;
    assert_eq!(
        db.count("trigger_outbox_attempts WHERE state = 'RETRYABLE'").await,
        2,
        "three attempts, as the trigger says: two to be tried again, one final"
    );
    until("nothing is left", async || db.is_idle().await).await;
    platform.stop().await;
}

#[tokio::test]
async fn a_tick_is_fired_once_however_many_processes_look() {
    let db = TestDb::new().await;
    // Once a year: no second tick becomes due by itself while this runs.
    let mut yearly = trigger("yearly", "cron", "0 0 1 1 *", "s");
    yearly["timeZone"] = json!("Europe/Berlin");
    db.push("shop", &json!({
        "scripts": [script("s", "export default r => { kv.set('tick/' + r.executionId, r.payload.tickAt) }")],
        "triggers": [yearly],
    }))
    .await;
    let tickers: Vec<Ticker> = (0..8).map(|_| Ticker::new(db.database.worker())).collect();
    // The first look sets the clock and fires nothing.
    for ticker in &tickers {
        assert_eq!(ticker.fire_due().await.unwrap(), 0);
    }
    for _ in 0..5 {
        db.sql("UPDATE trigger_cron SET next_tick_at = clock_timestamp()").await;
        let fired = futures_util::future::join_all(tickers.iter().map(Ticker::fire_due)).await;
        assert_eq!(fired.into_iter().map(Result::unwrap).sum::<usize>(), 1);
    }
    assert_eq!(db.count("trigger_outbox_pending WHERE source_kind = 'cron'").await, 5);
    let platform = Platform::start(&db).await;
    until("all have run", async || db.count("kv_entries WHERE key LIKE 'tick/%'").await == 5).await;
    platform.stop().await;
}
