//! Requests are written already leased to the process that serves them, and committed without waiting for the disk: nobody
//! else runs them, and what a crash of the server takes has told nobody anything.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::to_raw_value;
use symphony::db::{
    Database, DbError, RoleSource, TriggerLease, TriggerOutcome, TriggerRecorded, TriggerState,
    WrittenRequest,
};
use symphony::triggers::{Source, TriggerRequest};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use uuid::Uuid;

use super::slots::silent_peer;
use super::{Platform, request, route, script};
use crate::payments::chaos::ground::Ground;
use crate::support::{TestDb, until};

const FETCH_HERE: &str = "[triggers.fetch]\nallowed_networks = ['127.0.0.0/8']\n";
/// How often a crash may come too late before the test gives up.
const CRASHES_MAX: usize = 20;

/// An app whose only route fetches from this port, and then notes that it was there.
async fn push_fetching(db: &TestDb, port: u16) {
    let source = format!(
        "export default () => {{ fetch('http://127.0.0.1:{port}/'); kv.set('n', 1); return 'done' }}"
    );
    let run = json!({ "name": "run", "source": source, "timeoutMs": 25_000 });
    db.push("shop", &json!({ "scripts": [run], "routes": [route("POST", "/n", "run")] })).await;
}

/// One request to the app's only route, written as its server would.
async fn write_one(db: &TestDb, worker: &str, leased: bool) -> Result<WrittenRequest, DbError> {
    let route_id: Uuid = db.one("SELECT id FROM symphony.routes").await;
    let payload = to_raw_value(&json!({})).unwrap();
    let request =
        TriggerRequest::new("shop", Source::Http, route_id, &payload).reply(Uuid::new_v4(), 60_000);
    let serves = db.database.worker();
    let placed = serves.enqueue_leased_triggers(worker, 60, &[leased], &[request], None).await?;
    placed.answers.into_iter().next().unwrap()
}

#[tokio::test]
async fn a_request_belongs_to_the_process_that_serves_it_and_no_other_runs_it() {
    let db = TestDb::new().await;
    let (port, open) = silent_peer().await;
    push_fetching(&db, port).await;
    let serves = Platform::start_with(&db, FETCH_HERE).await;
    let other = Platform::start_with(&db, FETCH_HERE).await;
    let address = serves.http();
    let asked: Vec<_> = (0..3)
        .map(|_| tokio::spawn(async move { request(address, "POST", "/apps/shop/n", "").await }))
        .collect();
    let held = "SELECT count(*) FROM trigger_outbox_pending WHERE lease_token IS NOT NULL AND claimed_by = ";
    let held = format!("{held}'{}'", serves.worker_id());
    until("all are leased", async || db.one::<i64>(&held).await == 3).await;
    let claimed = db.database.worker().claim_triggers("thief", 10, 60, None).await.unwrap();
    assert!(claimed.is_empty(), "nobody else finds them");
    open.send_replace(true);
    for asked in asked {
        assert_eq!(asked.await.unwrap().unwrap().status, 200);
    }
    let by_whom: String =
        db.one("SELECT string_agg(DISTINCT worker_id || ' ' || state, ',') FROM trigger_outbox_attempts").await;
    assert_eq!(by_whom, format!("{} DISPATCHED", serves.worker_id()));
    serves.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn what_is_paused_is_written_and_leased_to_nobody() {
    let db = TestDb::new().await;
    push_fetching(&db, 1).await;
    let leased = async || write_one(&db, "w", true).await.unwrap().lease_token.is_some();
    assert!(leased().await);
    db.sql("UPDATE apps SET paused = true").await;
    assert!(!leased().await, "the app is paused");
    db.sql("UPDATE apps SET paused = false; UPDATE trigger_outbox_settings SET paused = true")
        .await;
    assert!(!leased().await, "the lane is paused");
    db.sql("UPDATE trigger_outbox_settings SET paused = false").await;
    assert!(write_one(&db, "w", false).await.unwrap().lease_token.is_none());
    let waiting = db.database.worker().claim_triggers("other", 10, 60, None).await.unwrap();
    assert_eq!(waiting.len(), 3, "whoever claims finds what nobody has");
}

#[tokio::test]
async fn more_requests_than_slots_are_all_answered_in_turn() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &json!({
            "scripts": [script("echo", "export default r => r.payload.body")],
            "routes": [route("POST", "/echo", "echo")],
        }),
    )
    .await;
    let settings = "[triggers.scripts]\nconcurrency_max = 3\nconcurrency_max_per_app = 2\n";
    let platform = Platform::start_with(&db, settings).await;
    let address = platform.http();
    let asked: Vec<_> = (0..60)
        .map(|n| {
            let body = n.to_string();
            tokio::spawn(async move {
                let answer = request(address, "POST", "/apps/shop/echo", &body).await.unwrap();
                assert_eq!((answer.status, answer.body), (200, body));
            })
        })
        .collect();
    for asked in asked {
        asked.await.unwrap();
    }
    assert_eq!(db.count("trigger_outbox_executions WHERE state = 'DISPATCHED'").await, 60);
    platform.stop().await;
}

#[tokio::test]
async fn requests_that_find_no_slot_for_a_while_are_left_to_other_processes() {
    let db = TestDb::new().await;
    let (port, open) = silent_peer().await;
    push_fetching(&db, port).await;
    let one_slot = format!(
        "[triggers.scripts]\nconcurrency_max = 1\nconcurrency_max_per_app = 1\n{FETCH_HERE}"
    );
    let busy = Platform::start_with(&db, &one_slot).await;
    let idle = Platform::start_with(&db, &one_slot).await;
    let address = busy.http();
    let asked: Vec<_> = (0..2)
        .map(|_| tokio::spawn(async move { request(address, "POST", "/apps/shop/n", "").await }))
        .collect();
    let both = "SELECT count(DISTINCT claimed_by) FROM trigger_outbox_pending";
    until("each has one", async || db.one::<i64>(both).await == 2).await;
    open.send_replace(true);
    for asked in asked {
        assert_eq!(asked.await.unwrap().unwrap().status, 200);
    }
    busy.stop().await;
    idle.stop().await;
}

#[tokio::test]
async fn a_request_that_a_crash_took_is_neither_completed_nor_allowed_to_fetch() {
    // Nothing but a durable commit writes the log.
    let mut ground = Ground::prepare(&[("wal_writer_delay", "10s"), ("autovacuum", "off")]).await;
    let relay = ground.relay(None, &Arc::default()).await;
    let database =
        Database::connect(relay.options.clone(), 2, RoleSource::EachTransaction).await.unwrap();
    let db = TestDb { options: relay.options.clone(), database };
    push_fetching(&db, 1).await;
    let mut crashes = 0;
    let (lease, id) = loop {
        let written = write_one(&db, "w", true).await.unwrap();
        ground.kill_server().await;
        let lease = TriggerLease { id: written.id, lease_token: written.lease_token.unwrap() };
        let mut kept = None;
        until("the server answers again", async || {
            let found = sqlx::query_scalar::<_, i64>(
                "SELECT count(*) FROM symphony.trigger_outbox_pending WHERE id = $1",
            );
            kept = found.bind(written.id).fetch_one(db.database.pool()).await.ok();
            kept.is_some()
        })
        .await;
        if kept == Some(0) {
            break (lease, written.id);
        }
        crashes += 1;
        assert!(crashes < CRASHES_MAX, "every crash comes too late: is the commit asynchronous?");
    };
    let worker = db.database.worker();
    assert_eq!(worker.renew("w", &[lease], 60).await.unwrap(), [false], "nothing may leave");
    let effects = json!([{ "kind": "kv_set", "key": "n", "value": 1 }]);
    let outcome = TriggerOutcome {
        result: Some(to_raw_value(&json!("done")).unwrap()),
        effects: Some(to_raw_value(&effects).unwrap()),
        ..TriggerOutcome::new(lease, TriggerState::Dispatched)
    };
    let recorded = worker
        .complete_triggers("w", &[&outcome], std::time::Duration::from_secs(1))
        .await
        .unwrap();
    assert_eq!(recorded, [TriggerRecorded::NotHeld], "{id}: nobody is answered");
    assert_eq!(db.count("symphony.kv_entries").await, 0, "nothing is applied");
    db.database.pool().close().await;
    ground.clear().await;
}

#[tokio::test]
async fn a_request_is_on_disk_before_its_script_fetches() {
    let mut ground = Ground::prepare(&[("wal_writer_delay", "10s"), ("autovacuum", "off")]).await;
    let relay = ground.relay(None, &Arc::default()).await;
    let database =
        Database::connect(relay.options.clone(), 8, RoleSource::EachTransaction).await.unwrap();
    let db = TestDb { options: relay.options.clone(), database };
    let peer = TcpListener::bind("127.0.0.1:0").await.unwrap();
    push_fetching(&db, peer.local_addr().unwrap().port()).await;
    let platform = Platform::start_with(&db, FETCH_HERE).await;
    let address = platform.http();
    let asked = tokio::spawn(async move { request(address, "POST", "/apps/shop/n", "").await });
    let (mut stream, _) = peer.accept().await.unwrap();
    ground.kill_server().await;
    let mut head = [0; 16];
    stream.read_exact(&mut head).await.unwrap();
    let mut found = None;
    until("the server answers again", async || {
        let query =
            "SELECT count(*) FROM symphony.trigger_outbox_pending WHERE lease_token IS NOT NULL";
        found = sqlx::query_scalar::<_, i64>(query).fetch_one(db.database.pool()).await.ok();
        found.is_some()
    })
    .await;
    assert_eq!(found, Some(1), "the crash took a request whose fetch had left");
    drop(stream);
    let answer = asked.await.unwrap();
    assert!(answer.is_none_or(|answer| answer.status >= 500), "the fetch was not answered");
    assert_eq!(db.count("symphony.kv_entries").await, 0);
    platform.stop().await;
    db.database.pool().close().await;
    ground.clear().await;
}
