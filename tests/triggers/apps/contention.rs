//! Apps under contention: what a script has read is still so when its effects are applied, or it runs again.

use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;

use super::slots::silent_peer;
use super::{Platform, request, route, script, trigger};
use crate::support::{TestDb, run, until};

/// Reads, adds one, writes.
const COUNT: &str = "export default () => { kv.set('n', (kv.get('n') ?? 0) + 1) }";

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_messages_that_read_add_one_and_write_count_to_two_hundred() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &json!({
            "scripts": [script("count", COUNT)],
            "triggers": [trigger("jobs", "queue", "jobs", "count")],
            "queues": ["jobs"],
        }),
    )
    .await;
    let send =
        "SELECT count(send_to_queue('shop', 'jobs', to_jsonb(n))) FROM generate_series(1, 200) n";
    db.sql(send).await;
    // Two processes: what one of them orders for itself does not help.
    let platforms = [Platform::start(&db).await, Platform::start(&db).await];
    until("every message has ended", async || db.is_idle().await).await;
    let ends: Vec<(String, i64)> = sqlx::query_as(
        "SELECT state::text || coalesce(' ' || error_code, ''), count(*) FROM trigger_outbox_executions GROUP BY 1",
    )
    .fetch_all(&mut db.admin().await)
    .await
    .unwrap();
    assert_eq!(ends, [("DISPATCHED".to_owned(), 200)]);
    assert_eq!(db.entry("shop", "n").await.as_deref(), Some("200"));
    for platform in platforms {
        platform.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stock_of_ten_ships_ten_to_sixty_racing_clients() {
    let db = TestDb::new().await;
    let take = "export default r => {
        const left = kv.get('stock');
        if (left < 1) return { status: 409, body: 'sold out' };
        kv.set('stock', left - 1);
        kv.set('order/' + r.executionId, 1);
        return { status: 201, body: 'yours' };
    }";
    db.push(
        "shop",
        &json!({ "scripts": [script("take", take)], "routes": [route("POST", "/take", "take")] }),
    )
    .await;
    db.kv_set("shop", "stock", &json!(10)).await;
    let platforms = [Platform::start(&db).await, Platform::start(&db).await];
    let addresses = Arc::new(platforms.each_ref().map(Platform::http));
    let mut clients = JoinSet::new();
    for n in 0..60 {
        let addresses = addresses.clone();
        clients.spawn(async move {
            request(addresses[n % 2], "POST", "/apps/shop/take", "").await.unwrap().status
        });
    }
    let mut statuses = clients.join_all().await;
    statuses.sort_unstable();
    let shipped = statuses.iter().filter(|status| **status == 201).count();
    assert_eq!(shipped, 10, "{statuses:?}");
    assert!(statuses.iter().all(|status| [201, 409].contains(status)), "{statuses:?}");
    assert_eq!(db.count("kv_entries WHERE key LIKE 'order/%'").await, 10);
    assert_eq!(db.entry("shop", "stock").await.as_deref(), Some("0"));
    for platform in platforms {
        platform.stop().await;
    }
}

/// An app with a route that writes one entry.
async fn push_writing(db: &TestDb, app: &str) {
    let write = "export default r => { kv.set(r.payload.body.key, 1); return 'done' }";
    let mut write_route = route("POST", "/write", "write");
    write_route["waitMs"] = json!(1_500);
    db.push(app, &json!({ "scripts": [script("write", write)], "routes": [write_route] })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_key_holds_up_its_own_requests_and_nobody_elses() {
    let db = TestDb::new().await;
    push_writing(&db, "held").await;
    push_writing(&db, "neighbour").await;
    db.kv_set("held", "k", &json!(0)).await;
    let platform = Platform::start(&db).await;
    let address = platform.http();
    let ask = async move |app: &str, key: &str| {
        let began = std::time::Instant::now();
        let body = json!({ "key": key }).to_string();
        let answer = request(address, "POST", &format!("/apps/{app}/write"), &body).await.unwrap();
        (answer.status, began.elapsed())
    };
    assert_eq!(ask("neighbour", "warm").await.0, 200);
    let mut holder = db.admin().await;
    run(&mut holder, "BEGIN; SELECT * FROM kv_entries WHERE key = 'k' FOR UPDATE").await.unwrap();
    let stuck: Vec<_> =
        (0..6).map(|_| tokio::spawn(async move { ask("held", "k").await.0 })).collect();
    let mut slowest = std::time::Duration::ZERO;
    for n in 0..20 {
        let (status, took) = ask("neighbour", &format!("k{n}")).await;
        assert_eq!(status, 200);
        slowest = slowest.max(took);
    }
    assert!(slowest < std::time::Duration::from_secs(1), "a neighbour waited {slowest:?}");
    for stuck in stuck {
        assert_eq!(stuck.await.unwrap(), 504, "nobody let go in time");
    }
    run(&mut holder, "ROLLBACK").await.unwrap();
    until("all have ended", async || db.is_idle().await).await;
    assert_eq!(
        db.entry("held", "k").await.as_deref(),
        Some("0"),
        "504 means that nothing was applied"
    );
    let late = "trigger_outbox_executions WHERE state = 'FAILED' AND error_code = 'REPLY_DEADLINE'";
    assert_eq!(db.count(late).await, 6);
    assert_eq!(ask("held", "k").await.0, 200, "and it goes on");
    platform.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_for_a_moment_is_written_when_it_is_let_go() {
    let db = TestDb::new().await;
    push_writing(&db, "held").await;
    db.kv_set("held", "k", &json!(0)).await;
    let platform = Platform::start(&db).await;
    let address = platform.http();
    let mut holder = db.admin().await;
    run(&mut holder, "BEGIN; SELECT * FROM kv_entries WHERE key = 'k' FOR UPDATE").await.unwrap();
    let asked = tokio::spawn(async move {
        request(address, "POST", "/apps/held/write", r#"{"key":"k"}"#).await.unwrap().status
    });
    until("its effects wait", async || {
        db.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
            .await
            > 0
    })
    .await;
    run(&mut holder, "ROLLBACK").await.unwrap();
    assert_eq!(asked.await.unwrap(), 200);
    assert_eq!(db.entry("held", "k").await.as_deref(), Some("1"));
    platform.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_fetched_is_not_run_again_by_itself() {
    let db = TestDb::new().await;
    let (port, open) = silent_peer().await;
    let source = format!(
        "export default () => {{ const n = kv.get('n'); fetch('http://127.0.0.1:{port}/'); kv.set('n', n + 1) }}"
    );
    let run_it = json!({ "name": "run", "source": source, "timeoutMs": 25_000 });
    let manifest = json!({
        "scripts": [run_it],
        "routes": [route("POST", "/n", "run")],
    });
    db.push("shop", &manifest).await;
    db.kv_set("shop", "n", &json!(1)).await;
    let here = "[triggers.fetch]\nallowed_networks = ['127.0.0.0/8']\n";
    let platform = Platform::start_with(&db, here).await;
    let address = platform.http();
    let asked = tokio::spawn(async move {
        let answer = request(address, "POST", "/apps/shop/n", "").await.unwrap();
        (answer.status, answer.json()["error"].clone())
    });
    // It has read by then.
    until("the peer is asked", async || open.receiver_count() > 1).await;
    db.kv_set("shop", "n", &json!(10)).await;
    open.send_replace(true);
    assert_eq!(asked.await.unwrap(), (503, json!("CONTENTION")));
    assert_eq!(db.entry("shop", "n").await.as_deref(), Some("10"));
    assert_eq!(db.count("trigger_outbox_attempts WHERE error_code = 'CONTENTION'").await, 1);
    platform.stop().await;
}
