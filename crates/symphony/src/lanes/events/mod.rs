//! The event lane: facts committed with their state go to a bus, in order within their key.
//!
//! - [`bus`]: what a bus is; adapters are in `symphony-connect`.
//! - [`routes`](Route): from types to a topic of a bus.
//! - `topic_routes.rs`: a route with its topic, and how a bus's calls are shared among its topics.
//! - `topic.rs`: one topic: its breaker, its calls, whether it is paused; fills calls from several windows.
//! - `window.rs`: one leased bucket's events, and the order in which they may go out (pure).
//! - `decide.rs`: what a bus's answer means (pure).
//! - `done.rs`: how a window ended, and what the ledger's answers mean for it (pure).
//! - `traced.rs`: what is told of an event in its trace.
//!
//! The engine's unit of work is a bucket: it is leased, renewed and completed whole. Within it every key is published
//! one event after another, keys side by side, and a key in trouble holds up nobody but itself.

pub mod bus;
mod decide;
mod done;
mod routes;
mod topic;
mod topic_routes;
mod traced;
mod window;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::db::{BucketLease, ClaimedEvent, DbError, EventClaim, EventOutcome, EventState, Worker};
use crate::domain::limits;
use crate::engine::{
    Ask, BreakerSettings, Claimed, Completed, Destination, DestinationLimits, Dispatched, Group,
    Hold, Interruption, Lane, Unsent,
};
use crate::event::Parts;
use crate::event::envelope::{Binding, DEFAULT_SOURCE, Envelope, Format};
use crate::trace::{TraceId, Traces};
use bus::{Bus, Cause, Message, Publication, Trouble};
pub use decide::Retry;
use decide::{Decision, Tries};
pub use done::WindowDone;
use done::{account, windows_per_call};
pub use routes::{OnFailed, Route, TypePattern};
use topic::{SendGroup, Sent, Topic};
use topic_routes::TopicRoute;
pub use window::Window;
use window::{Chains, Outgoing};

/// A window that only waits for answers for this long lets another begin in its place.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// A bus as a worker uses it.
#[derive(Clone)]
pub struct BusSetup {
    /// Its name, as routes say it.
    pub name: String,
    /// The bus.
    pub bus: Arc<dyn Bus>,
    /// How its messages look.
    pub look: MessageLook,
    /// At most this many publish calls at once: half of them are its topics' own, in equal parts and at least one each.
    pub concurrency_max: usize,
    /// When to leave a topic alone.
    pub breaker: BreakerSettings,
}

/// How a bus's messages look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageLook {
    /// In which envelope.
    pub envelope: Envelope,
    /// The `source` of CloudEvents: an absolute URI, or a path.
    pub source: String,
}

impl Default for MessageLook {
    fn default() -> Self {
        Self { envelope: Envelope::default(), source: DEFAULT_SOURCE.to_owned() }
    }
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
            call_limit: buses.map(|setup| setup.bus.terms().timeout).max().unwrap_or_default(),
            // Of buckets. A bucket's events go to several buses, and each has limits of its own.
            limits: DestinationLimits {
                concurrency_max: self.buckets_max,
                rate: None,
                breaker: BreakerSettings::default(),
            },
        }
    }
}

/// Publishes events.
pub struct EventLane {
    worker: Worker,
    worker_id: String,
    settings: EventSettings,
    group: Group,
    routes: Vec<TopicRoute>,
    topics: Vec<Arc<Topic>>,
    /// How many windows are being published.
    windows: Arc<AtomicUsize>,
    /// The database knows our topics.
    registered: AtomicBool,
    /// Of what has no route.
    no_format: Format,
    traces: Traces,
}

/// A route names a bus that is not there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no bus {0} is configured, but a route leads to it")]
pub struct NoSuchBus(pub String);

impl EventLane {
    /// A lane for these routes. Refuses a route to a bus that is not among them.
    pub fn new(
        worker: Worker,
        worker_id: String,
        buses: Vec<BusSetup>,
        routes: Vec<Route>,
        settings: EventSettings,
    ) -> Result<Self, NoSuchBus> {
        let group = settings.group(buses.iter());
        let windows = Arc::new(AtomicUsize::new(0));
        let (routes, topics) = topic_routes::resolve(buses, routes, &windows)?;
        let registered = AtomicBool::new(false);
        let no_format = Format::own(Binding::default());
        Ok(Self {
            worker,
            worker_id,
            settings,
            group,
            routes,
            topics,
            windows,
            registered,
            no_format,
            traces: Traces::default(),
        })
    }

    /// What waits only for a topic that was in trouble is due as soon as that is well again; and while it is not, one key
    /// whenever somebody may find out.
    async fn hasten(&self) -> Result<(), DbError> {
        for topic in &self.topics {
            let (destination, name) = (&topic.destination, topic.destination.name());
            if destination.take_recovered() {
                let all = i32::try_from(limits::BATCH_ITEMS_MAX).unwrap_or(i32::MAX);
                let moved = self.worker.hasten_events(name, all).await;
                if !moved.as_ref().is_ok_and(|moved| *moved < all) {
                    destination.still_recovered();
                }
                moved?;
            } else if destination.may_be_probed() {
                self.worker.hasten_events(name, 1).await?;
            }
        }
        Ok(())
    }

    /// With the first claim, say which topics can be paused.
    async fn register_topics(&self) -> Result<(), DbError> {
        if !self.registered.load(Ordering::Relaxed) {
            let topics: Vec<&str> = self.topics.iter().map(|topic| topic.name.as_ref()).collect();
            for topics in topics.chunks(limits::TOPICS_MAX) {
                self.worker.register_topics(topics).await?;
            }
            self.registered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn outgoing(&self, event: ClaimedEvent) -> Outgoing {
        let text = event.event.0.get();
        let tries = Tries {
            counted: event.attempt_count,
            outcomes: event.last_attempt_no,
            seconds: event.tried_seconds,
        };
        let (event_id, position, created_at) =
            (event.event_id, event.log_position, event.created_at);
        let lease = event.lease();
        let Ok(parts) = Parts::read(text) else {
            // Accepted events have them; without them there is no route, and the event waits visibly.
            let message = Message {
                event_id,
                position,
                key: event.event_key,
                event_type: String::new(),
                created_at,
                body: String::new(),
                content_type: "",
                headers: Vec::new(),
            };
            let trace_id = TraceId::of_item(event_id);
            return Outgoing {
                message: Arc::new(message),
                tries,
                route: None,
                trace_id,
                trace: None,
            };
        };
        // The first that matches.
        let route = self
            .routes
            .iter()
            .position(|route| route.definition.pattern.matches(&parts.event_type));
        let format = route
            .and_then(|route| self.routes.get(route))
            .map_or(&self.no_format, |route| &route.topic.format);
        let mut message = Message::of_parts(format, text, &parts, event_id, position, created_at);
        let traceparent = parts.traceparent.as_deref();
        let trace = self.trace(event_id, lease, tries, traceparent);
        if let Some(trace) = &trace {
            message.continue_trace(format, trace.outgoing());
        }
        let trace_id = TraceId::of(traceparent, event_id);
        Outgoing { message: Arc::new(message), tries, route, trace_id, trace }
    }

    /// Publish a window's events until all are answered, or nothing more may be sent.
    async fn publish(&self, window: &Window, hold: &Arc<Hold>) -> Result<(), Unsent> {
        let mut chains =
            Chains::new(window.events.iter().map(|outgoing| outgoing.message.key.as_str()));
        let route = |index: usize| window.events.get(index).and_then(|outgoing| outgoing.route);
        let group_max = |index: usize| {
            route(index)
                .and_then(|route| self.routes.get(route))
                .map_or(1, |route| route.topic.group_max())
        };
        let mut calls = FuturesUnordered::new();
        let mut handed_over = 0;
        let mut stopped = None;
        loop {
            while stopped.is_none()
                && let Some(batch) = chains.take(group_max, |one, other| route(one) == route(other))
            {
                handed_over += batch.len();
                calls.push(self.publish_batch(window, hold, batch));
            }
            let ended = match tokio::time::timeout(STALLED_AFTER, calls.next()).await {
                Ok(ended) => ended,
                Err(_elapsed) => {
                    // Only calls in flight, of which there are few, let others begin: so what is held stays bounded.
                    if window.progress.in_flight() == handed_over {
                        hold.stalls();
                    }
                    continue;
                }
            };
            let Some((batch, ended)) = ended else { break };
            handed_over -= batch;
            match ended {
                Ok(gone) => gone.into_iter().for_each(|index| chains.go_on(index)),
                Err(unsent) => stopped = Some(unsent),
            }
        }
        stopped.map_or(Ok(()), Err)
    }

    /// Publish the heads of some keys together. Answers how many they were, and which keys may go on.
    async fn publish_batch(
        &self,
        window: &Window,
        hold: &Arc<Hold>,
        batch: Vec<usize>,
    ) -> (usize, Result<Vec<usize>, Unsent>) {
        let gone = self.publish_heads(window, hold, &batch).await;
        (batch.len(), gone)
    }

    async fn publish_heads(
        &self,
        window: &Window,
        hold: &Arc<Hold>,
        batch: &[usize],
    ) -> Result<Vec<usize>, Unsent> {
        let events: Vec<(usize, &Outgoing)> =
            batch.iter().filter_map(|index| Some((*index, window.events.get(*index)?))).collect();
        let route = events.first().and_then(|(_, outgoing)| self.routes.get(outgoing.route?));
        let Some(route) = route else {
            let problem = "no route is for its type: add one to events.routes";
            let answers = events
                .iter()
                .map(|_| again(Trouble::new("NO_ROUTE", problem), false, Cause::Setup));
            return Ok(self.settle(window, &events, None, None, answers));
        };
        if route.topic.is_paused() {
            // The database keeps them until the topic is resumed; if it has been since, they are due at once.
            set_aside(window, &events, &route.topic.name, 0, None);
            return Ok(Vec::new());
        }
        let group = SendGroup {
            messages: events.iter().map(|(at, event)| (*at, event.message.clone())).collect(),
            hold: hold.clone(),
            progress: window.progress.clone(),
        };
        match route.topic.send(group).await {
            Sent::Answered { answers, took } => {
                Ok(self.settle(window, &events, Some(route), Some(took), answers.into_iter()))
            }
            Sent::SetAside(pause) => {
                let seconds = i32::try_from(pause.as_secs().saturating_add(1)).unwrap_or(i32::MAX);
                set_aside(window, &events, &route.topic.name, seconds, Some(0));
                Ok(Vec::new())
            }
            Sent::Unsent(unsent) => Err(unsent),
        }
    }

    /// Note answers; says which keys go on.
    fn settle(
        &self,
        window: &Window,
        events: &[(usize, &Outgoing)],
        route: Option<&TopicRoute>,
        took: Option<Duration>,
        answers: impl Iterator<Item = Publication>,
    ) -> Vec<usize> {
        let on_failed = route.map_or(OnFailed::Block, |route| route.definition.on_failed);
        let latency_ms = took.map(|took| i32::try_from(took.as_millis()).unwrap_or(i32::MAX));
        let mut gone = Vec::with_capacity(events.len());
        let outcomes = events.iter().zip(answers).map(|((index, outgoing), answer)| {
            let Decision {
                state,
                retry_delay_seconds,
                bus_reference,
                trouble,
                key_goes_on,
                spends_attempt,
                hasten_after_seconds,
                bus_away,
            } = self.settings.retry.judge(answer, outgoing.tries, on_failed);
            if let (EventState::Failed { .. }, Some(trouble)) = (state, &trouble) {
                tracing::error!(lane = "events", event_id = %outgoing.message.event_id, trace_id = %outgoing.trace_id, error_code = trouble.code,
                    event = "EVENT_FAILED", "an event could not be published");
            }
            if key_goes_on {
                gone.push(*index);
            }
            let (error_code, error_message) =
                trouble.map_or((None, None), |trouble| (Some(trouble.code), Some(trouble.message)));
            EventOutcome {
                destination: route.map(|route| route.topic.name.clone()),
                bus_reference,
                error_code,
                error_message,
                latency_ms,
                retry_delay_seconds,
                spends_attempt,
                hasten_after_seconds,
                bus_away,
                ..EventOutcome::new(window.lease, outgoing.message.position, state)
            }
        });
        let outcomes: Vec<EventOutcome> = outcomes.collect();
        traced::tell_dispatched(events, &outcomes, took.unwrap_or_default());
        window.answered(events, outcomes);
        gone
    }
}

fn again(trouble: Trouble, unknown: bool, cause: Cause) -> Publication {
    Publication::Again { trouble, unknown, cause, retry_after: None }
}

/// Nothing is sent for a while: the keys wait, and no attempt is counted.
fn set_aside(
    window: &Window,
    events: &[(usize, &Outgoing)],
    destination: &Arc<str>,
    retry_delay_seconds: i32,
    hasten_after_seconds: Option<i32>,
) {
    let outcomes = events.iter().map(|(_, outgoing)| EventOutcome {
        retry_delay_seconds: Some(retry_delay_seconds),
        hasten_after_seconds,
        destination: Some(destination.clone()),
        ..EventOutcome::new(window.lease, outgoing.message.position, EventState::Unsent)
    });
    window.answered(events, outcomes.collect());
}

/// One of the windows that are being published, until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(windows: &'a AtomicUsize) -> Self {
        windows.fetch_add(1, Ordering::AcqRel);
        Self(windows)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
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
        vec![self.group.clone()]
    }

    fn destinations(&self) -> Vec<Arc<Destination>> {
        self.topics.iter().map(|topic| topic.destination.clone()).collect()
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
        let asked_at = self.traces.now();
        let claim = EventClaim {
            worker_id: &self.worker_id,
            buckets_max: i32::try_from(ask.items_max.min(limits::BUCKETS)).unwrap_or(i32::MAX),
            window_max: i32::try_from(self.settings.window_max).unwrap_or(i32::MAX),
            lease_seconds: i32::try_from(ask.lease.as_secs()).unwrap_or(i32::MAX),
        };
        self.register_topics().await?;
        self.hasten().await?;
        let mut works: Vec<Window> = Vec::new();
        let claimed = self.worker.claim_events(&claim).await?;
        if !claimed.events.is_empty() {
            self.topics.iter().for_each(|topic| topic.learn_paused(&claimed.paused_topics));
        }
        for event in claimed.events {
            let lease = event.lease();
            let outgoing = self.outgoing(event);
            outgoing.tell_claimed(asked_at);
            match works.last_mut() {
                Some(window) if window.lease == lease => window.events.push(outgoing),
                _ => works.push(Window::new(lease, vec![outgoing])),
            }
        }
        let more_soon = if works.is_empty() {
            self.worker.are_events_beyond_horizon().await?
        } else {
            claimed.beyond_horizon
        };
        Ok(Claimed { works, through: None, more_soon, ended: claimed.ended })
    }

    async fn dispatch(&self, window: &Window, hold: &Arc<Hold>) -> Dispatched<WindowDone> {
        let _counted = Counted::new(&self.windows);
        let stopped = self.publish(window, hold).await.err();
        let (outcomes, _) = window.take_progress();
        match stopped {
            Some(unsent) if outcomes.is_empty() => Dispatched::Unsent(unsent),
            _ => {
                Dispatched::Done { done: window.done(outcomes, stopped.is_some()), trouble: false }
            }
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
            outgoing.tell_interrupted(code);
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
        window.done(outcomes, true)
    }

    async fn complete(&self, windows: &[WindowDone]) -> Result<Vec<Completed>, DbError> {
        let asked_at = self.traces.now();
        let mut answers = Vec::with_capacity(windows.len());
        let mut rest = windows;
        while !rest.is_empty() {
            let (some, others) = rest.split_at(windows_per_call(rest));
            let outcomes: Vec<&EventOutcome> =
                some.iter().flat_map(|window| &window.outcomes).collect();
            let mut recorded = if outcomes.is_empty() {
                Vec::new()
            } else {
                self.worker.complete_events(&self.worker_id, &outcomes).await?
            }
            .into_iter();
            for window in some {
                answers.push(account(window, recorded.by_ref().take(window.outcomes.len())));
            }
            rest = others;
        }
        let unsent: Vec<BucketLease> =
            windows.iter().filter(|window| window.rest_unsent).map(|window| window.lease).collect();
        self.worker.return_unsent(&self.worker_id, &unsent).await?;
        traced::tell_completed(asked_at, windows, &answers);
        Ok(answers)
    }

    async fn keep_evidence(&self, window: &WindowDone) -> Result<bool, DbError> {
        let mut conflict = false;
        for outcome in window.outcomes.iter().filter(|outcome| outcome.state != EventState::Unsent)
        {
            conflict |= self.worker.record_late_event(&self.worker_id, outcome).await?;
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
}
