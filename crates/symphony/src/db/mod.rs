//! The only Rust that names SQL.
//!
//! - [`Database`]: a pool, and transactions that act as one role and know what became of their COMMIT.
//! - [`Ingest`], [`Executor`], [`Operator`], [`Auditor`], [`Inbox`]: one handle per role, each able to name only what
//!   its role may call.
//! - [`migrate`], [`inspect`]: installing the schema, and comparing the live one with what was declared.
//! - [`calls`]: the signature of every function called here, compared with the live catalog by a test.

mod app_reader;
mod apps;
mod auditor;
pub mod calls;
mod error;
mod event_reader;
mod events;
mod executor;
mod hints;
mod inbox;
mod ingest;
pub mod inspect;
pub mod migrate;
mod operator;
pub mod privileges;
mod sends;
mod triggers;
mod witness;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, Postgres, Transaction};

pub use app_reader::{AppPart, ExecutionAttemptRow};
pub use apps::{
    AppRow, DeletedApp, ExecutionRow, Fired, Firing, PushAnswer, ReplayAnswer, ReplyRow, RouteRow,
    TriggerChange, TriggerSettings,
};
pub use auditor::{
    AttemptRow, Auditor, EventRow, FoundItem, Incident, InstructionRow, ItemLife, LaneStatus,
    LedgerFigures, LiveItem, WaitingItem, WaitingQuery,
};
pub use error::DbError;
pub use event_reader::{
    EventAttemptRow, EventFigures, EventFilter, EventLife, EventRecord, FoundEvent,
};
pub use events::{
    BucketLease, ClaimedEvent, EnqueuedEvent, EventAnswer, EventClaim, EventLaneSettings,
    EventOutcome, EventRecorded, EventRedriveAnswer, EventSkipAnswer, EventState, RepairedEvent,
    Resend,
};
pub use executor::{
    Claim, ClaimRequest, ClaimedItem, Completion, CompletionAnswer, CompletionResult, Executor,
    LateOutcome, Lease, RepairedItem, SettledAttempt,
};
pub use hints::{Heard, Hints};
pub use inbox::{ActsAs, Inbox};
pub use ingest::{EnqueueAnswer, EnqueuedPayment, Ingest};
pub use operator::{
    ActAnswer, ClosedIncident, IncidentLane, JudgedAnswer, Known, KnownTry, LaneSettings, Operator,
    RailSettings, RedriveAnswer, SwitchAnswer,
};
pub use triggers::{
    AppLimit, ClaimedTrigger, DueTick, ReplyListener, ScriptRow, TriggerLease, TriggerOutcome,
    TriggerRecorded, TriggerState,
};

pub use sends::{SendHistory, UnknownItems};
pub use witness::{AcceptAnswer, Beat, SERVER_RECORD, ServerRecord, ServerState};

/// How long to look for the fate of a lost COMMIT before calling it unknown.
const COMMIT_LOOKUP: Duration = Duration::from_secs(30);
/// How often to ask meanwhile.
const COMMIT_LOOKUP_PAUSE: Duration = Duration::from_millis(50);
/// How long a worker waits for one call: a connection that swallows everything never says so.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How long a connection at rest may take to answer a ping.
const PING_LIMIT: Duration = Duration::from_secs(2);
/// After this long at rest, a connection is pinged before it is used.
const PING_AFTER: Duration = Duration::from_secs(1);
/// How long returned connections are looked at twice after a call was not answered in time.
const SUSPICION: Duration = Duration::from_mins(1);

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
    /// Applies events.
    Consumer,
}

/// A worker's transactions end by themselves: where its connection swallowed the COMMIT, the server would otherwise
/// hold the rows for hours, against the same worker's next try too. Set with the transaction, as the role is.
const BEGIN_AS_LOGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '10s'";

impl Role {
    fn begin(self) -> &'static str {
        match self {
            Self::Ingest => "BEGIN; SET LOCAL ROLE symphony_ingest",
            Self::Executor => {
                "BEGIN; SET LOCAL ROLE symphony_executor; SET LOCAL idle_in_transaction_session_timeout = '10s'"
            }
            Self::Operator => "BEGIN; SET LOCAL ROLE symphony_operator",
            Self::Auditor => "BEGIN; SET LOCAL ROLE symphony_auditor",
            Self::Consumer => "BEGIN; SET LOCAL ROLE symphony_consumer",
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
    call_limit: Duration,
    suspect_until: Arc<Mutex<Option<Instant>>>,
    news: Arc<witness::ServerNews>,
}

impl Database {
    /// Connect, with at most this many connections.
    pub async fn connect(
        options: PgConnectOptions,
        connections_max: u32,
        roles: RoleSource,
    ) -> Result<Self, DbError> {
        let suspect_until = Arc::new(Mutex::new(None));
        let suspicion = suspect_until.clone();
        let pool = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(Duration::from_secs(10))
            // The pool's own tests wait for ever, and a connection that swallows everything would keep its place.
            .test_before_acquire(false)
            .before_acquire(|connection, rest| {
                // A connection used a moment ago is believed: a ping for every call would cost a round trip each.
                let fresh = rest.idle_for < PING_AFTER;
                Box::pin(async move { if fresh { Ok(true) } else { answers(connection).await } })
            })
            .after_release(move |connection, _| {
                let suspect = is_suspect(&suspicion);
                Box::pin(async move { if suspect { answers(connection).await } else { Ok(true) } })
            })
            .connect_with(options)
            .await?;
        Ok(Self { pool, roles, call_limit: CALL_LIMIT, suspect_until, news: Arc::default() })
    }

    /// The same, waiting this long for one call of a worker.
    #[must_use]
    pub fn with_call_limit(self, call_limit: Duration) -> Self {
        Self { call_limit, ..self }
    }

    /// The call's answer, if it comes in time. If not, nobody knows what became of the call, and its connection is
    /// given up.
    async fn in_time<T>(
        &self,
        call: impl Future<Output = Result<T, DbError>>,
    ) -> Result<T, DbError> {
        // Dropped after the suspicion is known, and with it the connection.
        let mut call = pin!(call);
        if let Ok(answer) = tokio::time::timeout(self.call_limit, call.as_mut()).await {
            return answer;
        }
        let until = Instant::now() + SUSPICION;
        *self.suspect_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        Err(DbError::Unreachable {
            message: format!("no answer within {} ms", self.call_limit.as_millis()),
        })
    }

    /// What is known in this process about the server.
    pub(crate) fn news(&self) -> &Arc<witness::ServerNews> {
        &self.news
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

    /// The consumer's handle.
    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.clone())
    }

    /// Start a transaction that acts as one role.
    pub async fn begin(&self, role: Role) -> Result<RoleTransaction, DbError> {
        // One round trip for both.
        let transaction = match self.roles {
            RoleSource::EachTransaction => self.pool.begin_with(role.begin()).await?,
            RoleSource::Login if role == Role::Executor => {
                self.pool.begin_with(BEGIN_AS_LOGIN).await?
            }
            RoleSource::Login => self.pool.begin().await?,
        };
        Ok(RoleTransaction { transaction, pool: self.pool.clone() })
    }
}

fn is_suspect(until: &Mutex<Option<Instant>>) -> bool {
    let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
    until.is_some_and(|until| Instant::now() < until)
}

/// Whether a connection answers in time; an error makes the pool close it at once.
async fn answers(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    match tokio::time::timeout(PING_LIMIT, connection.ping()).await {
        Ok(answer) => answer.map(|()| true),
        Err(_elapsed) => Err(sqlx::Error::PoolTimedOut),
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
            sqlx::query_as(NOTE_COMMIT).fetch_one(&mut *self.transaction).await?;
        if must_have && xid.is_none() {
            return Err(DbError::NotCommitted);
        }
        let Err(error) = self.transaction.commit().await else { return Ok(()) };
        match xid {
            // Nothing was written, so there is nothing to be uncertain about.
            None => Err(error.into()),
            Some(xid) => resolve_commit(&self.pool, xid, (started_at, recovered_at)).await,
        }
    }

    /// Commit what whoever calls will call again if no answer comes, or leave to its lease: nobody has to find out
    /// what became of it, and a round trip is saved.
    pub(crate) async fn commit_repeatable(self) -> Result<(), DbError> {
        Ok(self.transaction.commit().await?)
    }

    /// Give it up.
    pub async fn rollback(self) -> Result<(), DbError> {
        Ok(self.transaction.rollback().await?)
    }
}

/// What became of a transaction whose COMMIT got no answer, sent in this life of the server.
async fn resolve_commit(pool: &PgPool, xid: String, life: ServerLife) -> Result<(), DbError> {
    let started = Instant::now();
    while started.elapsed() < COMMIT_LOOKUP {
        let answer: Result<(Option<String>, _, _), sqlx::Error> =
            sqlx::query_as(LOOK_UP_COMMIT).bind(&xid).fetch_one(pool).await;
        match answer {
            Ok((status, started_at, recovered_at)) => {
                match fate(status.as_deref(), (started_at, recovered_at) == life) {
                    Fate::Committed => return Ok(()),
                    Fate::RolledBack => return Err(DbError::NotCommitted),
                    Fate::Unknown => return Err(DbError::CommitUnknown { xid }),
                    Fate::Undecided => {}
                }
            }
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

/// What a server says of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Committed,
    RolledBack,
    /// Ask again.
    Undecided,
    Unknown,
}

/// Only the server that was told to commit, in that very life, can say what became of it. After a crash, and on a
/// standby that took over without having heard of it, the transaction's number goes to somebody else's, and the server
/// would answer for that one.
fn fate(status: Option<&str>, same_life: bool) -> Fate {
    match status {
        _ if !same_life => Fate::Unknown,
        Some("committed") => Fate::Committed,
        Some("aborted") => Fate::RolledBack,
        Some(_) => Fate::Undecided,
        None => Fate::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_that_was_told_to_commit_is_believed() {
        for (status, same_life, expected) in [
            (Some("committed"), true, Fate::Committed),
            (Some("aborted"), true, Fate::RolledBack),
            (Some("in progress"), true, Fate::Undecided),
            (None, true, Fate::Unknown),
            (Some("committed"), false, Fate::Unknown),
            (Some("aborted"), false, Fate::Unknown),
            (Some("in progress"), false, Fate::Unknown),
        ] {
            assert_eq!(fate(status, same_life), expected, "{status:?} {same_life}");
        }
    }
}
