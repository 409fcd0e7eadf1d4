//! A transaction that acts as one role, leaves nothing open whatever fails, and finds out whether its COMMIT succeeded.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgTransactionManager};
use sqlx::{Postgres, SqlSafeStr};
use sqlx_core::transaction::TransactionManager as _;

use super::session::Session;
use super::{Database, DbError};

/// How long to look for the status of a lost COMMIT before calling it unknown.
const COMMIT_LOOKUP: Duration = Duration::from_secs(30);
/// How often to ask meanwhile.
const COMMIT_LOOKUP_PAUSE: Duration = Duration::from_millis(50);

/// Before a COMMIT: the transaction, if it has written, and the server's life.
const NOTE_COMMIT: &str = "SELECT pg_current_xact_id_if_assigned()::text, pg_postmaster_start_time(), \
                                  pg_stat_get_bgwriter_stat_reset_time()";
/// After a lost COMMIT: what became of the transaction, and the server's life by then.
const LOOK_UP_COMMIT: &str = "SELECT pg_xact_status($1::text::xid8), pg_postmaster_start_time(), \
                                     pg_stat_get_bgwriter_stat_reset_time()";

/// What differs after any crash of the server: it is another process, or the same one has recovered, which starts
/// its statistics anew.
type ServerLife = (DateTime<Utc>, Option<DateTime<Utc>>);

/// Where a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody knows whether the server has begun it: the driver would roll nothing back.
    Beginning,
    Open,
    Ended,
}

/// A transaction that acts as one role. Dropped without [`commit`](Self::commit), it rolls back.
#[derive(Debug)]
pub struct RoleTransaction {
    connection: PoolConnection<Postgres>,
    stage: Stage,
    lent: bool,
    database: Database,
}

impl RoleTransaction {
    /// Begin with these statements, in one round trip. If one of them is refused the session stands in a failed
    /// transaction, and is closed.
    pub(super) async fn begin(
        database: &Database,
        statements: impl SqlSafeStr,
    ) -> Result<Self, DbError> {
        let connection = database.pool.acquire().await?;
        let lent = database.sessions_are_lent();
        let mut begun =
            Self { connection, stage: Stage::Beginning, lent, database: database.clone() };
        PgTransactionManager::begin(&mut begun.connection, Some(statements.into_sql_str())).await?;
        begun.stage = Stage::Open;
        Ok(begun)
    }

    /// The connection inside the transaction, for a caller's own statements. Where a pooler lends the session
    /// ([`Database::sessions_are_lent`]) they must have no name: run them on [`session`](Self::session).
    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// The same for statements that need no name of their own.
    pub fn session(&mut self) -> Session<'_> {
        Session::new(&mut self.connection, self.lent, &self.database.schema)
    }

    /// Let the server give up any statement of this transaction that takes longer.
    #[cfg(feature = "admin")]
    pub(super) async fn give_up_statements_after(
        &mut self,
        time_max: Duration,
    ) -> Result<(), DbError> {
        let sql = "SELECT set_config('statement_timeout', $1, true) IS NULL";
        let _set: bool = sqlx::query_scalar(sql)
            .bind(time_max.as_millis().to_string())
            .fetch_one(self.session())
            .await?;
        Ok(())
    }

    /// Commit. If the connection is lost meanwhile, ask the server what became of the transaction: an
    /// answer that never came is not an answer.
    pub async fn commit(self) -> Result<(), DbError> {
        self.commit_what_was_written(false).await
    }

    /// Commit a transaction that has surely written. If it has not, somebody ended it in between (a handler that
    /// said COMMIT or ROLLBACK by itself), and what was written before may be gone.
    pub async fn commit_written(self) -> Result<(), DbError> {
        self.commit_what_was_written(true).await
    }

    async fn commit_what_was_written(mut self, must_have: bool) -> Result<(), DbError> {
        let (xid, started_at, recovered_at): (Option<String>, _, _) =
            sqlx::query_as(NOTE_COMMIT).fetch_one(self.session()).await?;
        if must_have && xid.is_none() {
            return Err(DbError::NotCommitted);
        }
        let database = self.database.clone();
        let Err(error) = self.end().await else { return Ok(()) };
        match xid {
            // Nothing was written, so there is nothing to be uncertain about.
            None => Err(error.into()),
            Some(xid) => resolve_commit(&database, xid, (started_at, recovered_at)).await,
        }
    }

    /// Commit what whoever calls will call again if no answer comes, or leave to its lease: nobody has to find out
    /// what became of it, and a round trip is saved.
    #[cfg(feature = "worker")]
    pub(crate) async fn commit_repeatable(self) -> Result<(), DbError> {
        Ok(self.end().await?)
    }

    /// COMMIT. Whatever else the server says, its session is not used again.
    async fn end(mut self) -> Result<(), sqlx::Error> {
        let committed = PgTransactionManager::commit(&mut self.connection).await;
        self.stage = if committed.is_ok() { Stage::Ended } else { Stage::Beginning };
        committed
    }

    /// Give it up.
    pub async fn rollback(mut self) -> Result<(), DbError> {
        PgTransactionManager::rollback(&mut self.connection).await?;
        self.stage = Stage::Ended;
        Ok(())
    }
}

impl Drop for RoleTransaction {
    fn drop(&mut self) {
        match self.stage {
            Stage::Beginning => self.connection.close_on_drop(),
            // Sent when the connection goes back to the pool, before anybody else has it.
            Stage::Open => PgTransactionManager::start_rollback(&mut self.connection),
            Stage::Ended => {}
        }
    }
}

impl<'c> From<&'c mut RoleTransaction> for Session<'c> {
    fn from(transaction: &'c mut RoleTransaction) -> Self {
        transaction.session()
    }
}

/// What became of a transaction whose COMMIT got no answer, sent in this life of the server.
async fn resolve_commit(database: &Database, xid: String, life: ServerLife) -> Result<(), DbError> {
    let started = Instant::now();
    while started.elapsed() < COMMIT_LOOKUP {
        match look_up_commit(database, &xid).await {
            Ok((status, answering)) => match commit_status(status.as_deref(), answering == life) {
                CommitStatus::Committed => return Ok(()),
                CommitStatus::RolledBack => return Err(DbError::NotCommitted),
                CommitStatus::Unknown => return Err(DbError::CommitUnknown { xid }),
                CommitStatus::Undecided => {}
            },
            Err(error) if error.is_transient() => {}
            // A transaction id from the server's future: another server answered (a failover that lost it).
            Err(_) => return Err(DbError::CommitUnknown { xid }),
        }
        tokio::time::sleep(COMMIT_LOOKUP_PAUSE).await;
    }
    Err(DbError::CommitUnknown { xid })
}

async fn look_up_commit(
    database: &Database,
    xid: &str,
) -> Result<(Option<String>, ServerLife), DbError> {
    let mut transaction = database.begin_as_login().await?;
    let (status, started_at, recovered_at) =
        sqlx::query_as(LOOK_UP_COMMIT).bind(xid).fetch_one(transaction.session()).await?;
    Ok((status, (started_at, recovered_at)))
}

/// What a server says of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommitStatus {
    Committed,
    RolledBack,
    /// Ask again.
    Undecided,
    Unknown,
}

/// Only the server that was told to commit, in that very life, can say what became of it. After a crash, and on a
/// standby that took over without having heard of it, the transaction's number goes to somebody else's, and the server
/// would answer for that one.
fn commit_status(status: Option<&str>, same_life: bool) -> CommitStatus {
    match status {
        _ if !same_life => CommitStatus::Unknown,
        Some("committed") => CommitStatus::Committed,
        Some("aborted") => CommitStatus::RolledBack,
        Some(_) => CommitStatus::Undecided,
        None => CommitStatus::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_that_was_told_to_commit_is_believed() {
        for (status, same_life, expected) in [
            (Some("committed"), true, CommitStatus::Committed),
            (Some("aborted"), true, CommitStatus::RolledBack),
            (Some("in progress"), true, CommitStatus::Undecided),
            (None, true, CommitStatus::Unknown),
            (Some("committed"), false, CommitStatus::Unknown),
            (Some("aborted"), false, CommitStatus::Unknown),
            (Some("in progress"), false, CommitStatus::Unknown),
        ] {
            assert_eq!(commit_status(status, same_life), expected, "{status:?} {same_life}");
        }
    }
}
