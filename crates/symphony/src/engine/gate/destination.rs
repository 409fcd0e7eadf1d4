//! One destination as a process sees it: how many calls at once, its breaker, its rate, and what is counted of its calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use super::breaker::Change;
use super::{
    Allowance, Answered, Breaker, BreakerSettings, BreakerState, DestinationKind, Pace, Rate,
    TroubleKind,
};
use crate::metrics::{Counter, Histogram};

/// What a destination takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DestinationLimits {
    /// At most this many calls at once.
    pub concurrency_max: usize,
    /// Calls per second, and how many at once after a pause. `None`: no limit.
    pub rate: Option<Rate>,
    /// When to leave it alone.
    pub breaker: BreakerSettings,
}

/// A destination, shared by whoever calls it, counts it and reports it.
#[derive(Debug)]
pub struct Destination {
    kind: DestinationKind,
    name: String,
    limits: DestinationLimits,
    calls: Semaphore,
    /// Calls it shares with others, besides its own.
    common: Option<Arc<Semaphore>>,
    /// `None`: no rate limit.
    pace: Option<Arc<Pace>>,
    breaker: Mutex<Breaker>,
    trouble: Mutex<Trouble>,
    /// It was left alone and is well again; what waits only for it has not been brought forward yet.
    recovered: AtomicBool,
    changed: Notify,
    reported: Notify,
    /// How often it was left alone.
    pub opened: Counter,
    /// How long its calls took.
    pub latency: Histogram,
    answers: [Counter; Answered::ALL.len()],
    troubles: [Counter; TroubleKind::ALL.len()],
}

/// What is known of its trouble.
#[derive(Debug, Default)]
struct Trouble {
    in_a_row: u32,
    last: Option<(String, Instant)>,
    open_since: Option<Instant>,
}

/// One of the calls a destination takes at once, until it is dropped.
#[derive(Debug)]
pub struct CallPermit<'a>(#[expect(dead_code, reason = "held, not read")] SemaphorePermit<'a>);

/// Why no call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotNow {
    /// It is in trouble and left alone.
    Resting {
        /// Until then.
        until: Instant,
    },
    /// The worker stops.
    Closed,
}

/// A destination at one moment, for whoever asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationState {
    /// Its name.
    pub name: String,
    /// Its breaker.
    pub breaker: BreakerState,
    /// For how long it has been left alone.
    pub open_for: Option<Duration>,
    /// When the next probe may go.
    pub next_probe_in: Option<Duration>,
    /// Troubles in a row.
    pub troubles: u32,
    /// The last one's code, and how long ago it was.
    pub last_trouble: Option<(String, Duration)>,
    /// The limit it keeps.
    pub rate_per_second: Option<u32>,
}

impl Destination {
    /// A destination that everything flows to.
    pub fn new(kind: DestinationKind, name: &str, limits: DestinationLimits) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            limits,
            calls: Semaphore::new(limits.concurrency_max.max(1)),
            common: None,
            pace: limits.rate.map(|rate| Arc::new(Pace::new(rate))),
            breaker: Mutex::new(Breaker::new(limits.breaker)),
            trouble: Mutex::default(),
            recovered: AtomicBool::new(false),
            changed: Notify::new(),
            reported: Notify::new(),
            opened: Counter::default(),
            latency: Histogram::default(),
            answers: Default::default(),
            troubles: Default::default(),
        }
    }

    /// The same, with calls besides its own `concurrency_max` that it shares with others.
    pub fn sharing(
        kind: DestinationKind,
        name: &str,
        limits: DestinationLimits,
        common: Arc<Semaphore>,
    ) -> Self {
        Self { common: Some(common), ..Self::new(kind, name, limits) }
    }

    /// What it is.
    pub fn kind(&self) -> DestinationKind {
        self.kind
    }

    /// Its configured name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limit it keeps, calls per second.
    pub fn rate_per_second(&self) -> Option<u32> {
        self.limits.rate.map(|rate| rate.per_second)
    }

    /// At most so many calls at once, what it shares with others not counted.
    pub fn concurrency_max(&self) -> usize {
        self.limits.concurrency_max
    }

    /// The turns at it, where its rate is limited.
    pub(crate) fn pace(&self) -> Option<&Arc<Pace>> {
        self.pace.as_ref()
    }

    /// Wait until one more call may be made. For whoever has asked its breaker already, before claiming.
    pub(crate) async fn slot(&self) -> Result<CallPermit<'_>, NotNow> {
        let permit = match &self.common {
            None => self.calls.acquire().await,
            Some(common) => tokio::select! {
                biased;
                own = self.calls.acquire() => own,
                shared = common.acquire() => shared,
            },
        };
        permit.map(CallPermit).map_err(|_| NotNow::Closed)
    }

    /// Until when it is left alone. Asks without taking a probe.
    pub(crate) fn resting_until(&self) -> Option<Instant> {
        let breaker = self.breaker();
        if breaker.state() == BreakerState::Closed {
            return None;
        }
        breaker.next_probe().filter(|at| *at > Instant::now())
    }

    /// No more calls: everybody who waits for one is refused.
    pub(crate) fn close(&self) {
        self.calls.close();
    }

    /// Wait until one more call may be made, then ask its breaker. Hold the permit while the call lasts, and say with
    /// [`ended`](Self::ended) how it was answered.
    pub async fn begin_call(&self) -> Result<CallPermit<'_>, NotNow> {
        let permit = self.slot().await?;
        match self.allowance() {
            Allowance::Free | Allowance::Probe => Ok(permit),
            Allowance::Nothing { until } => Err(NotNow::Resting { until }),
        }
    }

    /// A call ended after so long; it may have carried several items. An answer names its trouble only where the
    /// destination itself was the problem.
    pub fn ended<'a>(
        &self,
        took: Duration,
        answers: impl IntoIterator<Item = (Answered, Option<&'a str>)>,
    ) {
        self.latency.observe(took);
        let mut in_trouble = false;
        for (answered, trouble) in answers {
            self.answered(answered, trouble);
            in_trouble |= trouble.is_some();
        }
        self.report(in_trouble);
    }

    /// Where its breaker stands.
    pub fn state(&self) -> BreakerState {
        self.breaker().state()
    }

    /// How many calls were answered so.
    pub fn answers(&self, answered: Answered) -> u64 {
        self.answers.get(answered as usize).map_or(0, Counter::get)
    }

    /// How many calls it was in this trouble at.
    pub fn troubles(&self, kind: TroubleKind) -> u64 {
        self.troubles.get(kind as usize).map_or(0, Counter::get)
    }

    /// What may be sent now; as [`Breaker::allowance`].
    pub fn allowance(&self) -> Allowance {
        self.breaker().allowance(Instant::now())
    }

    /// There was nothing to probe with.
    pub fn probe_unused(&self) {
        self.breaker().probe_unused(Instant::now());
    }

    /// Its pause is over: the next call may be the probe.
    pub fn may_be_probed(&self) -> bool {
        let breaker = self.breaker();
        breaker.state() == BreakerState::Open
            && breaker.next_probe().is_some_and(|at| at <= Instant::now())
    }

    /// Count an answer; `trouble` is its code, only where the destination itself was the problem.
    pub fn answered(&self, answered: Answered, trouble: Option<&str>) {
        if let Some(counter) = self.answers.get(answered as usize) {
            counter.add(1);
        }
        let Some(code) = trouble else { return };
        if let Some(counter) = self.troubles.get(TroubleKind::of(code) as usize) {
            counter.add(1);
        }
        self.trouble().last = Some((code.to_owned(), Instant::now()));
    }

    /// A call ended; `trouble` says that the destination itself was the problem.
    pub fn report(&self, trouble: bool) {
        let change = self.breaker().report(Instant::now(), trouble);
        {
            let mut known = self.trouble();
            known.in_a_row = if trouble { known.in_a_row.saturating_add(1) } else { 0 };
        }
        self.tell(change, "answers again");
    }

    /// A person asks for it to be used again.
    pub fn reset(&self) {
        let change = self.breaker().reset();
        self.trouble().in_a_row = 0;
        self.tell(change, "is tried again, because a person said so");
    }

    /// Whether it has recovered since this was last asked: what waits only for it is to be brought forward then.
    pub fn take_recovered(&self) -> bool {
        self.recovered.swap(false, Ordering::AcqRel)
    }

    /// What waits for it could not be brought forward: ask again.
    pub fn still_recovered(&self) {
        self.recovered.store(true, Ordering::Release);
    }

    /// Resolves when its breaker opens or closes; one waiter, the one who claims for it.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The same for whoever reports it.
    pub(crate) async fn to_be_reported(&self) {
        self.reported.notified().await;
    }

    /// What there is to say of it now.
    pub fn look(&self) -> DestinationState {
        let now = Instant::now();
        let (breaker, next_probe) = {
            let breaker = self.breaker();
            (breaker.state(), breaker.next_probe())
        };
        let trouble = self.trouble();
        DestinationState {
            name: self.name.clone(),
            breaker,
            open_for: trouble.open_since.map(|since| now.saturating_duration_since(since)),
            next_probe_in: next_probe.map(|at| at.saturating_duration_since(now)),
            troubles: trouble.in_a_row,
            last_trouble: trouble
                .last
                .as_ref()
                .map(|(code, at)| (code.clone(), now.saturating_duration_since(*at))),
            rate_per_second: self.rate_per_second(),
        }
    }

    fn tell(&self, change: Option<Change>, why: &str) {
        let Some(change) = change else { return };
        let named = |kind| (self.kind == kind).then_some(self.name.as_str());
        let (rail, bus) = (named(DestinationKind::Rail), named(DestinationKind::Bus));
        let group = named(DestinationKind::Executor);
        let kind = self.kind.name();
        match change {
            Change::Opened => {
                self.opened.add(1);
                let mut known = self.trouble();
                known.open_since = Some(Instant::now());
                let code = known.last.as_ref().map(|(code, _)| code.clone());
                drop(known);
                tracing::warn!(
                    rail,
                    bus,
                    group,
                    error_code = code,
                    event = "BREAKER_OPENED",
                    "the {kind} is in trouble: it is left alone, and probed until it answers"
                );
            }
            Change::Closed => {
                let since = self.trouble().open_since.take();
                let seconds = since.map_or(0, |since| since.elapsed().as_secs());
                self.recovered.store(true, Ordering::Release);
                tracing::info!(
                    rail,
                    bus,
                    group,
                    event = "BREAKER_CLOSED",
                    "the {kind} {why}, after {seconds} s: what waited for it is due now"
                );
            }
        }
        self.changed.notify_one();
        self.reported.notify_one();
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
