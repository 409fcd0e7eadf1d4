//! Apps of the trigger lane: what fires them, what operators do with them, and what is read of their executions.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::types::Json;
use uuid::Uuid;

use super::roles::Sight;
use super::{Auditor, DbError, Executor, Ingest, Operator, Role, Session, calls};
use crate::domain::Act;

/// What to fire.
#[derive(Debug, Clone, Copy)]
pub struct Firing<'a> {
    /// The app's name.
    pub app: &'a str,
    /// `http`, `kv`, `cron`, `pubsub`, `queue`, `email` or `dead_letter`.
    pub source_kind: &'a str,
    /// The route or trigger.
    pub trigger_id: Uuid,
    /// With what: a JSON object.
    pub payload: &'a RawValue,
    /// Who causes it.
    pub origin_principal: Option<Uuid>,
    /// Under which name somebody waits, and for how many milliseconds.
    pub reply: Option<(Uuid, i32)>,
}

/// What was fired.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Fired {
    /// The item, and its execution.
    pub id: Uuid,
    /// Its app.
    pub app_id: Uuid,
    /// Until when somebody waits.
    pub reply_deadline_at: Option<DateTime<Utc>>,
}

/// What a batch answered about one firing.
#[derive(sqlx::FromRow)]
struct FiringRow {
    id: Option<Uuid>,
    app_id: Option<Uuid>,
    reply_deadline_at: Option<DateTime<Utc>>,
    error_code: Option<String>,
    error_message: Option<String>,
}

impl From<FiringRow> for Result<Fired, DbError> {
    fn from(row: FiringRow) -> Self {
        let message = row.error_message.unwrap_or_default();
        match (row.id, row.app_id, row.error_code.as_deref()) {
            (Some(id), Some(app_id), _) => {
                Ok(Fired { id, app_id, reply_deadline_at: row.reply_deadline_at })
            }
            (_, _, Some("P7007")) => Err(DbError::NoSuchItem { message }),
            _ => Err(DbError::InvalidArgument { message }),
        }
    }
}

/// What a push changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct PushAnswer {
    /// The app.
    pub app_id: Uuid,
    /// It is new.
    pub created: bool,
    /// Scripts with a new version.
    pub scripts_changed: i32,
    /// Its routes.
    pub routes: i32,
    /// Its triggers.
    pub triggers: i32,
}

/// What a deletion ended, or would end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct DeletedApp {
    /// The app.
    pub app_id: Uuid,
    /// Items that had not ended.
    pub items: i32,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// What a replay made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ReplayAnswer {
    /// The execution that ended.
    pub id: Uuid,
    /// The new one.
    pub replay_id: Option<Uuid>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// The lane's switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct TriggerSettings {
    /// The lane, or the app named, is paused.
    pub paused: bool,
    /// Triggers that stand deeper fail.
    pub depth_max: i32,
    /// Executions outlive their app.
    pub keep_executions: bool,
}

/// What to change of the lane; `None` leaves as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct TriggerChange<'a> {
    /// One app only.
    pub app: Option<&'a str>,
    /// Pause or resume.
    pub paused: Option<bool>,
    /// How deep triggers may fire each other.
    pub depth_max: Option<i32>,
    /// Whether executions outlive their app.
    pub keep_executions: Option<bool>,
}

/// A route, as HTTP needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct RouteRow {
    /// Its id.
    pub id: Uuid,
    /// The method.
    pub method: String,
    /// The path's pattern.
    pub path: String,
    /// The script.
    pub script_name: String,
    /// Somebody waits for the answer.
    pub synchronous: bool,
    /// How long.
    pub wait_ms: i32,
}

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
    /// Items that have not ended.
    pub pending: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
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

/// An answer that somebody waits for.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ReplyRow {
    /// Under which name.
    pub reply_to: Uuid,
    /// The execution.
    pub id: Uuid,
    /// It answered; otherwise it failed.
    pub dispatched: bool,
    /// The answer.
    pub result: Option<Json<Box<RawValue>>>,
    /// Our code.
    pub error_code: Option<String>,
}

/// Executions that ended, and items that have not.
fn executions(sight: Sight) -> String {
    let hidden = |column| sight.of(column, "jsonb");
    format!(
        "SELECT e.id, e.app_name, e.source_kind, e.script_name, e.script_version, e.parent_execution_id, e.root_execution_id, \
                e.trigger_depth, e.state::text AS state, {} AS payload, {} AS result, e.error_code, e.error_message, {} AS logs, \
                e.attempts, e.created_at, e.completed_at, e.app_id \
           FROM public.trigger_outbox_executions e \
         UNION ALL \
         SELECT p.id, a.name, p.source_kind, s.name, s.version, p.parent_execution_id, p.root_execution_id, p.trigger_depth, \
                'PENDING', {}, NULL, last.error_code, last.error_message, '[]'::jsonb, p.attempt_count, p.created_at, NULL, p.app_id \
           FROM public.trigger_outbox_pending p JOIN public.apps a ON a.id = p.app_id \
           LEFT JOIN public.scripts s ON s.id = p.script_id \
           LEFT JOIN LATERAL (SELECT t.error_code, t.error_message FROM public.trigger_outbox_attempts t WHERE t.id = p.id \
                               ORDER BY t.attempt_no DESC LIMIT 1) last ON true",
        hidden("e.payload"),
        hidden("e.result"),
        hidden("e.logs"),
        hidden("p.payload")
    )
}

impl Ingest {
    /// Fire one route or trigger inside the caller's own transaction.
    pub async fn fire(
        connection: impl Into<Session<'_>>,
        firing: &Firing<'_>,
    ) -> Result<Fired, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_as(calls::ENQUEUE_TRIGGER.sql)
            .bind(firing.app)
            .bind(firing.source_kind)
            .bind(firing.trigger_id)
            .bind(Json(firing.payload))
            .bind(firing.origin_principal)
            .bind(firing.reply.map(|(name, _)| name))
            .bind(firing.reply.map(|(_, wait_ms)| wait_ms))
            .fetch_one(session)
            .await?)
    }

    /// Fire many routes or triggers in a transaction of their own; one answer each, in the order given. One that is
    /// refused is answered so, and the others are fired. If no answer comes in time, nobody knows what became of it.
    pub async fn fire_many_alone(
        &self,
        firings: &[Firing<'_>],
    ) -> Result<Vec<Result<Fired, DbError>>, DbError> {
        let fire = self.alone(async |connection| {
            Ok(sqlx::query_as(calls::ENQUEUE_TRIGGERS.sql)
                .bind(firings.iter().map(|f| f.app).collect::<Vec<_>>())
                .bind(firings.iter().map(|f| f.source_kind).collect::<Vec<_>>())
                .bind(firings.iter().map(|f| f.trigger_id).collect::<Vec<_>>())
                .bind(firings.iter().map(|f| Json(f.payload)).collect::<Vec<_>>())
                .bind(firings.iter().map(|f| f.origin_principal).collect::<Vec<_>>())
                .bind(firings.iter().map(|f| f.reply.map(|(name, _)| name)).collect::<Vec<_>>())
                .bind(firings.iter().map(|f| f.reply.map(|(_, ms)| ms)).collect::<Vec<_>>())
                .fetch_all(connection)
                .await?)
        });
        let rows: Vec<FiringRow> = self.database.in_time(fire).await?;
        Ok(rows.into_iter().map(Into::into).collect())
    }

    /// Fire one route or trigger in a transaction of its own.
    pub async fn fire_alone(&self, firing: &Firing<'_>) -> Result<Fired, DbError> {
        let fire = self.alone(async |connection| Self::fire(connection, firing).await);
        self.database.in_time(fire).await
    }

    /// Write an entry of an app inside the caller's own transaction; answers its version.
    pub async fn kv_set(
        connection: impl Into<Session<'_>>,
        app: &str,
        key: &str,
        value: &RawValue,
        principal: Option<Uuid>,
    ) -> Result<i64, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_scalar(calls::KV_SET.sql)
            .bind(app)
            .bind(key)
            .bind(Json(value))
            .bind(principal)
            .fetch_one(session)
            .await?)
    }

    /// Remove an entry of an app inside the caller's own transaction; answers whether there was one.
    pub async fn kv_delete(
        connection: impl Into<Session<'_>>,
        app: &str,
        key: &str,
        principal: Option<Uuid>,
    ) -> Result<bool, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_scalar(calls::KV_DELETE.sql)
            .bind(app)
            .bind(key)
            .bind(principal)
            .fetch_one(session)
            .await?)
    }

    /// A message for every subscriber, inside the caller's own transaction; answers how many.
    pub async fn publish_topic(
        connection: impl Into<Session<'_>>,
        app: &str,
        topic: &str,
        message: &RawValue,
        principal: Option<Uuid>,
    ) -> Result<i32, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_scalar(calls::PUBLISH_TOPIC.sql)
            .bind(app)
            .bind(topic)
            .bind(Json(message))
            .bind(principal)
            .fetch_one(session)
            .await?)
    }

    /// A message for one consumer, inside the caller's own transaction; answers whether there is one already.
    pub async fn send_to_queue(
        connection: impl Into<Session<'_>>,
        app: &str,
        queue: &str,
        message: &RawValue,
        principal: Option<Uuid>,
    ) -> Result<bool, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_scalar(calls::SEND_TO_QUEUE.sql)
            .bind(app)
            .bind(queue)
            .bind(Json(message))
            .bind(principal)
            .fetch_one(session)
            .await?)
    }

    /// Mail came in for a recipient; answers how many triggers wanted it. Without mail: how many would.
    pub async fn receive_email(
        &self,
        recipient: &str,
        mail: Option<&RawValue>,
    ) -> Result<i32, DbError> {
        self.alone(async |connection| {
            Ok(sqlx::query_scalar(calls::RECEIVE_EMAIL.sql)
                .bind(recipient)
                .bind(mail.map(Json))
                .fetch_one(connection)
                .await?)
        })
        .await
    }
}

impl Executor {
    /// The routes of an app; `None` if there is no such app.
    pub async fn routes(&self, app: &str) -> Result<Option<Vec<RouteRow>>, DbError> {
        self.call_repeatable(async |connection| {
            let known: Option<(Uuid,)> =
                sqlx::query_as("SELECT id FROM public.apps WHERE name = $1")
                    .bind(app)
                    .fetch_optional(&mut *connection)
                    .await?;
            let Some((app_id,)) = known else { return Ok(None) };
            Ok(Some(
                sqlx::query_as(
                    "SELECT id, method, path, script_name, synchronous, wait_ms FROM public.routes \
                      WHERE app_id = $1 ORDER BY path, method",
                )
                .bind(app_id)
                .fetch_all(connection)
                .await?,
            ))
        })
        .await
    }

    /// Those of these replies that have been written.
    pub async fn replies(&self, names: &[Uuid]) -> Result<Vec<ReplyRow>, DbError> {
        self.call_repeatable(async |connection| {
            Ok(sqlx::query_as(
                "SELECT reply_to, id, state = 'DISPATCHED' AS dispatched, result, error_code \
                   FROM public.trigger_outbox_executions WHERE reply_to = ANY ($1)",
            )
            .bind(names)
            .fetch_all(connection)
            .await?)
        })
        .await
    }
}

impl Operator {
    /// Create an app, or make it what its manifest says.
    pub async fn push_app(
        &self,
        app: &str,
        manifest: &RawValue,
        actor: &str,
        principal: Option<Uuid>,
    ) -> Result<PushAnswer, DbError> {
        self.act(async |connection| {
            Ok(sqlx::query_as(calls::PUSH_APP.sql)
                .bind(app)
                .bind(Json(manifest))
                .bind(actor)
                .bind(principal)
                .fetch_one(connection)
                .await?)
        })
        .await
    }

    /// Delete an app and all that is its own; its ledger stays.
    pub async fn delete_app(&self, app: &str, act: &Act) -> Result<DeletedApp, DbError> {
        self.act_on(calls::DELETE_APP.sql, app, act).await
    }

    /// Run an ended execution again.
    pub async fn replay_execution(&self, id: Uuid, act: &Act) -> Result<ReplayAnswer, DbError> {
        self.act_on(calls::REPLAY_EXECUTION.sql, id, act).await
    }

    /// Pause, resume, or change what holds for all apps.
    pub async fn configure_triggers(
        &self,
        change: &TriggerChange<'_>,
        act: &Act,
    ) -> Result<TriggerSettings, DbError> {
        self.change(act, async |connection| {
            Ok(sqlx::query_as(calls::CONFIGURE_TRIGGER_LANE.sql)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(&act.approver)
                .bind(change.app)
                .bind(change.paused)
                .bind(change.depth_max)
                .bind(change.keep_executions)
                .fetch_one(connection)
                .await?)
        })
        .await
    }
}

impl Auditor {
    /// Every app at a glance.
    pub async fn apps(&self) -> Result<Vec<AppRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT a.id, a.name, a.paused, a.created_at, \
                    (SELECT count(DISTINCT s.name) FROM public.scripts s WHERE s.app_id = a.id) AS scripts, \
                    (SELECT count(*) FROM public.routes r WHERE r.app_id = a.id) AS routes, \
                    (SELECT count(*) FROM public.triggers t WHERE t.app_id = a.id) AS triggers, \
                    (SELECT count(*) FROM public.trigger_outbox_pending p WHERE p.app_id = a.id) AS pending \
               FROM public.apps a ORDER BY a.name",
        )
        .fetch_all(&mut transaction)
        .await?)
    }

    /// One execution, ended or not.
    pub async fn execution(&self, id: Uuid) -> Result<Option<ExecutionRow>, DbError> {
        let (mut transaction, sight) = self.database.begin_reading().await?;
        let sql = format!("SELECT * FROM ({}) x WHERE x.id = $1", executions(sight));
        Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(id)
            .fetch_optional(&mut transaction)
            .await?)
    }

    /// The newest executions, of one app or of all, of one state or of all.
    pub async fn executions(
        &self,
        app: Option<&str>,
        state: Option<&str>,
        limit: i64,
    ) -> Result<Vec<ExecutionRow>, DbError> {
        let (mut transaction, sight) = self.database.begin_reading().await?;
        let sql = format!(
            "SELECT * FROM ({}) x WHERE ($1::text IS NULL OR x.app_name = $1) \
                AND ($2::text IS NULL OR x.state = $2) ORDER BY x.created_at DESC, x.id DESC LIMIT $3",
            executions(sight)
        );
        Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql))
            .bind(app)
            .bind(state)
            .bind(limit)
            .fetch_all(&mut transaction)
            .await?)
    }

    /// All executions of a tree, in the order they were written.
    pub async fn execution_tree(&self, root: Uuid) -> Result<Vec<ExecutionRow>, DbError> {
        let (mut transaction, sight) = self.database.begin_reading().await?;
        let sql = format!(
            "SELECT * FROM ({}) x WHERE x.root_execution_id = $1 ORDER BY x.created_at, x.id",
            executions(sight)
        );
        Ok(sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(root).fetch_all(&mut transaction).await?)
    }
}
