//! Apps from a shell: the real binary, the example's folder and bad ones, and what the lane says afterwards.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use symphony::db::{TriggerOutcome, TriggerRecorded, TriggerState};
use symphony::triggers::{Source, TriggerRequest};
use uuid::Uuid;

use crate::support::shell::{Told, dana};
use crate::support::{TestDb, unique};

mod data;
mod dev;
mod fidelity;
mod local;
mod pushes;

const ORDERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/apps/orders");

/// `symphony app`, as dana.
async fn app(db: &TestDb, line: &str) -> Told {
    dana(db, &format!("app {line}")).await
}

/// What it says if it does it.
async fn says(db: &TestDb, line: &str) -> String {
    let told = app(db, line).await;
    assert!(told.ok, "{line}: {}", told.error);
    told.output
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let path = std::env::temp_dir().join(unique("app"));
        for (name, content) in files {
            let file = path.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        Self(path)
    }

    /// The example's, to be changed.
    fn orders() -> Self {
        let folder = Self::new(&[]);
        fs::create_dir_all(folder.0.join("scripts")).unwrap();
        for part in ["", "scripts"] {
            for entry in fs::read_dir(Path::new(ORDERS).join(part)).unwrap() {
                let from = entry.unwrap().path();
                if from.is_file() {
                    let to = folder.0.join(part).join(from.file_name().unwrap());
                    fs::copy(from, to).unwrap();
                }
            }
        }
        folder
    }

    fn rewrite(&self, file: &str, change: impl FnOnce(String) -> String) {
        let path = self.0.join(file);
        fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

/// Somebody posts an order.
async fn post(db: &TestDb, id: &str) -> Uuid {
    let route: Uuid = db.one("SELECT id FROM routes WHERE method = 'POST'").await;
    let payload = raw(&json!({"method": "POST", "path": "/orders", "body": {"id": id}}));
    let request = TriggerRequest::new("orders", Source::Http, route, &payload);
    db.database.producer().enqueue_trigger(&request).await.unwrap().id
}

/// A worker takes the one item that is due and ends it as the test says; answers its id.
async fn end(db: &TestDb, state: TriggerState, effects: Value, code: Option<&str>) -> Uuid {
    let executor = db.database.worker();
    let claimed = executor.claim_triggers("w", 10, 60, None).await.unwrap();
    assert_eq!(claimed.len(), 1, "one item at a time");
    let outcome = TriggerOutcome {
        result: (state == TriggerState::Dispatched).then(|| raw(&json!({"status": 201}))),
        logs: Some(raw(
            &json!([{"level": "info", "at_ms": 3, "message": "kept\nand \u{1b}[2J told"}]),
        )),
        effects: Some(raw(&effects)),
        error_code: code.map(str::to_owned),
        error_message: code.map(|_| "item is not defined".to_owned()),
        latency_ms: Some(12),
        ..TriggerOutcome::new(claimed[0].lease(), state)
    };
    let recorded = executor
        .complete_triggers("w", &[&outcome], std::time::Duration::from_secs(1))
        .await
        .unwrap();
    assert!(matches!(recorded[0], TriggerRecorded::Recorded { .. }), "{recorded:?}");
    claimed[0].id
}

/// An order, its entry, its message, which fails for good, and the dead letter, still pending: root first.
async fn story(db: &TestDb) -> Vec<Uuid> {
    says(db, &format!("push {ORDERS}")).await;
    let root = post(db, "o-1").await;
    let entry = json!([{"kind": "kv_set", "key": "order/o-1", "value": {"id": "o-1"}}]);
    assert_eq!(end(db, TriggerState::Dispatched, entry, None).await, root);
    let message = json!([{"kind": "queue_send", "queue": "receipts", "message": {"id": "o-1"}}]);
    let kv = end(db, TriggerState::Dispatched, message, None).await;
    let queue = end(db, TriggerState::Failed, json!([]), Some("SCRIPT_ERROR")).await;
    let dead: Uuid =
        db.one("SELECT id FROM trigger_outbox_pending WHERE source_kind = 'dead_letter'").await;
    vec![root, kv, queue, dead]
}

#[tokio::test]
async fn executions_are_listed_newest_first_by_app_and_by_state() {
    let db = TestDb::new().await;
    let ids = story(&db).await;
    let (root, kv, queue, dead) = (ids[0], ids[1], ids[2], ids[3]);
    for (arguments, expected) in [
        ("", vec![dead, queue, kv, root]),
        ("--app orders --state failed", vec![queue]),
        ("--state DISPATCHED", vec![kv, root]),
        ("--state PENDING", vec![dead]),
        ("--limit 1", vec![dead]),
    ] {
        let told = app(&db, &format!("executions --json {arguments}")).await.json();
        let found: Vec<Uuid> = told
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["id"].as_str().unwrap().parse().unwrap())
            .collect();
        assert_eq!(found, expected, "{arguments}");
    }
    let told = says(&db, "executions --limit 3").await;
    for expected in ["send-receipt", "SCRIPT_ERROR", "dead_letter", "there are more: raise --limit"]
    {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(!says(&db, "executions --limit 4").await.contains("there are more"));
    let told = app(&db, "executions --app nobody").await;
    assert_eq!(
        (told.ok, told.error.as_str()),
        (
            false,
            "symphony: there is no app \"nobody\"; `symphony app list` lists all 1 [P7007: \
             docs/errors/shared/P7007.md]\n"
        )
    );
    let list = says(&db, "list").await;
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, ["orders", "6", "2", "4", "1"]);
    let list = app(&db, "list --json").await.json();
    assert_eq!((&list[0]["name"], &list[0]["pending"]), (&"orders".into(), &1.into()));
}

#[tokio::test]
async fn one_execution_is_shown_whole() {
    let db = TestDb::new().await;
    let ids = story(&db).await;
    let told = says(&db, &format!("logs {}", ids[0])).await;
    for expected in [
        &format!("{}  DISPATCHED\n  app orders, http, script take-order version 1\n", ids[0]),
        "payload\n  {\n    \"body\": {\n      \"id\": \"o-1\"\n",
        "result\n  {\n    \"status\": 201\n  }\n",
        "logs\n  +3 ms info: kept\n  and \\u{1b}[2J␣told\n",
        "attempts\n  1  ",
        "  DISPATCHED, 12 ms, by w\n",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let told = says(&db, &format!("logs {}", ids[2])).await;
    for expected in [
        &format!("  fired by {}, depth 2, root {}\n", ids[1], ids[0]),
        "error\n  SCRIPT_ERROR: item is not defined\n",
        "  FAILED, SCRIPT_ERROR: item is not defined, 12 ms, by w\n",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let told = says(&db, &format!("logs {}", ids[3])).await;
    assert!(told.contains("  PENDING\n") && told.ends_with("attempts\n  none yet\n"), "{told}");
    let told = app(&db, &format!("logs --json {}", ids[2])).await.json();
    assert_eq!(
        (&told["payload"]["message"]["id"], &told["outcomes"][0]["state"], &told["attempts"]),
        (&"o-1".into(), &"FAILED".into(), &1.into())
    );
    let nobody = Uuid::new_v4();
    for line in
        [format!("logs {nobody}"), format!("tree {nobody}"), format!("replay {nobody} --reason r")]
    {
        let told = app(&db, &line).await;
        assert_eq!(
            (told.ok, told.error),
            (
                false,
                format!(
                    "symphony: no execution has the id {nobody} [P7007: docs/errors/shared/P7007.md]\n"
                )
            )
        );
    }
}

#[tokio::test]
async fn a_tree_is_the_same_whichever_of_it_is_named() {
    let db = TestDb::new().await;
    let ids = story(&db).await;
    // A second child of the root, written last.
    db.sql(&format!(
        "INSERT INTO trigger_outbox_pending (app_id, source_kind, payload, parent_execution_id, root_execution_id, trigger_depth, \
                attempts_max, backoff_seconds) \
         SELECT id, 'email', '{{\"direction\": \"out\"}}', '{root}', '{root}', 1, 8, '{{5}}' FROM apps",
        root = ids[0]
    ))
    .await;
    let mail: Uuid =
        db.one("SELECT id FROM trigger_outbox_pending WHERE source_kind = 'email'").await;
    // Durations are the clock's.
    let shape = |told: &str| {
        let lines = told.lines().map(|line| {
            let words: Vec<&str> = line.split("  ").filter(|word| !word.ends_with(" ms")).collect();
            words.join("  ") + "\n"
        });
        lines.collect::<String>()
    };
    let whole = says(&db, &format!("tree {}", ids[0])).await;
    assert_eq!(whole.matches(" ms  ").count(), 3, "{whole}");
    let expected = format!(
        "http  take-order  DISPATCHED  {}\n\
         ├─ kv  ask-for-receipt  DISPATCHED  {}\n\
         │  └─ queue  send-receipt  FAILED  SCRIPT_ERROR  {}\n\
         │     └─ dead_letter  log-failure  PENDING  {}\n\
         └─ email  (email to be sent)  PENDING  {mail}\n",
        ids[0], ids[1], ids[2], ids[3]
    );
    assert_eq!(shape(&whole), expected);
    for id in &ids[1..] {
        let told = says(&db, &format!("tree {id}")).await;
        let marked = format!("{id}  ← this one\n");
        assert!(told.contains(&marked), "{told}");
        assert_eq!(shape(&told.replace(&marked, &format!("{id}\n"))), expected);
    }
    let told = app(&db, &format!("tree --json {}", ids[3])).await.json();
    assert_eq!((&told[0]["id"], &told[0]["children"][1]["script"]), (&json!(ids[0]), &Value::Null));
    let queue = &told[0]["children"][0]["children"][0];
    assert_eq!(
        (&queue["error_code"], &queue["children"][0]["id"]),
        (&"SCRIPT_ERROR".into(), &json!(ids[3]))
    );
}

#[tokio::test]
async fn a_replay_is_a_dry_run_until_it_is_told_yes() {
    let db = TestDb::new().await;
    let ids = story(&db).await;
    let line = format!("replay {} --reason the␣script␣was␣corrected", ids[2]);
    assert_eq!(
        says(&db, &line).await,
        format!(
            "would replay {} (app orders, queue, script send-receipt): it stays FAILED, and a new execution runs with its \
             payload and the script as it is now\nNothing was changed: repeat with --yes to do it.\n",
            ids[2]
        )
    );
    assert_eq!(db.count("trigger_outbox_pending").await, 1);
    let told = app(&db, &format!("{line} --json")).await.json();
    assert_eq!(told, json!({"act": "replay", "id": ids[2], "replay_id": null, "dry_run": true}));
    let told = says(&db, &format!("{line} --yes")).await;
    let new: Uuid =
        db.one("SELECT id FROM trigger_outbox_pending WHERE source_kind = 'queue'").await;
    assert!(told.ends_with(&format!(": it stays FAILED and runs again as {new}\n")), "{told}");
    let reason: String = db
        .one("SELECT concat_ws(' ', event_type, actor, reason) FROM trigger_outbox_events WHERE id IS NOT NULL")
        .await;
    assert_eq!(reason, "REPLAYED dana the script was corrected");
    let told = app(&db, &format!("replay {new} --reason r --yes")).await;
    assert_eq!(
        told.error,
        format!(
            "symphony: execution {new} is PENDING: it will run without a replay [P7006: docs/errors/shared/P7006.md]\n"
        )
    );
    let told = app(&db, &format!("replay {}", ids[2])).await;
    assert!(!told.ok && told.error.contains("--reason <REASON>"), "{}", told.error);
}

#[tokio::test]
async fn a_paused_app_waits_and_a_resumed_one_goes_on() {
    let db = TestDb::new().await;
    story(&db).await;
    for (target, name) in [("app orders", "app orders"), ("triggers", "the trigger lane")] {
        let told = dana(&db, &format!("pause {target} --reason r")).await;
        assert!(told.output.starts_with(&format!("would pause {name}: RUNNING → PAUSED\n")));
        let told = dana(&db, &format!("pause {target} --reason r --yes")).await;
        assert_eq!(told.output, format!("paused {name}: RUNNING → PAUSED\n"));
        let again = dana(&db, &format!("pause {target} --reason again --yes")).await;
        assert_eq!(again.output, format!("{name} is PAUSED already: nothing to change\n"));
        assert_eq!(says(&db, "list").await.contains("PAUSED"), target == "app orders");
        let claimed = db.database.worker().claim_triggers("w", 10, 60, None).await.unwrap();
        assert!(claimed.is_empty(), "{target}");
        let told = dana(&db, &format!("resume {target} --reason ready --yes --json")).await.json();
        assert_eq!(
            told,
            json!({
                "act": "resume", "target": target.trim_start_matches("app "), "state_before": "PAUSED",
                "state_after": "RUNNING", "dry_run": false,
            })
        );
    }
    let claimed = db.database.worker().claim_triggers("w", 10, 60, None).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let told = dana(&db, "pause app order --reason r").await;
    assert_eq!(
        (told.ok, told.error.as_str()),
        (
            false,
            "symphony: there is no app \"order\"; did you mean orders? `symphony app list` lists all \
             [P7007: docs/errors/shared/P7007.md]\n"
        )
    );
    let acts: Vec<String> = db
        .one("SELECT array_agg(concat_ws(' ', event_type, actor, reason) ORDER BY event_no) FROM trigger_outbox_events WHERE reason IS NOT NULL")
        .await;
    assert_eq!(
        acts,
        ["PAUSED dana r", "RESUMED dana ready", "PAUSED dana r", "RESUMED dana ready"]
    );
}

#[tokio::test]
async fn a_deleted_app_leaves_its_ledger() {
    let db = TestDb::new().await;
    let ids = story(&db).await;
    let line = "delete orders --reason moved";
    assert_eq!(
        says(&db, line).await,
        "would delete app orders: scripts, routes, triggers and entries go, 1 pending execution ends FAILED, the ledger \
         stays\nNothing was changed: repeat with --yes to do it.\n"
    );
    let told = app(&db, &format!("{line} --yes --json")).await.json();
    assert_eq!(
        (&told["act"], &told["items"], &told["dry_run"]),
        (&"delete".into(), &1.into(), &false.into())
    );
    assert_eq!(db.count("apps").await, 0);
    let told = says(&db, "executions --app orders --state failed").await;
    assert!(told.contains("APP_DELETED"), "{told}");
    let told = app(&db, &format!("replay {} --reason r", ids[2])).await;
    assert!(
        !told.ok && told.error.contains("its app or its script is gone [P7006"),
        "{}",
        told.error
    );
    let told = app(&db, line).await;
    assert_eq!(
        (told.ok, told.error.as_str()),
        (false, "symphony: there is no app orders [P7007: docs/errors/shared/P7007.md]\n")
    );
    let told = app(&db, "delete orders --reason moved --json").await;
    let error: Value = serde_json::from_str(&told.error).unwrap();
    assert_eq!(
        (&error["error"], &error["code"]),
        (&"there is no app orders".into(), &"P7007".into())
    );
}

#[tokio::test]
async fn every_help_of_an_app_command_teaches() {
    let db = TestDb::new().await;
    for (command, expected) in [
        ("", "symphony app push examples/apps/orders"),
        ("push", "is gone afterwards"),
        ("executions", "--state failed --limit 20"),
        ("replay", "stays as it is"),
    ] {
        let told = says(&db, &format!("{command} --help")).await;
        assert!(told.contains(expected), "{command}: {told}");
    }
}
