//! What is read of apps and their executions.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::roles::ReadAccess;
use crate::db::{Auditor, DbError, Role};

/// An app at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct AppRow {
    /// Its id.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Nothing of it is run.
    pub paused: bool,
    /// Its scripts.
    pub scripts: i64,
    /// Its routes.
    pub routes: i64,
    /// Its triggers.
    pub triggers: i64,
    /// Items that have not ended; no more than [`PENDING_COUNTED_MAX`] are counted.
    pub pending: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
}

/// Whose mail an address or filter is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct AppMailRow {
    /// The app.
    pub app: String,
    /// The address, or a filter with a `*`.
    pub filter: String,
    /// An operator has granted it; otherwise the app named it first.
    pub granted: bool,
}

/// An execution: ended, or still pending.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ExecutionRow {
    /// The execution.
    pub id: Uuid,
    /// Its app.
    pub app_name: String,
    /// What fired it.
    pub source_kind: String,
    /// The script.
    pub script_name: Option<String>,
    /// Its version.
    pub script_version: Option<i32>,
    /// What fired what fired it.
    pub parent_execution_id: Option<Uuid>,
    /// The first of its tree.
    pub root_execution_id: Uuid,
    /// How deep it stands.
    pub trigger_depth: i32,
    /// Who caused the first of its tree; `None` if nobody is known.
    pub origin_principal: Option<Uuid>,
    /// The same in words, such as `token ann/ci`; only the kind for whoever may not see names.
    pub caused_by: Option<String>,
    /// As whom it runs: who pushed what fires it.
    pub principal: Option<Uuid>,
    /// The same in words, such as `login deploy`.
    pub runs_as: Option<String>,
    /// PENDING, DISPATCHED or FAILED.
    pub state: String,
    /// What it was fired with; `None` for whoever may not see it, as with what it answered and logged.
    pub payload: Option<Json<Box<RawValue>>>,
    /// What it answered.
    pub result: Option<Json<Box<RawValue>>>,
    /// Our code.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// What it logged.
    pub logs: Option<Json<Box<RawValue>>>,
    /// Attempts so far.
    pub attempts: i32,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When it ended.
    pub completed_at: Option<DateTime<Utc>>,
}

/// How much of an execution is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// All of it, for whoever may see it.
    Whole,
    /// Not its payload, result and logs: a list of them would be as large as all payloads together.
    Line,
}

impl Part {
    fn of(self, access: ReadAccess, column: &str) -> String {
        let access = if self == Self::Whole { access } else { ReadAccess::Masked };
        access.of(column, "jsonb")
    }
}

/// The columns of [`ExecutionRow`], of executions that have ended.
fn ended(access: ReadAccess, part: Part) -> String {
    format!(
        "SELECT e.id, e.app_name, e.source_kind, e.script_name, e.script_version, e.parent_execution_id, e.root_execution_id, \
                e.trigger_depth, e.state::text AS state, {} AS payload, {} AS result, e.error_code, {} AS error_message, {} AS logs, \
                e.attempts, e.created_at, e.completed_at, e.app_id, e.origin_principal, e.principal \
           FROM symphony.trigger_outbox_executions e",
        part.of(access, "e.payload"),
        part.of(access, "e.result"),
        access.of("e.error_message", "text"),
        part.of(access, "e.logs")
    )
}

/// The same of executions that have not.
fn pending(access: ReadAccess, part: Part) -> String {
    format!(
        "SELECT p.id, a.name AS app_name, p.source_kind, s.name AS script_name, s.version AS script_version, p.parent_execution_id, p.root_execution_id, p.trigger_depth, \
                'PENDING' AS state, {} AS payload, NULL::jsonb AS result, last.error_code, last.error_message, {} AS logs, \
                p.attempt_count AS attempts, p.created_at, NULL::timestamptz AS completed_at, p.app_id, p.origin_principal, p.principal \
           FROM symphony.trigger_outbox_pending p JOIN symphony.apps a ON a.id = p.app_id \
           LEFT JOIN symphony.scripts s ON s.id = p.script_id \
           LEFT JOIN LATERAL (SELECT t.error_code, {} AS error_message FROM symphony.trigger_outbox_attempts t WHERE t.id = p.id \
                               ORDER BY t.attempt_no DESC LIMIT 1) last ON true",
        part.of(access, "p.payload"),
        if part == Part::Whole { "'[]'::jsonb" } else { "NULL::jsonb" },
        access.of("t.error_message", "text")
    )
}

/// A tree, or the beginning of one.
#[derive(Debug, Clone, Serialize)]
pub struct ExecutionTree {
    /// In the order they were written, without payload, result and logs.
    pub executions: Vec<ExecutionRow>,
    /// So many more belong to it; no more than [`TREE_COUNTED_MAX`] are counted.
    pub left_out: i64,
}

/// Executions of a tree that are counted, if not all are shown.
pub const TREE_COUNTED_MAX: i64 = 100_000;
/// Items of an app that are counted.
pub const PENDING_COUNTED_MAX: i64 = 10_000;

/// Which executions, the newest first.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExecutionQuery<'a> {
    /// Only of this app.
    pub app: Option<&'a str>,
    /// Only PENDING, DISPATCHED or FAILED ones.
    pub state: Option<&'a str>,
    /// Only older ones than this: the last of the page before.
    pub before: Option<Uuid>,
    /// At most so many.
    pub limit: i64,
}

/// The same with the names of those who caused them and as whom they run; what this database has not named is its id.
pub(in crate::db) fn told(access: ReadAccess, executions: &str) -> String {
    let named = |column| {
        format!(
            "(SELECT coalesce(min(n.kind || coalesce(' ' || {}, '')), x.{column}::text) FROM symphony.principals n \
               WHERE n.principal_id = x.{column})",
            access.of("n.name", "text")
        )
    };
    format!(
        "SELECT x.*, {} AS caused_by, {} AS runs_as FROM ({}) x",
        named("origin_principal"),
        named("principal"),
        executions
    )
}

impl Auditor {
    /// Apps at a glance, by name, from after the one named.
    pub async fn apps(&self, after: Option<&str>, limit: i64) -> Result<Vec<AppRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(AssertSqlSafe(format!(
            "{APP_ROWS} WHERE a.name > $2 ORDER BY a.name LIMIT $3"
        )))
        .bind(PENDING_COUNTED_MAX)
        .bind(after.unwrap_or_default())
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// Whose mail is whose; of one app, or of all.
    pub async fn app_mail(&self, app: Option<&str>) -> Result<Vec<AppMailRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT a.name AS app, m.filter, m.granted \
               FROM (SELECT app_id, address AS filter, false AS granted FROM symphony.mail_addresses \
                     UNION ALL SELECT app_id, filter, true FROM symphony.mail_grants) m \
               JOIN symphony.apps a ON a.id = m.app_id \
              WHERE $1::text IS NULL OR a.name = $1 ORDER BY a.name, m.granted, m.filter",
        )
        .bind(app)
        .fetch_all(transaction.session())
        .await?)
    }

    /// One app at a glance.
    pub async fn app(&self, name: &str) -> Result<Option<AppRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(AssertSqlSafe(format!("{APP_ROWS} WHERE a.name = $2")))
            .bind(PENDING_COUNTED_MAX)
            .bind(name)
            .fetch_optional(transaction.session())
            .await?)
    }

    /// One execution, ended or not.
    pub async fn execution(&self, id: Uuid) -> Result<Option<ExecutionRow>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        let both =
            format!("{} UNION ALL {}", ended(access, Part::Whole), pending(access, Part::Whole));
        let sql = format!("{} WHERE x.id = $1", told(access, &both));
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(id)
            .fetch_optional(transaction.session())
            .await?)
    }

    /// Executions, the newest first, without payload, result and logs. Ids are in the order of time, so a page is read from
    /// the ends of indexes: of all, of what failed, or of an app in a state. Each filter is its own statement, because a
    /// general one would walk through everything.
    pub async fn executions(
        &self,
        query: ExecutionQuery<'_>,
    ) -> Result<Vec<ExecutionRow>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        let (ended, pending) = (ended(access, Part::Line), pending(access, Part::Line));
        let states: &[&str] = match (query.state, query.app) {
            (None, None) => &["true"],
            (None, Some(_)) => &["e.state = 'DISPATCHED'", "e.state = 'FAILED'"],
            (Some("DISPATCHED"), _) => &["e.state = 'DISPATCHED'"],
            (Some("FAILED"), _) => &["e.state = 'FAILED'"],
            (Some(_), _) => &[],
        };
        let of_app = |condition| if query.app.is_some() { condition } else { "$1::text IS NULL" };
        let mut pages: Vec<String> = states
            .iter()
            .map(|state| {
                let of_app = of_app("e.app_name = $1");
                format!(
                    "({ended} WHERE {of_app} AND {state} AND e.id < $2 ORDER BY e.id DESC LIMIT $3)"
                )
            })
            .collect();
        if query.state.is_none_or(|state| state == "PENDING") {
            let of_app = of_app(
                "p.app_id = (SELECT named.id FROM symphony.apps named WHERE named.name = $1)",
            );
            pages.push(format!(
                "({pending} WHERE {of_app} AND p.id < $2 ORDER BY p.id DESC LIMIT $3)"
            ));
        }
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let page = format!(
            "SELECT y.* FROM ({}) y ORDER BY y.id DESC LIMIT $3",
            pages.join(" UNION ALL ")
        );
        let sql = format!("{} ORDER BY x.id DESC", told(access, &page));
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(query.app)
            .bind(query.before.unwrap_or(Uuid::max()))
            .bind(query.limit)
            .fetch_all(transaction.session())
            .await?)
    }

    /// The executions of a tree, in the order they were written, without payload, result and logs; at most so many.
    pub async fn execution_tree(&self, root: Uuid, limit: i64) -> Result<ExecutionTree, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        // One snapshot for both: otherwise what is fired between them would seem to be left out.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(transaction.session())
            .await?;
        let (ended, pending) = (ended(access, Part::Line), pending(access, Part::Line));
        let tree = format!(
            "SELECT y.* FROM (({ended} WHERE e.root_execution_id = $1 ORDER BY e.id LIMIT $2) \
                 UNION ALL ({pending} WHERE p.id = $1 LIMIT $2) \
                 UNION ALL ({pending} WHERE p.root_execution_id = $1 AND p.root_execution_id <> p.id ORDER BY p.id LIMIT $2)) y \
              ORDER BY y.id LIMIT $2"
        );
        let sql = format!("{} ORDER BY x.created_at, x.id", told(access, &tree));
        let mut executions: Vec<ExecutionRow> = sqlx::query_as(AssertSqlSafe(sql))
            .bind(root)
            // One more, to know whether there are more.
            .bind(limit + 1)
            .fetch_all(transaction.session())
            .await?;
        let shown = usize::try_from(limit).unwrap_or(usize::MAX);
        if executions.len() <= shown {
            return Ok(ExecutionTree { executions, left_out: 0 });
        }
        executions.sort_by_key(|execution| execution.id);
        executions.truncate(shown);
        executions.sort_by_key(|execution| (execution.created_at, execution.id));
        let all: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM ((SELECT FROM symphony.trigger_outbox_executions e WHERE e.root_execution_id = $1 LIMIT $2) \
                 UNION ALL (SELECT FROM symphony.trigger_outbox_pending p WHERE p.id = $1) \
                 UNION ALL (SELECT FROM symphony.trigger_outbox_pending p \
                             WHERE p.root_execution_id = $1 AND p.root_execution_id <> p.id LIMIT $2)) tree",
        )
        .bind(root)
        .bind(limit + TREE_COUNTED_MAX)
        .fetch_one(transaction.session())
        .await?;
        Ok(ExecutionTree { executions, left_out: (all - limit).min(TREE_COUNTED_MAX) })
    }
}

/// The columns of [`AppRow`].
const APP_ROWS: &str = "SELECT a.id, a.name, a.paused, a.created_at, \
            (SELECT count(DISTINCT s.name) FROM symphony.scripts s WHERE s.app_id = a.id) AS scripts, \
            (SELECT count(*) FROM symphony.routes r WHERE r.app_id = a.id) AS routes, \
            (SELECT count(*) FROM symphony.triggers t WHERE t.app_id = a.id) AS triggers, \
            (SELECT count(*) FROM (SELECT FROM symphony.trigger_outbox_pending p WHERE p.app_id = a.id LIMIT $1) counted) AS pending \
       FROM symphony.apps a";

/// An execution that has ended, for whoever follows the logs.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct EndedExecution {
    /// The execution.
    pub id: Uuid,
    /// Its app.
    pub app_name: String,
    /// The script.
    pub script_name: Option<String>,
    /// DISPATCHED or FAILED.
    pub state: String,
    /// Our code.
    pub error_code: Option<String>,
    /// What it logged; `None` for whoever may not see it.
    pub logs: Option<Json<Box<RawValue>>>,
    /// When it ended.
    pub completed_at: DateTime<Utc>,
}

impl Auditor {
    /// The database's time.
    pub async fn now(&self) -> Result<DateTime<Utc>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let sql = "SELECT clock_timestamp()";
        Ok(sqlx::query_scalar(sql).fetch_one(transaction.session()).await?)
    }

    /// Executions of an app, or of all, that ended after this one, in that order. One probe of the index for each app.
    pub async fn executions_ended_after(
        &self,
        app: Option<&str>,
        at: DateTime<Utc>,
        id: Uuid,
        limit: i64,
    ) -> Result<Vec<EndedExecution>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        let sql = format!(
            "SELECT e.* FROM symphony.apps a CROSS JOIN LATERAL ( \
                 SELECT e.id, e.app_name, e.script_name, e.state::text AS state, e.error_code, {} AS logs, e.completed_at \
                   FROM symphony.trigger_outbox_executions e \
                  WHERE e.app_id = a.id AND e.completed_at >= $2 AND (e.completed_at, e.id) > ($2, $3) \
                  ORDER BY e.completed_at, e.id LIMIT $4) e \
              WHERE $1::text IS NULL OR a.name = $1 ORDER BY e.completed_at, e.id LIMIT $4",
            access.of("e.logs", "jsonb")
        );
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(app)
            .bind(at)
            .bind(id)
            .bind(limit)
            .fetch_all(transaction.session())
            .await?)
    }
}

/// One part of an app, as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct AppPart {
    /// `script`, `route`, `trigger`, `topic` or `queue`.
    pub kind: String,
    /// Its name; a route's is its method and path.
    pub name: String,
    /// A script's newest version.
    pub version: Option<i32>,
    /// Everything else about it: the same text as long as nothing of it changes.
    pub stands_as: String,
}

/// One outcome of an execution, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ExecutionAttemptRow {
    /// From 1.
    pub attempt_no: i32,
    /// DISPATCHED, RETRYABLE, FAILED or `ZOMBIE_REQUEUE`.
    pub state: String,
    /// Our code.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// How long it ran.
    pub latency_ms: Option<i32>,
    /// Who ran it, or ended it.
    pub worker_id: String,
    /// When it was written down.
    pub completed_at: DateTime<Utc>,
}

impl Auditor {
    /// The parts of an app, in order; none if there is no such app.
    pub async fn app_parts(&self, app: &str) -> Result<Vec<AppPart>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT x.kind, x.name, x.version, x.stands_as FROM symphony.apps a CROSS JOIN LATERAL ( \
                 SELECT 1 AS place, 'script' AS kind, s.name, max(s.version) AS version, max(s.version)::text AS stands_as \
                   FROM symphony.scripts s WHERE s.app_id = a.id GROUP BY s.name \
                 UNION ALL SELECT 2, 'route', r.method || ' ' || r.path, NULL, (to_jsonb(r) - 'id' - 'registered_by_principal')::text \
                   FROM symphony.routes r WHERE r.app_id = a.id \
                 UNION ALL SELECT 3, 'trigger', t.name, NULL, (to_jsonb(t) - 'id' - 'registered_by_principal')::text \
                   FROM symphony.triggers t WHERE t.app_id = a.id \
                 UNION ALL SELECT 4, 'topic', o.name, NULL, '' FROM symphony.topics o WHERE o.app_id = a.id \
                 UNION ALL SELECT 5, 'queue', q.name, NULL, '' FROM symphony.queues q WHERE q.app_id = a.id) x \
              WHERE a.name = $1 ORDER BY x.place, x.name",
        )
        .bind(app)
        .fetch_all(transaction.session())
        .await?)
    }

    /// The outcomes of an execution so far, in order.
    pub async fn execution_attempts(&self, id: Uuid) -> Result<Vec<ExecutionAttemptRow>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        let sql = format!(
            "SELECT attempt_no, state::text AS state, error_code, {} AS error_message, latency_ms, worker_id, completed_at \
               FROM symphony.trigger_outbox_attempts WHERE id = $1 ORDER BY attempt_no",
            access.of("error_message", "text")
        );
        Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(id).fetch_all(transaction.session()).await?)
    }
}
