//! What fires what: keys, topics, queues, mail, dead letters, and how deep it goes.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Item, manifest};
use crate::support::{TestDb, run};

async fn with(triggers: &[(&str, &str, &str)]) -> TestDb {
    let db = TestDb::new().await;
    db.push("shop", &manifest(triggers)).await;
    db
}

async fn publish(db: &TestDb, topic: &str) -> i32 {
    db.one_as("symphony_ingest", &format!("SELECT publish_topic('shop', '{topic}', '\"hello\"')"))
        .await
}

#[tokio::test]
async fn a_set_or_delete_fires_matching_triggers_with_the_previous_value() {
    let db = with(&[("all", "kv", "*"), ("some", "kv", "order/*"), ("one", "kv", "order/1")]).await;
    assert_eq!(db.kv_set("shop", "order/1", &json!({"n": 1})).await, 1);
    assert_eq!(db.claim_items("w", 10).await.len(), 3);
    assert_eq!(db.kv_set("shop", "order/2", &json!(5)).await, 1);
    assert_eq!(db.claim_items("w", 10).await.len(), 2);
    assert_eq!(db.kv_set("shop", "order", &json!(5)).await, 1);
    assert_eq!(db.claim_items("w", 10).await.len(), 1);
    assert_eq!(db.kv_set("shop", "order/2", &json!(6)).await, 2);
    for item in db.claim_items("w", 10).await {
        assert_eq!(
            item.payload,
            json!({"operation": "set", "key": "order/2", "value": 6, "previous": 5, "version": 2})
        );
        assert_eq!((item.depth, item.root), (0, item.id));
    }
    let delete = "SELECT kv_delete('shop', 'order/2')";
    assert!(db.one_as::<bool>("symphony_ingest", delete).await);
    for item in db.claim_items("w", 10).await {
        assert_eq!(
            item.payload,
            json!({"operation": "delete", "key": "order/2", "value": null, "previous": 6, "version": 2})
        );
    }
    assert!(!db.one_as::<bool>("symphony_ingest", delete).await);
    assert!(db.claim_items("w", 10).await.is_empty(), "deleting nothing fires nothing");
}

#[tokio::test]
async fn another_apps_keys_fire_nothing() {
    let db = with(&[("all", "kv", "*")]).await;
    db.push("other", &json!({})).await;
    db.kv_set("other", "a", &json!(1)).await;
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
}

#[tokio::test]
async fn what_rolls_back_has_fired_nothing() {
    let db = with(&[("k", "kv", "*"), ("n", "pubsub", "*"), ("q", "queue", "jobs")]).await;
    let mut producer = db.as_role("symphony_ingest").await;
    run(
        &mut producer,
        "BEGIN; SELECT kv_set('shop', 'a', '1'), publish_topic('shop', 'news', '1'), send_to_queue('shop', 'jobs', '1'), \
         send_to_queue('shop', 'mail', '1'); ROLLBACK",
    )
    .await
    .unwrap();
    for table in ["trigger_outbox_pending", "kv_entries", "queue_messages"] {
        assert_eq!(db.count(table).await, 0, "{table}");
    }
}

#[tokio::test]
async fn a_topic_reaches_every_subscriber() {
    let db =
        with(&[("a", "pubsub", "news"), ("b", "pubsub", "n*"), ("c", "pubsub", "other")]).await;
    assert_eq!(publish(&db, "news").await, 2);
    let items = db.claim_items("w", 10).await;
    assert_eq!(items.len(), 2);
    assert!(items.iter().all(|item| item.payload == json!({"topic": "news", "message": "hello"})));
}

#[tokio::test]
async fn a_queue_reaches_exactly_one_consumer_each_time() {
    let db = with(&[("a", "queue", "jobs"), ("b", "queue", "j*"), ("c", "queue", "*")]).await;
    for n in 0..60 {
        assert!(db.send("shop", "jobs", &json!(n)).await);
    }
    assert_eq!(db.count("trigger_outbox_pending").await, 60);
    assert_eq!(
        db.one::<i64>("SELECT count(DISTINCT trigger_id) FROM trigger_outbox_pending").await,
        3,
        "sixty messages reach all three"
    );
}

#[tokio::test]
async fn a_topic_or_queue_that_is_not_declared_is_refused() {
    let db = with(&[("a", "pubsub", "*"), ("b", "queue", "*")]).await;
    for (call, expected) in [
        ("publish_topic('shop', 'absent', '1')", "P7005 the app has no topic absent: declare it"),
        ("send_to_queue('shop', 'absent', '1')", "P7005 the app has no queue absent: declare it"),
        ("publish_topic('shop', 'jobs', '1')", "P7005 the app has no topic jobs"),
        ("publish_topic('shop', NULL, '1')", "P7005 p_topic is blank"),
        ("send_to_queue('shop', '', '1')", "P7005 p_queue is blank"),
    ] {
        let refusal = db.refusal("symphony_ingest", &format!("SELECT {call}")).await;
        assert!(refusal.starts_with(expected), "{call}: {refusal}");
    }
    assert_eq!(db.count("trigger_outbox_pending").await, 0);
}

#[tokio::test]
async fn messages_without_a_consumer_wait_for_the_push_that_brings_one_and_keep_their_order() {
    let db = with(&[]).await;
    for n in 0..30 {
        assert!(!db.send("shop", "jobs", &json!(n)).await);
    }
    // The queue is not in the manifest any more, but its messages are there: it stays.
    db.push("shop", &json!({})).await;
    assert_eq!(db.count("queues").await, 1);
    assert_eq!(db.count("queue_messages").await, 30);
    db.push("shop", &manifest(&[("q", "queue", "jobs")])).await;
    assert_eq!(db.count("queue_messages").await, 0);
    let messages: Vec<Value> =
        db.claim_items("w", 100).await.iter().map(|item| item.payload["message"].clone()).collect();
    assert_eq!(messages, (0..30).map(|n| json!(n)).collect::<Vec<_>>());
}

#[tokio::test]
async fn mail_fires_the_triggers_of_its_recipient_in_every_app_that_may_have_it_whatever_its_case()
{
    let db = TestDb::new().await;
    for (app, filter) in [("shop", "sales@*"), ("other", "*")] {
        db.push(app, &json!({})).await;
        db.grant_mail(app, filter).await;
    }
    let own = [("a", "email", "Orders@example.com"), ("b", "email", "sales@*")];
    // What an operator grants to one app no other app may claim by itself.
    db.grant_mail("shop", "orders@example.com").await;
    db.push("shop", &manifest(&own)).await;
    db.push("other", &manifest(&[("all", "email", "*")])).await;
    let receive = |recipient: &str, mail: &str| {
        format!("SELECT receive_trigger_email('{recipient}', {mail})")
    };
    let ingest = "symphony_ingest";
    for (recipient, wanted) in
        [("orders@example.com", 2), ("ORDERS@Example.COM", 2), ("Sales@example.com", 2), ("x@y", 1)]
    {
        assert_eq!(
            db.one_as::<i32>(ingest, &receive(recipient, "NULL")).await,
            wanted,
            "asked: {recipient}"
        );
        assert!(db.claim_items("w", 10).await.is_empty(), "asking fires nothing");
        assert_eq!(
            db.one_as::<i32>(ingest, &receive(recipient, "'{\"subject\": \"s\"}'")).await,
            wanted,
            "{recipient}"
        );
        let items = db.claim_items("w", 10).await;
        assert_eq!(items.len(), usize::try_from(wanted).unwrap());
        for item in items {
            assert_eq!(
                item.payload,
                json!({"direction": "in", "recipient": recipient, "mail": {"subject": "s"}})
            );
        }
    }
    db.one_as::<i32>("symphony_operator", "SELECT items FROM delete_app('other', 'dana', 'test')")
        .await;
    assert_eq!(db.one_as::<i32>(ingest, &receive("x@y", "'{}'")).await, 0, "nobody wants it");
}

#[tokio::test]
async fn a_chain_ends_at_the_limit_with_the_same_root_all_along() {
    let db = with(&[("k", "kv", "*")]).await;
    db.kv_set("shop", "step", &json!(0)).await;
    let mut ran: Vec<Item> = Vec::new();
    loop {
        let mut items = db.claim_items("w", 10).await;
        let Some(item) = items.pop() else { break };
        assert!(items.is_empty());
        assert!(ran.len() < 20, "it never ends");
        db.done("w", &item, json!([{"kind": "kv_set", "key": "step", "value": ran.len() + 1}]))
            .await;
        ran.push(item);
    }
    assert_eq!(ran.iter().map(|item| item.depth).collect::<Vec<_>>(), (0..=8).collect::<Vec<_>>());
    let root = ran[0].id;
    let exceeded: Uuid =
        db.one("SELECT id FROM trigger_outbox_executions WHERE trigger_depth = 9").await;
    assert_eq!(db.item_ledger(exceeded).await, ["1 FAILED TRIGGER_DEPTH_EXCEEDED"]);
    let execution = db.execution(exceeded).await;
    assert_eq!(execution["error_code"], json!("TRIGGER_DEPTH_EXCEEDED"));
    assert_eq!(execution["parent_execution_id"], json!(ran[8].id));
    assert_eq!(
        db.count(&format!("trigger_outbox_executions WHERE root_execution_id = '{root}'")).await,
        10
    );
    assert_eq!(
        db.count(&format!("trigger_outbox_attempts WHERE root_execution_id = '{root}'")).await,
        10
    );
    // The tree: each the parent of the next.
    let depth: i64 = db
        .one(&format!(
            "WITH RECURSIVE tree AS (SELECT id FROM trigger_outbox_executions WHERE id = '{root}' \
             UNION ALL SELECT e.id FROM trigger_outbox_executions e JOIN tree t ON e.parent_execution_id = t.id) \
             SELECT count(*) FROM tree"
        ))
        .await;
    assert_eq!(depth, 10);
    db.assert_items_hold().await;
}

#[tokio::test]
async fn the_limit_is_the_lanes_setting() {
    let db = with(&[("k", "kv", "*")]).await;
    let configure =
        "SELECT depth_max FROM configure_trigger_lane('dana', 'test', p_depth_max => 0)";
    assert_eq!(db.one_as::<i32>("symphony_operator", configure).await, 0);
    db.kv_set("shop", "a", &json!(0)).await;
    let item = db.claim_item("w").await;
    db.done("w", &item, json!([{"kind": "kv_set", "key": "a", "value": 1}])).await;
    assert!(db.claim_items("w", 10).await.is_empty());
    assert_eq!(
        db.kv("a").await,
        Some(json!(1)),
        "the write itself is fine: what it fired has failed"
    );
}

#[tokio::test]
async fn a_failed_item_fires_the_dead_letters_of_its_script_with_itself_in_the_payload() {
    let db =
        with(&[("k", "kv", "*"), ("d", "dead_letter", "run"), ("e", "dead_letter", "other")]).await;
    db.kv_set("shop", "a", &json!(7)).await;
    let item = db.claim_item("w").await;
    db.settle("w", &item, "FAILED", json!([])).await;
    let letter = db.claim_item("w").await;
    assert_eq!(letter.source_kind, "dead_letter");
    assert_eq!(letter.root, item.root);
    assert_eq!(
        letter.payload,
        json!({"executionId": item.id, "sourceKind": "kv", "script": "run", "payload": item.payload,
               "errorCode": "BROKEN", "errorMessage": null, "attempts": 1})
    );
}

#[tokio::test]
async fn a_dead_letter_of_a_dead_letter_ends_there() {
    let db = with(&[("k", "kv", "*"), ("d", "dead_letter", "*")]).await;
    db.kv_set("shop", "a", &json!(7)).await;
    let item = db.claim_item("w").await;
    db.settle("w", &item, "FAILED", json!([])).await;
    let letter = db.claim_item("w").await;
    db.settle("w", &letter, "FAILED", json!([])).await;
    assert!(db.claim_items("w", 10).await.is_empty());
    assert_eq!(db.count("trigger_outbox_executions").await, 2);
}

#[tokio::test]
async fn a_dead_letters_own_writes_do_not_go_round_in_a_circle() {
    let db = with(&[("k", "kv", "*"), ("q", "queue", "mail"), ("d", "dead_letter", "*")]).await;
    db.kv_set("shop", "a", &json!(7)).await;
    let item = db.claim_item("w").await;
    db.settle("w", &item, "FAILED", json!([])).await;
    let letter = db.claim_item("w").await;
    // One goes through a key, one through a queue, one through a queue that has no consumer yet.
    db.done(
        "w",
        &letter,
        json!([{"kind": "kv_set", "key": "b", "value": 1}, {"kind": "queue_send", "queue": "mail", "message": 1},
               {"kind": "queue_send", "queue": "jobs", "message": 1}]),
    )
    .await;
    db.push("shop", &manifest(&[("k", "kv", "*"), ("q", "queue", "*"), ("d", "dead_letter", "*")]))
        .await;
    let items = db.claim_items("w", 10).await;
    assert_eq!(items.len(), 3);
    for item in &items {
        assert_eq!((item.depth, item.root), (1, letter.root));
        assert_eq!(db.settle("w", item, "FAILED", json!([])).await.outcome, "FAILED BROKEN");
    }
    assert!(db.claim_items("w", 10).await.is_empty(), "they fail without another dead letter");
    db.assert_items_hold().await;
}

#[tokio::test]
async fn what_is_refused_for_its_depth_is_a_dead_letter_too() {
    let db = with(&[("k", "kv", "*"), ("d", "dead_letter", "run")]).await;
    db.sql("UPDATE trigger_outbox_settings SET depth_max = 0").await;
    db.kv_set("shop", "a", &json!(0)).await;
    let item = db.claim_item("w").await;
    db.done("w", &item, json!([{"kind": "kv_set", "key": "a", "value": 1}])).await;
    let letter = db.claim_item("w").await;
    assert_eq!(letter.payload["errorCode"], json!("TRIGGER_DEPTH_EXCEEDED"));
    // Its own writes are too deep as well, and end there.
    db.done("w", &letter, json!([{"kind": "kv_set", "key": "a", "value": 2}])).await;
    assert!(db.claim_items("w", 10).await.is_empty());
    assert_eq!(
        db.count("trigger_outbox_executions WHERE error_code = 'TRIGGER_DEPTH_EXCEEDED'").await,
        2
    );
}

#[tokio::test]
async fn programs_that_answer_each_other_by_mail_end_at_the_limit() {
    let db = with(&[("in", "email", "shop@example.com")]).await;
    let receive = async |answers_to: &str| -> i32 {
        let call =
            format!("SELECT receive_trigger_email('shop@example.com', '{{}}', NULL, {answers_to})");
        db.one_as("symphony_ingest", &call).await
    };
    assert_eq!(receive("NULL").await, 1);
    let mut depths = Vec::new();
    loop {
        let Some(item) = db.claim_items("w", 1).await.pop() else { break };
        depths.push(item.depth);
        let message = json!({"to": "robot@example.org", "subject": "Re", "text": "thank you"});
        db.done("w", &item, json!([{"kind": "email_send", "message": message}])).await;
        let Some(sent) = db.claim_items("w", 1).await.pop() else { break };
        db.done("w", &sent, json!([])).await;
        let key = sent.payload["messageKey"].as_str().unwrap().to_owned();
        let stranger = Uuid::new_v4();
        assert_eq!(receive(&format!("ARRAY['{stranger}', '{key}']::uuid[]")).await, 1);
    }
    assert_eq!(depths, [0, 2, 4, 6, 8]);
    assert_eq!(
        db.count("trigger_outbox_executions WHERE error_code = 'TRIGGER_DEPTH_EXCEEDED'").await,
        1
    );
}

/// An app with so many triggers on every key, and a held item for each of these.
async fn with_many_triggers(triggers: usize, items: usize) -> (TestDb, Vec<Item>) {
    let db = TestDb::new().await;
    let names: Vec<String> = (0..triggers).map(|n| format!("t{n}")).collect();
    let mut all: Vec<_> = names.iter().map(|name| (name.as_str(), "kv", "*")).collect();
    all.push(("q", "queue", "jobs"));
    db.push("shop", &manifest(&all)).await;
    for n in 0..items {
        db.send("shop", "jobs", &json!(n)).await;
    }
    let held = db.claim_items("w", 100).await;
    assert_eq!(held.len(), items);
    (db, held)
}

fn sets(keys: std::ops::Range<i32>, value: &Value) -> Value {
    keys.map(|n| json!({"kind": "kv_set", "key": format!("k{n}"), "value": value})).collect()
}

/// Complete all in one call; the refusal, if it is refused.
async fn complete_all(db: &TestDb, items: &[(&Item, Value)]) -> Result<(), String> {
    let ids: Vec<_> = items.iter().map(|(item, _)| item.id).collect();
    let tokens: Vec<_> = items.iter().map(|(item, _)| item.token).collect();
    let effects: Vec<_> = items.iter().map(|(_, effects)| effects.clone()).collect();
    let sql = "SELECT count(*) FROM complete_trigger_outbox_attempts('w', $1, $2, \
               array_fill('DISPATCHED'::text, ARRAY[cardinality($1)]), p_effects => $3)";
    let done = sqlx::query(sql).bind(ids).bind(tokens).bind(effects);
    let mut connection = db.as_role("symphony_executor").await;
    done.execute(&mut connection).await.map(drop).map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_run_that_fires_more_than_it_may_is_refused_in_words_and_alone() {
    let (db, items) = with_many_triggers(900, 3).await;
    let one = json!(1);
    let (many, few) = (sets(0..12, &one), sets(20..21, &one));
    let refused = complete_all(&db, &[(&items[0], many.clone()), (&items[1], few.clone())]).await;
    assert!(refused.unwrap_err().contains("fire more than 10000"), "a set is undone");
    assert_eq!(
        db.settle("w", &items[0], "DISPATCHED", many).await.outcome,
        "FAILED EFFECT_REFUSED"
    );
    let message = db.execution(items[0].id).await["error_message"].clone();
    let expected = "nothing of it was applied: its effects fire more than 10000 triggers: write fewer entries or messages in \
                    one run, or make the triggers' filters narrower";
    assert_eq!(message, json!(expected));
    db.done("w", &items[1], few).await;
    assert_eq!(db.count("trigger_outbox_pending WHERE lease_token IS NULL").await, 900);
    // 900 of these weigh more than what one run may fire.
    let heavy = sets(0..1, &json!("x".repeat(200_000)));
    assert_eq!(
        db.settle("w", &items[2], "DISPATCHED", heavy).await.outcome,
        "FAILED EFFECT_REFUSED"
    );
    let message = db.execution(items[2].id).await["error_message"].clone();
    assert!(message.as_str().unwrap().contains("fire more than 64 MB"), "{message}");
    assert_eq!(db.kv("k0").await, None);
    db.assert_items_hold().await;
}
