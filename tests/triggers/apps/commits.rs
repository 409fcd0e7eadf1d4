//! A request whose COMMIT gets no answer: nobody is told that nothing was applied unless that is so.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use symphony::db::{Database, RoleSource};

use super::slots::silent_peer;
use super::{Answer, Platform, request, route, script};
use crate::support::proxy::{self, Cut, Proxy};
use crate::support::{TestDb, until};

/// What only the transaction has that writes the request.
const MARK: &[u8] = b"cut-this-one";
const FETCH_HERE: &str = "[triggers.fetch]\nallowed_networks = ['127.0.0.0/8']\n";

/// A process whose way to the database is cut.
async fn through_proxy(db: &TestDb, cut: Cut, settings: &str) -> (Platform, Proxy) {
    let proxy = proxy::start_marked(&db.options, cut, 1, MARK).await;
    let database =
        Database::connect(proxy.options.clone(), 8, RoleSource::EachTransaction).await.unwrap();
    let cut_off = TestDb { options: db.options.clone(), database };
    (Platform::start_with(&cut_off, settings).await, proxy)
}

/// An app whose route notes that it was there after it has fetched from this port.
async fn push_fetching(db: &TestDb, port: u16) {
    let source = format!(
        "export default () => {{ fetch('http://127.0.0.1:{port}/'); kv.increment('n'); return 'done' }}"
    );
    let run = json!({ "name": "run", "source": source, "timeoutMs": 25_000 });
    let mut n = route("POST", "/n", "run");
    n["waitMs"] = json!(6_000);
    let shop = json!({ "scripts": [run, script("note", "export default () => { kv.increment('m') }")],
                       "routes": [n, route("POST", "/m", "note")] });
    db.push("shop", &shop).await;
}

async fn ask(platform: &Platform, path: &str, body: Value) -> Answer {
    request(platform.http(), "POST", path, &body.to_string()).await.unwrap()
}

#[tokio::test]
async fn a_request_whose_row_was_committed_though_nobody_heard_is_answered() {
    let db = TestDb::new().await;
    let (port, open) = silent_peer().await;
    open.send_replace(true);
    push_fetching(&db, port).await;
    let (platform, proxy) = through_proxy(&db, Cut::AfterCommit, FETCH_HERE).await;
    let answer = ask(&platform, "/apps/shop/n", json!("cut-this-one")).await;
    assert_eq!(proxy.cuts.load(Ordering::SeqCst), 0, "the connection was cut");
    assert_eq!((answer.status, answer.body.as_str()), (200, "\"done\""));
    assert_eq!(db.entry("shop", "n").await.as_deref(), Some("1"));
    platform.stop().await;
}

#[tokio::test]
async fn a_request_whose_row_was_not_committed_applies_nothing_and_says_so() {
    let db = TestDb::new().await;
    let (port, open) = silent_peer().await;
    open.send_replace(true);
    push_fetching(&db, port).await;
    // A claim reserves every slot while it lasts, and a request without one is written for others, as the next test has
    // it: after the first claims there are no more, and whoever came in the middle of one asks again.
    let rare_claims = format!("{FETCH_HERE}[worker]\npoll_ms = [60_000, 60_000]\n");
    let mut told = Value::Null;
    for _ in 0..5 {
        let (platform, proxy) = through_proxy(&db, Cut::BeforeCommit, &rare_claims).await;
        let warm = ask(&platform, "/apps/shop/m", json!("warm up")).await;
        assert_eq!(warm.status, 200, "{}", warm.body);
        let answer = ask(&platform, "/apps/shop/n", json!("cut-this-one")).await;
        assert_eq!(proxy.cuts.load(Ordering::SeqCst), 0, "the connection was cut");
        assert_eq!((answer.status, db.entry("shop", "n").await), (502, None));
        platform.stop().await;
        told = answer.json()["error"].clone();
        if told != "OUTCOME_UNKNOWN" {
            break;
        }
    }
    assert_eq!(told, "REQUEST_LOST");
}

#[tokio::test]
async fn a_request_whose_only_statement_was_committed_though_nobody_heard_is_answered_and_applied_once()
 {
    let db = TestDb::new().await;
    push_fetching(&db, 1).await;
    let mut answered = 0;
    // One that takes longer than a few milliseconds is written first: then that is what is cut, and nothing is applied.
    for _ in 0..20 {
        let (platform, proxy) = through_proxy(&db, Cut::AfterStatement, "").await;
        let answer = ask(&platform, "/apps/shop/m", json!("cut-this-one")).await;
        assert_eq!(proxy.cuts.load(Ordering::SeqCst), 0, "the connection was cut");
        platform.stop().await;
        if answer.status == 200 {
            answered += 1;
            break;
        }
        assert!([502, 503].contains(&answer.status), "{} {}", answer.status, answer.body);
    }
    assert_eq!(answered, 1);
    assert_eq!(db.entry("shop", "m").await.as_deref(), Some("1"));
    assert_eq!(db.count("trigger_outbox_attempts WHERE state = 'DISPATCHED'").await, 1);
}

#[tokio::test]
async fn a_request_that_others_may_run_is_not_called_lost_because_its_commit_was_not_heard() {
    let db = TestDb::new().await;
    let (port, open) = silent_peer().await;
    push_fetching(&db, port).await;
    let one_slot = format!(
        "[triggers.scripts]\nconcurrency_max = 1\nconcurrency_max_per_app = 1\n{FETCH_HERE}"
    );
    for (cut, status, error) in [
        (Cut::AfterCommit, 200, None),
        // Its row may still come, for all that anybody knows.
        (Cut::BeforeCommit, 502, Some("OUTCOME_UNKNOWN")),
    ] {
        let (busy, proxy) = through_proxy(&db, cut, &one_slot).await;
        let address = busy.http();
        let first =
            tokio::spawn(async move { request(address, "POST", "/apps/shop/n", "1").await });
        let held = format!(
            "trigger_outbox_pending WHERE claimed_by = '{}' AND lease_token IS NOT NULL",
            busy.worker_id()
        );
        until("its only slot is taken", async || db.count(&held).await == 1).await;
        let second = tokio::spawn(async move {
            request(address, "POST", "/apps/shop/n", "\"cut-this-one\"").await
        });
        until("the connection is cut", async || proxy.cuts.load(Ordering::SeqCst) == 0).await;
        let other = Platform::start_with(&db, &one_slot).await;
        open.send_replace(true);
        assert_eq!(first.await.unwrap().unwrap().status, 200);
        let answer = second.await.unwrap().unwrap();
        assert_eq!(answer.status, status, "{}", answer.body);
        if let Some(error) = error {
            let told = answer.json();
            assert_eq!(told["error"], error);
            let id = told["executionId"].as_str().unwrap();
            assert_eq!(told["statusUrl"], format!("/executions/{id}"));
        }
        open.send_replace(false);
        busy.stop().await;
        other.stop().await;
    }
    assert_eq!(db.entry("shop", "n").await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_status_that_is_no_number_is_refused_before_anything_is_applied() {
    let db = TestDb::new().await;
    let source = "export default r => { kv.increment('n'); return r.payload.body }";
    let shop = json!({ "scripts": [script("s", source)], "routes": [route("POST", "/", "s")] });
    db.push("shop", &shop).await;
    let platform = Platform::start(&db).await;
    for (answer, status, error) in [
        (json!({"status": 99_999}), 500, Some("BAD_STATUS")),
        (json!({"status": -1, "body": 1}), 500, Some("BAD_STATUS")),
        (json!({"status": "404"}), 500, Some("BAD_STATUS")),
        (json!({"status": 404.5}), 500, Some("BAD_STATUS")),
        (json!({"status": 200, "headers": 1}), 500, Some("BAD_HEADER")),
        (json!({"status": 404, "error": "none"}), 500, Some("BAD_BODY")),
        (json!({"status": "open", "id": 1}), 200, None),
    ] {
        let heard = ask(&platform, "/apps/shop/", answer.clone()).await;
        assert_eq!((heard.status, heard.json()["error"].as_str()), (status, error), "{answer}");
    }
    assert_eq!(db.entry("shop", "n").await.as_deref(), Some("1"));
    platform.stop().await;
}
