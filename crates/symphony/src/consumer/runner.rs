//! The loop: receive, apply, acknowledge. Messages of one group one after another, different groups at once.
//!
//! One task owns all of the state and never waits for the bus, the database or the handler: those are tasks that report
//! to it. A message that fails stays in hand, hidden from others, until it is tried again, and so does what is behind it:
//! a broker may count every delivery and give up by itself. While what events are applied to is away nothing is
//! received; one message in hand is tried now and then.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

use super::attempt::{Attempt, AttemptEnd, Work};
use super::dead_letters::watch_dead_letters;
use super::groups::Groups;
use super::held::{Held, keep_hidden};
use super::memory::Memory;
use super::{Apply, ConsumerMetrics, ConsumerSettings, Delivery, Source, SourceError};

/// For each event at work, this many messages may be in hand: a batch of one long group must not starve the others.
const HELD_PER_CONCURRENT: usize = 4;
/// How long receiving rests after trouble with the bus, at first and at most.
const BUS_REST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// How long everything rests while what events are applied to is away, at first and at most, unless it says for how long.
const AWAY_REST: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// How often to count the dead letters.
const DEAD_LETTERS_INTERVAL: Duration = Duration::from_secs(30);
/// How often to ask, when nothing is received, whether nothing is hidden.
const HIDDEN_INTERVAL: Duration = Duration::from_secs(5);
/// How often to look whether messages in hand are still ours.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Apply what comes from the source until `stop` turns true (or its sender is gone); then finish what is in flight.
/// Answers how many messages were still in hand when the time for that was over.
pub async fn run(
    source: Arc<dyn Source>,
    apply: Arc<dyn Apply>,
    settings: &ConsumerSettings,
    metrics: Arc<ConsumerMetrics>,
    stop: watch::Receiver<bool>,
) -> usize {
    let held = Held::default();
    // End with this future, however that ends: otherwise what it held would be hidden from everybody, forever.
    let mut keepers = JoinSet::new();
    keepers.spawn(keep_hidden(source.clone(), held.clone(), metrics.clone()));
    keepers.spawn(watch_dead_letters(source.clone(), metrics.clone(), DEAD_LETTERS_INTERVAL));
    let attempt =
        Attempt { source: source.clone(), apply, settings: settings.clone(), metrics, held };
    let runner = Runner {
        source,
        attempt,
        groups: Groups::default(),
        tries: JoinSet::new(),
        returns: JoinSet::new(),
        asking: JoinSet::new(),
        ask_at: Instant::now(),
        memory: Memory::default(),
        bus_rest: Duration::ZERO,
        receive_at: Instant::now(),
        away: None,
        stopping: false,
    };
    runner.run(stop).await
}

struct Ended {
    work: Work,
    end: AttemptEnd,
    /// Whether it was tried to find out whether what events are applied to is back.
    probe: bool,
}

/// What events are applied to is away.
struct Away {
    since: Instant,
    rest: Duration,
    probe_at: Instant,
    probing: bool,
}

type Receiving = Pin<Box<dyn Future<Output = Result<Vec<Delivery>, SourceError>> + Send>>;

struct Runner {
    source: Arc<dyn Source>,
    attempt: Attempt,
    groups: Groups,
    tries: JoinSet<Ended>,
    /// Messages on their way back to the bus.
    returns: JoinSet<()>,
    /// Whether there really is nothing.
    asking: JoinSet<Result<Option<u64>, SourceError>>,
    ask_at: Instant,
    memory: Memory,
    bus_rest: Duration,
    receive_at: Instant,
    away: Option<Away>,
    stopping: bool,
}

impl Runner {
    async fn run(mut self, mut stop: watch::Receiver<bool>) -> usize {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Kept until it answers: what a dropped call had taken would be delivered, and counted, again.
        let mut receiving: Option<Receiving> = None;
        loop {
            let now = Instant::now();
            self.groups.wake(now);
            self.start(now);
            if receiving.is_none() {
                receiving = self.receive(now);
            }
            let wake_at = self.wake_at(now, receiving.is_some());
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                Some(ended) = self.tries.join_next(), if !self.tries.is_empty() => self.end(ended),
                Some(_) = self.returns.join_next(), if !self.returns.is_empty() => {}
                Some(asked) = self.asking.join_next(), if !self.asking.is_empty() => self.learn(asked),
                received = answer(&mut receiving) => {
                    receiving = None;
                    self.take(received);
                }
                _ = look.tick(), if !self.groups.is_empty() => self.look(),
                () = sleep_until(wake_at) => {}
            }
        }
        self.stop().await
    }

    /// Finish what is being tried, give back the rest.
    async fn stop(mut self) -> usize {
        self.stopping = true;
        self.give_back_waiting();
        let deadline = tokio::time::Instant::now() + self.attempt.settings.shutdown;
        while !(self.tries.is_empty() && self.returns.is_empty()) {
            tokio::select! {
                Some(ended) = self.tries.join_next(), if !self.tries.is_empty() => self.end(ended),
                Some(_) = self.returns.join_next(), if !self.returns.is_empty() => {}
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        self.attempt.held.len()
    }

    /// A call for more messages, if there is room and somebody to apply them.
    fn receive(&mut self, now: Instant) -> Option<Receiving> {
        let away = self.away.as_ref();
        // Without a message in hand only another one can tell whether it is back.
        let wanted = away.is_none_or(|away| self.groups.is_empty() && now >= away.probe_at);
        if !wanted || now < self.receive_at {
            return None;
        }
        let source = self.source.clone();
        let terms = source.terms();
        let held = self.attempt.held.len();
        if held >= terms.held_max && terms.keeps_group_order {
            // The broker holds them back itself as long as the first of their group is in hand.
            let tails = self.groups.take_tails();
            self.give_back(tails);
        }
        let working = held.saturating_sub(self.groups.resting_messages());
        let room = (self.attempt.settings.concurrency.saturating_mul(HELD_PER_CONCURRENT))
            .saturating_sub(working)
            .min(terms.held_max.saturating_sub(self.attempt.held.len()))
            .min(terms.batch_max);
        if room == 0 {
            return None;
        }
        Some(Box::pin(async move { source.receive(room).await }))
    }

    /// When to look again, if nothing happens before.
    fn wake_at(&self, now: Instant, receiving: bool) -> Option<Instant> {
        let bus = (!receiving && self.receive_at > now).then_some(self.receive_at);
        let probe = self.away.as_ref().filter(|away| !away.probing && away.probe_at > now);
        [bus, probe.map(|away| away.probe_at), self.groups.next_wake()].into_iter().flatten().min()
    }

    fn take(&mut self, received: Result<Vec<Delivery>, SourceError>) {
        let metrics = self.attempt.metrics.clone();
        let deliveries = match received {
            Ok(deliveries) => deliveries,
            Err(error) => {
                metrics.bus_errors.add(1);
                metrics.lag.trouble();
                self.bus_rest = (self.bus_rest * 2).clamp(BUS_REST.0, BUS_REST.1);
                self.receive_at = Instant::now() + self.bus_rest;
                tracing::warn!(%error, "cannot receive: tried again after a rest");
                return;
            }
        };
        self.bus_rest = Duration::ZERO;
        if deliveries.is_empty() {
            self.ask_whether_empty();
        }
        metrics.received.add(deliveries.len());
        let keeps_group_order = self.source.terms().keeps_group_order;
        for delivery in deliveries {
            let past = self.memory.recall(&delivery.message_id);
            let work = Work::new(delivery, past);
            self.attempt.held.insert(&work, &metrics);
            if let Some(older) = self.groups.insert(work, keeps_group_order) {
                self.attempt.held.remove(&older, &metrics);
            }
        }
    }

    /// Nothing was received: what a process had in hand that is gone would not have been either.
    fn ask_whether_empty(&mut self) {
        let now = Instant::now();
        if self.groups.is_empty() && self.asking.is_empty() && now >= self.ask_at {
            self.ask_at = now + HIDDEN_INTERVAL;
            let source = self.source.clone();
            self.asking.spawn(async move { source.unacknowledged().await });
        }
    }

    fn learn(&mut self, asked: Result<Result<Option<u64>, SourceError>, JoinError>) {
        let lag = &self.attempt.metrics.lag;
        match asked {
            Ok(Ok(None | Some(0))) => lag.empty(),
            Ok(Ok(Some(_))) => lag.hidden(),
            Ok(Err(error)) => {
                self.attempt.metrics.bus_errors.add(1);
                tracing::debug!(%error, "whether messages are hidden could not be asked");
            }
            Err(error) => tracing::error!(%error, "a task of the consumer died"),
        }
    }

    /// Start as many groups as there are free places for; while away, one of them when it is time.
    fn start(&mut self, now: Instant) {
        while self.tries.len() < self.attempt.settings.concurrency && self.groups.has_ready() {
            let probe = match &mut self.away {
                None => false,
                Some(away) if away.probing || now < away.probe_at => return,
                Some(away) => {
                    away.probing = true;
                    true
                }
            };
            let Some(work) = self.groups.next_ready() else {
                if let Some(away) = &mut self.away {
                    away.probing = false;
                }
                return;
            };
            let attempt = self.attempt.clone();
            self.tries.spawn(async move {
                // A panic of ours must not keep its key standing for ever.
                let carried = AssertUnwindSafe(attempt.carry_out(&work)).catch_unwind().await;
                let end = carried.unwrap_or_else(|_| {
                    tracing::error!("a task of the consumer panicked: its message is tried again");
                    AttemptEnd::Failed { delay: Duration::from_secs(1) }
                });
                Ended { work, end, probe }
            });
        }
    }

    fn end(&mut self, ended: Result<Ended, JoinError>) {
        let Ended { mut work, end, probe } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Panics are caught: only a runtime that ends does this.
                tracing::error!(%error, "a task of the consumer died");
                return;
            }
        };
        let now = Instant::now();
        let replaced = match end {
            AttemptEnd::Ended => {
                self.is_back();
                if let Some(again) = self.groups.ended(&work) {
                    let attempt = self.attempt.clone();
                    self.returns.spawn(async move { attempt.acknowledge(&again.delivery).await });
                }
                None
            }
            AttemptEnd::Failed { delay } => {
                self.is_back();
                work.past.failed = work.past.failed.saturating_add(1);
                self.groups.put_back(work, Some(now + delay))
            }
            AttemptEnd::Stuck { reason, delay } => {
                self.is_back();
                work.past.failed = work.past.failed.saturating_add(1);
                work.condemned = Some(reason);
                self.groups.put_back(work, Some(now + delay))
            }
            AttemptEnd::Unavailable { retry_after } => {
                self.is_away(probe, retry_after, now);
                self.groups.put_back(work, None)
            }
        };
        if let Some(older) = replaced {
            self.attempt.held.remove(&older, &self.attempt.metrics);
        }
        if self.stopping {
            self.give_back_waiting();
        }
    }

    /// The rest grows with each round: many tries may have been at work when it went away.
    fn is_away(&mut self, probe: bool, retry_after: Option<Duration>, now: Instant) {
        let begins = self.away.is_none();
        if begins {
            self.attempt.metrics.away.set(1);
            tracing::warn!(
                "what events are applied to is away: nothing is received or counted until it is back"
            );
        }
        let said = retry_after.map(|said| said.min(self.attempt.settings.retry_delay_max));
        let away = self.away.get_or_insert(Away {
            since: now,
            rest: Duration::ZERO,
            probe_at: now,
            probing: false,
        });
        if begins || probe {
            away.probing = false;
            away.rest = (away.rest * 2).clamp(AWAY_REST.0, AWAY_REST.1);
            away.probe_at = now + away.rest;
        }
        if let Some(said) = said {
            away.probe_at = away.probe_at.max(now + said);
        }
    }

    fn is_back(&mut self) {
        if let Some(away) = self.away.take() {
            self.attempt.metrics.away.set(0);
            let seconds = away.since.elapsed().as_secs();
            tracing::info!(seconds, "what events are applied to is back");
        }
    }

    /// Give back what is not ours any more, and what no broker would hide any longer.
    fn look(&mut self) {
        let (source, most) = (self.source.clone(), self.source.terms().held_time_max);
        let lost = self.groups.take_where(|work| !source.is_ours(&work.delivery));
        if !lost.is_empty() {
            tracing::warn!(
                found = lost.len(),
                "messages in hand are no longer ours: another process has them, or they come again"
            );
        }
        self.give_back(lost);
        let old = self
            .groups
            .take_where(|work| most.is_some_and(|most| work.received_at.elapsed() >= most));
        self.give_back(old);
    }

    fn give_back_waiting(&mut self) {
        let waiting = self.groups.take_untried();
        self.give_back(waiting);
    }

    /// Back to the bus, untried and in order.
    fn give_back(&mut self, works: Vec<Work>) {
        if works.is_empty() {
            return;
        }
        self.attempt.metrics.passed_over.add(works.len());
        for work in &works {
            self.memory.remember(&work.delivery.message_id, work.past);
            // First, so that it is not hidden again.
            self.attempt.held.remove(&work.delivery, &self.attempt.metrics);
        }
        let (source, metrics) = (self.source.clone(), self.attempt.metrics.clone());
        self.returns.spawn(async move {
            for work in works {
                if let Err(error) = source.leave(&work.delivery, Duration::ZERO).await {
                    metrics.bus_errors.add(1);
                    tracing::debug!(%error, "not given back: it comes again by itself");
                }
            }
        });
    }
}

/// What the call for messages answers; never, if there is none.
async fn answer(receiving: &mut Option<Receiving>) -> Result<Vec<Delivery>, SourceError> {
    match receiving {
        Some(receiving) => receiving.await,
        None => std::future::pending().await,
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
