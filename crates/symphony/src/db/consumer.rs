//! Who applies events: record what is applied, forget what no bus can repeat.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::{Database, DbError, Role, RoleSource, RoleTransaction, Session, calls};

/// Whose rights a consumer's transaction has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActsAs {
    /// The login's own, which writes tables of its own and is a member of `symphony_consumer`.
    Login,
    /// Those of `symphony_consumer` and nothing else: the effects are made elsewhere.
    Role,
}

/// Records which events a consumer has applied.
///
/// ```no_run
/// # async fn example(pool: sqlx::PgPool, event_id: uuid::Uuid) -> Result<(), Box<dyn std::error::Error>> {
/// use symphony::db::Consumer;
///
/// let mut tx = pool.begin().await?;
/// if Consumer::record(&mut *tx, "ledger", event_id, None).await? {
///     sqlx::query("UPDATE balances SET cents = cents + 1000 WHERE account = 'acme'").execute(&mut *tx).await?;
/// }
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Consumer {
    database: Database,
}

impl Consumer {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Whether this is the first time, inside the transaction that holds the effects. Call it before they are made.
    ///
    /// The login must be a member of `symphony_consumer`. A second delivery of the event waits here for the first
    /// one's end.
    pub async fn record(
        connection: impl Into<Session<'_>>,
        consumer: &str,
        event_id: Uuid,
        dedupe_key: Option<&str>,
    ) -> Result<bool, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_scalar(calls::RECORD_INBOX.sql)
            .bind(consumer)
            .bind(event_id)
            .bind(dedupe_key)
            .fetch_one(session)
            .await?)
    }

    /// Start the transaction of one event. It ends by itself once it has rested for this long, because a process that
    /// is lost would otherwise hold the inbox row, and every redelivery behind it, for hours.
    pub async fn begin(
        &self,
        acts_as: ActsAs,
        rest_max: Duration,
    ) -> Result<RoleTransaction, DbError> {
        let role = match (acts_as, self.database.roles) {
            (ActsAs::Role, RoleSource::EachTransaction) => "SET LOCAL ROLE symphony_consumer; ",
            (ActsAs::Role, RoleSource::Login) | (ActsAs::Login, _) => "",
        };
        let begin = format!(
            "BEGIN; {role}SET LOCAL idle_in_transaction_session_timeout = {}",
            rest_max.as_millis()
        );
        RoleTransaction::begin(&self.database, AssertSqlSafe(begin)).await
    }

    /// Forget what was applied longer ago than this, oldest first, at most this many events and as many keys. Answers
    /// how many rows went.
    pub async fn retire(
        &self,
        consumer: &str,
        older_than_seconds: i64,
        batch_size: i32,
    ) -> Result<i64, DbError> {
        self.database
            .in_time(async {
                let mut transaction = self.database.begin(Role::Consumer).await?;
                let retired = sqlx::query_scalar(calls::RETIRE_INBOX.sql)
                    .bind(consumer)
                    .bind(older_than_seconds)
                    .bind(batch_size)
                    .fetch_one(transaction.session())
                    .await?;
                transaction.commit().await?;
                Ok(retired)
            })
            .await
    }
}
