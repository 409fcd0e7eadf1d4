//! Entries and versions of an app from a shell.

use serde_json::{Value, json};

use super::{Folder, app, says};
use crate::support::TestDb;
use crate::triggers::apps::{script, trigger};

async fn shop(db: &TestDb) {
    let manifest = json!({
        "scripts": [script("watch", "export default () => 1")],
        "triggers": [trigger("watch", "kv", "stock/*", "watch")],
    });
    db.push("shop", &manifest).await;
}

/// What people did, as the narrative has it.
async fn narrative(db: &TestDb, of: &str) -> Vec<Value> {
    db.one(&format!(
        "SELECT coalesce(array_agg(jsonb_build_object('did', event_type, 'who', actor, 'why', reason, 'what', details) ORDER BY event_no), '{{}}') \
           FROM trigger_outbox_events WHERE event_type LIKE '{of}%'"
    ))
    .await
}

#[tokio::test]
async fn an_entry_is_written_by_somebody_with_a_reason_and_fires_what_watches_it() {
    let db = TestDb::new().await;
    shop(&db).await;
    let told = says(&db, "kv set shop stock/tea 1.50 --reason r").await;
    assert_eq!(
        told,
        "would set entry stock/tea of app shop: it is new, and fires what watches it\n\
         Nothing was changed: repeat with --yes to do it.\n"
    );
    assert_eq!((db.count("kv_entries").await, db.count("trigger_outbox_pending").await), (0, 0));
    let told = says(&db, "kv set shop stock/tea 1.50 --reason a␣delivery --yes").await;
    assert_eq!(told, "set entry stock/tea of app shop: it is new, and fires what watches it\n");
    assert_eq!(says(&db, "kv get shop stock/tea").await, "1.50\n");
    let fired: Value = db.one("SELECT payload FROM trigger_outbox_pending").await;
    assert_eq!((&fired["key"], &fired["operation"]), (&json!("stock/tea"), &json!("set")));
    let caused_by: String = db
        .one("SELECT p.kind FROM trigger_outbox_pending i JOIN principals p ON p.principal_id = i.origin_principal")
        .await;
    assert_eq!(caused_by, "login");
    let told = says(&db, "kv delete shop stock/tea --reason sold␣out --yes").await;
    assert_eq!(told, "deleted entry stock/tea of app shop: what watches it is fired\n");
    assert_eq!(db.count("trigger_outbox_pending").await, 2);
    let told = says(&db, "kv delete shop stock/tea --reason again --yes").await;
    assert!(told.contains("there is none, so nothing is fired"), "{told}");
    let what = json!({"app": "shop", "key": "stock/tea"});
    assert_eq!(
        narrative(&db, "ENTRY").await,
        [
            json!({"did": "ENTRY_SET", "who": "dana", "why": "a delivery", "what": what}),
            json!({"did": "ENTRY_DELETED", "who": "dana", "why": "sold out", "what": what}),
        ],
        "the key and never the value"
    );
    for (line, expected) in [
        ("kv get shop none", "app shop has no entry \"none\" [P7007"),
        ("kv get nobody a", "there is no app nobody [P7007"),
        (
            "kv set shop a so --reason r",
            "VALUE is not JSON: expected value at line 1 column 1; a text has quotes",
        ),
        ("kv set shop a 1 --ttl 0 --reason r", "0 is not in 1..=999999999"),
        ("kv set shop ␣ 1 --reason r", "the key is blank: it must name something [P7005"),
    ] {
        let told = app(&db, line).await;
        assert!(!told.ok && told.error.contains(expected), "{line}: {}", told.error);
    }
}

#[tokio::test]
async fn entries_are_listed_by_prefix_a_page_at_a_time_and_gone_when_their_time_is_over() {
    let db = TestDb::new().await;
    shop(&db).await;
    for n in 1..=5 {
        db.kv_set("shop", &format!("a/{n}"), &json!({ "n": n })).await;
    }
    db.kv_set("shop", "b/1", &json!("other")).await;
    assert_eq!(says(&db, "kv list shop --prefix b/").await, "b/1 \"other\"\n");
    assert_eq!(says(&db, "kv list shop --prefix c").await, "there is no such entry\n");
    let mut after = String::new();
    let mut pages = Vec::new();
    loop {
        let line = format!("kv list shop --prefix a/ --limit 2 --json {after}");
        let page = app(&db, &line).await.json();
        let keys: Vec<String> = page
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["key"].as_str().unwrap().to_owned())
            .collect();
        let Some(last) = keys.last() else { break };
        after = format!("--after {last}");
        pages.push(keys.join(" "));
    }
    assert_eq!(pages, ["a/1 a/2", "a/3 a/4", "a/5"]);
    let told = app(&db, "kv list shop --limit 2").await;
    assert!(told.error.contains("there may be more: --after a/2"), "{}", told.error);
    says(&db, "kv set shop b/1 true --ttl 60 --reason r --yes").await;
    let entry = app(&db, "kv get shop b/1 --json").await.json();
    assert!(entry["expires_at"].is_string(), "{entry}");
    db.sql("UPDATE kv_entries SET expires_at = clock_timestamp() WHERE key = 'b/1'").await;
    assert_eq!(says(&db, "kv list shop --prefix b/").await, "there is no such entry\n");
    assert!(!app(&db, "kv get shop b/1").await.ok);
}

#[tokio::test]
async fn a_rollback_makes_an_app_what_it_was_and_is_recorded() {
    let db = TestDb::new().await;
    let folder = Folder::orders();
    says(&db, &format!("push {}", folder.path())).await;
    let told = app(&db, "rollback orders --reason r").await;
    assert!(
        told.error.contains("app orders was pushed once: there is nothing to go back to [P7006"),
        "{}",
        told.error
    );
    let parts = "SELECT string_agg(x, '; ' ORDER BY x) FROM ( \
        SELECT 'route ' || method || ' ' || path || ' ' || script_name AS x FROM routes UNION ALL \
        SELECT 'trigger ' || name || ' ' || source_kind || ' ' || filter || ' ' || attempts_max FROM triggers UNION ALL \
        SELECT 'queue ' || name FROM queues UNION ALL SELECT 'topic ' || name FROM topics UNION ALL \
        SELECT 'script ' || s.name || ' ' || s.source FROM scripts s \
         WHERE s.version = (SELECT max(o.version) FROM scripts o WHERE o.app_id = s.app_id AND o.name = s.name)) p";
    let was: String = db.one(parts).await;
    folder.rewrite("scripts/show-order.js", |text| text + "// more\n");
    folder.rewrite("app.json", |text| {
        text.replace("\"attempts\": 3", "\"attempts\": 4")
            .replace("\"/orders/{id}\"", "\"/order/{id}\"")
    });
    says(&db, &format!("push {}", folder.path())).await;
    says(&db, &format!("push {}", folder.path())).await;
    let became: String = db.one(parts).await;
    assert_ne!(was, became);
    let told = says(&db, "rollback orders --reason r").await;
    assert!(
        told.starts_with("would roll back app orders: version 2 becomes again what version 1 was;"),
        "{told}"
    );
    assert_eq!(db.one::<String>(parts).await, became);
    says(&db, "rollback orders --reason it␣loses␣receipts --yes").await;
    assert_eq!(db.one::<String>(parts).await, was);
    let told = says(&db, "versions orders").await;
    let rows: Vec<Vec<&str>> =
        told.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        (rows.len(), rows[0][0], &rows[0][3..]),
        (3, "3", ["as", "1,", "so", "it", "is", "now"].as_slice()),
        "{told}"
    );
    assert_eq!(
        narrative(&db, "ROLLED").await,
        [
            json!({"did": "ROLLED_BACK", "who": "dana", "why": "it loses receipts", "what": {"app": "orders", "from": 2, "to": 1}})
        ]
    );
    says(&db, "rollback orders --to 2 --reason r --yes").await;
    assert_eq!(db.one::<String>(parts).await, became);
    for (line, expected) in [
        ("rollback orders --to 2 --reason r", "app orders is as version 2 already [P7006"),
        (
            "rollback orders --to 9 --reason r",
            "app orders has no version 9 any more, or not yet [P7007",
        ),
        ("rollback nobody --reason r", "there is no app nobody [P7007"),
        ("versions nobody", "there is no app \"nobody\" [P7007"),
    ] {
        let told = app(&db, line).await;
        assert!(!told.ok && told.error.contains(expected), "{line}: {}", told.error);
    }
}

#[tokio::test]
async fn the_newest_twenty_versions_are_kept_until_the_app_goes() {
    let db = TestDb::new().await;
    for n in 1..=25 {
        db.push("shop", &json!({"topics": [format!("t{n}")]})).await;
    }
    let kept: Vec<i32> = db.one("SELECT array_agg(version ORDER BY version) FROM app_pushes").await;
    assert_eq!(kept, (6..=25).collect::<Vec<i32>>());
    db.one::<i32>("SELECT items FROM delete_app('shop', 'dana', 'r')").await;
    assert_eq!(db.count("app_pushes").await, 0);
}
