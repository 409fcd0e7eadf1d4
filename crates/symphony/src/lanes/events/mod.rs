//! The event lane: facts committed with their state go to a bus, in order within their key.
//!
//! - [`bus`]: what a bus is; adapters are in `symphony-connect`.
//! - [`routes`](Route): from types to a topic of a bus.
//! - `window.rs`: one leased bucket's events, and the order in which they may go out (pure).
//! - `decide.rs`: what a bus's answer means (pure).
//!
//! The engine's unit of work is a bucket: it is leased, renewed and completed whole. Within it every key is published
//! one event after another, keys side by side, and a key in trouble holds up nobody but itself.

pub mod bus;
mod decide;
mod routes;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Notify, Semaphore};

use crate::db::{
    BucketLease, ClaimedEvent, DbError, EventClaim, EventOutcome, EventRecorded, EventState,
    Executor,
};
use crate::domain::limits;
use crate::engine::gate::{Allowance, BreakerSettings, BreakerState, Destination, DestinationKind};
use crate::engine::{
    Ask, Claimed, Completed, Dispatched, Group, Hold, Interruption, Lane, Point, Tallies, Tally,
    Unsent,
};
use crate::event::Header;
use bus::{Bus, Message, Publication, Trouble};
pub use decide::Retry;
use decide::{Tries, Verdict};
pub use routes::{OnFailed, Route, TypePattern};
pub use window::Window;
use window::{Chains, Outgoing};

/// How long keys are set aside at least while their bus is left alone: they are brought forward as soon as it is well again,
/// and looking at all of them with every probe would be work for nothing.
const SET_ASIDE: Duration = Duration::from_secs(30);

/// A bus as a worker uses it.
#[derive(Clone)]
pub struct BusSetup {
    /// Its name, as routes say it.
    pub name: String,
    /// The bus.
    pub bus: Arc<dyn Bus>,
    /// At most this many publish calls at once.
    pub concurrency_max: usize,
    /// When to leave it alone.
    pub breaker: BreakerSettings,
}

/// How a worker publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventSettings {
    /// At most this many events of one bucket under one lease.
    pub window_max: usize,
    /// At most this many buckets worked on at once; as many again are claimed ahead.
    pub buckets_max: usize,
    /// When to try again.
    pub retry: Retry,
}

impl Default for EventSettings {
    fn default() -> Self {
        Self { window_max: 100, buckets_max: 16, retry: Retry::default() }
    }
}

impl EventSettings {
    /// The lane as the engine sees it: one destination, whose calls take as long as the slowest bus may.
    pub fn group<'a>(&self, buses: impl Iterator<Item = &'a BusSetup>) -> Group {
        Group {
            name: "events".to_owned(),
            section: "events".to_owned(),
            concurrency_max: self.buckets_max,
            call_limit: buses.map(|setup| setup.bus.terms().timeout).max().unwrap_or_default(),
            rate: None,
            // Each bus has its own: a bucket's events go to several.
            breaker: BreakerSettings::default(),
        }
    }
}

/// A bus with what this process knows of it.
struct Outlet {
    setup: BusSetup,
    calls: Semaphore,
    destination: Arc<Destination>,
}

/// A route with the bus it leads to.
struct Way {
    route: Route,
    /// As the ledger writes it.
    destination: Arc<str>,
    outlet: Arc<Outlet>,
}

/// Publishes events.
pub struct EventLane {
    executor: Executor,
    worker_id: String,
    settings: EventSettings,
    ways: Vec<Way>,
    outlets: Vec<Arc<Outlet>>,
    /// A bus is well again.
    recovered: Notify,
}

/// A route names a bus that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no bus {0} is configured, but a route leads to it")]
pub struct NoSuchBus(pub String);

impl EventLane {
    /// A lane for these routes. Refuses a route to a bus that is not among them.
    pub fn new(
        executor: Executor,
        worker_id: String,
        buses: Vec<BusSetup>,
        routes: Vec<Route>,
        settings: EventSettings,
    ) -> Result<Self, NoSuchBus> {
        let outlets: BTreeMap<String, Arc<Outlet>> = buses
            .into_iter()
            .map(|setup| {
                let outlet = Outlet {
                    calls: Semaphore::new(setup.concurrency_max.max(1)),
                    destination: Arc::new(Destination::new(
                        DestinationKind::Bus,
                        &setup.name,
                        None,
                        setup.breaker,
                    )),
                    setup,
                };
                (outlet.setup.name.clone(), Arc::new(outlet))
            })
            .collect();
        let ways = routes
            .into_iter()
            .map(|route| match outlets.get(&route.bus) {
                Some(outlet) => Ok(Way {
                    destination: format!("{}/{}", route.bus, route.topic).into(),
                    outlet: outlet.clone(),
                    route,
                }),
                None => Err(NoSuchBus(route.bus)),
            })
            .collect::<Result<_, _>>()?;
        let outlets = outlets.into_values().collect();
        Ok(Self { executor, worker_id, settings, ways, outlets, recovered: Notify::new() })
    }

    /// What waits only for a bus that was in trouble is due as soon as that is well again; and while it is not, one key
    /// whenever somebody may find out.
    async fn hasten(&self) -> Result<(), DbError> {
        for outlet in &self.outlets {
            let (destination, bus) = (&outlet.destination, outlet.setup.name.as_str());
            if destination.take_recovered() {
                let all = i32::try_from(limits::BATCH_ITEMS_MAX).unwrap_or(i32::MAX);
                let moved = self.executor.hasten_events(bus, all).await;
                if !moved.as_ref().is_ok_and(|moved| *moved < all) {
                    destination.still_recovered();
                }
                moved?;
            } else if destination.may_be_probed() {
                self.executor.hasten_events(bus, 1).await?;
            }
        }
        Ok(())
    }

    fn outgoing(&self, event: ClaimedEvent) -> Outgoing {
        let text = event.event.0;
        // Accepted events have both; without them there is no route, and the event fails visibly.
        let (event_type, tenant_id, traceparent) = match Header::read(text.get()) {
            Ok(header) => (
                header.event_type.into_owned(),
                header.tenant_id.into_owned(),
                header.traceparent.map(std::borrow::Cow::into_owned),
            ),
            Err(_) => (String::new(), String::new(), None),
        };
        Outgoing {
            // The first that matches.
            way: self.ways.iter().position(|way| way.route.pattern.matches(&event_type)),
            tries: Tries {
                counted: event.attempt_count,
                outcomes: event.last_attempt_no,
                seconds: event.tried_seconds,
            },
            message: Message {
                event_id: event.event_id,
                position: event.log_position,
                key: event.event_key,
                event_type,
                tenant_id,
                traceparent,
                created_at: event.created_at,
                body: text,
            },
        }
    }

    /// Publish a window's events until all are answered, or nothing more may be sent.
    async fn publish(&self, window: &Window, hold: &Hold) -> Result<(), Unsent> {
        let mut chains =
            Chains::new(window.events.iter().map(|outgoing| outgoing.message.key.as_str()));
        let way = |index: usize| window.events.get(index).and_then(|outgoing| outgoing.way);
        let batch_max = |index: usize| {
            way(index)
                .and_then(|way| self.ways.get(way))
                .map_or(1, |way| way.outlet.setup.bus.terms().batch_max)
        };
        let mut calls = FuturesUnordered::new();
        let mut stopped = None;
        loop {
            while stopped.is_none()
                && let Some(batch) = chains.take(batch_max, |one, other| way(one) == way(other))
            {
                calls.push(self.publish_batch(window, hold, batch));
            }
            let Some(ended) = calls.next().await else { break };
            match ended {
                Ok(gone) => gone.into_iter().for_each(|index| chains.go_on(index)),
                Err(unsent) => stopped = Some(unsent),
            }
        }
        stopped.map_or(Ok(()), Err)
    }

    /// Publish the heads of some keys in one call. Answers which keys may go on.
    async fn publish_batch(
        &self,
        window: &Window,
        hold: &Hold,
        batch: Vec<usize>,
    ) -> Result<Vec<usize>, Unsent> {
        let events: Vec<(usize, &Outgoing)> =
            batch.iter().filter_map(|index| Some((*index, window.events.get(*index)?))).collect();
        let way = events.first().and_then(|(_, outgoing)| self.ways.get(outgoing.way?));
        let Some(way) = way else {
            let problem = "no route is for its type: add one to events.routes";
            let answers =
                events.iter().map(|_| again(Trouble::new("NO_ROUTE", problem), false, false));
            return Ok(self.settle(window, &events, None, None, answers));
        };
        let outlet = &way.outlet;

        // Never closed.
        let Ok(_permit) = outlet.calls.acquire().await else { return Err(Unsent::Stopping) };
        if let Allowance::Nothing { until } = outlet.destination.allowance() {
            let wait = until.saturating_duration_since(Instant::now());
            set_aside(window, &events, &way.destination, wait);
            return Ok(Vec::new());
        }
        let bus = &outlet.setup.bus;
        let limit = bus.terms().timeout;
        hold.begin_sending(limit)?;
        let indices: Vec<usize> = events.iter().map(|(index, _)| *index).collect();
        window.sent(&indices);
        hold.at(Point::BeforeSend);
        let messages: Vec<&Message> =
            events.iter().map(|(_, outgoing)| &outgoing.message).collect();
        let started = Instant::now();
        let answers = tokio::time::timeout(limit, bus.publish(&way.route.topic, &messages)).await;
        hold.at(Point::AfterSend);
        let took = started.elapsed();
        let mut answers = answers.unwrap_or_default();
        // A bus that answers too little has not answered.
        answers.resize_with(events.len(), || {
            let message = format!("no answer within {} ms", limit.as_millis());
            again(Trouble::new("TIMEOUT", message), true, true)
        });
        let unwell =
            |answer: &Publication| matches!(answer, Publication::Again { bus_unwell: true, .. });
        outlet.destination.latency.observe(took);
        for answer in &answers {
            let (answered, trouble) = decide::counted(answer);
            outlet.destination.answered(answered, trouble);
        }
        let was_away = outlet.destination.state() != BreakerState::Closed;
        outlet.destination.report(answers.iter().any(unwell));
        if was_away && outlet.destination.state() == BreakerState::Closed {
            self.recovered.notify_one();
        }
        Ok(self.settle(window, &events, Some(way), Some(took), answers.into_iter()))
    }

    /// Note answers; says which keys go on.
    fn settle(
        &self,
        window: &Window,
        events: &[(usize, &Outgoing)],
        way: Option<&Way>,
        took: Option<Duration>,
        answers: impl Iterator<Item = Publication>,
    ) -> Vec<usize> {
        let on_failed = way.map_or(OnFailed::Block, |way| way.route.on_failed);
        let latency_ms = took.map(|took| i32::try_from(took.as_millis()).unwrap_or(i32::MAX));
        let mut gone = Vec::with_capacity(events.len());
        let outcomes = events.iter().zip(answers).map(|((index, outgoing), answer)| {
            let Verdict {
                state,
                retry_delay_seconds,
                bus_reference,
                trouble,
                key_goes_on,
                spends_attempt,
                hasten_after_seconds,
            } = self.settings.retry.judge(answer, outgoing.tries, on_failed);
            if let (EventState::Failed { .. }, Some(trouble)) = (state, &trouble) {
                tracing::error!(lane = "events", event_id = %outgoing.message.event_id, error_code = trouble.code,
                    event = "EVENT_FAILED", "an event could not be published");
            }
            if key_goes_on {
                gone.push(*index);
            }
            let (error_code, error_message) =
                trouble.map_or((None, None), |trouble| (Some(trouble.code), Some(trouble.message)));
            EventOutcome {
                destination: way.map(|way| way.destination.clone()),
                bus_reference,
                error_code,
                error_message,
                latency_ms,
                retry_delay_seconds,
                spends_attempt,
                hasten_after_seconds,
                ..EventOutcome::new(window.lease, outgoing.message.position, state)
            }
        });
        let outcomes: Vec<EventOutcome> = outcomes.collect();
        window.answered(events, outcomes);
        gone
    }
}

fn again(trouble: Trouble, unknown: bool, bus_unwell: bool) -> Publication {
    Publication::Again { trouble, unknown, bus_unwell, retry_after: None }
}

/// The bus is left alone for a while: its keys wait, and no attempt is counted.
fn set_aside(
    window: &Window,
    events: &[(usize, &Outgoing)],
    destination: &Arc<str>,
    wait: Duration,
) {
    let wait = wait.max(SET_ASIDE);
    let seconds = i32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(i32::MAX);
    let outcomes = events.iter().map(|(_, outgoing)| EventOutcome {
        retry_delay_seconds: Some(seconds),
        hasten_after_seconds: Some(0),
        destination: Some(destination.clone()),
        ..EventOutcome::new(window.lease, outgoing.message.position, EventState::Unsent)
    });
    window.answered(events, outcomes.collect());
}

/// How one window ended.
#[derive(Debug)]
pub struct WindowDone {
    lease: BucketLease,
    outcomes: Vec<EventOutcome>,
    /// Some events were not sent: give the rest of the lease back.
    rest_unsent: bool,
}

impl Lane for EventLane {
    type Work = Window;
    type Lease = BucketLease;
    type Done = WindowDone;

    fn name(&self) -> &'static str {
        "events"
    }

    fn worker_id(&self) -> &str {
        &self.worker_id
    }

    fn channel(&self) -> &'static str {
        "event_outbox_pending"
    }

    fn groups(&self) -> Vec<Group> {
        vec![self.settings.group(self.ways.iter().map(|way| &way.outlet.setup))]
    }

    fn destinations(&self) -> Vec<Arc<Destination>> {
        self.outlets.iter().map(|outlet| outlet.destination.clone()).collect()
    }

    fn nudge(&self) -> Option<&Notify> {
        Some(&self.recovered)
    }

    fn lease(work: &Window) -> BucketLease {
        work.lease
    }

    fn lease_of(done: &WindowDone) -> BucketLease {
        done.lease
    }

    fn items(work: &Window) -> usize {
        work.events.len()
    }

    async fn claim(&self, ask: &Ask<'_>) -> Result<Claimed<Window>, DbError> {
        let claim = EventClaim {
            worker_id: &self.worker_id,
            buckets_max: i32::try_from(ask.items_max.min(limits::BUCKETS)).unwrap_or(i32::MAX),
            window_max: i32::try_from(self.settings.window_max).unwrap_or(i32::MAX),
            lease_seconds: i32::try_from(ask.lease.as_secs()).unwrap_or(i32::MAX),
        };
        self.hasten().await?;
        let mut works: Vec<Window> = Vec::new();
        for event in self.executor.claim_events(&claim).await? {
            let lease = event.lease();
            let outgoing = self.outgoing(event);
            match works.last_mut() {
                Some(window) if window.lease == lease => window.events.push(outgoing),
                _ => works.push(Window::new(lease, vec![outgoing])),
            }
        }
        Ok(Claimed { works, through: None })
    }

    async fn dispatch(&self, window: &Window, hold: &Hold) -> Dispatched<WindowDone> {
        let stopped = self.publish(window, hold).await.err();
        let (outcomes, _) = window.take_progress();
        match stopped {
            Some(unsent) if outcomes.is_empty() => Dispatched::Unsent(unsent),
            _ => Dispatched::Done {
                done: WindowDone { lease: window.lease, outcomes, rest_unsent: stopped.is_some() },
                trouble: false,
            },
        }
    }

    fn interrupted(&self, window: &Window, why: Interruption) -> WindowDone {
        let (code, message) = match why {
            Interruption::Panicked => {
                ("PANIC", "the bus's code panicked; it may have been published")
            }
            Interruption::Shutdown => (
                "SHUTDOWN",
                "the worker had to stop before the bus answered; it may have been published",
            ),
        };
        let (mut outcomes, in_flight) = window.take_progress();
        for outgoing in in_flight.iter().filter_map(|index| window.events.get(*index)) {
            outcomes.push(EventOutcome {
                error_code: Some(code.to_owned()),
                error_message: Some(message.to_owned()),
                ..EventOutcome::new(
                    window.lease,
                    outgoing.message.position,
                    EventState::Retryable { unknown: true },
                )
            });
        }
        WindowDone { lease: window.lease, outcomes, rest_unsent: true }
    }

    async fn complete(&self, windows: &[WindowDone]) -> Result<Vec<Completed>, DbError> {
        let mut answers = Vec::with_capacity(windows.len());
        let mut rest = windows;
        while !rest.is_empty() {
            let (some, others) = rest.split_at(windows_per_call(rest));
            let outcomes: Vec<&EventOutcome> =
                some.iter().flat_map(|window| &window.outcomes).collect();
            let mut recorded = if outcomes.is_empty() {
                Vec::new()
            } else {
                self.executor.complete_events(&self.worker_id, &outcomes).await?
            }
            .into_iter();
            for window in some {
                answers.push(account(window, recorded.by_ref().take(window.outcomes.len())));
            }
            rest = others;
        }
        let unsent: Vec<BucketLease> =
            windows.iter().filter(|window| window.rest_unsent).map(|window| window.lease).collect();
        for leases in unsent.chunks(limits::BUCKETS) {
            self.executor.return_unsent_events(&self.worker_id, leases).await?;
        }
        Ok(answers)
    }

    async fn keep_evidence(&self, window: &WindowDone) -> Result<bool, DbError> {
        let mut conflict = false;
        for outcome in window.outcomes.iter().filter(|outcome| outcome.state != EventState::Unsent)
        {
            conflict |= self.executor.record_late_event(&self.worker_id, outcome).await?;
        }
        if conflict {
            tracing::error!(
                lane = "events",
                worker_id = self.worker_id,
                event = "LATE_OUTCOME_CONFLICT",
                "a late outcome contradicts the ledger: an event was published although it is recorded as FAILED"
            );
        } else {
            tracing::warn!(
                lane = "events",
                worker_id = self.worker_id,
                event = "CONCURRENCY_EVENT",
                "a bucket's lease was lost before its outcomes were written; they are kept as evidence"
            );
        }
        Ok(conflict)
    }

    async fn renew(
        &self,
        leases: &[BucketLease],
        lease: Duration,
    ) -> Result<Vec<(BucketLease, bool)>, DbError> {
        let seconds = i32::try_from(lease.as_secs()).unwrap_or(i32::MAX);
        let mut answers = Vec::with_capacity(leases.len());
        for leases in leases.chunks(limits::BUCKETS) {
            let renewed = self.executor.renew_events(&self.worker_id, leases, seconds).await?;
            answers.extend(leases.iter().copied().zip(renewed));
        }
        Ok(answers)
    }

    async fn give_back(&self, leases: &[BucketLease]) -> Result<(), DbError> {
        for leases in leases.chunks(limits::BUCKETS) {
            self.executor.return_unsent_events(&self.worker_id, leases).await?;
        }
        Ok(())
    }

    async fn repair(&self, items_max: usize) -> Result<Vec<String>, DbError> {
        let buckets_max = i32::try_from(items_max.min(limits::BUCKETS)).unwrap_or(i32::MAX);
        let repaired = self.executor.repair_events(&self.worker_id, buckets_max).await?;
        Ok(repaired.into_iter().map(|event| event.event_id.to_string()).collect())
    }
}

/// How many windows fit into one call: at least one, and no window is cut in two.
fn windows_per_call(windows: &[WindowDone]) -> usize {
    let mut events = 0;
    let fitting = windows.iter().take_while(|window| {
        events += window.outcomes.len();
        events <= limits::BATCH_ITEMS_MAX
    });
    fitting.count().max(1)
}

/// What the ledger's answers mean for a window.
fn account(window: &WindowDone, recorded: impl Iterator<Item = EventRecorded>) -> Completed {
    let mut tallies = Tallies::default();
    let mut successor = window.rest_unsent;
    let mut late = false;
    for (outcome, recorded) in window.outcomes.iter().zip(recorded) {
        match (recorded, outcome.state) {
            (EventRecorded::Recorded { more }, state) => {
                successor |= more;
                match state {
                    EventState::Dispatched => tallies.count(Tally::Dispatched),
                    EventState::Retryable { unknown: true } => tallies.count(Tally::Unknown),
                    EventState::Retryable { unknown: false } => tallies.count(Tally::Retryable),
                    EventState::Failed { .. } => tallies.count(Tally::Failed),
                    EventState::Unsent => {}
                }
            }
            // Nothing was learnt that could be lost.
            (_, EventState::Unsent) => {}
            (EventRecorded::NotHeld | EventRecorded::TerminalExists, _) => late = true,
        }
    }
    if late { Completed::Late } else { Completed::Recorded { tallies, successor } }
}
