//! The trigger lane: requests, changes, ticks and messages become rows of one table, and each row is a run of a script.
//!
//! - [`executor`]: what runs scripts; adapters are in `symphony-connect`.
//! - `slots.rs`: how much can run now, in all and of each app.
//! - `cron.rs`: when a trigger is due, and who fires it.
//! - `requests.rs`: requests that this process serves itself.
//! - `unwritten.rs`: those that run before they are written.
//! - `ended.rs`: a run's end as the ledger writes it.
//! - `completion.rs`, `sets.rs`: how outcomes are written, and which in one transaction.
//! - `contention.rs`: what is done one after another within an app.
//! - `answer.rs`: what can be sent as an answer.
//! - `replies.rs`: whoever waits for an answer, and how it reaches them.
//! - `traced.rs`: what is told of a run in its trace.
//!
//! What a script writes is not done by the script: it comes back as effects and is applied by the database in the
//! transaction that completes the item. So a lost run leaves nothing half done.

mod answer;
mod completion;
mod contention;
mod cron;
mod ended;
pub mod executor;
mod replies;
mod requests;
mod retention;
mod sets;
mod slots;
mod traced;
mod unwritten;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::db::{
    ClaimedTrigger, DbError, TriggerLease, TriggerOutcome, TriggerRecorded, TriggerState, Worker,
};
use crate::engine::{
    Ask, BreakerSettings, Claimed, Completed, DestinationLimits, Dispatched, Group, Hold, Intake,
    Interruption, Lane, Point, Tallies, Tally, Unsent,
};
use crate::trace::{ItemTrace, TraceId, Traces};
pub use answer::{AnswerDefect, ScriptAnswer};
use contention::{HeldUp, Turn, Turns};
pub use cron::{BadSchedule, Schedule, Ticker};
use ended::ended;
use executor::{Execution, Executor, Mailer, Request, RunOutcome, Slot, UNNAMED_FILE};
pub use replies::{Awaited, Replies, Reply};
pub use requests::{LeasedRequests, ReservedSlot, Running};
pub use retention::Retention;
pub use sets::Ended;
use slots::{Bounds, Slots};
use unwritten::RunFirst;
pub use unwritten::{Expiry, ServedRequest, Unwritten};

/// How many scripts' sources a worker keeps.
const SCRIPTS_KEPT_MAX: usize = 1_000;
/// How much longer than its limit an executor may take before it is cut off.
const EXECUTOR_GRACE: Duration = Duration::from_millis(500);

/// How a worker runs scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerSettings {
    /// At most this many runs at once, of one app at most half of them.
    pub concurrency_max: usize,
    /// At most this many of them are scripts in this process.
    pub scripts_max: usize,
    /// Of one app.
    pub scripts_per_app_max: usize,
    /// The longest a script may run, whatever its own limit.
    pub timeout_max: Duration,
}

impl Default for TriggerSettings {
    fn default() -> Self {
        Self {
            concurrency_max: 128,
            scripts_max: 16,
            scripts_per_app_max: 8,
            timeout_max: Duration::from_secs(30),
        }
    }
}

impl TriggerSettings {
    /// The lane as the engine sees it.
    pub fn group(&self) -> Group {
        Group {
            name: "triggers".to_owned(),
            section: "triggers".to_owned(),
            call_limit: self.timeout_max + EXECUTOR_GRACE,
            limits: DestinationLimits {
                concurrency_max: self.concurrency_max,
                rate: None,
                breaker: BreakerSettings::default(),
            },
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            runs: self.concurrency_max,
            // The other half stays for other apps.
            runs_per_app: self.concurrency_max / 2,
            scripts: self.scripts_max,
            scripts_per_app: self.scripts_per_app_max,
        }
    }
}

/// What runs what.
#[derive(Clone)]
pub struct Executors {
    /// Scripts with a source.
    pub script: Arc<dyn Executor>,
    /// Scripts with a URL.
    pub http: Arc<dyn Executor>,
    /// Email to be sent; `None` if no relay is configured.
    pub mailer: Option<Arc<dyn Mailer>>,
}

/// A script as it is run.
#[derive(Debug)]
struct Script {
    app: String,
    name: String,
    source: Option<Arc<str>>,
    file: Arc<str>,
    modules: Arc<BTreeMap<String, String>>,
    url: Option<String>,
    timeout: Duration,
}

/// An item with the slot it runs in.
#[derive(Debug)]
pub struct Underway {
    item: Arc<ClaimedTrigger>,
    /// Until the run begins: then it goes with that.
    slot: Mutex<Option<slots::Slot>>,
    /// Its lease is on disk: a claim's is, a request's own may not be.
    is_durable: bool,
    /// How often it has been run already, because what it had read was changed by others.
    reruns: u32,
    /// If so: no other of its app is run again meanwhile.
    turn: Mutex<Option<Turn>>,
    /// It runs before it is written.
    unwritten: Option<Arc<Unwritten>>,
    trace: Option<Arc<ItemTrace>>,
}

impl Underway {
    fn has_turn(&self) -> bool {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn new(
        item: ClaimedTrigger,
        slot: slots::Slot,
        is_durable: bool,
        trace: Option<Arc<ItemTrace>>,
    ) -> Self {
        let (item, slot) = (Arc::new(item), Mutex::new(Some(slot)));
        Self { item, slot, is_durable, reruns: 0, turn: Mutex::default(), unwritten: None, trace }
    }
}

/// Outcomes that wait for a lock.
#[derive(Debug, Clone)]
pub struct HeldUpOutcomes(Arc<HeldUp>);

impl HeldUpOutcomes {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.count()
    }
}

/// Runs scripts.
pub struct TriggerLane {
    worker: Worker,
    worker_id: String,
    executors: Executors,
    settings: TriggerSettings,
    replies: Replies,
    slots: Slots,
    scripts: Mutex<HashMap<Uuid, Arc<Script>>>,
    /// Runs that are run again.
    reruns: Turns,
    /// Outcomes that wait for a lock.
    held_up: Arc<HeldUp>,
    /// Where requests come in, until the engine takes it.
    intake: Option<Intake<Underway>>,
    run_first: RunFirst,
    lease: Duration,
    traces: Traces,
}

impl TriggerLane {
    /// A lane with these executors. `replies` are those this process itself waits for.
    pub fn new(
        worker: Worker,
        worker_id: String,
        executors: Executors,
        settings: TriggerSettings,
        replies: Replies,
    ) -> Self {
        let slots = Slots::new(settings.bounds());
        Self {
            worker,
            worker_id,
            executors,
            settings,
            replies,
            slots,
            scripts: Mutex::default(),
            reruns: Turns::default(),
            held_up: Arc::default(),
            intake: None,
            run_first: RunFirst::default(),
            lease: Duration::ZERO,
            traces: Traces::default(),
        }
    }

    /// What writes this process's own requests, leased for so long. Ask before the engine starts.
    pub fn leased_requests(&mut self, lease: Duration) -> LeasedRequests {
        let (handover, intake) = Intake::new();
        self.intake = Some(intake);
        self.lease = lease;
        LeasedRequests {
            worker: self.worker.clone(),
            worker_id: self.worker_id.clone(),
            slots: self.slots.clone(),
            lease,
            handover,
            run_first: self.run_first.clone(),
            traces: self.traces.clone(),
        }
    }

    /// Says how many outcomes wait for a lock, as long as the lane works.
    pub fn held_up_outcomes(&self) -> HeldUpOutcomes {
        HeldUpOutcomes(self.held_up.clone())
    }

    /// A script's version never changes, so it is read once.
    async fn script(&self, script_id: Uuid) -> Result<Option<Arc<Script>>, DbError> {
        let known =
            self.scripts.lock().unwrap_or_else(PoisonError::into_inner).get(&script_id).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(row) = self.worker.script(script_id).await? else { return Ok(None) };
        let script = Arc::new(Script {
            app: row.app,
            name: row.name,
            source: row.source.map(Into::into),
            file: row.file.as_deref().unwrap_or(UNNAMED_FILE).into(),
            modules: Arc::new(row.modules.0),
            url: row.url,
            timeout: Duration::from_millis(u64::try_from(row.timeout_ms).unwrap_or(1)),
        });
        let mut kept = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= SCRIPTS_KEPT_MAX {
            kept.clear();
        }
        kept.insert(script_id, script.clone());
        Ok(Some(script))
    }

    /// Whoever waits here is told here: no notification is needed, and it would make commits wait for each other.
    fn reply_here(&self, mut ended: Ended) -> Ended {
        let waits = ended.outcome.reply_to.is_some_and(|name| self.replies.waits(name));
        ended.outcome.reply_here = waits;
        ended
    }

    /// Tell whoever waits in this process what the ledger now says.
    fn answer(&self, outcome: &TriggerOutcome, recorded: &TriggerRecorded) {
        let TriggerRecorded::Recorded { state, error_code, .. } = recorded else { return };
        let Some(name) = outcome.reply_to else { return };
        match (state, &outcome.result, error_code) {
            (TriggerState::Dispatched, Some(result), _) => {
                self.replies.answered(name, outcome.lease.id, result);
            }
            (TriggerState::Failed, _, Some(code)) => {
                self.replies.failed(name, outcome.lease.id, code);
            }
            // Another process's poll, or this one's, reads it.
            _ => {}
        }
    }

    async fn run(&self, underway: &Underway, hold: &Hold) -> Result<Execution, Unsent> {
        let item = &underway.item;
        let mut slot = underway.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        slot.iter_mut().for_each(slots::Slot::begin);
        let mut runs_elsewhere = || slot.iter_mut().for_each(slots::Slot::runs_elsewhere);
        let Some(script_id) = item.script_id else {
            runs_elsewhere();
            return self.mail(item, hold).await;
        };
        let script = match self.script(script_id).await {
            Ok(Some(script)) => script,
            Ok(None) => return Ok(failed("SCRIPT_MISSING", "its app is gone", false)),
            // The database is away. The item is due again when its lease expires.
            Err(error) => {
                tracing::warn!(lane = "triggers", trace_id = %item.trace_id(), code = error.code(), %error, "a script could not be read");
                return Err(Unsent::Undecided);
            }
        };
        let timeout = script.timeout.min(self.settings.timeout_max);
        let departure = self.departure(underway);
        let executor = if script.url.is_some() {
            runs_elsewhere();
            // The request itself leaves.
            if let Err(error) = departure.allow().await {
                tracing::warn!(lane = "triggers", trace_id = %item.trace_id(), %error, "a request was not posted to its script's URL");
                return Err(Unsent::LeaseLost);
            }
            &self.executors.http
        } else {
            &self.executors.script
        };
        let request = Request {
            execution_id: item.id,
            app_id: item.app_id,
            app: script.app.clone(),
            script: script.name.clone(),
            source: script.source.clone().unwrap_or_else(|| "".into()),
            file: Arc::clone(&script.file),
            modules: Arc::clone(&script.modules),
            url: script.url.clone(),
            source_kind: item.source_kind.clone(),
            payload: Arc::from(item.payload.0.clone()),
            unstored_headers: self.replies.unstored_headers(item.reply_to),
            origin_principal: item.origin_principal,
            principal: item.principal,
            depth: item.trigger_depth,
            root_execution_id: item.root_execution_id,
            attempt: item.attempt_count + 1,
            timeout,
            slot: Slot::new(slot),
            departure,
            traceparent: underway.traceparent(),
        };
        hold.begin_sending(timeout + EXECUTOR_GRACE)?;
        hold.at(Point::BeforeSend);
        let run = async {
            let run = tokio::time::timeout(timeout + EXECUTOR_GRACE, executor.run(&request)).await;
            run.unwrap_or_else(|_elapsed| Execution::new(RunOutcome::TimedOut))
        };
        let execution = self.ended_run(underway, run).await;
        hold.at(Point::AfterSend);
        execution
    }

    async fn mail(&self, item: &ClaimedTrigger, hold: &Hold) -> Result<Execution, Unsent> {
        let Some(mailer) = &self.executors.mailer else {
            let fix = "no relay is configured: set triggers.email.relay";
            return Ok(failed("EMAIL_NOT_CONFIGURED", fix, true));
        };
        let limit = self.settings.timeout_max;
        hold.begin_sending(limit + EXECUTOR_GRACE)?;
        hold.at(Point::BeforeSend);
        let sent = tokio::time::timeout(limit, mailer.send(item.id, &item.payload.0)).await;
        hold.at(Point::AfterSend);
        let outcome = sent.unwrap_or(RunOutcome::TimedOut);
        Ok(Execution::new(outcome))
    }
}

fn failed(code: &'static str, message: &str, retryable: bool) -> Execution {
    Execution::new(RunOutcome::Failed { code, message: message.to_owned(), retryable })
}

impl Lane for TriggerLane {
    type Work = Underway;
    type Lease = TriggerLease;
    type Done = Ended;

    fn name(&self) -> &'static str {
        "triggers"
    }

    fn worker_id(&self) -> &str {
        &self.worker_id
    }

    fn channel(&self) -> &'static str {
        "trigger_outbox_pending"
    }

    fn groups(&self) -> Vec<Group> {
        vec![self.settings.group()]
    }

    fn slots_freed(&self) -> Option<&Notify> {
        Some(self.slots.room())
    }

    fn slots_free(&self) -> usize {
        self.slots.free()
    }

    fn is_crowded<'a>(&self, mut ended: impl Iterator<Item = &'a Ended>) -> bool {
        ended.all(|ended| self.slots.are_waited_for(ended.app_id))
    }

    fn lease(work: &Underway) -> TriggerLease {
        work.item.lease()
    }

    fn lease_of(done: &Ended) -> TriggerLease {
        done.outcome.lease
    }

    fn intake(&mut self) -> Option<Intake<Underway>> {
        self.intake.take()
    }

    fn trace_id(work: &Underway) -> Option<TraceId> {
        Some(work.item.trace_id())
    }

    async fn claim(&self, ask: &Ask<'_>) -> Result<Claimed<Underway>, DbError> {
        let asked_at = self.traces.now();
        let whole = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let claim = self.slots.claim();
        // Requests may have taken some since the engine looked.
        let items_max = ask.items_max.min(self.slots.free());
        if items_max == 0 {
            return Ok(Claimed::of(Vec::new()));
        }
        let claimed = self
            .worker
            .claim_triggers(
                &self.worker_id,
                whole(items_max),
                i32::try_from(ask.lease.as_secs()).unwrap_or(i32::MAX),
                Some(&claim.limit),
            )
            .await?;
        let slots = claim.take(claimed.iter().map(|item| item.app_id));
        let works = claimed.into_iter().zip(slots);
        let works = works.map(|(item, slot)| {
            let trace = traced::claimed(&self.traces, &item, asked_at);
            Underway::new(item, slot, true, trace)
        });
        Ok(Claimed::of(works.collect()))
    }

    /// What is run again is so in its app's turn.
    async fn turn(&self, work: &Underway) {
        if work.reruns > 0 && !work.has_turn() {
            let turn = self.reruns.take(work.item.app_id).await;
            *work.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
        }
    }

    async fn not_begun(&self, work: &Underway) {
        self.leave_to_others(work).await;
    }

    async fn dispatch(&self, work: &Underway, hold: &Arc<Hold>) -> Dispatched<Ended> {
        let started = Instant::now();
        match self.run(work, hold).await {
            Ok(execution) => {
                let took = started.elapsed();
                let ended = ended(work, execution, took);
                let ended = ended.traced(work, took, self.app_of(&work.item).as_deref());
                Dispatched::Done { done: self.reply_here(ended), trouble: false }
            }
            Err(unsent) => {
                self.leave_to_others(work).await;
                Dispatched::Unsent(unsent)
            }
        }
    }

    /// With a slot of its app at once, whether there is one or not: as long as it waits for its turn, its app begins less.
    fn again(&self, done: Ended) -> Option<Underway> {
        let slot = self.slots.retake(done.app_id);
        if let Some(unwritten) = &done.unwritten {
            unwritten.reopen();
        }
        Some(Underway {
            item: done.item,
            slot: Mutex::new(Some(slot)),
            is_durable: !done.is_request,
            reruns: done.reruns.saturating_add(1),
            turn: Mutex::new(done.turn),
            unwritten: done.unwritten,
            trace: done.trace,
        })
    }

    fn interrupted(&self, work: &Underway, why: Interruption) -> Ended {
        let (code, message) = match why {
            Interruption::Panicked => ("PANIC", "the executor panicked: nothing of it was applied"),
            Interruption::Shutdown => {
                ("SHUTDOWN", "the worker had to stop before it ended: nothing of it was applied")
            }
        };
        let outcome = TriggerOutcome {
            reply_to: work.item.reply_to,
            error_code: Some(code.to_owned()),
            error_message: Some(message.to_owned()),
            ..TriggerOutcome::new(work.item.lease(), TriggerState::Retryable)
        };
        let ended = Ended::new(work, outcome);
        self.reply_here(ended.traced(work, Duration::ZERO, self.app_of(&work.item).as_deref()))
    }

    async fn complete(&self, done: &[Ended]) -> Result<Vec<Completed>, DbError> {
        let asked_at = self.traces.now();
        let answers = self.complete_all(done).await?;
        traced::tell_completed(asked_at, done, &answers);
        Ok(answers)
    }

    async fn complete_later(&self, done: &Ended) -> Result<Completed, DbError> {
        let asked_at = self.traces.now();
        let answer = self.complete_one_held_up(done).await?;
        traced::tell_completed(asked_at, std::slice::from_ref(done), &[answer]);
        Ok(answer)
    }

    async fn keep_evidence(&self, done: &Ended) -> Result<bool, DbError> {
        let outcome = &done.outcome;
        match self.worker.record_late_trigger(&self.worker_id, outcome).await {
            // Its row was not on disk when the server crashed. Nobody was told anything, and nobody will run it.
            Err(DbError::LeaseLost { .. }) if done.is_request => {
                if let Some(name) = outcome.reply_to {
                    self.replies.failed(name, outcome.lease.id, "REQUEST_LOST");
                }
                tracing::warn!(
                    lane = "triggers",
                    worker_id = self.worker_id,
                    trace_id = %done.trace_id,
                    event = "REQUEST_LOST",
                    "the server lost a request in a crash before anybody was told of it; nothing of it was applied"
                );
                return Ok(false);
            }
            kept => kept?,
        }
        tracing::warn!(
            lane = "triggers",
            worker_id = self.worker_id,
            trace_id = %done.trace_id,
            event = "CONCURRENCY_EVENT",
            "a lease was lost before the run's outcome was written; nothing of it was applied"
        );
        Ok(false)
    }
}

fn account(recorded: &TriggerRecorded) -> Completed {
    match recorded {
        TriggerRecorded::Recorded { state, successor, .. } => Completed::Recorded {
            tallies: match state {
                TriggerState::Dispatched => Tally::Dispatched,
                TriggerState::Retryable => Tally::Retryable,
                TriggerState::Failed => Tally::Failed,
            }
            .into(),
            successor: *successor,
        },
        TriggerRecorded::ReadsChanged => Completed::Again,
        // Its row is there now, for whoever claims it.
        TriggerRecorded::Refused => {
            Completed::Recorded { tallies: Tallies::default(), successor: false }
        }
        TriggerRecorded::Stale => {
            Completed::Recorded { tallies: Tallies::default(), successor: true }
        }
        TriggerRecorded::NotHeld | TriggerRecorded::TerminalExists => Completed::Late,
    }
}
