//! The only Rust that names SQL.
//!
//! - [`Database`]: a pool, and transactions that act as one role and know what became of their COMMIT
//!   (`roles.rs`, `transaction.rs`); `session.rs` knows whether a pooler stands between, `connection.rs` how long to wait.
//! - [`Ingest`], [`Executor`], [`Operator`], [`Auditor`], [`Inbox`]: one handle per role, each able to name only what
//!   its role may call.
//! - [`migrate`], [`catalog`], [`inspect`], [`data_checks`]: installing the schema, comparing the live one with what was
//!   declared, and the data with itself.
//! - [`calls`]: the signature of every function called here, compared with the live catalog by a test.

mod app_reader;
mod apps;
mod auditor;
pub mod calls;
pub mod catalog;
mod connection;
pub mod data_checks;
mod dead_letters;
mod destinations;
mod error;
mod event_reader;
mod events;
mod executor;
mod hints;
mod hosts;
mod inbox;
mod ingest;
pub mod inspect;
pub mod migrate;
mod operator;
pub mod privileges;
mod roles;
mod sends;
mod session;
mod transaction;
mod triggers;
mod waits;
mod witness;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};

pub use app_reader::{AppPart, ExecutionAttemptRow};
pub use apps::{
    AppRow, DeletedApp, ExecutionRow, Fired, Firing, PushAnswer, ReplayAnswer, ReplyRow, RouteRow,
    TriggerChange, TriggerSettings,
};
pub use auditor::{
    AttemptRow, Auditor, EventRow, FoundItem, Incident, InstructionRow, ItemLife, LaneStatus,
    LedgerFigures, LiveItem,
};
pub use connection::{CONNECTION_LOG_TARGET, SERVER_VERSION_MIN, connect, require_version};
pub use dead_letters::{
    ClosedLetter, FailedExecution, InquiryAnswer, LetterCount, LetterFilter, LetterLane,
    StatedItem, WaitingItem, WaitingQuery,
};
pub use destinations::{DestinationReport, DestinationStatus, Paused, UNSERVED, Unserved};
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
pub use hosts::find_writable;
pub use inbox::{ActsAs, Inbox};
pub use ingest::{EnqueueAnswer, EnqueuedPayment, Ingest};
pub use operator::{
    ActAnswer, ClosedIncident, IncidentLane, JudgedAnswer, Known, KnownTry, LaneSettings, Operator,
    RailSettings, RedriveAnswer, SwitchAnswer,
};
pub use roles::{Role, RoleSource};
pub use session::{Link, Pooler, Session};
pub use transaction::RoleTransaction;
pub use triggers::{
    AppLimit, ClaimedTrigger, DueTick, ReplyListener, ScriptRow, TriggerLease, TriggerOutcome,
    TriggerRecorded, TriggerState,
};
pub use waits::{EventWaits, PaymentWaits, TriggerWaits};

pub use sends::{SendHistory, UnknownItems};
pub use witness::{AcceptAnswer, Beat, SERVER_RECORD, ServerRecord, ServerState};

/// How long a worker waits for one call: a connection that swallows everything never says so.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How long a connection at rest may take to answer a ping.
const PING_LIMIT: Duration = Duration::from_secs(2);
/// After this long at rest, a connection is pinged before it is used.
const PING_AFTER: Duration = Duration::from_secs(1);
/// How long returned connections are looked at twice after a call was not answered in time.
const SUSPICION: Duration = Duration::from_mins(1);

/// A pool of connections to one Symphony database.
#[derive(Debug, Clone)]
pub struct Database {
    pool: PgPool,
    roles: RoleSource,
    call_limit: Duration,
    suspect_until: Arc<Mutex<Option<Instant>>>,
    news: Arc<witness::ServerNews>,
    /// Who we are to the server.
    login: Arc<str>,
    /// The roles to read and act as that the login was found to have.
    held_roles: Arc<OnceLock<Vec<String>>>,
    /// A pooler lends the sessions. Never false again once it was true.
    lent: Arc<AtomicBool>,
    /// The hosts of which one takes writes; empty where only one was named.
    hosts: Arc<[PgConnectOptions]>,
}

impl Database {
    /// Connect, with at most this many connections.
    pub async fn connect(
        options: PgConnectOptions,
        connections_max: u32,
        roles: RoleSource,
    ) -> Result<Self, DbError> {
        Self::connect_through(Pooler::Detect, options, connections_max, roles).await
    }

    /// The same with several hosts, of which one takes writes at a time: that one is followed.
    pub async fn connect_to_any(
        pooler: Pooler,
        hosts: Vec<PgConnectOptions>,
        connections_max: u32,
        roles: RoleSource,
    ) -> Result<Self, DbError> {
        let first = find_writable(&hosts).await?;
        let database = Self::connect_through(pooler, first, connections_max, roles).await?;
        let options = (*database.pool.connect_options()).clone();
        let link = Link { options, pooled: database.sessions_are_lent() };
        hosts::follow(database.pool.clone(), link, hosts.clone(), &database.news);
        Ok(Self { hosts: hosts.into(), ..database })
    }

    /// The same where it is known what stands between us and the server.
    pub async fn connect_through(
        pooler: Pooler,
        options: PgConnectOptions,
        connections_max: u32,
        roles: RoleSource,
    ) -> Result<Self, DbError> {
        // One connection first: the pool would hide the reason of a failure behind a time-out.
        let link = Link::find(options, pooler).await?;
        let login = Arc::from(link.options.get_username());
        let lent = Arc::new(AtomicBool::new(link.pooled));
        let (looked_at, detects) = (lent.clone(), pooler == Pooler::Detect);
        let suspect_until = Arc::new(Mutex::new(None));
        let suspicion = suspect_until.clone();
        let news: Arc<witness::ServerNews> = Arc::default();
        let moves = news.clone();
        let pool = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(Duration::from_secs(10))
            // The pool's own tests wait for ever, and a connection that swallows everything would keep its place.
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                // A name may lead to a pooler later that led to the server at first.
                let lent = looked_at.clone();
                Box::pin(async move {
                    if detects
                        && !lent.load(Ordering::Acquire)
                        && !session::has_mark(connection).await?
                    {
                        lent.store(true, Ordering::Release);
                    }
                    Ok(())
                })
            })
            .before_acquire(move |connection, rest| {
                // It leads to a host that takes no more writes.
                if moves.moved_within(rest.age) {
                    return Box::pin(async { Ok(false) });
                }
                // A connection used a moment ago is believed: a ping for every call would cost a round trip each.
                let fresh = rest.idle_for < PING_AFTER;
                Box::pin(async move { if fresh { Ok(true) } else { answers(connection).await } })
            })
            .after_release(move |connection, _| {
                let suspect = is_suspect(&suspicion);
                Box::pin(async move { if suspect { answers(connection).await } else { Ok(true) } })
            })
            .connect_with(link.options)
            .await?;
        Ok(Self {
            pool,
            roles,
            call_limit: CALL_LIMIT,
            suspect_until,
            login,
            held_roles: Arc::default(),
            lent,
            news,
            hosts: Arc::from([]),
        })
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
        let mut moved = self.news.moved.subscribe();
        tokio::select! {
            biased;
            answer = tokio::time::timeout(self.call_limit, call.as_mut()) => {
                if let Ok(answer) = answer {
                    return answer;
                }
            }
            Ok(()) = moved.changed() => {
                let message = "another host takes writes now".to_owned();
                return Err(DbError::Unreachable { message });
            }
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

    /// Whether a transaction pooler lends the sessions: then no statement may have a name, and nothing can be heard.
    pub fn sessions_are_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire)
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
        Auditor::new(self.clone())
    }

    /// The consumer's handle.
    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.clone())
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
