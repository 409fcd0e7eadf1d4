//! Who registered a trigger, and who caused what fires: proved by the session, handed on through all fan-out.

use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::manifest;
use crate::support::{TestDb, run};

/// Everybody who caused something or whose script runs, as `source kind name / kind name`, pending and ended.
async fn told(db: &TestDb) -> Vec<String> {
    db.one(
        "SELECT array_agg(DISTINCT concat(x.source_kind, ' ', o.kind, ' ', o.name, ' / ', r.kind, ' ', r.name)) \
           FROM (SELECT source_kind, origin_principal, principal FROM trigger_outbox_pending \
                 UNION ALL SELECT source_kind, origin_principal, principal FROM trigger_outbox_executions) x \
           LEFT JOIN principals o ON o.principal_id = x.origin_principal \
           LEFT JOIN principals r ON r.principal_id = x.principal",
    )
    .await
}

#[tokio::test]
async fn who_caused_the_root_is_known_all_along_the_fan_out() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &manifest(&[
            ("k", "kv", "*"),
            ("n", "pubsub", "news"),
            ("q", "queue", "jobs"),
            ("d", "dead_letter", "*"),
        ]),
    )
    .await;
    let pusher: String = db.one("SELECT session_user::text").await;
    let service = db.login("symphony_ingest").await;
    let login = service.get_username().to_owned();
    let mut producer = PgConnection::connect_with(&service).await.unwrap();
    run(&mut producer, "SELECT symphony.kv_set('shop', 'a', '1')").await.unwrap();
    let root = db.claim_item("w").await;
    db.done(
        "w",
        &root,
        json!([
            {"kind": "kv_set", "key": "b", "value": 2},
            {"kind": "pubsub_publish", "topic": "news", "message": 1},
            {"kind": "queue_send", "queue": "jobs", "message": 1},
            // This queue has no consumer: its message waits.
            {"kind": "queue_send", "queue": "mail", "message": 1},
            {"kind": "email_send", "message": {"to": "a@example.com", "subject": "s", "text": "t"}},
        ]),
    )
    .await;
    for item in db.claim_items("w", 10).await {
        db.settle("w", &item, "FAILED", json!([])).await;
    }
    let fired = ["dead_letter", "email", "kv", "pubsub", "queue"];
    let expected = |who: &str| -> Vec<String> {
        fired.iter().map(|kind| format!("{kind} {who} / login {pusher}")).collect()
    };
    assert_eq!(told(&db).await, expected(&format!("login {login}")));
    db.sql(&format!("SELECT replay_trigger_execution('{}', 'dana', 'again')", root.id)).await;
    assert_eq!(
        told(&db).await,
        expected(&format!("login {login}")),
        "a replay keeps who caused it"
    );
    let waiting: Uuid = db.one("SELECT origin_principal FROM queue_messages").await;
    assert_eq!(
        db.count(&format!("principals WHERE principal_id = '{waiting}' AND name = '{login}'"))
            .await,
        1
    );
}

#[tokio::test]
async fn whoever_fires_is_who_the_session_proves() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &manifest(&[
            ("k", "kv", "*"),
            ("n", "pubsub", "news"),
            ("q", "queue", "jobs"),
            ("c", "cron", "0 3 * * *"),
        ]),
    )
    .await;
    let (pusher, queue): (String, Uuid) = (
        db.one("SELECT session_user::text").await,
        db.one("SELECT id FROM triggers WHERE source_kind = 'queue'").await,
    );
    let service = db.login("symphony_ingest").await;
    let login = service.get_username().to_owned();
    let mut producer = PgConnection::connect_with(&service).await.unwrap();
    for call in [
        "symphony.kv_set('shop', 'a', '1')".to_owned(),
        "symphony.kv_delete('shop', 'a')".to_owned(),
        "symphony.publish_topic('shop', 'news', '1')".to_owned(),
        "symphony.send_to_queue('shop', 'jobs', '1')".to_owned(),
        format!("symphony.enqueue_trigger_outbox('shop', 'queue', '{queue}', '{{}}')"),
    ] {
        run(&mut producer, &format!("SELECT {call}")).await.unwrap();
    }
    db.sql("UPDATE trigger_cron SET next_tick_at = '2026-01-01T03:00:00Z'").await;
    db.sql(
        "SELECT fire_cron_tick(trigger_id, next_tick_at, next_tick_at + '1 day') FROM trigger_cron",
    )
    .await;
    assert_eq!(
        told(&db).await,
        [
            format!("cron app shop / login {pusher}"),
            format!("kv login {login} / login {pusher}"),
            format!("pubsub login {login} / login {pusher}"),
            format!("queue login {login} / login {pusher}"),
        ]
    );
    assert_eq!(db.count("trigger_outbox_pending").await, 6);
    for role in ["symphony_ingest", "symphony_operator", "symphony_auditor"] {
        let name = "SELECT symphony.note_principal('token', 'ann/ci')";
        assert!(db.refusal(role, name).await.starts_with("42501 "), "{role} may not make up names");
    }
    // A service may say on whose behalf it acts, by an id of its own.
    let who = Uuid::new_v4();
    db.one_as::<i64>("symphony_ingest", &format!("SELECT kv_set('shop', 'b', '1', '{who}')")).await;
    assert_eq!(
        db.count(&format!("trigger_outbox_pending WHERE origin_principal = '{who}'")).await,
        1
    );
}

#[tokio::test]
async fn a_request_has_the_caller_that_was_authenticated_or_none() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[]);
    shop["routes"] = json!([{"method": "GET", "path": "/", "script": "run"}]);
    db.push("shop", &shop).await;
    let request = db.request("shop", Uuid::new_v4()).await;
    assert_eq!(
        db.count(&format!("trigger_outbox_pending WHERE id = '{request}' AND origin_principal IS NULL AND principal IS NOT NULL"))
            .await,
        1,
        "the server's own login did not cause it"
    );
}
