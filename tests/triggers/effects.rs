//! Effects: all of them with the completion, or none, and a bad one fails its own item only.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Item, manifest};
use crate::support::TestDb;

/// `count` items of a queue, held by `w`, in an app that watches the key `watched`.
async fn with_items(count: usize) -> (TestDb, Vec<Item>) {
    let db = TestDb::new().await;
    let watching = [
        ("q", "queue", "jobs"),
        ("k", "kv", "watched"),
        ("n", "pubsub", "news"),
        ("d", "dead_letter", "run"),
    ];
    db.push("shop", &manifest(&watching)).await;
    for n in 0..count {
        assert!(db.send("shop", "jobs", &json!(n)).await);
    }
    let items = db.claim_items("w", 100).await;
    assert_eq!(items.len(), count);
    (db, items)
}

fn event(id: Uuid) -> Value {
    json!({"envelope": {"v": 1, "eventId": id, "occurredAt": "2026-11-15T12:00:00Z", "tenantId": "tnt_1",
                        "type": "events.orders.placed"},
           "key": {"orderId": "o1"}, "payload": {"n": 1}})
}

fn all_kinds(event_id: Uuid) -> Vec<Value> {
    vec![
        json!({"kind": "kv_set", "key": "watched", "value": {"n": 1}}),
        json!({"kind": "kv_delete", "key": "old"}),
        json!({"kind": "queue_send", "queue": "jobs", "message": "next"}),
        json!({"kind": "pubsub_publish", "topic": "news", "message": "told"}),
        json!({"kind": "event_publish", "event": event(event_id)}),
        json!({"kind": "email_send", "message": {"to": "a@example.com", "subject": "Hello", "text": "Text"}}),
    ]
}

#[tokio::test]
async fn every_kind_of_effect_is_applied_with_the_completion() {
    let (db, items) = with_items(1).await;
    db.kv_set("shop", "old", &json!(1)).await;
    let event_id = Uuid::new_v4();
    db.done("w", &items[0], Value::Array(all_kinds(event_id))).await;
    assert_eq!(db.kv("watched").await, Some(json!({"n": 1})));
    assert_eq!(db.kv("old").await, None);
    assert_eq!(db.count(&format!("event_outbox_log WHERE event_id = '{event_id}'")).await, 1);
    let fired = db.claim_items("w", 100).await;
    let mut kinds: Vec<&str> = fired.iter().map(|item| item.source_kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["email", "kv", "pubsub", "queue"]);
    for item in &fired {
        assert_eq!((item.depth, item.root), (1, items[0].root), "{item:?}");
    }
    assert_eq!(
        db.count(&format!("trigger_outbox_pending WHERE parent_execution_id = '{}'", items[0].id))
            .await,
        4
    );
}

#[tokio::test]
async fn outbound_email_becomes_a_row_without_a_script() {
    let (db, items) = with_items(1).await;
    let message =
        json!({"to": ["a@example.com", "b@example.com"], "subject": "Hello", "text": "Text"});
    db.done("w", &items[0], json!([{"kind": "email_send", "message": message}])).await;
    let row = db.claim_item("w").await;
    assert_eq!((row.source_kind.as_str(), row.script_id), ("email", None));
    // Derived from the run that wrote it: the same if its completion is lost and it runs again.
    let key: Uuid = db
        .one(&format!(
            "SELECT symphony.derive_key(installation_id, '{}', 'email', 1) FROM symphony_installation",
            items[0].id
        ))
        .await;
    assert_eq!(
        row.payload,
        json!({"direction": "out", "to": ["a@example.com", "b@example.com"], "subject": "Hello", "text": "Text", "messageKey": key})
    );
    db.done("w", &row, json!([])).await;
    assert_eq!(db.execution(row.id).await["script_name"], json!(null));
}

#[tokio::test]
async fn a_bad_effect_undoes_all_of_its_item_and_fails_it_alone() {
    let good = all_kinds(Uuid::new_v4());
    let mut bad_event = event(Uuid::new_v4());
    bad_event["payload"]["iban"] = json!("DE00");
    let bad = [
        (json!({"kind": "explode"}), "there is no effect explode"),
        (json!({"key": "a"}), "there is no effect \"null\""),
        (json!("kv_set"), "there is no effect \"null\""),
        (json!({"kind": "kv_set", "value": 1}), "p_key is blank"),
        (json!({"kind": "kv_set", "key": "", "value": 1}), "p_key is blank"),
        (json!({"kind": "kv_set", "key": "k".repeat(513), "value": 1}), "p_key has 513 characters"),
        (json!({"kind": "kv_set", "key": "a", "value": "x".repeat(262_144)}), "p_value is larger"),
        (
            json!({"kind": "queue_send", "queue": "absent", "message": 1}),
            "the app has no queue absent",
        ),
        (json!({"kind": "queue_send", "queue": "jobs"}), "p_message is missing"),
        (
            json!({"kind": "pubsub_publish", "topic": "absent", "message": 1}),
            "the app has no topic absent",
        ),
        (json!({"kind": "pubsub_publish", "message": 1}), "p_topic is blank"),
        (json!({"kind": "event_publish", "event": bad_event}), "payload"),
        (json!({"kind": "event_publish", "event": {"envelope": {}}}), "envelope"),
        (json!({"kind": "event_publish"}), ""),
        (
            json!({"kind": "email_send", "message": {"to": "nobody", "subject": "s", "text": "t"}}),
            "email.to must be",
        ),
        (
            json!({"kind": "email_send", "message": {"to": [], "subject": "s", "text": "t"}}),
            "email.to must be",
        ),
        (
            json!({"kind": "email_send", "message": {"to": "a@b.c", "subject": "s\nBcc: x", "text": "t"}}),
            "email.subject",
        ),
        (
            json!({"kind": "email_send", "message": {"to": "a@b.c", "subject": "s"}}),
            "email.text must be",
        ),
        (json!({"kind": "email_send"}), "email.to must be"),
    ];
    let (db, items) = with_items(bad.len() + 1).await;
    for ((effect, expected), item) in bad.into_iter().zip(&items) {
        let mut effects = good.clone();
        effects.push(effect.clone());
        let settled = db.settle("w", item, "DISPATCHED", Value::Array(effects)).await;
        assert_eq!(
            (settled.result.as_str(), settled.outcome.as_str()),
            ("OK", "FAILED EFFECT_REFUSED"),
            "{effect}"
        );
        let execution = db.execution(item.id).await;
        let message = execution["error_message"].as_str().unwrap();
        assert!(
            message.starts_with(&format!("nothing of it was applied: {expected}")),
            "{effect}: {message}"
        );
        assert!(!message.contains("DE00") && !message.contains("xxxx"), "no contents: {message}");
        assert_eq!(execution["result"], json!(null));
    }
    for nothing in [
        "kv_entries",
        "event_outbox_log",
        "trigger_outbox_pending WHERE source_kind NOT IN ('queue', 'dead_letter')",
    ] {
        assert_eq!(db.count(nothing).await, 0, "{nothing}");
    }
    assert_eq!(
        db.count("trigger_outbox_pending WHERE source_kind = 'dead_letter'").await,
        i64::try_from(items.len()).unwrap() - 1
    );
    db.done("w", items.last().unwrap(), Value::Array(good)).await;
    db.assert_items_hold().await;
}

#[tokio::test]
async fn an_event_told_before_under_its_id_with_other_contents_fails_the_item() {
    let (db, items) = with_items(3).await;
    let id = Uuid::new_v4();
    let mut other = event(id);
    other["payload"]["n"] = json!(2);
    let publish = |event: Value| json!([{"kind": "event_publish", "event": event}]);
    db.done("w", &items[0], publish(event(id))).await;
    db.done("w", &items[1], publish(event(id))).await;
    let settled = db.settle("w", &items[2], "DISPATCHED", publish(other)).await;
    assert_eq!(settled.outcome, "FAILED EFFECT_REFUSED");
    assert_eq!(db.count("event_outbox_log").await, 1);
}

#[tokio::test]
async fn of_several_writes_to_a_key_the_last_counts() {
    let (db, items) = with_items(2).await;
    let writes = json!([
        {"kind": "kv_set", "key": "watched", "value": 1}, {"kind": "kv_delete", "key": "watched"},
        {"kind": "kv_set", "key": "other", "value": 1}, {"kind": "kv_set", "key": "watched", "value": 2},
        {"kind": "kv_delete", "key": "other"}
    ]);
    db.done("w", &items[0], writes).await;
    assert_eq!((db.kv("watched").await, db.kv("other").await), (Some(json!(2)), None));
    let fired = db.claim_item("w").await;
    assert_eq!((&fired.payload["value"], &fired.payload["previous"]), (&json!(2), &json!(null)));
    db.done("w", &items[1], json!([{"kind": "kv_set", "key": "watched"}])).await;
    assert_eq!(db.kv("watched").await, Some(json!(null)), "a value left out is null");
}

#[tokio::test]
async fn a_set_of_items_is_completed_with_all_its_effects_or_not_at_all() {
    let (db, items) = with_items(3).await;
    let list = |each: fn(&Item) -> String| items.iter().map(each).collect::<Vec<_>>().join(",");
    let call = |effects: &str| {
        format!(
            "SELECT * FROM complete_trigger_outbox_attempts('w', '{{{}}}', '{{{}}}', '{{DISPATCHED,DISPATCHED,FAILED}}', p_effects => {effects})",
            list(|item| item.id.to_string()),
            list(|item| item.token.to_string())
        )
    };
    let one_is_bad = r#"ARRAY['[{"kind": "kv_set", "key": "b", "value": 1}]',
        '[{"kind": "kv_set", "key": "a", "value": 1}, {"kind": "queue_send", "queue": "nope", "message": 1}]', NULL]::jsonb[]"#;
    let refusal = db.refusal("symphony_executor", &call(one_is_bad)).await;
    assert!(refusal.starts_with("P7005 the app has no queue nope"), "{refusal}");
    assert_eq!(db.count("kv_entries").await + db.count("trigger_outbox_attempts").await, 0);
    let good = r#"ARRAY['[{"kind": "kv_set", "key": "b", "value": 1}]',
        '[{"kind": "kv_set", "key": "a", "value": 2}, {"kind": "queue_send", "queue": "jobs", "message": 1}]',
        '[{"kind": "kv_set", "key": "c", "value": 3}]']::jsonb[]"#;
    assert_eq!(db.refusal("symphony_executor", &call(good)).await, "OK");
    let entries: String =
        db.one("SELECT string_agg(key || '=' || value, ' ' ORDER BY key) FROM kv_entries").await;
    assert_eq!(entries, "a=2 b=1", "what failed applies nothing");
    assert_eq!(db.count("trigger_outbox_attempts WHERE state = 'DISPATCHED'").await, 2);
    let sent: String = db
        .one("SELECT payload->>'message' FROM trigger_outbox_pending WHERE source_kind = 'queue'")
        .await;
    assert_eq!(sent, "1");
}

#[tokio::test]
async fn what_fails_or_is_tried_again_applies_nothing() {
    let (db, items) = with_items(2).await;
    let effects = Value::Array(all_kinds(Uuid::new_v4()));
    assert_eq!(db.settle("w", &items[0], "FAILED", effects.clone()).await.outcome, "FAILED BROKEN");
    assert_eq!(
        db.settle("w", &items[1], "RETRYABLE", effects.clone()).await.outcome,
        "RETRYABLE BROKEN"
    );
    assert_eq!(db.count("kv_entries").await + db.count("event_outbox_log").await, 0);
    db.make_items_due().await;
    let again =
        db.claim_items("w", 10).await.into_iter().find(|item| item.id == items[1].id).unwrap();
    db.done("w", &again, effects).await;
    assert_eq!(
        db.count("kv_entries WHERE key = 'watched' AND version = 1").await,
        1,
        "tried twice, applied once"
    );
}

#[tokio::test]
async fn effects_are_gone_with_a_completion_that_does_not_commit() {
    let (db, items) = with_items(1).await;
    let mut connection = db.as_role("symphony_executor").await;
    crate::support::run(&mut connection, "BEGIN").await.unwrap();
    let effects = Value::Array(all_kinds(Uuid::new_v4()));
    super::settle_on(&mut connection, "w", &items[0], "DISPATCHED", &effects).await.unwrap();
    crate::support::run(&mut connection, "ROLLBACK").await.unwrap();
    assert_eq!(db.count("kv_entries").await + db.count("event_outbox_log").await, 0);
    assert_eq!(db.count("trigger_outbox_pending").await, 1);
    db.done("w", &items[0], effects).await;
}
