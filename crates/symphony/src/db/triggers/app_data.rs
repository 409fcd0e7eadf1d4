//! What people do with an app's entries, secrets and versions.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::operator::NOT_NAMED;
use crate::db::triggers::sealed::SealedSecret;
use crate::db::{Auditor, DbError, Operator, Role, calls};
use crate::domain::Act;

/// An entry, with its value.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct KvEntryRow {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: Json<Box<RawValue>>,
    /// Another after every write.
    pub version: String,
    /// Not there any more from then on.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was written.
    pub updated_at: DateTime<Utc>,
}

/// Which entries: in the order of their keys.
#[derive(Debug, Clone, Copy)]
pub struct KvQuery<'a> {
    /// Of this app.
    pub app: &'a str,
    /// What their keys begin with.
    pub prefix: &'a str,
    /// Only those after this key: the last of the page before.
    pub after: Option<&'a str>,
    /// At most so many, and at most 1,000.
    pub limit: i32,
}

/// What became of an entry, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EntryAnswer {
    /// Its key.
    pub key: String,
    /// It was there before.
    pub existed: bool,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// A secret, without what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct SecretRow {
    /// Its name.
    pub name: String,
    /// Of the key it is sealed with.
    pub key_id: String,
    /// By whom.
    pub set_by: String,
    /// When.
    pub set_at: DateTime<Utc>,
}

/// What became of a secret, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct SecretAnswer {
    /// Its name.
    pub name: String,
    /// It was there before.
    pub existed: bool,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// What a push has made of an app.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct AppVersion {
    /// Its number, from 1.
    pub version: i32,
    /// The oldest version kept that is the same.
    pub same_as: i32,
    /// Who pushed it.
    pub pushed_by: String,
    /// As whom its scripts run.
    pub principal: Option<Uuid>,
    /// When.
    pub pushed_at: DateTime<Utc>,
}

/// What a rollback did, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct RollbackAnswer {
    /// What the app was.
    pub version_before: i32,
    /// What it is again.
    pub restored_version: i32,
    /// Scripts with a new version; `None` for a dry run.
    pub scripts_changed: Option<i32>,
    /// Nothing was changed.
    pub dry_run: bool,
}

impl Operator {
    /// Write an entry, which fires what watches it.
    pub async fn set_entry(
        &self,
        app: &str,
        key: &str,
        value: &RawValue,
        ttl_seconds: Option<i32>,
        act: &Act,
    ) -> Result<EntryAnswer, DbError> {
        let query = sqlx::query_as(calls::SET_KV_ENTRY.sql)
            .bind(app)
            .bind(key)
            .bind(Json(value))
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(ttl_seconds)
            .bind(NOT_NAMED)
            .bind(act.dry_run);
        self.act(query).await
    }

    /// Remove an entry, which fires what watches it.
    pub async fn delete_entry(
        &self,
        app: &str,
        key: &str,
        act: &Act,
    ) -> Result<EntryAnswer, DbError> {
        let query = sqlx::query_as(calls::DELETE_KV_ENTRY.sql)
            .bind(app)
            .bind(key)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(NOT_NAMED)
            .bind(act.dry_run);
        self.act(query).await
    }

    /// Keep a secret, sealed already.
    pub async fn set_secret(
        &self,
        app: &str,
        name: &str,
        secret: &SealedSecret,
        act: &Act,
    ) -> Result<SecretAnswer, DbError> {
        let query = sqlx::query_as(calls::SET_APP_SECRET.sql)
            .bind(app)
            .bind(name)
            .bind(&secret.key_id)
            .bind(&secret.sealed)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(NOT_NAMED)
            .bind(act.dry_run);
        self.act(query).await
    }

    /// Forget a secret.
    pub async fn delete_secret(
        &self,
        app: &str,
        name: &str,
        act: &Act,
    ) -> Result<SecretAnswer, DbError> {
        let query = sqlx::query_as(calls::DELETE_APP_SECRET.sql)
            .bind(app)
            .bind(name)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(NOT_NAMED)
            .bind(act.dry_run);
        self.act(query).await
    }

    /// Make an app again what an earlier push has made it: the one before the last, unless another is named.
    pub async fn rollback_app(
        &self,
        app: &str,
        version: Option<i32>,
        act: &Act,
    ) -> Result<RollbackAnswer, DbError> {
        let query = sqlx::query_as(calls::ROLLBACK_APP.sql)
            .bind(app)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(version)
            .bind(NOT_NAMED)
            .bind(act.dry_run);
        self.act(query).await
    }
}

impl Auditor {
    /// One entry; `None` if there is none.
    pub async fn entry_of(&self, app: &str, key: &str) -> Result<Option<KvEntryRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let query = sqlx::query_as(calls::READ_KV_ENTRY.sql).bind(app).bind(key);
        Ok(query.fetch_optional(transaction.session()).await?)
    }

    /// A page of entries.
    pub async fn entries_of(&self, query: KvQuery<'_>) -> Result<Vec<KvEntryRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let query = sqlx::query_as(calls::LIST_KV_ENTRIES.sql)
            .bind(query.app)
            .bind(query.prefix)
            .bind(query.after)
            .bind(query.limit);
        Ok(query.fetch_all(transaction.session()).await?)
    }

    /// An app's secrets, without what they are.
    pub async fn secrets_of(&self, app: &str) -> Result<Vec<SecretRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let query = sqlx::query_as(calls::LIST_APP_SECRETS.sql).bind(app);
        Ok(query.fetch_all(transaction.session()).await?)
    }

    /// What the last pushes have made of an app, the newest first; none if there is no such app.
    pub async fn app_versions(&self, app: &str) -> Result<Vec<AppVersion>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let query = sqlx::query_as(
            "SELECT p.version, min(p.version) OVER (PARTITION BY p.manifest_digest) AS same_as, p.pushed_by, p.principal, p.pushed_at \
               FROM symphony.app_pushes p JOIN symphony.apps a ON a.id = p.app_id WHERE a.name = $1 ORDER BY p.version DESC",
        )
        .bind(app);
        Ok(query.fetch_all(transaction.session()).await?)
    }
}
