//! Apps: what a push keeps and what it replaces, and what a deletion leaves behind.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{manifest, quoted, script};
use crate::support::TestDb;

async fn trigger_id(db: &TestDb, name: &str) -> Uuid {
    db.one(&format!("SELECT id FROM triggers WHERE name = '{name}'")).await
}

#[tokio::test]
async fn a_changed_script_gets_a_version_and_items_fired_before_keep_the_old_one() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("t", "kv", "*")]);
    db.push("shop", &shop).await;
    db.kv_set("shop", "a", &json!(1)).await;
    shop["scripts"][0]["source"] = json!("// better");
    assert_eq!(db.push("shop", &shop).await, 1);
    db.kv_set("shop", "b", &json!(1)).await;
    let items = db.claim_items("w", 10).await;
    let versions: Vec<(i32, String)> = {
        let mut found = Vec::new();
        for item in &items {
            let id = item.script_id.unwrap();
            let version = db.one(&format!("SELECT version FROM scripts WHERE id = '{id}'")).await;
            let source = db.one(&format!("SELECT source FROM scripts WHERE id = '{id}'")).await;
            found.push((version, source));
        }
        found
    };
    assert_eq!(versions, [(1, "// run".to_owned()), (2, "// better".to_owned())]);
    // The time it may take is a part of it, too.
    shop["scripts"][0]["timeoutMs"] = json!(77);
    assert_eq!(db.push("shop", &shop).await, 1);
    // And a script that moves elsewhere has no source any more.
    shop["scripts"][0] = json!({"name": "run", "url": "https://example.com/run", "timeoutMs": 77});
    assert_eq!(db.push("shop", &shop).await, 1);
    assert_eq!(db.one::<i32>("SELECT max(version) FROM scripts").await, 4);
}

#[tokio::test]
async fn a_trigger_keeps_its_id_and_its_clock_unless_what_it_is_changes() {
    let db = TestDb::new().await;
    let with = |trigger: Value| json!({"scripts": [script("run"), script("other")], "triggers": [trigger]});
    let cron = |zone: Option<&str>| {
        let mut trigger =
            json!({"name": "c", "kind": "cron", "filter": "0 3 * * *", "script": "run"});
        if let Some(zone) = zone {
            trigger["timeZone"] = json!(zone);
        }
        trigger
    };
    db.push("shop", &with(cron(None))).await;
    let first = trigger_id(&db, "c").await;
    db.sql("UPDATE trigger_cron SET next_tick_at = '2030-01-01T03:00:00Z'").await;
    // UTC is what it is in if nothing is said: to say so changes nothing.
    db.push("shop", &with(cron(Some("UTC")))).await;
    assert_eq!(trigger_id(&db, "c").await, first);
    db.push("shop", &with(cron(Some("UTC")))).await;
    assert_eq!(trigger_id(&db, "c").await, first);
    let mut other = cron(None);
    other["script"] = json!("other");
    other["attempts"] = json!(1);
    db.push("shop", &with(other)).await;
    assert_eq!(trigger_id(&db, "c").await, first, "what it runs is not what it is");
    assert_eq!(db.count("trigger_cron WHERE next_tick_at = '2030-01-01T03:00:00Z'").await, 1);

    db.push("shop", &with(cron(Some("Europe/Berlin")))).await;
    let second = trigger_id(&db, "c").await;
    assert_ne!(second, first);
    assert_eq!(db.count("trigger_cron WHERE next_tick_at IS NULL").await, 1, "a new clock, unset");
    let mut later = cron(Some("Europe/Berlin"));
    later["filter"] = json!("0 4 * * *");
    db.push("shop", &with(later)).await;
    assert_ne!(trigger_id(&db, "c").await, second);
    db.push("shop", &with(json!({"name": "c", "kind": "kv", "filter": "a", "script": "run"})))
        .await;
    assert_eq!(db.count("trigger_cron").await, 0);
}

#[tokio::test]
async fn what_a_manifest_does_not_name_any_more_is_gone() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("t", "kv", "*")]);
    shop["routes"] = json!([{"method": "GET", "path": "/", "script": "run"}]);
    db.push("shop", &shop).await;
    db.push("shop", &json!({})).await;
    for table in ["routes", "triggers", "topics", "queues"] {
        assert_eq!(db.count(table).await, 0, "{table}");
    }
    assert_eq!(db.count("scripts").await, 1, "versions stay until the app goes");
    assert_eq!(db.kv_set("shop", "a", &json!(1)).await, 1);
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
}

#[tokio::test]
async fn a_deleted_app_ends_its_items_in_the_ledger_and_fires_nothing() {
    let db = TestDb::new().await;
    db.push(
        "shop",
        &manifest(&[("t", "kv", "*"), ("d", "dead_letter", "*"), ("c", "cron", "* * * * *")]),
    )
    .await;
    db.kv_set("shop", "a", &json!(1)).await;
    db.kv_set("shop", "b", &json!(2)).await;
    let held = db.claim_items("w", 1).await.remove(0);
    let operator = "symphony_operator";
    let dry: i32 = db
        .one_as(operator, "SELECT items FROM delete_app('shop', 'dana', 'test', NULL, true)")
        .await;
    assert_eq!((dry, db.count("apps").await), (2, 1), "a dry run tells and does nothing");
    let items: i32 =
        db.one_as(operator, "SELECT items FROM delete_app('shop', 'dana', 'test')").await;
    assert_eq!(items, 2);
    for table in [
        "apps",
        "scripts",
        "triggers",
        "trigger_cron",
        "kv_entries",
        "queues",
        "trigger_outbox_pending",
    ] {
        assert_eq!(db.count(table).await, 0, "{table}");
    }
    assert_eq!(
        db.count("trigger_outbox_attempts WHERE error_code = 'APP_DELETED' AND state = 'FAILED'")
            .await,
        2
    );
    assert_eq!(db.execution(held.id).await["app_name"], json!("shop"));
    assert_eq!(
        db.count("trigger_outbox_events WHERE event_type = 'DELETED' AND actor = 'dana'").await,
        1
    );

    let late = db
        .settle("w", &held, "DISPATCHED", json!([{"kind": "kv_set", "key": "x", "value": 1}]))
        .await;
    assert_eq!(late.result, "P7001", "a completion after it was no completion");
    db.one_as::<i64>(
        "symphony_executor",
        &format!(
            "SELECT event_no FROM record_late_trigger_outcome('{}', '{}', 'w', 'DISPATCHED')",
            held.id, held.token
        ),
    )
    .await;
    db.assert_items_hold().await;
    assert!(
        db.refusal(operator, "SELECT delete_app('shop', 'dana', 'test')")
            .await
            .starts_with("P7007")
    );
}

#[tokio::test]
async fn executions_go_with_their_app_if_so_configured() {
    let db = TestDb::new().await;
    for name in ["shop", "other"] {
        db.push(name, &manifest(&[("t", "kv", "*")])).await;
        db.kv_set(name, "a", &json!(1)).await;
        let item = db.claim_item("w").await;
        db.done("w", &item, json!([])).await;
    }
    let operator = "symphony_operator";
    db.one_as::<bool>(operator, "SELECT keep_executions FROM configure_trigger_lane('dana', 'test', p_keep_executions => false)")
        .await;
    db.one_as::<i32>(operator, "SELECT items FROM delete_app('shop', 'dana', 'test')").await;
    assert_eq!(db.count("trigger_outbox_executions WHERE app_name = 'shop'").await, 0);
    assert_eq!(db.count("trigger_outbox_executions").await, 1, "another app's stay");
    assert_eq!(db.count("trigger_outbox_attempts").await, 2, "the ledger stays");
}

#[tokio::test]
async fn an_ended_execution_runs_again_as_an_item_of_its_own_with_the_script_of_today() {
    let db = TestDb::new().await;
    let mut shop = manifest(&[("t", "kv", "*")]);
    db.push("shop", &shop).await;
    db.kv_set("shop", "a", &json!(7)).await;
    let item = db.claim_item("w").await;
    db.settle("w", &item, "FAILED", json!([])).await;
    shop["scripts"][0]["source"] = json!("// better");
    db.push("shop", &shop).await;
    let replay = |id: Uuid, rest: &str| {
        format!("SELECT replay_id FROM replay_trigger_execution('{id}', 'dana', 'fixed'{rest})")
    };
    let operator = "symphony_operator";
    assert_eq!(db.one_as::<Option<Uuid>>(operator, &replay(item.id, ", NULL, true")).await, None);
    assert_eq!(db.count("trigger_outbox_pending").await, 0, "a dry run does nothing");
    let again: Uuid = db.one_as(operator, &replay(item.id, "")).await;
    let second = db.claim_item("w").await;
    assert_eq!((second.id, &second.payload, second.root), (again, &item.payload, again));
    assert_ne!(second.script_id, item.script_id);
    db.done("w", &second, json!([])).await;
    assert_eq!(db.item_ledger(item.id).await, ["1 FAILED BROKEN"], "what failed stays failed");
    assert!(db.refusal(operator, &replay(Uuid::new_v4(), "")).await.starts_with("P7007"));
    assert!(db.refusal(operator, &replay(item.id, ", 'Dana'")).await.starts_with("P7008"));
    db.one_as::<i32>(operator, "SELECT items FROM delete_app('shop', 'dana', 'test')").await;
    assert!(db.refusal(operator, &replay(item.id, "")).await.starts_with("P7006"));
}

#[tokio::test]
async fn a_name_that_is_no_app_is_refused_by_every_producer() {
    let db = TestDb::new().await;
    for call in [
        "kv_set('absent', 'k', '1')",
        "kv_delete('absent', 'k')",
        "publish_topic('absent', 't', '1')",
        "send_to_queue('absent', 'q', '1')",
        "enqueue_trigger_outbox('absent', 'http', gen_random_uuid(), '{}')",
    ] {
        let refusal = db.refusal("symphony_ingest", &format!("SELECT {call}")).await;
        assert!(refusal.starts_with("P7007 p_app: there is no app absent"), "{call}: {refusal}");
    }
    db.push("shop", &manifest(&[("t", "kv", "*")])).await;
    let trigger = trigger_id(&db, "t").await;
    for (arguments, expected) in [
        (
            format!("'http', '{trigger}', '{{}}'"),
            "P7007 p_trigger_id: the app has no such route for http",
        ),
        (
            format!("'queue', '{trigger}', '{{}}'"),
            "P7007 p_trigger_id: the app has no such trigger for queue",
        ),
        (format!("'post', '{trigger}', '{{}}'"), "P7005 p_source_kind must be"),
        (format!("'kv', '{trigger}', '[]'"), "P7005 p_payload must be a JSON object"),
        (format!("'kv', '{trigger}', NULL"), "P7005 p_payload must be a JSON object"),
        (format!("'kv', '{trigger}', '{{}}', NULL, '{trigger}'"), "P7005 p_wait_ms is null"),
        (
            format!("'kv', '{trigger}', jsonb_build_object('x', repeat('x', 2097152))"),
            "P7005 p_payload is larger than 2 MiB",
        ),
    ] {
        let call = format!("SELECT enqueue_trigger_outbox('shop', {arguments})");
        let refusal = db.refusal("symphony_ingest", &call).await;
        assert!(refusal.starts_with(expected), "{call}: {refusal}");
    }
    let huge = quoted(&json!("x".repeat(262_144)));
    for (call, expected) in [
        ("kv_set('shop', ' ', '1')".to_owned(), "P7005 p_key is blank"),
        ("kv_set('shop', repeat('k', 513), '1')".to_owned(), "P7005 p_key has 513 characters"),
        ("kv_set('shop', 'k', NULL)".to_owned(), "P7005 p_value is missing"),
        (format!("kv_set('shop', 'k', {huge})"), "P7005 p_value is larger than 256 KiB"),
        (
            format!("publish_topic('shop', 'news', {huge})"),
            "P7005 p_message is larger than 256 KiB",
        ),
        ("publish_topic('shop', 'news', NULL)".to_owned(), "P7005 p_message is missing"),
        ("receive_trigger_email('a@b', '[]')".to_owned(), "P7005 p_mail must be a JSON object"),
    ] {
        let refusal = db.refusal("symphony_ingest", &format!("SELECT {call}")).await;
        assert!(refusal.starts_with(expected), "{refusal}");
    }
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
}
