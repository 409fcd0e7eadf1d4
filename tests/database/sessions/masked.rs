//! `symphony_readonly` reads everything but payloads, destinations and lease tokens: the database decides, so the columns
//! are tried one by one, whatever a command would ask for.

use serde_json::json;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{EventOutcome, EventState, PaymentOutcome};
use symphony::domain::Outcome;
use uuid::Uuid;

use crate::support::shell::symphony;
use crate::support::{TestDb, payment};

/// In the payload of `payment()`, and of everything else here.
const SECRET: &str = "DE89370400440532013000";
/// Where an event goes.
const DESTINATION: &str = "main/secret-topic";

/// Each lane with something in flight and something ended, all of it with the secret in it.
struct Stage {
    db: TestDb,
    readonly: PgConnectOptions,
    auditor: PgConnectOptions,
    tokens: Vec<String>,
    event: Uuid,
    execution: Uuid,
}

async fn stage() -> Stage {
    let db = TestDb::new().await;
    db.sql("UPDATE payment_outbox_settings SET record_routine_events = true").await;
    db.enqueue(&payment("ended", "acme", "sepa")).await;
    let lost = db.claim_one("lost").await;
    db.expire(lost.outbox_id).await;
    let lease = db.claim_one("w").await.lease();
    db.complete("w", lease, Outcome::Failed).await.unwrap();
    let late = PaymentOutcome::new(lost.lease(), Outcome::Dispatched);
    db.database.worker().record_late_payment("lost", &late).await.unwrap();
    db.enqueue(&payment("flying", "acme", "sepa")).await;
    db.claim_one("w").await;

    let told = |key: &str| {
        crate::events::event_with(Uuid::new_v4(), key, &format!(r#"{{"note": "{SECRET}"}}"#))
    };
    let event = db.tell(&[told("a")]).await[0];
    let claimed = db.claim_events("w", 1).await;
    let outcome = EventOutcome {
        destination: Some(DESTINATION.into()),
        ..EventOutcome::new(
            claimed[0].lease(),
            claimed[0].log_position,
            EventState::Failed { key_continues: false },
        )
    };
    db.database.worker().complete_events("w", &[&outcome]).await.unwrap();
    db.tell(&[told("b")]).await;
    db.claim_events("w", 1).await;

    db.push(
        "shop",
        &json!({
            "scripts": [crate::triggers::apps::script("s", &format!("export default r => '{SECRET}'"))],
            "triggers": [crate::triggers::apps::trigger("t", "kv", "*", "s")],
            "queues": ["jobs"],
        }),
    )
    .await;
    db.kv_set("shop", "a", &json!(SECRET)).await;
    let run = db.claim_item("w").await;
    db.done("w", &run, json!([])).await;
    db.send("shop", "jobs", &json!(SECRET)).await;
    db.kv_set("shop", "b", &json!(SECRET)).await;
    db.claim_item("w").await;

    let tokens = db
        .one(
            "SELECT array_agg(DISTINCT token::text) FROM ( \
                 SELECT lease_token FROM payment_outbox_pending UNION ALL SELECT lease_token FROM payment_outbox_attempts \
                 UNION ALL SELECT lease_token FROM event_outbox_cursors UNION ALL SELECT lease_token FROM event_outbox_attempts \
                 UNION ALL SELECT lease_token FROM trigger_outbox_pending UNION ALL SELECT lease_token FROM trigger_outbox_attempts \
             ) all_of_them(token) WHERE token IS NOT NULL",
        )
        .await;
    let (readonly, auditor) =
        (db.login("symphony_readonly").await, db.login("symphony_auditor").await);
    Stage { db, readonly, auditor, tokens, event, execution: run.id }
}

impl Stage {
    /// What of the secrets is in a text.
    fn leaks(&self, text: &str) -> Vec<&str> {
        let secrets =
            [SECRET, DESTINATION].into_iter().chain(self.tokens.iter().map(String::as_str));
        secrets.filter(|secret| text.contains(secret)).collect()
    }

    /// Everything a login can read of every table and view, column by column: `table.column`, and its text.
    async fn readable(&self, login: &PgConnectOptions) -> Vec<(String, String)> {
        let mut connection = login.connect().await.unwrap();
        let columns: Vec<(String, String)> = sqlx::query_as(
            "SELECT c.relname::text, quote_ident(k.attname) FROM pg_class c JOIN pg_attribute k ON k.attrelid = c.oid \
              WHERE c.relnamespace = 'symphony'::regnamespace AND c.relkind IN ('r', 'v') AND k.attnum > 0 AND NOT k.attisdropped \
                AND has_column_privilege(c.oid, k.attnum, 'SELECT') ORDER BY 1, k.attnum",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        let mut found = Vec::new();
        for (table, column) in columns {
            let sql = format!(
                "SELECT coalesce(string_agg({column}::text, ' '), '') FROM symphony.{table}"
            );
            let text: String = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
                .fetch_one(&mut connection)
                .await
                .unwrap_or_else(|error| panic!("{table}.{column}: {error}"));
            found.push((format!("{table}.{column}"), text));
        }
        found
    }
}

#[tokio::test]
async fn no_column_that_readonly_can_read_has_a_payload_a_destination_or_a_token() {
    let stage = stage().await;
    let leaking = |columns: Vec<(String, String)>| {
        let leaking = columns.into_iter().filter(|(_, text)| !stage.leaks(text).is_empty());
        leaking.map(|(column, _)| column).collect::<Vec<_>>()
    };
    assert_eq!(leaking(stage.readable(&stage.readonly).await), Vec::<String>::new());
    // The test would see them: an auditor does.
    let seen = leaking(stage.readable(&stage.auditor).await);
    for expected in [
        "payment_outbox_instructions.payload",
        "payment_outbox_pending.lease_token",
        "payment_outbox_events.details",
        "event_outbox_log.event",
        "event_outbox_attempts.destination",
        "event_outbox_cursors.lease_token",
        "scripts.source",
        "kv_entries.value",
        "queue_messages.payload",
        "trigger_outbox_pending.payload",
        "trigger_outbox_executions.payload",
    ] {
        assert!(seen.iter().any(|column| column == expected), "{expected}: {seen:?}");
    }
}

#[tokio::test]
async fn every_read_answers_readonly_without_payloads_and_an_auditor_with_them() {
    let stage = stage().await;
    let Stage { event, execution, .. } = &stage;
    for (line, has_payload) in [
        ("status".to_owned(), false),
        ("show ended".to_owned(), true),
        ("show flying".to_owned(), true),
        (format!("show {event}"), true),
        ("dlq list".to_owned(), true),
        ("incident list".to_owned(), false),
        ("rail".to_owned(), false),
        ("app list".to_owned(), false),
        ("app executions".to_owned(), false),
        (format!("app logs {execution}"), true),
        (format!("app tree {execution}"), false),
    ] {
        for format in ["", " --json"] {
            let url = stage.readonly.to_url_lossy();
            let told = symphony(url.as_str(), &[], &format!("{line}{format}"), &[], "").await;
            assert!(told.ok, "{line}: {}", told.error);
            let all = told.output + &told.error;
            assert!(stage.leaks(&all).is_empty(), "{line}{format}: {all}");
        }
        let url = stage.auditor.to_url_lossy();
        let told = symphony(url.as_str(), &[], &format!("{line} --json"), &[], "").await;
        assert_eq!(!stage.leaks(&told.output).is_empty(), has_payload, "{line}: {}", told.output);
    }
    // The doctor says what it could not see, in one line, and does not fail for it.
    let url = stage.readonly.to_url_lossy();
    let told = symphony(url.as_str(), &[], "doctor", &[], "").await;
    let wrong: Vec<_> = told
        .output
        .lines()
        .filter(|line| line.starts_with("FAIL") && !line.contains("fsync"))
        // Logins of other tests on the same server.
        .filter(|line| !line.starts_with("FAIL owner"))
        .collect();
    assert_eq!(
        wrong,
        [
            "FAIL incidents    1 late outcomes of payments contradict the ledger: symphony incident list"
        ]
    );
    assert!(told.output.contains("WARN data         the data was not compared"), "{}", told.output);
    stage.db.assert_ledger_holds().await;
}
