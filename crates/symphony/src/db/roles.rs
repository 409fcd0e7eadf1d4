//! Which role a transaction acts as, and which of several a login has.

use std::fmt;
use std::sync::Arc;
#[cfg(feature = "worker")]
use std::sync::PoisonError;
use std::time::Duration;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use super::{Database, DbError, RoleTransaction};

/// What a transaction is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Produces.
    Producer,
    /// Works.
    Worker,
    /// Acts on items: as `symphony_operator`, or as `symphony_approver` where the login has only that.
    Operator,
    /// Reads: as the first of `symphony_auditor`, `symphony_operator`, `symphony_approver` and `symphony_readonly` that
    /// the login has.
    Auditor,
    /// Approves what others ask for.
    Approver,
    /// Hands out tokens of the API.
    TokenAdmin,
    /// Asks whose a token is.
    Authenticator,
    /// Applies events.
    Consumer,
}

impl Role {
    /// The database's roles that will do, the best one first.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Producer => &["symphony_ingest"],
            Self::Worker | Self::Authenticator => &["symphony_executor"],
            Self::Operator => &["symphony_operator", "symphony_approver"],
            Self::Auditor => {
                &["symphony_auditor", "symphony_operator", "symphony_approver", "symphony_readonly"]
            }
            Self::Approver => &["symphony_approver"],
            Self::TokenAdmin => &["symphony_auth"],
            Self::Consumer => &["symphony_consumer"],
        }
    }
}

/// A token of the API that is acted for. Its secret is never printed.
#[derive(Clone)]
#[cfg_attr(not(feature = "admin"), allow(dead_code))]
pub(super) struct ActingToken {
    /// What its holder knows.
    pub(super) secret: Arc<str>,
    /// The roles of its scopes.
    pub(super) roles: Arc<[&'static str]>,
    /// How long one statement for it may take.
    pub(super) statement_time_max: Duration,
}

impl fmt::Debug for ActingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActingToken").field("roles", &self.roles).finish_non_exhaustive()
    }
}

/// Where a transaction's role comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleSource {
    /// `SET LOCAL ROLE` at the start of every transaction: safe behind a transaction pooler.
    EachTransaction,
    /// The login already has exactly the role's rights: one round trip less.
    Login,
}

/// What a reader's role lets it see.
#[cfg(feature = "admin")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadAccess {
    /// Everything.
    Whole,
    /// No payloads, destinations and lease tokens: `symphony_readonly`, which has no right to those columns.
    Masked,
}

#[cfg(feature = "admin")]
impl ReadAccess {
    /// A column that is hidden from some, or nothing in its place.
    pub(super) fn of(self, column: &str, kind: &str) -> String {
        match self {
            Self::Whole => column.to_owned(),
            Self::Masked => format!("NULL::{kind}"),
        }
    }
}

/// A worker's idle transactions are ended by the server. If a COMMIT is lost on the way, the server would otherwise keep the
/// rows locked for hours, for the same worker's next try too. Set with the transaction, as the role is.
const BEGIN_AS_WORKER: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// Whether the session's login has a worker's rights without SET ROLE.
#[cfg(feature = "worker")]
const WORKS_BY_ITSELF: &str = "SELECT pg_has_role(current_user, 'symphony_executor', 'USAGE')";

/// The roles of these that the session's login may act as, in the order given. From 16 on a membership may go
/// without the right to SET ROLE.
const HELD_ROLES: &str = "SELECT w.role FROM unnest($1::text[]) WITH ORDINALITY w(role, place) \
      JOIN pg_roles r ON r.rolname = w.role \
     WHERE pg_has_role(session_user, r.oid, CASE WHEN current_setting('server_version_num')::int >= 160000 \
                                                 THEN 'SET' ELSE 'MEMBER' END) \
     ORDER BY w.place";

fn begin_as(role: &str) -> &'static str {
    match role {
        "symphony_ingest" => "BEGIN; SET LOCAL ROLE symphony_ingest",
        "symphony_executor" => {
            "BEGIN; SET LOCAL ROLE symphony_executor; SET LOCAL idle_in_transaction_session_timeout = '10s'"
        }
        // What people read above a large backlog is compiled for longer than it runs.
        "symphony_operator" => "BEGIN; SET LOCAL ROLE symphony_operator; SET LOCAL jit = off",
        "symphony_approver" => "BEGIN; SET LOCAL ROLE symphony_approver; SET LOCAL jit = off",
        "symphony_auditor" => "BEGIN; SET LOCAL ROLE symphony_auditor; SET LOCAL jit = off",
        "symphony_readonly" => "BEGIN; SET LOCAL ROLE symphony_readonly; SET LOCAL jit = off",
        "symphony_auth" => "BEGIN; SET LOCAL ROLE symphony_auth",
        _ => "BEGIN; SET LOCAL ROLE symphony_consumer",
    }
}

impl Database {
    /// Start a transaction that acts as one role.
    pub async fn begin(&self, role: Role) -> Result<RoleTransaction, DbError> {
        let statements = match (self.roles, role) {
            // A token's scopes are roles, whatever the login has by itself.
            (_, role) if self.token.is_some() => begin_as(self.held_role(role).await?),
            // Any SET pins a session of RDS Proxy; there the login itself has the time-out, as docs/OPERATING.md says.
            (RoleSource::Login, Role::Worker) if !self.sessions_are_lent() => BEGIN_AS_WORKER,
            (RoleSource::Login, _) => "BEGIN",
            (RoleSource::EachTransaction, role) => begin_as(self.held_role(role).await?),
        };
        let statements = match &self.token {
            None => SqlStr::from_static(statements),
            Some(token) => {
                let milliseconds = token.statement_time_max.as_millis();
                AssertSqlSafe(format!("{statements}; SET LOCAL statement_timeout = {milliseconds}"))
                    .into_sql_str()
            }
        };
        // One round trip for all of it.
        let mut transaction =
            RoleTransaction::begin(self, statements).await.map_err(|error| match error {
                DbError::MissingPrivilege { .. } => self.missing(role),
                other => other,
            })?;
        if let Some(ActingToken { secret, .. }) = &self.token
            && matches!(role, Role::Operator | Role::Approver)
        {
            // Who asks and who approves must be proved; a reader's snapshot begins with its first query. The secret itself, so that the database need not take anybody's word for it.
            sqlx::query_scalar::<_, bool>("SELECT set_config('symphony.token', $1, true) IS NULL")
                .bind(&**secret)
                .fetch_one(transaction.session())
                .await?;
        }
        Ok(transaction)
    }

    /// Whether a worker's call needs no transaction that begins with SET ROLE. Asked once, and again after a refusal.
    #[cfg(feature = "worker")]
    pub(super) async fn login_works_by_itself(&self) -> Result<bool, DbError> {
        if self.sessions_are_lent() || self.token.is_some() {
            return Ok(false);
        }
        let known = *self.works_by_itself.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known {
            return Ok(known);
        }
        let asked = self.in_time(async {
            let mut transaction = self.begin_as_login().await?;
            Ok(sqlx::query_scalar(WORKS_BY_ITSELF).fetch_one(transaction.session()).await?)
        });
        let found: bool = asked.await?;
        *self.works_by_itself.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(found)
    }

    /// A grant may have changed.
    #[cfg(feature = "worker")]
    pub(super) fn ask_again_how_the_login_works(&self) {
        *self.works_by_itself.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Start a reader's transaction, and say what it may see.
    #[cfg(feature = "admin")]
    pub(super) async fn begin_reading(&self) -> Result<(RoleTransaction, ReadAccess), DbError> {
        let transaction = self.begin(Role::Auditor).await?;
        let masked = (self.roles == RoleSource::EachTransaction || self.token.is_some())
            && self.held_role(Role::Auditor).await? == "symphony_readonly";
        Ok((transaction, if masked { ReadAccess::Masked } else { ReadAccess::Whole }))
    }

    /// Start a transaction with the login's own rights.
    pub async fn begin_as_login(&self) -> Result<RoleTransaction, DbError> {
        RoleTransaction::begin(self, "BEGIN").await
    }

    /// The role to act as. Where one would do only, SET ROLE itself says whether the login has it.
    async fn held_role(&self, role: Role) -> Result<&'static str, DbError> {
        let (names, held) = (role.names(), self.held_roles.get());
        let first_of = |held: &[String]| {
            names.iter().find(|name| held.iter().any(|held| held == *name)).copied()
        };
        if let Some(ActingToken { roles: allowed, .. }) = &self.token {
            let granted = names.iter().find(|name| allowed.contains(name)).copied();
            return granted.ok_or_else(|| self.missing(role));
        }
        if let [only] = names {
            return Ok(only);
        }
        if let Some(role) = held.and_then(|held| first_of(held)) {
            return Ok(role);
        }
        let mut transaction = self.begin_as_login().await?;
        let asked = Role::Auditor.names();
        let held: Vec<String> =
            sqlx::query_scalar(HELD_ROLES).bind(asked).fetch_all(transaction.session()).await?;
        // A login that has none is asked about again: somebody may grant it one meanwhile.
        let found = first_of(&held);
        if found.is_some() {
            drop(self.held_roles.set(held));
        } else if let Some(missing) = missing_role(&mut transaction).await? {
            return Err(DbError::NotMigrated { message: missing });
        }
        found.ok_or_else(|| self.missing(role))
    }

    fn missing(&self, role: Role) -> DbError {
        DbError::MissingRole { login: self.login.to_string(), roles: role.names() }
    }
}

/// What PostgreSQL would say of a cluster that was never migrated.
async fn missing_role(transaction: &mut RoleTransaction) -> Result<Option<String>, DbError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regrole('symphony_auditor') IS NOT NULL")
        .fetch_one(transaction.session())
        .await?;
    Ok((!exists).then(|| "role \"symphony_auditor\" does not exist".to_owned()))
}
