//! Apps and their executions.

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// An app at a glance.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct App {
    /// Its id.
    id: Uuid,
    /// Its name.
    name: String,
    /// Nothing of it is run.
    paused: bool,
    /// Its scripts.
    scripts: i64,
    /// Its routes.
    routes: i64,
    /// Its triggers.
    triggers: i64,
    /// Items that have not ended; no more than 10,000 are counted.
    pending: i64,
    /// When it was made.
    created_at: DateTime<Utc>,
}

/// What a push has made of an app.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppVersion {
    /// Its number, from 1.
    version: i32,
    /// The oldest version kept that is the same.
    same_as: i32,
    /// Who pushed it.
    pushed_by: String,
    /// As whom its scripts run.
    principal: Option<Uuid>,
    /// When.
    pushed_at: DateTime<Utc>,
}

/// An execution: ended, or still pending.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Execution {
    /// The execution.
    id: Uuid,
    /// Its app.
    app_name: String,
    /// What fired it.
    source_kind: String,
    /// The script.
    script_name: Option<String>,
    /// Its version.
    script_version: Option<i32>,
    /// What fired what fired it.
    parent_execution_id: Option<Uuid>,
    /// The first of its tree.
    root_execution_id: Uuid,
    /// How deep it stands.
    trigger_depth: i32,
    /// Who caused the first of its tree; null if nobody is known.
    origin_principal: Option<Uuid>,
    /// The same in words, such as `token ann/ci`; only the kind for whoever may not see names.
    caused_by: Option<String>,
    /// As whom it runs: who pushed what fires it.
    principal: Option<Uuid>,
    /// The same in words, such as `login deploy`.
    runs_as: Option<String>,
    /// PENDING, DISPATCHED or FAILED.
    state: String,
    /// What it was fired with. Payload, result and logs are null in lists, and for whoever may not see them.
    #[schema(value_type = Option<Object>)]
    payload: Option<Value>,
    /// What it answered.
    result: Option<Value>,
    /// Our code.
    error_code: Option<String>,
    /// In words.
    error_message: Option<String>,
    /// What it logged.
    logs: Option<Vec<Value>>,
    /// Attempts so far.
    attempts: i32,
    /// When it was written.
    created_at: DateTime<Utc>,
    /// When it ended.
    completed_at: Option<DateTime<Utc>>,
}

/// A tree of executions, or the beginning of one.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TreeAnswer {
    /// In the order they were written, without payload, result and logs.
    executions: Vec<Execution>,
    /// So many more belong to it; no more than 100,000 are counted.
    left_out: i64,
}

/// What a push changed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PushAnswer {
    /// The app.
    app_id: Uuid,
    /// It is new.
    created: bool,
    /// Scripts with a new version.
    scripts_changed: i32,
    /// Its routes.
    routes: i32,
    /// Its triggers.
    triggers: i32,
}
