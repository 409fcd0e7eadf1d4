//! How long executions and logs are kept: what goes, what stays however old, and what is looked at.

use serde_json::{Value, json};
use sqlx::Row as _;

use super::apps::Platform;
use super::{manifest, quoted};
use crate::support::{TestDb, until};

const EXECUTOR: &str = "symphony_executor";

async fn pass(db: &TestDb, batch: i32) -> (i64, i64) {
    let mut connection = db.as_role(EXECUTOR).await;
    let (mut retired, mut emptied) = (0, 0);
    let mut after = ("NULL".to_owned(), "NULL".to_owned());
    for _ in 0..1_000 {
        let call = format!(
            "SELECT retired, logs_emptied, next_app::text, next_after::text \
               FROM retire_trigger_executions(90, 30, {batch}, {}, {})",
            after.0, after.1
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(call)).fetch_one(&mut connection).await.unwrap();
        let step: (i32, i32) = (row.get(0), row.get(1));
        assert!(step.0 + step.1 <= batch, "{step:?}");
        retired += i64::from(step.0);
        emptied += i64::from(step.1);
        let Some(app) = row.get::<Option<String>, _>(2) else { return (retired, emptied) };
        let text = |text: String| format!("'{text}'");
        after = (text(app), row.get::<Option<String>, _>(3).map_or("NULL".to_owned(), text));
    }
    panic!("a pass does not end");
}

/// An app whose entries `a` to `z` have each fired an execution with a log.
async fn ran(db: &TestDb, app: &str, retention: Value, keys: usize) {
    let mut own = manifest(&[("k", "kv", "*")]);
    if !retention.is_null() {
        own["retention"] = retention;
    }
    db.push(app, &own).await;
    for n in 0..keys {
        db.kv_set(app, &format!("k{n}"), &json!(1)).await;
        let item = db.claim_item("w").await;
        db.done("w", &item, json!([])).await;
    }
    db.sql(
        "UPDATE trigger_outbox_executions SET logs = '[{\"level\": \"info\"}]' WHERE logs = '[]'",
    )
    .await;
}

/// Executions of an app ended so many days earlier.
async fn age(db: &TestDb, app: &str, days: i32) {
    db.sql(&format!(
        "UPDATE trigger_outbox_executions SET completed_at = completed_at - make_interval(days => {days}) WHERE app_name = '{app}'"
    ))
    .await;
}

/// The ledger cannot be made older: instead everything that went was of just now.
async fn went_now(db: &TestDb) {
    db.sql("UPDATE trigger_retention SET executions_retired_before = clock_timestamp() WHERE executions_retired_before IS NOT NULL")
        .await;
}

async fn kept(db: &TestDb, app: &str) -> i64 {
    db.count(&format!("trigger_outbox_executions WHERE app_name = '{app}'")).await
}

#[tokio::test]
async fn executions_and_logs_go_when_their_app_says_and_the_ledger_stays() {
    let db = TestDb::new().await;
    ran(&db, "short", json!({"executionsDays": 7, "logsDays": 2}), 3).await;
    ran(&db, "long", json!({"executionsDays": 3650}), 3).await;
    ran(&db, "plain", Value::Null, 3).await;
    assert_eq!(pass(&db, 100).await, (0, 0));
    let logs = async |app: &str| {
        db.count(&format!("trigger_outbox_executions WHERE app_name = '{app}' AND logs <> '[]'"))
            .await
    };
    for (days, retired, emptied, left) in [(3, 0, 3, 3), (5, 3, 0, 0)] {
        age(&db, "short", days).await;
        assert_eq!(pass(&db, 100).await, (retired, emptied), "{days}");
        assert_eq!((kept(&db, "short").await, logs("short").await), (left, 0));
    }
    for app in ["long", "plain"] {
        age(&db, app, 40).await;
    }
    assert_eq!(pass(&db, 100).await, (0, 6), "logs by the configuration's 30 days");
    for app in ["long", "plain"] {
        age(&db, app, 60).await;
    }
    assert_eq!(pass(&db, 100).await, (3, 0), "executions by the configuration's 90 days");
    assert_eq!((kept(&db, "long").await, kept(&db, "plain").await), (3, 0));
    assert_eq!(db.count("trigger_outbox_attempts").await, 9);
    // A push that says nothing of it goes back to what is configured.
    db.push("long", &manifest(&[("k", "kv", "*")])).await;
    assert_eq!(pass(&db, 100).await, (3, 0));
    went_now(&db).await;
    db.assert_data_agrees().await;
}

#[tokio::test]
async fn what_a_dead_letter_a_living_tree_or_an_answer_to_mail_needs_is_kept_however_old() {
    let db = TestDb::new().await;
    let own = json!({"executionsDays": 1, "logsDays": 1});
    ran(&db, "shop", own.clone(), 1).await;
    // A tree: one that fails, one whose child still runs, one whose message has no consumer, one that sent mail.
    let mut ids = Vec::new();
    for (key, effect) in [
        ("fails", json!([])),
        ("child", json!([{"kind": "kv_set", "key": "grown", "value": 1}])),
        ("message", json!([{"kind": "queue_send", "queue": "jobs", "message": 1}])),
        (
            "mail",
            json!([{"kind": "email_send", "message": {"to": "a@b.c", "subject": "s", "text": "t"}}]),
        ),
    ] {
        db.kv_set("shop", key, &json!(1)).await;
        // What an earlier one has fired stays pending.
        let mut claimed = db.claim_items("w", 10).await;
        claimed.retain(|item| item.payload["key"] == key);
        let item = claimed.remove(0);
        let state = if key == "fails" { "FAILED" } else { "DISPATCHED" };
        db.settle("w", &item, state, effect).await;
        if key == "mail" {
            let sent = db.claim_items("w", 10).await;
            for item in sent.iter().filter(|item| item.source_kind == "email") {
                db.done("w", item, json!([])).await;
            }
        }
        ids.push(item.id);
    }
    age(&db, "shop", 3).await;
    assert_eq!(pass(&db, 3).await.0, 2, "the plain one, and the one that sent the mail");
    for (id, stays) in ids.iter().zip([1, 1, 1, 0]) {
        assert_eq!(db.count(&format!("trigger_outbox_executions WHERE id = '{id}'")).await, stays);
    }
    let sent = "trigger_outbox_executions WHERE source_kind = 'email' AND script_id IS NULL";
    assert_eq!(db.count(sent).await, 1, "what answers it is known for a week");
    age(&db, "shop", 7).await;
    assert_eq!(pass(&db, 3).await.0, 1);
    // A person has looked at it, and the others have ended.
    let close =
        format!("SELECT state FROM close_trigger_dead_letter('{}', 'dana', 'seen')", ids[0]);
    db.one_as::<String>("symphony_operator", &close).await;
    db.sql("DELETE FROM queue_messages; DELETE FROM trigger_outbox_pending").await;
    assert_eq!(pass(&db, 3).await.0, 3);
    assert_eq!(db.count("trigger_outbox_executions").await, 0);
}

#[tokio::test]
async fn a_pass_is_made_in_bounded_steps_by_one_process_at_a_time() {
    let db = TestDb::new().await;
    for app in ["a", "b", "c"] {
        ran(&db, app, Value::Null, 7).await;
        age(&db, app, 100).await;
    }
    let mut other = db.as_role(EXECUTOR).await;
    crate::support::run(&mut other, "BEGIN; SELECT * FROM retire_trigger_executions(90, 30, 2)")
        .await
        .unwrap();
    assert_eq!(pass(&db, 5).await, (0, 0), "somebody is at it");
    crate::support::run(&mut other, "ROLLBACK").await.unwrap();
    assert_eq!(pass(&db, 5).await.0, 21);
}

#[tokio::test]
async fn doctor_still_notices_an_execution_that_retention_has_not_taken() {
    let db = TestDb::new().await;
    ran(&db, "shop", Value::Null, 2).await;
    age(&db, "shop", 100).await;
    assert_eq!(pass(&db, 10).await.0, 2);
    went_now(&db).await;
    let found = async || {
        let (mut admin, schema) = (db.admin().await, symphony::db::Schema::default());
        let report = symphony::db::data_checks::contradictions(&mut admin, &schema, true).await;
        report.unwrap().contradictions
    };
    assert_eq!(found().await, Vec::<String>::new());
    ran(&db, "shop", Value::Null, 1).await;
    db.sql("DELETE FROM trigger_outbox_executions").await;
    let told = found().await;
    assert!(told.len() == 1 && told[0].contains("and its ledger do not agree"), "{told:?}");
}

#[tokio::test]
async fn a_running_process_retires_what_is_old() {
    let db = TestDb::new().await;
    ran(&db, "shop", Value::Null, 3).await;
    age(&db, "shop", 100).await;
    let platform = Platform::start(&db).await;
    until("they are retired", async || kept(&db, "shop").await == 0).await;
    platform.stop().await;
}

#[tokio::test]
async fn what_retention_says_must_be_whole_days() {
    let db = TestDb::new().await;
    for (retention, told) in [
        (json!(7), "P7005 retention must be an object"),
        (json!({"days": 7}), "P7005 retention.days is not known: it has executionsDays, logsDays"),
        (
            json!({"logsDays": 0}),
            "P7005 retention.logsDays must be a whole number of days from 1 to 36500",
        ),
        (
            json!({"executionsDays": 1.5}),
            "P7005 retention.executionsDays must be a whole number of days from 1 to 36500",
        ),
    ] {
        let mut own = manifest(&[]);
        own["retention"] = retention;
        let push = format!("SELECT push_app('shop', {}, 'dana')", quoted(&own));
        assert_eq!(db.refusal("symphony_operator", &push).await, told);
    }
}
