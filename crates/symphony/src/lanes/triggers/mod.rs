//! The trigger lane: requests, changes, ticks and messages become rows of one shape, and rows become runs of scripts.
//!
//! - [`executor`]: what runs scripts; adapters are in `symphony-connect`.
//! - `shares.rs`: how much of each app is under way.
//! - `cron.rs`: when a trigger is due, and who fires it.
//! - `replies.rs`: whoever waits for an answer, and how it reaches them.
//!
//! What a script writes is not done by the script: it comes back as effects and is applied by the database in the
//! transaction that completes the item. So a run may be lost at any line and nothing is half done.

mod cron;
pub mod executor;
mod replies;
mod shares;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::db::{
    ClaimedTrigger, DbError, Executor as Work, TriggerLease, TriggerOutcome, TriggerRecorded,
    TriggerState,
};
use crate::engine::gate::BreakerSettings;
use crate::engine::{
    Ask, Claimed, Completed, Dispatched, Group, Hold, Interruption, Lane, Point, Tally,
};
pub use cron::{BadSchedule, Schedule, Ticker};
use executor::{Execution, Executor, Mailer, Outcome, Request};
pub use replies::{Awaited, Replies, Reply};
use shares::{Share, Shares};

/// How many scripts' sources a worker keeps.
const SCRIPTS_KEPT_MAX: usize = 1_000;
/// What an executor that does not end in time gets on top.
const EXECUTOR_GRACE: Duration = Duration::from_millis(500);

/// How a worker runs scripts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriggerSettings {
    /// At most this many runs at once.
    pub concurrency_max: usize,
    /// The longest a script may run, whatever its own limit.
    pub timeout_max: Duration,
}

impl Default for TriggerSettings {
    fn default() -> Self {
        Self { concurrency_max: 128, timeout_max: Duration::from_secs(30) }
    }
}

impl TriggerSettings {
    /// The lane as the engine sees it.
    pub fn group(&self) -> Group {
        Group {
            name: "triggers".to_owned(),
            section: "triggers".to_owned(),
            concurrency_max: self.concurrency_max,
            call_limit: self.timeout_max + EXECUTOR_GRACE,
            rate: None,
            breaker: BreakerSettings::default(),
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
    url: Option<String>,
    timeout: Duration,
}

/// An item, waiting for its turn or running.
#[derive(Debug)]
pub struct Underway {
    item: ClaimedTrigger,
    _share: Share,
}

/// Runs scripts.
pub struct TriggerLane {
    work: Work,
    worker_id: String,
    executors: Executors,
    settings: TriggerSettings,
    replies: Replies,
    shares: Shares,
    scripts: Mutex<HashMap<Uuid, Arc<Script>>>,
}

impl TriggerLane {
    /// A lane with these executors. `replies` are those this process itself waits for.
    pub fn new(
        work: Work,
        worker_id: String,
        executors: Executors,
        settings: TriggerSettings,
        replies: Replies,
    ) -> Self {
        // Of an app at most half of the runs there may be at once: the other half stays for others.
        let shares = Shares::new(settings.concurrency_max / 2);
        Self { work, worker_id, executors, settings, replies, shares, scripts: Mutex::default() }
    }

    /// A script's version never changes, so it is read once.
    async fn script(&self, script_id: Uuid) -> Result<Option<Arc<Script>>, DbError> {
        let known =
            self.scripts.lock().unwrap_or_else(PoisonError::into_inner).get(&script_id).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let Some(row) = self.work.script(script_id).await? else { return Ok(None) };
        let script = Arc::new(Script {
            app: row.app,
            name: row.name,
            source: row.source.map(Into::into),
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

    /// Tell whoever waits in this process what the ledger now says; a failure is read from there.
    fn answer(&self, outcome: &TriggerOutcome, recorded: &TriggerRecorded) {
        let answered =
            TriggerRecorded::Recorded { state: TriggerState::Dispatched, error_code: None };
        if *recorded == answered
            && let (Some(name), Some(result)) = (outcome.reply_to, &outcome.result)
        {
            self.replies.answered(name, outcome.lease.id, result);
        }
    }

    async fn run(
        &self,
        item: &ClaimedTrigger,
        hold: &Hold,
    ) -> Result<Execution, crate::engine::Unsent> {
        let Some(script_id) = item.script_id else { return self.mail(item, hold).await };
        let script = match self.script(script_id).await {
            Ok(Some(script)) => script,
            Ok(None) => return Ok(failed("SCRIPT_MISSING", "its app is gone", false)),
            // The database is away: whatever happens next, the lease takes care of the item.
            Err(error) => {
                tracing::warn!(lane = "triggers", code = error.code(), %error, "a script could not be read");
                return Err(crate::engine::Unsent::Undecided);
            }
        };
        let timeout = script.timeout.min(self.settings.timeout_max);
        let executor =
            if script.url.is_some() { &self.executors.http } else { &self.executors.script };
        let request = Request {
            execution_id: item.id,
            app_id: item.app_id,
            app: script.app.clone(),
            script: script.name.clone(),
            source: script.source.clone().unwrap_or_else(|| "".into()),
            url: script.url.clone(),
            source_kind: item.source_kind.clone(),
            payload: Arc::from(item.payload.0.clone()),
            origin_principal: item.origin_principal,
            principal: item.principal,
            depth: item.trigger_depth,
            root_execution_id: item.root_execution_id,
            attempt: item.attempt_count + 1,
            timeout,
        };
        hold.begin_sending(timeout + EXECUTOR_GRACE)?;
        hold.at(Point::BeforeSend);
        let run = tokio::time::timeout(timeout + EXECUTOR_GRACE, executor.run(&request)).await;
        hold.at(Point::AfterSend);
        Ok(run.unwrap_or(Execution {
            outcome: Outcome::TimedOut,
            logs: Vec::new(),
            effects: Vec::new(),
        }))
    }

    async fn mail(
        &self,
        item: &ClaimedTrigger,
        hold: &Hold,
    ) -> Result<Execution, crate::engine::Unsent> {
        let Some(mailer) = &self.executors.mailer else {
            let fix = "no relay is configured: set triggers.email.relay";
            return Ok(failed("EMAIL_NOT_CONFIGURED", fix, true));
        };
        let limit = self.settings.timeout_max;
        hold.begin_sending(limit + EXECUTOR_GRACE)?;
        hold.at(Point::BeforeSend);
        let sent = tokio::time::timeout(limit, mailer.send(item.id, &item.payload.0)).await;
        hold.at(Point::AfterSend);
        let outcome = sent.unwrap_or(Outcome::TimedOut);
        Ok(Execution { outcome, logs: Vec::new(), effects: Vec::new() })
    }
}

fn failed(code: &'static str, message: &str, retryable: bool) -> Execution {
    Execution {
        outcome: Outcome::Failed { code, message: message.to_owned(), retryable },
        logs: Vec::new(),
        effects: Vec::new(),
    }
}

/// A run's end as the ledger writes it.
fn outcome_of(item: &ClaimedTrigger, execution: Execution, took: Duration) -> TriggerOutcome {
    let Execution { outcome, logs, effects } = execution;
    let spends_attempt = !matches!(outcome, Outcome::Away { .. });
    let (state, result, error_code, error_message) = match outcome {
        Outcome::Value(value) => (TriggerState::Dispatched, Some(value), None, None),
        Outcome::Failed { code, message, retryable } => {
            let state = if retryable { TriggerState::Retryable } else { TriggerState::Failed };
            (state, None, Some(code.to_owned()), Some(message))
        }
        Outcome::Away { code, message } => {
            (TriggerState::Retryable, None, Some(code.to_owned()), Some(message))
        }
        Outcome::TimedOut => (
            TriggerState::Retryable,
            None,
            Some("TIMEOUT".to_owned()),
            Some("it took longer than its script's timeoutMs".to_owned()),
        ),
    };
    let as_json = |value: serde_json::Result<Box<RawValue>>| value.ok();
    TriggerOutcome {
        lease: item.lease(),
        reply_to: item.reply_to,
        state,
        result,
        logs: (!logs.is_empty()).then(|| as_json(to_raw_value(&logs))).flatten(),
        effects: (state == TriggerState::Dispatched && !effects.is_empty())
            .then(|| as_json(to_raw_value(&effects)))
            .flatten(),
        error_code,
        error_message,
        latency_ms: Some(i32::try_from(took.as_millis()).unwrap_or(i32::MAX)),
        spends_attempt,
    }
}

impl Lane for TriggerLane {
    type Work = Underway;
    type Lease = TriggerLease;
    type Done = TriggerOutcome;

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

    fn nudge(&self) -> Option<&Notify> {
        Some(self.shares.room())
    }

    fn lease(work: &Underway) -> TriggerLease {
        work.item.lease()
    }

    fn lease_of(done: &TriggerOutcome) -> TriggerLease {
        done.lease
    }

    async fn claim(&self, ask: &Ask<'_>) -> Result<Claimed<Underway>, DbError> {
        let whole = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let limit = self.shares.limit();
        let claimed = self
            .work
            .claim_triggers(
                &self.worker_id,
                whole(ask.items_max),
                i32::try_from(ask.lease.as_secs()).unwrap_or(i32::MAX),
                Some(&limit),
            )
            .await?;
        let shares = self.shares.take(&limit, claimed.iter().map(|item| item.app_id));
        let works = claimed.into_iter().zip(shares);
        let works = works.map(|(item, share)| Underway { item, _share: share }).collect();
        Ok(Claimed { works, through: None })
    }

    async fn dispatch(&self, work: &Underway, hold: &Hold) -> Dispatched<TriggerOutcome> {
        let item = &work.item;
        let started = Instant::now();
        match self.run(item, hold).await {
            Ok(execution) => Dispatched::Done {
                done: outcome_of(item, execution, started.elapsed()),
                trouble: false,
            },
            Err(unsent) => Dispatched::Unsent(unsent),
        }
    }

    fn interrupted(&self, work: &Underway, why: Interruption) -> TriggerOutcome {
        let (code, message) = match why {
            Interruption::Panicked => ("PANIC", "the executor panicked: nothing of it was applied"),
            Interruption::Shutdown => {
                ("SHUTDOWN", "the worker had to stop before it ended: nothing of it was applied")
            }
        };
        TriggerOutcome {
            error_code: Some(code.to_owned()),
            error_message: Some(message.to_owned()),
            ..TriggerOutcome::new(work.item.lease(), TriggerState::Retryable)
        }
    }

    /// Those without effects all at once; each with effects in a transaction of its own, because of what it locks. A
    /// repeated call finds what the first has written.
    async fn complete(&self, done: &[TriggerOutcome]) -> Result<Vec<Completed>, DbError> {
        let mut answers = vec![Completed::Late; done.len()];
        let (plain, busy): (Vec<usize>, Vec<usize>) = (0..done.len())
            .partition(|index| done.get(*index).is_some_and(|outcome| outcome.effects.is_none()));
        let calls = (!plain.is_empty()).then_some(plain).into_iter();
        for indexes in calls.chain(busy.into_iter().map(|index| vec![index])) {
            let outcomes: Vec<&TriggerOutcome> =
                indexes.iter().filter_map(|index| done.get(*index)).collect();
            let recorded = self.work.complete_triggers(&self.worker_id, &outcomes).await?;
            for ((index, outcome), recorded) in indexes.into_iter().zip(outcomes).zip(recorded) {
                self.answer(outcome, &recorded);
                if let Some(answer) = answers.get_mut(index) {
                    *answer = account(&recorded);
                }
            }
        }
        Ok(answers)
    }

    async fn keep_evidence(&self, done: &TriggerOutcome) -> Result<bool, DbError> {
        self.work.record_late_trigger(&self.worker_id, done).await?;
        tracing::warn!(
            lane = "triggers",
            worker_id = self.worker_id,
            event = "CONCURRENCY_EVENT",
            "a lease was lost before the run's outcome was written; nothing of it was applied"
        );
        Ok(false)
    }

    async fn renew(
        &self,
        leases: &[TriggerLease],
        lease: Duration,
    ) -> Result<Vec<(TriggerLease, bool)>, DbError> {
        let seconds = i32::try_from(lease.as_secs()).unwrap_or(i32::MAX);
        let renewed = self.work.renew_triggers(&self.worker_id, leases, seconds).await?;
        Ok(leases.iter().copied().zip(renewed).collect())
    }

    async fn give_back(&self, leases: &[TriggerLease]) -> Result<(), DbError> {
        self.work.return_unsent_triggers(&self.worker_id, leases).await?;
        Ok(())
    }

    async fn repair(&self, items_max: usize) -> Result<Vec<String>, DbError> {
        let items_max = i32::try_from(items_max).unwrap_or(i32::MAX);
        let repaired = self.work.repair_triggers(&self.worker_id, items_max).await?;
        Ok(repaired.into_iter().map(|id| id.to_string()).collect())
    }
}

fn account(recorded: &TriggerRecorded) -> Completed {
    match recorded {
        TriggerRecorded::Recorded { state, .. } => Completed::Recorded {
            tallies: match state {
                TriggerState::Dispatched => Tally::Dispatched,
                TriggerState::Retryable => Tally::Retryable,
                TriggerState::Failed => Tally::Failed,
            }
            .into(),
            successor: false,
        },
        TriggerRecorded::NotHeld | TriggerRecorded::TerminalExists => Completed::Late,
    }
}
