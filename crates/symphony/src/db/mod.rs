//! The only Rust that names SQL.
//!
//! - [`Database`]: a pool, and transactions that act as one role and know what became of their COMMIT.
//! - [`Ingest`], [`Executor`], [`Operator`], [`Auditor`]: one handle per role, each able to name only what
//!   its role may call.
//! - [`migrate`], [`inspect`]: installing the schema, and comparing the live one with what was declared.
//! - [`calls`]: the signature of every function called here, compared with the live catalog by a test.

mod auditor;
pub mod calls;
mod error;
mod executor;
mod hints;
mod ingest;
pub mod inspect;
pub mod migrate;
mod operator;
pub mod privileges;

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{PgConnection, Postgres, Transaction};

pub use auditor::{
    AttemptRow, Auditor, EventRow, FoundItem, InstructionRow, ItemLife, LaneStatus, LedgerFigures,
    LiveItem, WaitingItem, WaitingQuery,
};
pub use error::DbError;
pub use executor::{
    Claim, ClaimRequest, ClaimedItem, Completion, CompletionAnswer, CompletionResult, Executor,
    LateOutcome, Lease, RepairedItem, SendHistory, SettledAttempt,
};
pub use hints::{Heard, Hints};
pub use ingest::{EnqueueAnswer, EnqueuedPayment, Ingest};
pub use operator::{ActAnswer, LaneSettings, Operator, RailSettings, RedriveAnswer, SwitchAnswer};

/// How long to look for the fate of a lost COMMIT before calling it unknown.
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

/// The role a transaction acts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Produces.
    Ingest,
    /// Works.
    Executor,
    /// Acts on items.
    Operator,
    /// Reads.
    Auditor,
}

impl Role {
    fn begin(self) -> &'static str {
        match self {
            Self::Ingest => "BEGIN; SET LOCAL ROLE symphony_ingest",
            Self::Executor => "BEGIN; SET LOCAL ROLE symphony_executor",
            Self::Operator => "BEGIN; SET LOCAL ROLE symphony_operator",
            Self::Auditor => "BEGIN; SET LOCAL ROLE symphony_auditor",
        }
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

/// A pool of connections to one Symphony database.
#[derive(Debug, Clone)]
pub struct Database {
    pool: PgPool,
    roles: RoleSource,
}

impl Database {
    /// Connect, with at most this many connections.
    pub async fn connect(
        options: PgConnectOptions,
        connections_max: u32,
        roles: RoleSource,
    ) -> Result<Self, DbError> {
        let pool = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(Duration::from_secs(10))
            .connect_with(options)
            .await?;
        Ok(Self { pool, roles })
    }

    /// The pool itself, for a caller's own statements.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// The producer's handle.
    pub fn ingest(&self) -> Ingest {
        Ingest::new(self.clone())
    }

    /// The worker's handle.
    pub fn executor(&self) -> Executor {
        Executor::new(self.clone())
    }

    /// The operator's handle.
    pub fn operator(&self) -> Operator {
        Operator::new(self.clone())
    }

    /// The reader's handle.
    pub fn auditor(&self) -> Auditor {
        Auditor::new(self.clone(), Role::Auditor)
    }

    /// Start a transaction that acts as one role.
    pub async fn begin(&self, role: Role) -> Result<RoleTransaction, DbError> {
        // One round trip for both.
        let transaction = match self.roles {
            RoleSource::EachTransaction => self.pool.begin_with(role.begin()).await?,
            RoleSource::Login => self.pool.begin().await?,
        };
        Ok(RoleTransaction { transaction, pool: self.pool.clone() })
    }
}

/// A transaction that acts as one role. Dropped without [`commit`](Self::commit), it rolls back.
#[derive(Debug)]
pub struct RoleTransaction {
    transaction: Transaction<'static, Postgres>,
    pool: PgPool,
}

impl RoleTransaction {
    /// The connection inside the transaction.
    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// Commit. If the connection is lost meanwhile, ask the server what became of the transaction: an
    /// answer that never came is not an answer.
    pub async fn commit(mut self) -> Result<(), DbError> {
        let (xid, started_at, recovered_at): (Option<String>, _, _) =
            sqlx::query_as(NOTE_COMMIT).fetch_one(&mut *self.transaction).await?;
        let Err(error) = self.transaction.commit().await else { return Ok(()) };
        match xid {
            // Nothing was written, so there is nothing to be uncertain about.
            None => Err(error.into()),
            Some(xid) => resolve_commit(&self.pool, xid, (started_at, recovered_at)).await,
        }
    }
}

/// What became of a transaction whose COMMIT got no answer, sent in this life of the server.
async fn resolve_commit(pool: &PgPool, xid: String, life: ServerLife) -> Result<(), DbError> {
    let started = Instant::now();
    while started.elapsed() < COMMIT_LOOKUP {
        let answer: Result<(Option<String>, _, _), sqlx::Error> =
            sqlx::query_as(LOOK_UP_COMMIT).bind(&xid).fetch_one(pool).await;
        let status = answer
            .map(|(status, started_at, recovered_at)| (status, (started_at, recovered_at) == life));
        match status {
            Ok((Some(status), same_life)) if status == "committed" => {
                // After a crash the number of a transaction that left no trace is given to another one: that one
                // has committed, and nobody knows of ours.
                return if same_life { Ok(()) } else { Err(DbError::CommitUnknown { xid }) };
            }
            // A number whose transaction committed is never given away: whosever this is, ours did not.
            Ok((Some(status), _)) if status == "aborted" => return Err(DbError::NotCommitted),
            // Still being decided, or the server is away: ask again.
            Ok((Some(_), _)) => {}
            Ok((None, _)) => return Err(DbError::CommitUnknown { xid }),
            Err(error) => match DbError::from(error) {
                DbError::Unreachable { .. } => {}
                // A transaction id from the server's future: another server answered (a failover that lost it).
                _ => return Err(DbError::CommitUnknown { xid }),
            },
        }
        tokio::time::sleep(COMMIT_LOOKUP_PAUSE).await;
    }
    Err(DbError::CommitUnknown { xid })
}
