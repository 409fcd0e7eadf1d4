//! Requests that ran before they were written: what is not as their runs took it to be applies nothing and leaves no row.

use serde_json::json;
use uuid::Uuid;

use super::manifest;
use crate::support::TestDb;

const EXECUTOR: &str = "symphony_executor";

/// One request to the app's only route, as it ended with an entry to be written.
struct Ended {
    id: Uuid,
    token: Uuid,
    route_id: Uuid,
    script_id: Uuid,
    wait_ms: i32,
    state: &'static str,
    key: &'static str,
    reads: &'static str,
}

/// An app with one route.
async fn with_route() -> TestDb {
    let db = TestDb::new().await;
    let mut shop = manifest(&[]);
    shop["routes"] = json!([{"method": "GET", "path": "/", "script": "run"}]);
    db.push("shop", &shop).await;
    db
}

async fn ended(db: &TestDb) -> Ended {
    Ended {
        id: db.one("SELECT symphony.time_ordered_id()").await,
        token: Uuid::new_v4(),
        route_id: db.one("SELECT id FROM routes").await,
        script_id: db
            .one("SELECT id FROM scripts WHERE name = 'run' ORDER BY version DESC LIMIT 1")
            .await,
        wait_ms: 60_000,
        state: "DISPATCHED",
        key: "n",
        reads: "NULL",
    }
}

/// Write one down, with exactly the documented grant; answers result, state and code.
async fn complete(db: &TestDb, ended: &Ended) -> String {
    let Ended { id, token, route_id, script_id, wait_ms, state, key, reads } = ended;
    db.one_as(
        EXECUTOR,
        &format!(
            "SELECT concat_ws(' ', c.result, c.state, c.error_code)
               FROM complete_trigger_requests('w', '{{{id}}}', '{{{token}}}',
                    ARRAY(SELECT id FROM apps WHERE name = 'shop'), '{{{route_id}}}', '{{{script_id}}}',
                    ARRAY['{{\"path\": \"/\"}}'::jsonb], NULL, '{{{id}}}', '{{{wait_ms}}}', '{{5}}', NULL, '{{{state}}}',
                    ARRAY['\"done\"'::jsonb], NULL,
                    ARRAY['[{{\"kind\": \"kv_increment\", \"key\": \"{key}\", \"by\": 1}}]'::jsonb], NULL, NULL, '{{2}}', '{{true}}',
                    {reads}, 1000) c"
        ),
    )
    .await
}

async fn left(db: &TestDb) -> (i64, i64, i64) {
    (
        db.count("trigger_outbox_pending").await,
        db.count("trigger_outbox_executions").await,
        db.count("trigger_outbox_attempts").await,
    )
}

#[tokio::test]
async fn a_request_is_written_once_as_it_ended_however_often_it_is_told() {
    let db = with_route().await;
    let request = ended(&db).await;
    for _ in 0..2 {
        assert_eq!(complete(&db, &request).await, "OK DISPATCHED");
    }
    assert_eq!(db.kv("n").await, Some(json!(1)));
    assert_eq!(left(&db).await, (0, 1, 1));
    let execution = db.execution(request.id).await;
    assert_eq!((&execution["script_name"], &execution["result"]), (&json!("run"), &json!("done")));
    db.assert_items_hold().await;
}

#[tokio::test]
async fn a_request_whose_client_has_gone_applies_nothing_and_has_failed() {
    let db = with_route().await;
    let late = Ended { wait_ms: 0, ..ended(&db).await };
    assert_eq!(complete(&db, &late).await, "OK FAILED REPLY_DEADLINE");
    let broken = Ended { state: "RETRYABLE", ..ended(&db).await };
    assert_eq!(complete(&db, &broken).await, "OK FAILED", "somebody waited: one attempt");
    assert_eq!(db.kv("n").await, None);
    assert_eq!(left(&db).await, (0, 2, 2));
}

#[tokio::test]
async fn an_effect_that_is_not_right_fails_its_request_and_applies_nothing() {
    let db = with_route().await;
    let bad = Ended { key: " ", ..ended(&db).await };
    assert_eq!(complete(&db, &bad).await, "OK FAILED EFFECT_REFUSED");
    assert_eq!(db.count("kv_entries").await, 0);
}

#[tokio::test]
async fn what_a_run_took_for_granted_is_decided_when_it_is_written() {
    let db = with_route().await;
    let request = ended(&db).await;
    let changed = Ended {
        reads: "ARRAY['[{\"key\": \"n\", \"version\": \"7.7\"}]'::jsonb]",
        ..ended(&db).await
    };
    assert_eq!(complete(&db, &changed).await, "P7011");
    db.sql("UPDATE apps SET paused = true").await;
    assert_eq!(complete(&db, &request).await, "STALE", "its app is paused");
    db.sql("UPDATE apps SET paused = false").await;
    let older = Ended { script_id: Uuid::new_v4(), ..ended(&db).await };
    assert_eq!(complete(&db, &older).await, "STALE", "another version was pushed");
    assert_eq!(left(&db).await, (0, 0, 0), "nothing is written of any of them");
    assert_eq!(db.kv("n").await, None);
    assert_eq!(complete(&db, &request).await, "OK DISPATCHED", "it is as it was");
}

#[tokio::test]
async fn a_route_that_asks_another_way_who_calls_takes_nothing_that_came_before() {
    let db = with_route().await;
    let mut shop = manifest(&[]);
    let route = |auth: &str| json!([{"method": "GET", "path": "/", "script": "run", "auth": auth}]);
    let route_id = async || db.one::<Uuid>("SELECT id FROM routes").await;
    let before = route_id().await;
    shop["routes"] = route("none");
    shop["routes"][0]["waitMs"] = json!(77);
    db.push("shop", &shop).await;
    assert_eq!(route_id().await, before, "it asks as it did");
    shop["routes"] = route("token");
    db.push("shop", &shop).await;
    assert_ne!(route_id().await, before);
    // It ran for somebody whom nobody had asked for a token.
    let of_before = Ended { route_id: before, ..ended(&db).await };
    assert_eq!(complete(&db, &of_before).await, "STALE");
    let enqueue = format!("SELECT enqueue_trigger_outbox('shop', 'http', '{before}', '{{}}')");
    let refusal = db.refusal("symphony_ingest", &enqueue).await;
    assert!(refusal.starts_with("P7007"), "{refusal}");
    assert_eq!(left(&db).await, (0, 0, 0), "nothing is written of it");
    assert_eq!(complete(&db, &ended(&db).await).await, "OK DISPATCHED");
}
