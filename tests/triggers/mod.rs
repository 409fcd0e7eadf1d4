//! The trigger lane in the database: what a push accepts, what fires what, and what a completion applies.

mod app_schema;
pub mod apps;
mod batches;
mod commands;
mod contention;
mod cron;
mod effects;
mod fan_out;
mod locks;
mod mail;
mod manifests;
mod order;
mod outbox;
mod principals;
mod pushes;
mod races;
mod replies;
mod requests;
mod retention;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use crate::support::TestDb;

/// What a claim hands out.
#[derive(Debug, Clone)]
pub struct Item {
    pub id: Uuid,
    pub token: Uuid,
    pub source_kind: String,
    pub script_id: Option<Uuid>,
    pub payload: Value,
    pub depth: i32,
    pub root: Uuid,
    pub attempt_count: i32,
}

/// What a completion answers for one item: its result, and `state code` of the ledger row.
#[derive(Debug, PartialEq, Eq)]
pub struct Settled {
    pub result: String,
    pub attempt_no: Option<i32>,
    pub outcome: String,
}

/// SQL text for a value.
pub fn quoted(value: &Value) -> String {
    format!("'{}'::jsonb", value.to_string().replace('\'', "''"))
}

/// A script named `name` and nothing else.
pub fn script(name: &str) -> Value {
    json!({"name": name, "source": format!("// {name}")})
}

/// An app with one script `run` and these triggers, as `(name, kind, filter)`; `topics` and `queues` as named.
pub fn manifest(triggers: &[(&str, &str, &str)]) -> Value {
    let triggers: Vec<Value> = triggers
        .iter()
        .map(|(name, kind, filter)| {
            json!({"name": name, "kind": kind, "filter": filter, "script": "run", "attempts": 3, "backoffSeconds": [10, 100]})
        })
        .collect();
    json!({"scripts": [script("run")], "triggers": triggers, "topics": ["news"], "queues": ["jobs", "mail"]})
}

pub async fn claim_on(connection: &mut PgConnection, worker: &str, batch: i32) -> Vec<Item> {
    sqlx::query("SELECT * FROM claim_trigger_outbox_batch($1, $2, 60)")
        .bind(batch)
        .bind(worker)
        .fetch_all(connection)
        .await
        .unwrap()
        .iter()
        .map(|row| Item {
            id: row.get("id"),
            token: row.get("lease_token"),
            source_kind: row.get("source_kind"),
            script_id: row.get("script_id"),
            payload: row.get("payload"),
            depth: row.get("trigger_depth"),
            root: row.get("root_execution_id"),
            attempt_count: row.get("attempt_count"),
        })
        .collect()
}

pub async fn settle_on(
    connection: &mut PgConnection,
    worker: &str,
    item: &Item,
    state: &str,
    effects: &Value,
) -> Result<Settled, sqlx::Error> {
    let row = sqlx::query(
        "SELECT result, attempt_no, concat_ws(' ', state, error_code) AS outcome FROM complete_trigger_outbox_attempts(\
         p_worker_id => $1, p_ids => ARRAY[$2::uuid], p_lease_tokens => ARRAY[$3::uuid], p_states => ARRAY[$4::text], \
         p_results => ARRAY['{\"ok\": true}'::jsonb], p_effects => ARRAY[$5::jsonb], \
         p_error_codes => ARRAY[CASE WHEN $4 <> 'DISPATCHED' THEN 'BROKEN' END])",
    )
    .bind(worker)
    .bind(item.id)
    .bind(item.token)
    .bind(state)
    .bind(effects)
    .fetch_one(connection)
    .await?;
    Ok(Settled {
        result: row.get("result"),
        attempt_no: row.get("attempt_no"),
        outcome: row.get("outcome"),
    })
}

impl TestDb {
    /// Push a manifest that must be right; answers how many scripts changed.
    pub async fn push(&self, app: &str, manifest: &Value) -> i32 {
        let push =
            format!("SELECT scripts_changed FROM push_app('{app}', {}, 'dana')", quoted(manifest));
        self.one_as("symphony_operator", &push).await
    }

    /// Let an app have mail that is not its own.
    pub async fn grant_mail(&self, app: &str, filter: &str) {
        let grant =
            format!("SELECT filter FROM grant_app_mail('{app}', '{filter}', 'dana', 'test')");
        self.one_as::<String>("symphony_operator", &grant).await;
    }

    /// One value, as a role.
    pub async fn one_as<T>(&self, role: &str, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(&mut self.as_role(role).await)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The SQLSTATE and the message with which a statement is refused, or `OK`.
    pub async fn refusal(&self, role: &str, sql: &str) -> String {
        match sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.as_role(role).await).await {
            Ok(_) => "OK".to_owned(),
            Err(sqlx::Error::Database(error)) => {
                format!("{} {}", error.code().unwrap_or_default(), error.message())
            }
            Err(other) => panic!("{sql}: {other}"),
        }
    }

    pub async fn kv_set(&self, app: &str, key: &str, value: &Value) -> i64 {
        let set = format!("SELECT kv_set('{app}', '{key}', {})", quoted(value));
        self.one_as("symphony_ingest", &set).await
    }

    /// Whether a consumer has it already.
    pub async fn send(&self, app: &str, queue: &str, message: &Value) -> bool {
        let send = format!("SELECT send_to_queue('{app}', '{queue}', {})", quoted(message));
        self.one_as("symphony_ingest", &send).await
    }

    /// Fire the app's only route with somebody waiting, for a minute.
    pub async fn request(&self, app: &str, reply_to: Uuid) -> Uuid {
        let route: Uuid = self
            .one(&format!(
                "SELECT r.id FROM routes r JOIN apps a ON a.id = r.app_id WHERE a.name = '{app}'"
            ))
            .await;
        self.one_as(
            "symphony_ingest",
            &format!(
                "SELECT id FROM enqueue_trigger_outbox('{app}', 'http', '{route}', '{{\"path\": \"/\"}}', NULL, '{reply_to}', 60000)"
            ),
        )
        .await
    }

    pub async fn claim_items(&self, worker: &str, batch: i32) -> Vec<Item> {
        claim_on(&mut self.as_role("symphony_executor").await, worker, batch).await
    }

    pub async fn claim_item(&self, worker: &str) -> Item {
        let mut items = self.claim_items(worker, 10).await;
        assert_eq!(items.len(), 1, "one item to claim: {items:?}");
        items.remove(0)
    }

    pub async fn settle(&self, worker: &str, item: &Item, state: &str, effects: Value) -> Settled {
        let connection = &mut self.as_role("symphony_executor").await;
        settle_on(connection, worker, item, state, &effects).await.unwrap()
    }

    /// Complete an item as done, with these effects; it must be taken.
    pub async fn done(&self, worker: &str, item: &Item, effects: Value) {
        let settled = self.settle(worker, item, "DISPATCHED", effects).await;
        assert_eq!((settled.result.as_str(), settled.outcome.as_str()), ("OK", "DISPATCHED"));
    }

    /// The outcomes of an item, as `NO STATE CODE`.
    pub async fn item_ledger(&self, item: Uuid) -> Vec<String> {
        self.one(&format!(
            "SELECT coalesce(array_agg(concat_ws(' ', attempt_no, state, error_code) ORDER BY attempt_no), '{{}}') \
             FROM trigger_outbox_attempts WHERE id = '{item}'"
        ))
        .await
    }

    pub async fn execution(&self, item: Uuid) -> Value {
        self.one(&format!(
            "SELECT to_jsonb(e) FROM trigger_outbox_executions e WHERE id = '{item}'"
        ))
        .await
    }

    pub async fn kv(&self, key: &str) -> Option<Value> {
        self.one(&format!("SELECT (SELECT value FROM kv_entries WHERE key = '{key}')")).await
    }

    /// Let every item be due, by setting the time in the row.
    pub async fn make_items_due(&self) {
        self.sql("UPDATE trigger_outbox_pending SET next_attempt_at = clock_timestamp()").await;
    }

    /// Let all leases have ended, by setting the time in the row.
    pub async fn expire_items(&self) {
        self.sql("UPDATE trigger_outbox_pending SET lease_expires_at = clock_timestamp() - INTERVAL '1 second' WHERE lease_token IS NOT NULL")
            .await;
    }

    /// Let whoever waits have gone, by setting the time in the row.
    pub async fn pass_deadlines(&self) {
        self.sql("UPDATE trigger_outbox_pending SET reply_deadline_at = clock_timestamp() - INTERVAL '1 second' WHERE reply_to IS NOT NULL")
            .await;
    }

    /// Every item that ever ended did so once, and has an execution that says the same.
    pub async fn assert_items_hold(&self) {
        self.assert_data_agrees().await;
        assert_eq!(
            self.count(
                "(SELECT id, state, error_code FROM trigger_outbox_attempts WHERE state IN ('DISPATCHED', 'FAILED')) a \
                 FULL JOIN trigger_outbox_executions e USING (id) \
                 WHERE a.state IS DISTINCT FROM e.state OR a.error_code IS DISTINCT FROM e.error_code"
            )
            .await,
            0,
            "ledger and executions agree"
        );
        assert_eq!(
            self.count("trigger_outbox_pending JOIN trigger_outbox_executions USING (id)").await,
            0,
            "what has ended is not pending"
        );
    }
}
