//! Apps under contention: what a script has read is still so when its effects are applied, or it runs again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Ask an app to write an entry; answers the status and how long it took.
async fn ask(address: SocketAddr, app: &str, key: &str) -> (u16, Duration) {
    let began = Instant::now();
    let body = json!({ "key": key }).to_string();
    let answer = request(address, "POST", &format!("/apps/{app}/write"), &body).await.unwrap();
    (answer.status, began.elapsed())
}

/// Twenty requests of a neighbour are answered, each at once.
async fn assert_the_neighbour_is_prompt(address: SocketAddr) {
    let mut slowest = Duration::ZERO;
    for n in 0..20 {
        let (status, took) = ask(address, "neighbour", &format!("k{n}")).await;
        assert_eq!(status, 200);
        slowest = slowest.max(took);
    }
    assert!(slowest < Duration::from_secs(1), "a neighbour waited {slowest:?}");
}

async fn until_effects_wait(db: &TestDb) {
    until("effects wait", async || {
        db.count("pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
            .await
            > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_key_holds_up_its_own_requests_and_nobody_elses() {
    let db = TestDb::new().await;
    push_writing(&db, "held").await;
    push_writing(&db, "neighbour").await;
    db.kv_set("held", "k", &json!(0)).await;
    let platform = Platform::start(&db).await;
    let address = platform.http();
    assert_eq!(ask(address, "neighbour", "warm").await.0, 200);
    let mut holder = db.admin().await;
    run(&mut holder, "BEGIN; SELECT * FROM kv_entries WHERE key = 'k' FOR UPDATE").await.unwrap();
    // More than there are slots: of an app and of all.
    let stuck: Vec<_> = (0..60).map(|_| tokio::spawn(ask(address, "held", "k"))).collect();
    until_effects_wait(&db).await;
    assert_the_neighbour_is_prompt(address).await;
    for stuck in stuck {
        assert_eq!(stuck.await.unwrap().0, 504, "nobody let go in time");
    }
    run(&mut holder, "ROLLBACK").await.unwrap();
    until("all have ended", async || db.is_idle().await).await;
    assert_eq!(
        db.entry("held", "k").await.as_deref(),
        Some("0"),
        "504 means that nothing was applied"
    );
    let late = "trigger_outbox_executions WHERE state = 'FAILED' AND error_code = 'REPLY_DEADLINE'";
    assert!(db.count(late).await > 0);
    assert_eq!(
        db.count("trigger_outbox_executions WHERE app_name = 'held' AND state <> 'FAILED'").await,
        0
    );
    assert_eq!(ask(address, "held", "k").await.0, 200, "and it goes on");
    platform.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_messages_on_a_held_key_leave_a_neighbour_its_slots() {
    let db = TestDb::new().await;
    push_writing(&db, "neighbour").await;
    for (app, source) in [
        ("held", "export default () => { kv.increment('k', 1) }"),
        ("queued", "export default r => { kv.set('k' + r.payload.message, 1) }"),
    ] {
        let manifest = json!({
            "scripts": [script("write", source)],
            "triggers": [trigger("jobs", "queue", "jobs", "write")],
            "queues": ["jobs"],
        });
        db.push(app, &manifest).await;
    }
    db.kv_set("held", "k", &json!(0)).await;
    let platform = Platform::start(&db).await;
    let address = platform.http();
    assert_eq!(ask(address, "neighbour", "warm").await.0, 200);
    let mut holder = db.admin().await;
    run(&mut holder, "BEGIN; SELECT * FROM kv_entries WHERE key = 'k' FOR UPDATE").await.unwrap();
    let send = |app: &str, messages: i32| {
        format!(
            "SELECT count(send_to_queue('{app}', 'jobs', to_jsonb(n))) FROM generate_series(1, {messages}) n"
        )
    };
    db.sql(&send("held", 200)).await;
    until_effects_wait(&db).await;
    db.sql(&send("queued", 30)).await;
    assert_the_neighbour_is_prompt(address).await;
    until("another app's messages have run", async || {
        db.count("kv_entries e JOIN apps a ON a.id = e.app_id WHERE a.name = 'queued'").await == 30
    })
    .await;
    assert_eq!(db.entry("held", "k").await.as_deref(), Some("0"), "it is still held");
    run(&mut holder, "ROLLBACK").await.unwrap();
    until("every message has ended", async || db.is_idle().await).await;
    assert_eq!(db.entry("held", "k").await.as_deref(), Some("200"));
    platform.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_on_one_counter_are_counted_and_hold_up_no_neighbour() {
    let db = TestDb::new().await;
    push_writing(&db, "neighbour").await;
    let mut count = route("POST", "/count", "count");
    count["waitMs"] = json!(60_000);
    db.push("shop", &json!({ "scripts": [script("count", COUNT)], "routes": [count] })).await;
    let platform = Platform::start(&db).await;
    let address = platform.http();
    assert_eq!(ask(address, "neighbour", "warm").await.0, 200);
    let mut clients = JoinSet::new();
    for _ in 0..200 {
        clients.spawn(async move {
            request(address, "POST", "/apps/shop/count", "").await.unwrap().status
        });
    }
    until("some are counted", async || db.entry("shop", "n").await.is_some()).await;
    assert_the_neighbour_is_prompt(address).await;
    assert_eq!(clients.join_all().await, [200; 200]);
    assert_eq!(db.entry("shop", "n").await.as_deref(), Some("200"));
    platform.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_wait_to_be_run_again_take_no_neighbours_turn() {
    let db = TestDb::new().await;
    let (port, open) = silent_peer().await;
    push_writing(&db, "neighbour").await;
    // Run again, the first of them does not end.
    let source = format!(
        "export default () => {{
            const n = kv.get('n');
            if (n >= 100) fetch('http://127.0.0.1:{port}/');
            kv.set('n', n + 1);
        }}"
    );
    let manifest = json!({
        "scripts": [{ "name": "count", "source": source, "timeoutMs": 25_000 }],
        "triggers": [trigger("jobs", "queue", "jobs", "count")],
        "queues": ["jobs"],
    });
    db.push("shop", &manifest).await;
    db.kv_set("shop", "n", &json!(1)).await;
    // Few places: the neighbour's are taken if those who wait take any.
    let few = "concurrency_max = 4\n[triggers.fetch]\nallowed_networks = ['127.0.0.0/8']\n";
    let platform = Platform::start_with(&db, few).await;
    let address = platform.http();
    assert_eq!(ask(address, "neighbour", "warm").await.0, 200);
    let mut holder = db.admin().await;
    run(
        &mut holder,
        "BEGIN; UPDATE kv_entries SET value = '100', version = version + 1 WHERE key = 'n'",
    )
    .await
    .unwrap();
    db.sql(
        "SELECT count(send_to_queue('shop', 'jobs', to_jsonb(n))) FROM generate_series(1, 40) n",
    )
    .await;
    until_effects_wait(&db).await;
    assert_the_neighbour_is_prompt(address).await;
    run(&mut holder, "COMMIT").await.unwrap();
    until("one is run again", async || open.receiver_count() > 1).await;
    assert_the_neighbour_is_prompt(address).await;
    open.send_replace(true);
    until("every message has ended", async || db.is_idle().await).await;
    let done = db
        .count("trigger_outbox_executions WHERE app_name = 'shop' AND state = 'DISPATCHED'")
        .await;
    assert_eq!(db.entry("shop", "n").await, Some((100 + done).to_string()));
    platform.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_that_take_too_long_together_are_written_one_by_one() {
    let db = TestDb::new().await;
    let mut tell = route("POST", "/tell", "tell");
    tell["waitMs"] = json!(20_000);
    let manifest = json!({
        "scripts": [
            script("tell", "export default () => { pubsub.publish('news', 1); return 'told' }"),
            script("hear", "export default () => {}"),
        ],
        "routes": [tell],
        "triggers": [trigger("news", "pubsub", "news", "hear")],
        "topics": ["news"],
    });
    db.push("shop", &manifest).await;
    // Half a second each: some of them together are too much for one call.
    db.sql(
        "CREATE FUNCTION symphony.slow_item() RETURNS TRIGGER LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_catalog.pg_sleep(0.5); RETURN new; END'; \
         CREATE TRIGGER slow_item BEFORE INSERT ON symphony.trigger_outbox_pending FOR EACH ROW \
         WHEN (new.source_kind = 'pubsub') EXECUTE FUNCTION symphony.slow_item()",
    )
    .await;
    let database = db.database.clone().with_call_limit(Duration::from_secs(2));
    let impatient = TestDb { options: db.options.clone(), database };
    let platform = Platform::start(&impatient).await;
    let address = platform.http();
    let clients = (0..16).map(|_| async move {
        request(address, "POST", "/apps/shop/tell", "").await.unwrap().status
    });
    let clients: JoinSet<u16> = clients.collect();
    assert_eq!(clients.join_all().await, [200; 16]);
    until("everybody has heard", async || db.is_idle().await).await;
    assert_eq!(db.count("trigger_outbox_executions WHERE source_kind = 'pubsub'").await, 16);
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
    let asked = tokio::spawn(ask(address, "held", "k"));
    until_effects_wait(&db).await;
    run(&mut holder, "ROLLBACK").await.unwrap();
    assert_eq!(asked.await.unwrap().0, 200);
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
