//! The only Rust that names SQL.
//!
//! - [`Database`]: a pool, and transactions that act as one role and know what became of their COMMIT
//!   (`roles.rs`, `transaction.rs`); `session.rs` knows whether a pooler stands between, `connection.rs` how long to wait.
//! - [`Producer`], `Worker`, `Operator`, `Auditor`, `Consumer`: a handle for everyone who acts, each able to name only what
//!   its role may call; `payments/`, `events/` and `triggers/` have what each of them calls, lane by lane.
//! - `migrate`, `catalog`, `inspect`, `data_checks`: installing the schema, comparing the live one with what was declared,
//!   and the data with itself (feature `admin`).
//! - [`calls`]: the signature of every function called here, and `tables`: every table; both compared with the
//!   live catalog by a test.

#[cfg(feature = "admin")]
mod approvals;
#[cfg(feature = "admin")]
mod auditor;
pub mod calls;
#[cfg(feature = "admin")]
pub mod catalog;
mod connection;
#[cfg(feature = "consumer")]
mod consumer;
#[cfg(feature = "admin")]
pub mod data_checks;
#[cfg(feature = "admin")]
mod dead_letters;
#[cfg(any(feature = "admin", feature = "worker"))]
mod destinations;
mod error;
pub(crate) mod events;
#[cfg(feature = "worker")]
mod hints;
mod hosts;
#[cfg(feature = "admin")]
pub mod inspect;
#[cfg(feature = "worker")]
mod leases;
#[cfg(feature = "admin")]
mod listings;
#[cfg(feature = "admin")]
pub mod migrate;
#[cfg(feature = "admin")]
mod operator;
#[cfg(feature = "admin")]
mod pages;
pub(crate) mod payments;
#[cfg(feature = "admin")]
pub mod privileges;
mod producer;
mod roles;
mod schema_name;
#[cfg(feature = "admin")]
mod search;
mod server_signals;
mod session;
#[cfg(any(feature = "admin", feature = "worker"))]
mod status;
#[cfg(feature = "admin")]
pub mod tables;
#[cfg(feature = "admin")]
mod tokens;
mod transaction;
pub(crate) mod triggers;
#[cfg(feature = "admin")]
mod waits;
#[cfg(any(feature = "admin", feature = "worker"))]
mod witness;
#[cfg(feature = "worker")]
mod worker;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Connection as _, PgConnection};

#[cfg(feature = "admin")]
pub use approvals::{
    ActCall, Approval, ApprovalAnswer, ApprovalQuery, ApprovalRequest, Approver, RequestEnd,
};
#[cfg(feature = "admin")]
pub use auditor::{Auditor, Incident};
pub use connection::{CONNECTION_LOG_TARGET, SERVER_VERSION_MIN, connect, require_version};
#[cfg(feature = "consumer")]
pub use consumer::{ActsAs, Consumer};
#[cfg(feature = "admin")]
pub use dead_letters::{
    ClosedLetter, FailedExecution, InquiryAnswer, LetterCount, LetterFilter, LetterLane,
    StatedItem, WaitingItem, WaitingQuery,
};
#[cfg(feature = "worker")]
pub use destinations::{DestinationReport, ReportedOutcomes};
#[cfg(feature = "admin")]
pub use destinations::{DestinationStatus, Paused, UNSERVED, Unserved};
pub use error::DbError;
#[cfg(feature = "admin")]
pub use events::auditor::{
    EventAttemptRow, EventFigures, EventFilter, EventLife, EventRecord, FoundEvent,
};
#[cfg(feature = "admin")]
pub use events::operator::{EventLaneSettings, EventRedriveAnswer, EventSkipAnswer, Resend};
#[cfg(feature = "worker")]
pub use events::worker::{
    BucketLease, ClaimedEvent, EventClaim, EventOutcome, EventRecorded, EventState, EventsClaimed,
    RepairedEvent,
};
#[cfg(feature = "worker")]
pub use hints::{Heard, Hints};
pub use hosts::find_writable;
#[cfg(feature = "worker")]
pub use leases::{EndedLeases, LaneLease};
#[cfg(feature = "admin")]
pub use listings::{
    ActCursor, ActRow, ActsQuery, LeaseRow, LeasesQuery, NumberedPayment, ParticipantRow,
    SequenceGap, SequenceProof, TopicRow, WorkerRow, WorkersQuery,
};
#[cfg(feature = "admin")]
pub use operator::{ClosedIncident, IncidentLane, Operator, SwitchAnswer};
#[cfg(feature = "admin")]
pub use pages::{IncidentPlace, LeasePlace, place_of_lease};
#[cfg(feature = "admin")]
pub use payments::auditor::{
    FoundPayment, LivePayment, PaymentAttemptRow, PaymentFigures, PaymentHistoryRow,
    PaymentInstructionRow, PaymentLife,
};
#[cfg(feature = "admin")]
pub use payments::operator::{
    ActAnswer, JudgedAnswer, Known, KnownTry, PaymentLaneSettings, RailSettings, RedriveAnswer,
};
#[cfg(feature = "worker")]
pub use payments::sends::{SendHistory, UnknownItems};
#[cfg(feature = "worker")]
pub use payments::worker::{
    ClaimedPayment, LatePayment, PaymentAnswer, PaymentClaim, PaymentLease, PaymentOutcome,
    PaymentRecorded, PaymentsClaimed, RepairedPayment, SettledPayment,
};
pub use producer::{Placed, Producer, UnknownState};
pub use roles::{Role, RoleSource};
pub use schema_name::Schema;
#[cfg(feature = "admin")]
pub use search::FoundElsewhere;
pub use session::{Link, Pooler, Session};
#[cfg(any(feature = "admin", feature = "worker"))]
pub use status::LaneStatus;
#[cfg(feature = "worker")]
pub use status::{LaneActivity, LaneFigures};
#[cfg(feature = "admin")]
pub use tokens::{CreatedToken, NewToken, RevokedToken, TokenAdmin, TokenIdentity, TokenRow};
pub use transaction::RoleTransaction;
#[cfg(feature = "admin")]
pub use triggers::app_data::{
    AppVersion, EntryAnswer, KvEntryRow, KvQuery, RollbackAnswer, SecretAnswer, SecretRow,
};
#[cfg(feature = "admin")]
pub use triggers::auditor::{
    AppMailRow, AppPart, AppRow, EndedExecution, ExecutionAttemptRow, ExecutionQuery, ExecutionRow,
    ExecutionTree, PENDING_COUNTED_MAX, TREE_COUNTED_MAX,
};
#[cfg(feature = "worker")]
pub use triggers::leased_requests::{EndedRequest, WrittenRequest};
#[cfg(feature = "admin")]
pub use triggers::operator::{
    DeletedApp, MailGranted, MailRevoked, PushAnswer, ReplayAnswer, TriggerChange,
    TriggerLaneSettings,
};
#[cfg(feature = "worker")]
pub use triggers::retention::RetiredExecutions;
#[cfg(any(feature = "admin", feature = "worker"))]
pub use triggers::sealed::SealedSecret;
#[cfg(feature = "worker")]
pub use triggers::worker::{
    AppLimit, ClaimedTrigger, DueTick, ExpiredReply, RepairedTrigger, ReplyListener, ReplyRow,
    RouteRow, ScriptRow, StoredEntry, StoredKeys, TriggerLease, TriggerOutcome, TriggerRecorded,
    TriggerState,
};
#[cfg(feature = "admin")]
pub use waits::{EventWaits, PaymentWaits, TriggerWaits};
#[cfg(feature = "admin")]
pub use witness::AcceptAnswer;
#[cfg(feature = "worker")]
pub use witness::{Beat, ServerState};
#[cfg(any(feature = "admin", feature = "worker"))]
pub use witness::{SERVER_RECORD, ServerRecord};
#[cfg(feature = "worker")]
pub use worker::Worker;

/// How long a worker waits for one call: a dead connection may never report an error.
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
    schema: Schema,
    call_limit: Duration,
    suspect_until: Arc<Mutex<Option<Instant>>>,
    signals: Arc<server_signals::ServerSignals>,
    /// Who we are to the server.
    login: Arc<str>,
    /// The token that is acted for, and the roles of its scopes.
    token: Option<roles::ActingToken>,
    /// The roles to read and act as that the login was found to have.
    held_roles: Arc<OnceLock<Vec<String>>>,
    /// Whether the login has a worker's rights without SET ROLE, once that was asked.
    #[cfg(feature = "worker")]
    works_by_itself: Arc<Mutex<Option<bool>>>,
    /// A pooler lends the sessions. Never false again once it was true.
    lent: Arc<AtomicBool>,
    /// The hosts of which one takes writes; empty where only one was named.
    hosts: Arc<[PgConnectOptions]>,
    /// The pools that are led to it.
    pools: Arc<Mutex<Vec<PgPool>>>,
}

impl Database {
    /// Connect, with at most this many connections.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use symphony::db::{Database, RoleSource};
    ///
    /// let options = "postgres://shop@localhost/shop".parse()?;
    /// // The login's own roles: it is a member of what it needs, and of nothing else.
    /// let database = Database::connect(options, 8, RoleSource::Login).await?;
    /// # Ok(())
    /// # }
    /// ```
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
        hosts::follow(database.pools.clone(), link, hosts.clone(), &database.signals);
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
        let signals: Arc<server_signals::ServerSignals> = Arc::default();
        let moves = signals.clone();
        let pool = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(Duration::from_secs(10))
            // The pool's own test has no time limit: a dead connection would block its place for ever.
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
                // This connection is older than the move to another host.
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
            pools: Arc::new(Mutex::new(vec![pool.clone()])),
            pool,
            roles,
            schema: Schema::default(),
            call_limit: CALL_LIMIT,
            suspect_until,
            login,
            token: None,
            held_roles: Arc::default(),
            #[cfg(feature = "worker")]
            works_by_itself: Arc::default(),
            lent,
            signals,
            hosts: Arc::from([]),
        })
    }

    /// The same for the installation in this schema.
    #[must_use]
    pub fn in_schema(self, schema: Schema) -> Self {
        Self { schema, ..self }
    }

    /// The same over a pool of its own, which connects when it is first used: whoever waits there for a connection takes
    /// none from here.
    #[must_use]
    pub fn with_own_pool(&self, connections_max: u32) -> Self {
        let options = self.pool.options().clone().max_connections(connections_max);
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = options.connect_lazy_with((*self.pool.connect_options()).clone());
        pools.push(pool.clone());
        drop(pools);
        Self { pool, ..self.clone() }
    }

    /// The schema of the installation.
    pub fn schema(&self) -> &Schema {
        &self.schema
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
        // Dropped, with its connection, only after the pool has become suspicious.
        let mut call = pin!(call);
        let mut moved = self.signals.moved.subscribe();
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
    #[cfg(feature = "worker")]
    pub(crate) fn signals(&self) -> &Arc<server_signals::ServerSignals> {
        &self.signals
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
    pub fn producer(&self) -> Producer {
        Producer::new(self.clone())
    }

    /// The worker's handle.
    #[cfg(feature = "worker")]
    pub fn worker(&self) -> Worker {
        Worker::new(self.clone())
    }

    /// The operator's handle.
    #[cfg(feature = "admin")]
    pub fn operator(&self) -> Operator {
        Operator::new(self.clone())
    }

    /// The handle of whoever hands out tokens.
    #[cfg(feature = "admin")]
    pub fn token_admin(&self) -> TokenAdmin {
        TokenAdmin::new(self.clone())
    }

    /// The approver's handle.
    #[cfg(feature = "admin")]
    pub fn approver(&self) -> Approver {
        Approver::new(self.clone())
    }

    /// The reader's handle.
    #[cfg(feature = "admin")]
    pub fn auditor(&self) -> Auditor {
        Auditor::new(self.clone())
    }

    /// The consumer's handle.
    #[cfg(feature = "consumer")]
    pub fn consumer(&self) -> Consumer {
        Consumer::new(self.clone())
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
