//! Requests and their answers.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use symphony::db::{Database, DbError, RoleSource};
use symphony::triggers::{Source, TriggerRequest};

use super::{Platform, request, route, script};
use crate::support::proxy::Swallowing;
use crate::support::{TestDb, run, until};

#[tokio::test]
async fn a_request_runs_its_script_and_gets_what_it_returns() {
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [
            script("echo", "export default function (request) {
                const p = request.payload;
                return { status: 201, headers: { 'X-App': request.app }, body: { id: p.params.id, q: p.query, sent: p.body, method: p.method } };
            }"),
            script("plain", "export default async () => 'just text'"),
        ],
        "routes": [route("POST", "/orders/{id}", "echo"), route("GET", "/", "plain")],
    }))
    .await;
    let platform = Platform::start(&db).await;
    let answer = request(
        platform.http(),
        "POST",
        "/apps/shop/orders/a%20b?x=1&y=%C3%BC",
        r#"{"n": 12345678901234567890}"#,
    )
    .await
    .unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert!(answer.head.contains("x-app: shop"), "{}", answer.head);
    let body = answer.json();
    assert_eq!(
        (&body["id"], &body["q"], &body["method"]),
        (&json!("a b"), &json!({"x": "1", "y": "ü"}), &json!("POST"))
    );
    let plain = request(platform.http(), "GET", "/apps/shop/", "").await.unwrap();
    assert_eq!((plain.status, plain.body.as_str()), (200, "\"just text\""));
    assert_eq!(db.count("trigger_outbox_executions WHERE state = 'DISPATCHED'").await, 2);
    platform.stop().await;
}

#[tokio::test]
async fn what_cannot_be_served_is_said_and_nothing_is_written() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &json!({
            "scripts": [script("s", "export default () => 1")],
            "routes": [route("POST", "/orders", "s")],
        }),
    )
    .await;
    let platform = Platform::start(&db).await;
    let large = format!("\"{}\"", "x".repeat(1_100_000));
    for (method, path, body, status, error) in [
        ("GET", "/apps/nobody/orders", "", 404, "NO_APP"),
        ("GET", "/apps/shop/nothing", "", 404, "NO_ROUTE"),
        ("GET", "/apps/shop/orders", "", 405, "NO_ROUTE"),
        ("POST", "/apps/shop/orders", "{not json", 400, "BODY_NOT_READABLE"),
        ("POST", "/apps/shop/orders", "\"\\u0000\"", 400, "BODY_NOT_READABLE"),
        ("POST", "/apps/shop/orders", large.as_str(), 413, "BODY_TOO_LARGE"),
        ("GET", "/executions/01a1e095-7795-7832-83f9-34f0bb721c3f", "", 404, "NO_EXECUTION"),
    ] {
        let answer = request(platform.http(), method, path, body).await.unwrap();
        assert_eq!(
            (answer.status, answer.json()["error"].as_str().unwrap()),
            (status, error),
            "{method} {path}"
        );
    }
    assert_eq!(db.count("trigger_outbox_executions").await, 0);
    platform.stop().await;
}

#[tokio::test]
async fn every_one_of_many_clients_gets_its_own_answer() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &json!({
            "scripts": [script("s", "export default r => ({ n: r.payload.body.n })")],
            "routes": [route("POST", "/n", "s")],
        }),
    )
    .await;
    // Two processes' worth of workers: an answer may come from either.
    let (platform, other) = (Platform::start(&db).await, Platform::start(&db).await);
    let address = platform.http();
    let answers = join_all((0..200).map(|n| async move {
        request(address, "POST", "/apps/shop/n", &json!({ "n": n }).to_string()).await.unwrap()
    }))
    .await;
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!((answer.status, answer.json()), (200, json!({ "n": n })));
    }
    assert_eq!(db.count("trigger_outbox_attempts WHERE state = 'DISPATCHED'").await, 200);
    platform.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn an_asynchronous_route_answers_at_once_and_says_where_to_look() {
    let db = TestDb::new().await;
    let mut slow = route("POST", "/later", "s");
    slow["mode"] = json!("async");
    db.push("shop", &json!({
        "scripts": [script("s", "export default r => { log('seen', r.payload.body); return { done: true } }")],
        "routes": [slow],
    }))
    .await;
    let platform = Platform::start(&db).await;
    let answer = request(platform.http(), "POST", "/apps/shop/later", "[1]").await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.body);
    let status_url = answer.json()["statusUrl"].as_str().unwrap().to_owned();
    until("it has run", async || {
        let status = request(platform.http(), "GET", &status_url, "").await.unwrap().json();
        status["state"] == "DISPATCHED" && status["result"] == json!({ "done": true })
    })
    .await;
    let logs: String = db.one("SELECT logs->0->>'message' FROM trigger_outbox_executions").await;
    assert!(logs.starts_with("seen"), "{logs}");
    platform.stop().await;
}

#[tokio::test]
async fn a_script_that_fails_or_takes_too_long_is_an_error_and_leaves_nothing() {
    let db = TestDb::new().await;
    let mut endless = route("POST", "/endless", "endless");
    endless["waitMs"] = json!(300);
    db.push("shop", &json!({
        "scripts": [
            script("throws", "export default () => { kv.set('a', 1); throw new Error('no') }"),
            json!({ "name": "endless", "timeoutMs": 1_000, "source": "export default () => { kv.set('b', 1); for (;;); }" }),
        ],
        "routes": [route("POST", "/throws", "throws"), endless],
    }))
    .await;
    let platform = Platform::start(&db).await;
    let thrown = request(platform.http(), "POST", "/apps/shop/throws", "").await.unwrap();
    assert_eq!((thrown.status, thrown.json()["error"].as_str()), (500, Some("SCRIPT_ERROR")));
    let late = request(platform.http(), "POST", "/apps/shop/endless", "").await.unwrap();
    assert_eq!((late.status, late.json()["error"].as_str()), (504, Some("REPLY_DEADLINE")));
    until("both have ended", async || db.is_idle().await).await;
    assert_eq!(db.count("trigger_outbox_executions WHERE state = 'FAILED'").await, 2);
    assert_eq!(db.count("trigger_outbox_attempts").await, 2, "one attempt each, never retried");
    assert_eq!(db.count("kv_entries").await, 0);
    platform.stop().await;
}

/// So many headers, with names as short as can be: an answer has at most 256 KiB.
fn names(count: usize) -> Value {
    (0..count).map(|n| (format!("{n:x}"), json!(""))).collect::<serde_json::Map<_, _>>().into()
}

#[tokio::test]
async fn an_answer_that_cannot_be_sent_is_an_error_and_applies_nothing() {
    let db = TestDb::new().await;
    db.push("shop", &json!({
        "scripts": [script("s", "export default r => { kv.set('n', 1); return r.payload.body }")],
        "routes": [route("POST", "/", "s")],
    }))
    .await;
    let platform = Platform::start(&db).await;
    for (answer, code) in [
        (json!({"status": 99}), "BAD_STATUS"),
        (json!({"status": 200, "headers": {"x": "a\r\nSet-Cookie: b"}}), "BAD_HEADER"),
        (json!({"status": 200, "bodyBase64": "no base64"}), "BAD_BODY"),
        // More names than a server's map of headers can hold.
        (json!({"status": 200, "headers": names(24_577)}), "BAD_HEADER"),
    ] {
        let heard =
            request(platform.http(), "POST", "/apps/shop/", &answer.to_string()).await.unwrap();
        assert_eq!((heard.status, heard.json()["error"].as_str()), (500, Some(code)));
        let last = "SELECT state || ' ' || error_code FROM trigger_outbox_executions ORDER BY completed_at DESC LIMIT 1";
        assert_eq!(db.one::<String>(last).await, format!("FAILED {code}"));
    }
    assert_eq!(db.count("kv_entries").await, 0);
    platform.stop().await;
}

#[tokio::test]
async fn one_apps_slow_scripts_do_not_keep_a_neighbours_from_being_claimed() {
    let db = TestDb::new().await;
    let slow =
        json!({ "name": "s", "source": "export default () => { for (;;); }", "timeoutMs": 4_000 });
    let mut later = route("POST", "/later", "s");
    later["mode"] = json!("async");
    db.push("slow", &json!({ "scripts": [slow], "routes": [later] })).await;
    let mut quick = route("POST", "/n", "s");
    quick["waitMs"] = json!(2_000);
    db.push(
        "quick",
        &json!({ "scripts": [script("s", "export default r => r.payload.body")], "routes": [quick] }),
    )
    .await;
    // Four runs at once, and eight held: fewer than what the slow app has. It gets half of the four.
    let platform = Platform::start_with(&db, "concurrency_max = 4").await;
    let address = platform.http();
    for _ in 0..12 {
        let answer = request(address, "POST", "/apps/slow/later", "{}").await.unwrap();
        assert_eq!(answer.status, 202, "{}", answer.body);
    }
    until("the slow app has all it may have", async || {
        db.count("trigger_outbox_pending WHERE lease_token IS NOT NULL").await == 2
    })
    .await;
    let answer = request(address, "POST", "/apps/quick/n", "7").await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "7"));
    assert_eq!(db.count("trigger_outbox_executions WHERE app_name = 'slow'").await, 0);
    platform.stop().await;
}

#[tokio::test]
async fn a_connection_that_swallows_a_request_does_not_keep_the_next_one_from_being_written() {
    let db = TestDb::new().await;
    let shop = json!({ "scripts": [script("s", "export default () => 1")], "routes": [route("POST", "/", "s")] });
    db.push("shop", &shop).await;
    let proxy = Swallowing::start(&db.options).await;
    let ingest = Database::connect(proxy.options.clone(), 2, RoleSource::EachTransaction)
        .await
        .unwrap()
        .with_call_limit(Duration::from_secs(3))
        .producer();
    let payload = to_raw_value(&json!({})).unwrap();
    let route = db.one("SELECT id FROM routes").await;
    let firing = TriggerRequest::new("shop", Source::Http, route, &payload);
    let mut locker = db.admin().await;
    run(&mut locker, "BEGIN; SELECT FROM apps FOR UPDATE").await.unwrap();
    let lost = async {
        let waiting =
            "pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until("it is being written", async || db.count(waiting).await == 1).await;
        proxy.swallow();
    };
    let (first, ()) = tokio::join!(ingest.enqueue_triggers(std::slice::from_ref(&firing)), lost);
    assert!(matches!(first, Err(DbError::Unreachable { .. })), "{first:?}");
    run(&mut locker, "ROLLBACK").await.unwrap();
    let next = ingest.enqueue_triggers(&[firing]).await.unwrap();
    assert!(matches!(next.as_slice(), [Ok(_)]), "{next:?}");
}
