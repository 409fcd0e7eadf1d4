//! The engine: wake up, claim, dispatch, complete, renew, repair — for any lane.
//!
//! It knows leases, time and destinations, and not what is sent. A [`Lane`] says what to claim, send and write; the database
//! decides what is true. Layout, in the order in which an item passes:
//! - [`listener`](self): hints that work was committed, and who follows them (`listener.rs`);
//! - `pacer.rs`: when to claim next (pure), `gate.rs`: how much a destination can take (pure);
//! - `puller.rs`: claims for one group and starts dispatches, within bounds;
//! - `intake.rs`: takes up what this process has written already leased to itself;
//! - `holds.rs`: what is held, and how long (pure but for a clock, `clock.rs`);
//! - `outcome.rs`: what became of outcomes;
//! - `completer.rs`: gathers outcomes and writes them, repeated until the database has answered;
//! - `leases.rs`: renewal and repair;
//! - `refusals.rs`: ends the worker if the database refuses every call for too long;
//! - `reporter.rs`: which destinations it serves and how they are, for people;
//! - `stage.rs`: how far a stop has come, and what ends one.
//!
//! A worker may die at any line of this: what it held becomes due again when the leases expire.

mod clock;
mod completer;
pub(crate) mod gate;
mod holds;
mod intake;
mod leases;
mod listener;
mod metrics;
mod outcome;
mod pacer;
mod puller;
mod refusals;
mod reporter;
mod settings;
mod stage;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::FutureExt as _;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::FieldError;
use crate::db::{Database, DbError, EndedLeases, LaneLease, Worker};
pub use crate::metrics::{Counter, Gauge, Histogram, LATENCY_BOUNDS_MS};
use crate::trace::TraceId;
pub use clock::{Clock, Moment};
pub use gate::{
    Allowance, Answered, Breaker, BreakerSettings, BreakerState, CallPermit, Change, Destination,
    DestinationKind, DestinationLimits, DestinationState, NotNow, Rate, RateLimit, RateScope,
    TroubleKind,
};
use holds::Holds;
pub use holds::{Hold, Unsent};
pub use intake::{Handover, Intake, IntakeClosed};
pub use metrics::{LaneMetrics, ScriptHealth};
pub use outcome::{Completed, Tallies, Tally};
use puller::Room;
use refusals::{End, RefusedSince};
pub use settings::{EngineSettings, Group, check, contradictions};
use stage::{Stage, raise, watched};

/// How long a stop waits until the database knows that this worker is gone. Otherwise it notices after some seconds.
const FAREWELL: Duration = Duration::from_secs(2);

/// Writers of outcomes: one gathers while the other waits for the database.
const COMPLETERS: usize = 2;

/// What a lane means by claim, dispatch and complete.
pub trait Lane: Send + Sync + 'static {
    /// One leased unit of work.
    type Work: Send + Sync + 'static;
    /// The proof that it is held.
    type Lease: LaneLease;
    /// How it ended, to be written down.
    type Done: Send + Sync + 'static;

    /// The lane's name in logs and metrics.
    fn name(&self) -> &'static str;
    /// Who works: unique per incarnation, see [`new_worker_id`].
    fn worker_id(&self) -> &str;
    /// Where hints come in.
    fn channel(&self) -> &'static str;
    /// Its destinations, each claimed on its own.
    fn groups(&self) -> Vec<Group>;
    /// The lease of a piece of work.
    fn lease(work: &Self::Work) -> Self::Lease;
    /// The lease of an outcome.
    fn lease_of(done: &Self::Done) -> Self::Lease;

    /// Where its items go: each has a breaker and figures of its own.
    fn destinations(&self) -> Vec<Arc<Destination>> {
        Vec::new()
    }

    /// The one destination all items of a group go to, which bounds its claims and calls; `None` where they go to several.
    fn gate(&self, _group: &str) -> Option<Arc<Destination>> {
        None
    }

    /// How many more items can begin right now, where the lane has slots of its own: nothing is leased beyond that.
    /// [`slots_freed`](Self::slots_freed) says when there are some again. For lanes with one group.
    fn slots_free(&self) -> usize {
        usize::MAX
    }

    /// Notified when slots are free again and the lane would claim more. Nothing is committed then, so no hint comes. For
    /// lanes with one group.
    fn slots_freed(&self) -> Option<&Notify> {
        None
    }

    /// Whether more of what has ended here waits than can begin now. Then outcomes are gathered for longer: what is
    /// written down in fewer calls leaves more of the machine to what waits.
    fn is_crowded<'a>(&self, _ended: impl Iterator<Item = &'a Self::Done>) -> bool {
        false
    }

    /// Where work comes in that this process has written already leased to itself; taken once, before the engine starts.
    /// For lanes with one group.
    fn intake(&mut self) -> Option<Intake<Self::Work>> {
        None
    }

    /// The trace of a piece of work, for logs; `None` where it stands for several items.
    fn trace_id(_work: &Self::Work) -> Option<TraceId> {
        None
    }

    /// How many items a piece of work stands for, for metrics.
    fn items(_work: &Self::Work) -> usize {
        1
    }

    /// Lease what is due.
    fn claim(
        &self,
        request: &Ask<'_>,
    ) -> impl Future<Output = Result<Claimed<Self::Work>, DbError>> + Send;

    /// Wait until one may be carried out. It takes no place meanwhile, neither its destination's nor the process's.
    fn turn(&self, _work: &Self::Work) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// The engine stops before one was carried out: nothing left the process.
    fn not_begun(&self, _work: &Self::Work) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Carry one out. Call [`Hold::begin_sending`] before the first byte leaves.
    fn dispatch(
        &self,
        work: &Self::Work,
        hold: &Arc<Hold>,
    ) -> impl Future<Output = Dispatched<Self::Done>> + Send;

    /// A dispatch ended without an answer of its own after it may have sent something.
    fn interrupted(&self, work: &Self::Work, why: Interruption) -> Self::Done;

    /// Write outcomes down; one answer each, in the order given. Called again if the database did not answer.
    fn complete(
        &self,
        done: &[Self::Done],
    ) -> impl Future<Output = Result<Vec<Completed>, DbError>> + Send;

    /// Write one outcome that was answered with [`Completed::Later`], beside all others.
    fn complete_later(
        &self,
        done: &Self::Done,
    ) -> impl Future<Output = Result<Completed, DbError>> + Send {
        async {
            let answers = self.complete(std::slice::from_ref(done)).await?;
            Ok(answers.into_iter().next().unwrap_or(Completed::Late))
        }
    }

    /// The work of an outcome that was answered with [`Completed::Again`], to be carried out once more.
    fn again(&self, _done: Self::Done) -> Option<Self::Work> {
        None
    }

    /// Keep an outcome whose lease was lost as evidence. Answers whether it contradicts the ledger.
    fn keep_evidence(
        &self,
        done: &Self::Done,
    ) -> impl Future<Output = Result<bool, DbError>> + Send;
}

/// What to claim.
#[derive(Debug)]
pub struct Ask<'a> {
    /// For which destination.
    pub group: &'a str,
    /// At most this many.
    pub items_max: usize,
    /// For how long.
    pub lease: Duration,
    /// Look only at or after this due time; `None` for everything.
    pub due_from: Option<DateTime<Utc>>,
}

/// What a claim brought, in order.
#[derive(Debug)]
pub struct Claimed<W> {
    /// The work.
    pub works: Vec<W>,
    /// The due time of the last one.
    pub through: Option<DateTime<Utc>>,
    /// There is more that cannot be claimed yet, and nobody will tell when it can: look again soon.
    pub more_soon: bool,
    /// What lost workers had held and this claim ended the leases of.
    pub ended: EndedLeases,
}

impl<W> Claimed<W> {
    /// Work, and nothing else to say.
    pub fn of(works: Vec<W>) -> Self {
        Self { works, through: None, more_soon: false, ended: EndedLeases::default() }
    }
}

/// How a dispatch ended.
#[derive(Debug)]
pub enum Dispatched<D> {
    /// There is an outcome to write. `trouble`: the destination itself is unwell.
    Done {
        /// The outcome.
        done: D,
        /// For the circuit breaker.
        trouble: bool,
    },
    /// Nothing left the process.
    Unsent(Unsent),
}

/// Why a dispatch has no answer of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// It panicked.
    Panicked,
    /// The worker's time to stop was up.
    Shutdown,
}

/// Named points between claim and completion, where tests kill the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The claim has committed, nothing is started.
    AfterClaim,
    /// The lease was checked, the first byte is about to leave.
    BeforeSend,
    /// The destination has answered, nobody was told.
    AfterSend,
    /// The outcomes are gathered, about to be written.
    BeforeComplete,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::AfterClaim, Self::BeforeSend, Self::AfterSend, Self::BeforeComplete];

    /// The point's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfterClaim => "after_claim",
            Self::BeforeSend => "before_send",
            Self::AfterSend => "after_send",
            Self::BeforeComplete => "before_complete",
        }
    }
}

/// What happens at each [`Point`]: nothing, except in tests.
#[derive(Clone, Default)]
pub struct Points(Option<Arc<dyn Fn(Point) + Send + Sync>>);

impl Points {
    /// Call this at every point.
    pub fn new(reach: impl Fn(Point) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(reach)))
    }

    pub(crate) fn reach(&self, point: Point) {
        if let Some(reach) = &self.0 {
            reach(point);
        }
    }
}

impl fmt::Debug for Points {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Points(set)" } else { "Points" })
    }
}

/// A worker's name, unique per incarnation: a restarted process is another worker.
pub fn new_worker_id(host: &str) -> String {
    let host: String = host.chars().filter(|c| !c.is_control()).take(100).collect();
    let random = Uuid::new_v4().simple().to_string();
    format!("{host}:{}:{}", std::process::id(), random.get(..12).unwrap_or_default())
}

/// What all tasks of one running engine share.
struct Shared<L: Lane> {
    lane: L,
    database: Database,
    /// For the calls that are the same for every lane.
    worker: Worker,
    settings: EngineSettings,
    metrics: Arc<LaneMetrics>,
    points: Points,
    clock: Clock,
    holds: Holds<L::Lease>,
    room: Room,
    groups: Vec<puller::GroupState>,
    /// The database does not take outcomes at present: nothing more is claimed until it does.
    unwritten: AtomicBool,
    /// Outcomes that are gathered no more and not written yet.
    being_written: AtomicUsize,
    stage: watch::Receiver<Stage>,
    end: End,
}

impl<L: Lane> Shared<L> {
    /// How many items are under way, besides so many whose outcomes were gathered.
    fn running_besides(&self, gathered: usize) -> usize {
        let ended = gathered + self.being_written.load(Ordering::Acquire);
        self.holds.len().saturating_sub(ended)
    }
}

/// A lane being worked.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use symphony::db::{Database, RoleSource};
/// # use symphony::engine::{self, BreakerSettings, Engine, EngineSettings, LaneMetrics, Points, Start};
/// # use symphony::lanes::payments::{PaymentLane, RailSetup, rail::Rail};
/// # async fn example(rail: Arc<dyn Rail>) -> Result<(), Box<dyn std::error::Error>> {
/// let options: sqlx::postgres::PgConnectOptions = "postgres://worker@localhost/shop".parse()?;
/// let database = Database::connect(options.clone(), 8, RoleSource::Login).await?;
/// let (name, breaker) = ("sepa".to_owned(), BreakerSettings::default());
/// let sepa = RailSetup { name, rail, previous: Vec::new(), concurrency_max: 16, rate: None, breaker };
/// let engine = Engine::start(Start {
///     lane: PaymentLane::new(database.worker(), engine::new_worker_id("shop"), vec![sepa]),
///     database,
///     listen: options,
///     settings: EngineSettings::default(),
///     metrics: Arc::new(LaneMetrics::default()),
///     points: Points::default(),
/// })?;
/// // It works until it is stopped; what is in flight may end.
/// println!("{} still held", engine.stop().await);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Engine {
    stage: watch::Sender<Stage>,
    metrics: Arc<LaneMetrics>,
    worker_id: String,
    shutdown: Duration,
    held: Arc<Notify>,
    /// Nothing more is sent.
    stopping: Arc<AtomicBool>,
    tasks: JoinSet<()>,
    pullers: JoinSet<()>,
    /// Why it ended by itself, if there is more to say than that a task died.
    why: Arc<OnceLock<String>>,
    /// Closed when no puller is left.
    pulling: watch::Sender<()>,
    /// Closed when the reporter has said that this worker is gone.
    reporting: watch::Sender<()>,
}

/// Everything an engine needs.
#[derive(Debug)]
pub struct Start<L> {
    /// What to work.
    pub lane: L,
    /// Where.
    pub database: Database,
    /// For LISTEN: a direct connection, not through a transaction pooler.
    pub listen: PgConnectOptions,
    /// How.
    pub settings: EngineSettings,
    /// Where to count.
    pub metrics: Arc<LaneMetrics>,
    /// What happens at the named points.
    pub points: Points,
}

impl Engine {
    /// Start working. Refuses settings that contradict each other.
    pub fn start<L: Lane>(start: Start<L>) -> Result<Self, FieldError> {
        Self::start_with_clock(start, Clock::default())
    }

    /// The same by a clock that a test can move on, as if the host had been suspended.
    pub fn start_with_clock<L: Lane>(
        mut start: Start<L>,
        clock: Clock,
    ) -> Result<Self, FieldError> {
        let intake = start.lane.intake();
        let groups = start.lane.groups();
        let worker_id = start.lane.worker_id().to_owned();
        check(&start.settings, &groups)?;
        let (stage, stage_seen) = watch::channel(Stage::Running);
        let (done_sender, done_receiver) = mpsc::unbounded_channel();
        let (unsent_sender, unsent_receiver) = mpsc::unbounded_channel();
        let held = Arc::new(Notify::new());
        let groups = puller::with_destinations(&start.lane, groups, &start.metrics);
        let group_count = groups.len();
        let holds = Holds::new(
            clock.clone(),
            start.settings.lease,
            start.settings.lease_margin,
            start.points.clone(),
            start.metrics.clone(),
        );
        let stopping = holds.stopping();
        let end = End { stage: stage.clone(), stopping: stopping.clone(), why: Arc::default() };
        let why = end.why.clone();
        let shared = Arc::new(Shared {
            holds,
            room: Room::new(start.settings.held_items_max),
            groups,
            lane: start.lane,
            worker: start.database.worker(),
            database: start.database,
            metrics: start.metrics.clone(),
            points: start.points,
            clock,
            unwritten: AtomicBool::new(false),
            being_written: AtomicUsize::new(0),
            stage: stage_seen,
            end,
            settings: start.settings.clone(),
        });
        let mut tasks = JoinSet::new();
        let mut pullers = JoinSet::new();
        let (pulling, _) = watch::channel(());
        let task = |name, task| watched(name, task, stage.clone(), stopping.clone());
        tasks.spawn(task("listener", listener::listen(shared.clone(), start.listen).boxed()));
        tasks.spawn(task("renewal", leases::renew(shared.clone()).boxed()));
        tasks.spawn(task("repair", leases::repair(shared.clone()).boxed()));
        let (reporting, reported) = watch::channel(());
        tasks.spawn(task("reporter", reporter::report(shared.clone(), reported).boxed()));
        let give_back = completer::give_back(shared.clone(), unsent_receiver, held.clone());
        tasks.spawn(task("give back", give_back.boxed()));
        let outcomes = Arc::new(Mutex::new(done_receiver));
        for _ in 0..COMPLETERS {
            let outlet = puller::WeakOutlet {
                done: done_sender.downgrade(),
                unsent: unsent_sender.downgrade(),
            };
            let complete =
                completer::complete(shared.clone(), outcomes.clone(), held.clone(), outlet);
            tasks.spawn(task("completer", complete.boxed()));
        }
        if let Some(intake) = intake {
            let outlet =
                puller::Outlet { done: done_sender.clone(), unsent: unsent_sender.clone() };
            let take_up = intake::take_up(shared.clone(), intake, outlet, pulling.subscribe());
            pullers.spawn(task("intake", take_up.boxed()));
        }
        for group in 0..group_count {
            let outlet =
                puller::Outlet { done: done_sender.clone(), unsent: unsent_sender.clone() };
            let pull = puller::pull(shared.clone(), group, outlet, pulling.subscribe());
            pullers.spawn(task("puller", pull.boxed()));
        }
        Ok(Self {
            stage,
            metrics: start.metrics,
            worker_id,
            shutdown: start.settings.shutdown,
            held,
            stopping,
            tasks,
            pullers,
            why,
            pulling,
            reporting,
        })
    }

    /// Who works.
    pub fn worker_id(&self) -> &str {
        &self.worker_id
    }

    /// What it has counted.
    pub fn metrics(&self) -> &Arc<LaneMetrics> {
        &self.metrics
    }

    /// Wait until a task of this engine has died, or the database has refused it for too long, and the claim that was
    /// under way has ended (or had its time). It claims and renews nothing any more then: stop it, and start another
    /// process. Answers why, if there is more to say than that a task died.
    pub async fn broken(&self) -> Option<String> {
        let mut stage = self.stage.subscribe();
        // An error would mean that the engine itself is gone, and it is borrowed.
        drop(stage.wait_for(|stage| *stage == Stage::Broken).await);
        drop(tokio::time::timeout(self.shutdown, self.pulling.closed()).await);
        self.why.get().cloned()
    }

    /// Stop: claim no more, give back what was not sent, let what is in flight end within the time allowed, and
    /// write the rest down as unknown. Answers how many items were still held at the end (0 if all went well).
    pub async fn stop(mut self) -> u64 {
        raise(&self.stage, Stage::Draining);
        self.stopping.store(true, Ordering::Release);
        let deadline = deadline(self.shutdown);
        // A claim that was begun is waited for, but not for ever: the database may hang.
        let claims_ended = async { while self.pullers.join_next().await.is_some() {} };
        if tokio::time::timeout_at(deadline.into(), claims_ended).await.is_err() {
            tracing::warn!(
                worker_id = %self.worker_id,
                "a claim was not answered in time: what it leased comes back when its leases expire"
            );
            self.pullers.shutdown().await;
        }
        if !self.wait_until_free(deadline).await {
            tracing::warn!(
                worker_id = %self.worker_id,
                held = self.metrics.held_items.get(),
                "time to stop is up: what was sent and not answered is written down as unknown"
            );
            raise(&self.stage, Stage::Stopping);
            // The database may be away: then leases will expire.
            self.wait_until_free(Instant::now() + Duration::from_secs(5)).await;
        }
        let held = self.metrics.held_items.get();
        drop(tokio::time::timeout(FAREWELL, self.reporting.closed()).await);
        self.tasks.shutdown().await;
        held
    }

    async fn wait_until_free(&self, deadline: Instant) -> bool {
        loop {
            let changed = self.held.notified();
            if self.metrics.held_items.get() == 0 {
                return true;
            }
            if tokio::time::timeout_at(deadline.into(), changed).await.is_err() {
                return self.metrics.held_items.get() == 0;
            }
        }
    }
}

impl Drop for Engine {
    /// Dropped without a stop, its tasks are gone; what still waits for its turn must not be sent.
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
    }
}

/// That far from now; a day, where the clock does not reach.
fn deadline(wait: Duration) -> Instant {
    const DAY: Duration = Duration::from_hours(24);
    let now = Instant::now();
    now.checked_add(wait.min(DAY)).unwrap_or(now)
}

/// Any number, for jitter.
fn jitter() -> u64 {
    Uuid::new_v4().as_u64_pair().0
}
