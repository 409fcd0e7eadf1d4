//! What operators do with apps and their executions.

use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::operator::NOT_NAMED;
use crate::db::{DbError, Operator, calls};
use crate::domain::Act;

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

/// A grant of mail that was made, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct MailGranted {
    /// The app.
    pub app_id: Uuid,
    /// The address or filter, in lower case.
    pub filter: String,
    /// It was granted already.
    pub granted_before: bool,
    /// Addresses within it that other apps have claimed.
    pub addresses_of_others: i32,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// A grant of mail that was revoked, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct MailRevoked {
    /// The app.
    pub app_id: Uuid,
    /// The address or filter, in lower case.
    pub filter: String,
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
pub struct TriggerLaneSettings {
    /// The lane, or the app named, is paused.
    pub paused: bool,
    /// Triggers that stand deeper fail.
    pub depth_max: i32,
    /// Executions outlive their app.
    pub keep_executions: bool,
    /// Acts need a second person.
    pub approval_required: bool,
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
    /// Whether acts need a second person.
    pub approval_required: Option<bool>,
}

impl Operator {
    /// Create an app, or make it what its manifest says.
    pub async fn push_app(
        &self,
        app: &str,
        manifest: &RawValue,
        actor: &str,
    ) -> Result<PushAnswer, DbError> {
        let query = sqlx::query_as(calls::PUSH_APP.sql).bind(app).bind(Json(manifest)).bind(actor);
        self.act(query).await
    }

    /// Delete an app and all that is its own; its ledger stays.
    pub async fn delete_app(&self, app: &str, act: &Act) -> Result<DeletedApp, DbError> {
        self.act_on(calls::DELETE_APP.sql, app, act).await
    }

    /// Let an app have the mail of addresses that are not its own.
    pub async fn grant_mail(
        &self,
        app: &str,
        filter: &str,
        act: &Act,
    ) -> Result<MailGranted, DbError> {
        self.act(mail_query(calls::GRANT_MAIL.sql, app, filter, act)).await
    }

    /// From the next message on it has it no more.
    pub async fn revoke_mail(
        &self,
        app: &str,
        filter: &str,
        act: &Act,
    ) -> Result<MailRevoked, DbError> {
        self.act(mail_query(calls::REVOKE_MAIL.sql, app, filter, act)).await
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
    ) -> Result<TriggerLaneSettings, DbError> {
        let query = sqlx::query_as(calls::CONFIGURE_TRIGGER_LANE.sql)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(NOT_NAMED)
            .bind(change.app)
            .bind(change.paused)
            .bind(change.depth_max)
            .bind(change.keep_executions)
            .bind(change.approval_required);
        self.change(act, query).await
    }
}

fn mail_query<'q, T>(
    sql: &'static str,
    app: &'q str,
    filter: &'q str,
    act: &'q Act,
) -> sqlx::query::QueryAs<'q, sqlx::Postgres, T, sqlx::postgres::PgArguments>
where
    T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
{
    sqlx::query_as(sql).bind(app).bind(filter).bind(&act.actor).bind(&act.reason).bind(act.dry_run)
}
