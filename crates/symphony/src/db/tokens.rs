//! Access tokens of the HTTP API: making, listing and revoking them, and asking whose one is.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::roles::ActingToken;
use super::{Database, DbError, Role, calls};
use crate::domain::Act;

/// Whose a token is, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct TokenIdentity {
    /// The token.
    pub token_id: Uuid,
    /// What it is for.
    pub name: String,
    /// Whose it is.
    pub person: String,
    /// Some of ingest, operate, approve, read, audit and call.
    pub scopes: Vec<String>,
    /// Until when it is good.
    pub expires_at: DateTime<Utc>,
}

/// A token to make. The secret stays with whoever asks: only its SHA-256 goes to the database.
#[derive(Debug, Clone, Copy)]
pub struct NewToken<'a> {
    /// What it is for.
    pub name: &'a str,
    /// Whose it is: their login's name, if they have one.
    pub person: &'a str,
    /// Some of ingest, operate, approve, read, audit and call.
    pub scopes: &'a [String],
    /// SHA-256 of the secret.
    pub hash: &'a [u8],
    /// Who makes it.
    pub actor: &'a str,
    /// For how long it is good.
    pub expires_in_seconds: i32,
}

/// A token that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct CreatedToken {
    /// The token.
    pub token_id: Uuid,
    /// Until when it is good.
    pub expires_at: DateTime<Utc>,
}

/// A token that was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct RevokedToken {
    /// The token.
    pub token_id: Uuid,
    /// What it was for.
    pub name: String,
    /// When.
    pub revoked_at: DateTime<Utc>,
}

/// A token, without its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct TokenRow {
    /// The token.
    pub token_id: Uuid,
    /// What it is for.
    pub name: String,
    /// Whose it is.
    pub person: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// VALID, EXPIRED or REVOKED.
    pub state: String,
    /// Who made it.
    pub created_by: String,
    /// When.
    pub created_at: DateTime<Utc>,
    /// Until when it is good.
    pub expires_at: DateTime<Utc>,
    /// When it was revoked.
    pub revoked_at: Option<DateTime<Utc>>,
    /// By whom.
    pub revoked_by: Option<String>,
    /// Why.
    pub revoked_why: Option<String>,
}

/// Makes, lists and revokes tokens: `symphony_auth`.
#[derive(Debug, Clone)]
pub struct TokenAdmin {
    database: Database,
}

impl TokenAdmin {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Make a token.
    pub async fn create(&self, token: NewToken<'_>) -> Result<CreatedToken, DbError> {
        let mut transaction = self.database.begin(Role::TokenAdmin).await?;
        let created = sqlx::query_as(calls::CREATE_TOKEN.sql)
            .bind(token.name)
            .bind(token.person)
            .bind(token.scopes)
            .bind(token.hash)
            .bind(token.actor)
            .bind(token.expires_in_seconds)
            .fetch_one(transaction.session())
            .await?;
        transaction.commit().await?;
        Ok(created)
    }

    /// All of them, the newest first.
    pub async fn list(&self, limit: i64) -> Result<Vec<TokenRow>, DbError> {
        let mut transaction = self.database.begin(Role::TokenAdmin).await?;
        Ok(sqlx::query_as(
            "SELECT token_id, name, person, scopes, state, created_by, created_at, expires_at, revoked_at, revoked_by, revoked_why \
               FROM symphony.api_token_states ORDER BY created_at DESC, token_id LIMIT $1",
        )
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// Make a token useless, from the next request on.
    pub async fn revoke(&self, token: Uuid, act: &Act) -> Result<RevokedToken, DbError> {
        let mut transaction = self.database.begin(Role::TokenAdmin).await?;
        let revoked = sqlx::query_as(calls::REVOKE_TOKEN.sql)
            .bind(token)
            .bind(&act.actor)
            .bind(&act.reason)
            .fetch_one(transaction.session())
            .await?;
        transaction.commit().await?;
        Ok(revoked)
    }
}

impl Database {
    /// Whose this token is.
    ///
    /// # Errors
    /// [`DbError::TokenRefused`] if it is unknown, expired or revoked.
    pub async fn authenticate(&self, secret: &str) -> Result<TokenIdentity, DbError> {
        let mut transaction = self.begin(Role::Authenticator).await?;
        Ok(sqlx::query_as(calls::AUTHENTICATE_TOKEN.sql)
            .bind(secret)
            .fetch_one(transaction.session())
            .await?)
    }

    /// The same database for whoever has this token: each of its scopes is one role, and there are no others. The server
    /// gives up any statement of theirs that takes longer.
    #[must_use]
    pub fn for_token(&self, secret: &str, scopes: &[String], statement_time_max: Duration) -> Self {
        let roles = scopes.iter().filter_map(|scope| role_of(scope)).collect();
        let token = ActingToken { secret: secret.into(), roles, statement_time_max };
        Self { token: Some(token), ..self.clone() }
    }
}

fn role_of(scope: &str) -> Option<&'static str> {
    match scope {
        "ingest" => Some("symphony_ingest"),
        "operate" => Some("symphony_operator"),
        "approve" => Some("symphony_approver"),
        "read" => Some("symphony_readonly"),
        "audit" => Some("symphony_auditor"),
        _ => None,
    }
}
