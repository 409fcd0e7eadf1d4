//! One rail, bus or runner of scripts as a process sees it: its breaker, and what is counted of its calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::breaker::Change;
use super::{Allowance, Breaker, BreakerSettings, BreakerState};
use crate::engine::metrics::{Counter, Histogram};

/// What a destination is called in logs and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DestinationKind {
    /// Moves money.
    Rail,
    /// Carries events.
    Bus,
    /// Runs scripts.
    Executor,
}

impl DestinationKind {
    /// In one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rail => "rail",
            Self::Bus => "bus",
            Self::Executor => "executor",
        }
    }
}

/// Why a destination itself was in trouble, in few words: a label of a metric, so there are no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TroubleKind {
    /// No connection, and nothing was sent.
    Unreachable,
    /// No answer in time.
    Timeout,
    /// The connection was lost after sending.
    ConnectionLost,
    /// An answer nobody can read.
    BadResponse,
    /// It says that it is busy, or that it fails.
    Busy,
    /// Anything else.
    Other,
}

impl TroubleKind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Unreachable,
        Self::Timeout,
        Self::ConnectionLost,
        Self::BadResponse,
        Self::Busy,
        Self::Other,
    ];

    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::ConnectionLost => "connection_lost",
            Self::BadResponse => "bad_response",
            Self::Busy => "busy",
            Self::Other => "other",
        }
    }

    /// What an error code stands for.
    pub fn of(error_code: &str) -> Self {
        match error_code {
            "DNS_FAILED" | "CONNECT_FAILED" | "CONNECT_TIMEOUT" | "TLS_FAILED" | "NOT_SENT"
            | "ADDRESS_REFUSED" | "UNREACHABLE" | "UNSENT" => Self::Unreachable,
            "TIMEOUT" | "INQUIRY_TIMEOUT" => Self::Timeout,
            "CONNECTION_LOST" => Self::ConnectionLost,
            "BAD_RESPONSE" | "UNCLEAR_CODE" | "BAD_ANSWER" | "NO_ANSWER" => Self::BadResponse,
            "RAIL_RETRYABLE" | "THROTTLED" | "BUS_ERROR" => Self::Busy,
            _ => Self::Other,
        }
    }
}

/// How a call was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answered {
    /// Taken.
    Accepted,
    /// Refused for good.
    Refused,
    /// Surely not taken; again later.
    Retryable,
    /// Nobody knows.
    Unknown,
}

impl Answered {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Refused, Self::Retryable, Self::Unknown];

    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Retryable => "retryable",
            Self::Unknown => "unknown",
        }
    }
}

/// A destination, shared by whoever calls it, counts it and reports it.
#[derive(Debug)]
pub struct Destination {
    kind: DestinationKind,
    name: String,
    rate_per_second: Option<u32>,
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
    pub fn new(
        kind: DestinationKind,
        name: &str,
        rate_per_second: Option<u32>,
        breaker: BreakerSettings,
    ) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            rate_per_second,
            breaker: Mutex::new(Breaker::new(breaker)),
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

    /// Rail, bus or executor.
    pub fn kind(&self) -> DestinationKind {
        self.kind
    }

    /// Its configured name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limit it keeps, calls per second.
    pub fn rate_per_second(&self) -> Option<u32> {
        self.rate_per_second
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

    /// Its rest is over: whoever comes next may find out how it is.
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

    /// A person says that it is well.
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
            rate_per_second: self.rate_per_second,
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
