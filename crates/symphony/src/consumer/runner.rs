//! The loop: receive, apply, acknowledge. Messages of one group one after another, different groups at once.
//!
//! One task owns all of the state and never waits for the bus, the database or the handler: those are tasks that report
//! to it. A message that fails is given back, and with it, untried, whatever of its group is in hand behind it.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::memory::{Untried, Waiting};
use super::{
    Applied, Apply, ApplyError, ConsumerMetrics, ConsumerSettings, DeadLetterReason, DeadLettered,
    Delivery, ReasonCode, Received, Source,
};
use crate::event::Event;

/// For each event at work, this many messages may be in hand: a batch of one long group must not starve the others.
const HELD_PER_CONCURRENT: usize = 4;
/// How long receiving rests after trouble, at first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// An acknowledgement is tried this often. If all fail the message comes again, and the inbox knows it.
const ACKNOWLEDGE_TRIES: u32 = 3;

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
    let keeper = tokio::spawn(keep_hidden(source.clone(), held.clone(), metrics.clone()));
    let runner = Runner {
        source,
        apply,
        settings: settings.clone(),
        metrics,
        held,
        groups: HashMap::new(),
        ready: VecDeque::new(),
        tries: JoinSet::new(),
        returns: JoinSet::new(),
        untried: Untried::default(),
        waiting: Waiting::default(),
        rest: Duration::ZERO,
        resume_at: Instant::now(),
        stopping: false,
    };
    let left = runner.run(stop).await;
    keeper.abort();
    left
}

/// A message in hand, and what it says.
#[derive(Debug, Clone)]
struct Work {
    delivery: Arc<Delivery>,
    event: Arc<Result<Event, String>>,
}

/// How a try ended.
enum Verdict {
    /// Acknowledged or dead-lettered.
    Ended,
    /// Given back, to come again after this delay.
    Left { delay: Duration, unavailable: bool },
}

struct Ended {
    group: String,
    work: Work,
    verdict: Verdict,
}

struct Runner {
    source: Arc<dyn Source>,
    apply: Arc<dyn Apply>,
    settings: ConsumerSettings,
    metrics: Arc<ConsumerMetrics>,
    held: Held,
    /// Every group in hand, and what waits behind the message that is being tried.
    groups: HashMap<String, VecDeque<Work>>,
    /// Groups that wait for a free place.
    ready: VecDeque<String>,
    tries: JoinSet<Ended>,
    /// Messages on their way back to the bus.
    returns: JoinSet<()>,
    untried: Untried,
    waiting: Waiting,
    rest: Duration,
    resume_at: Instant,
    stopping: bool,
}

impl Runner {
    async fn run(mut self, mut stop: watch::Receiver<bool>) -> usize {
        let source = self.source.clone();
        let held_max = self.settings.concurrency.saturating_mul(HELD_PER_CONCURRENT);
        loop {
            let room = held_max.saturating_sub(self.held.len()).min(source.terms().batch_max);
            let resume_at = self.resume_at;
            let mut receive = std::pin::pin!(async {
                tokio::time::sleep_until(resume_at.into()).await;
                source.receive(room).await
            });
            // Until something was received: the wait for messages must survive the end of a try.
            let received = loop {
                tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop) => break None,
                    Some(ended) = self.tries.join_next(), if !self.tries.is_empty() => {
                        self.end(ended);
                        if room == 0 {
                            break Some(Ok(Vec::new()));
                        }
                    }
                    Some(_) = self.returns.join_next(), if !self.returns.is_empty() => {}
                    received = &mut receive, if room > 0 => {
                        if received.as_ref().is_ok_and(Vec::is_empty) && self.held.len() == 0 {
                            self.metrics.lag_seconds.set(0);
                        }
                        break Some(received);
                    }
                }
            };
            match received {
                None => break,
                Some(Ok(deliveries)) => self.take(deliveries),
                Some(Err(error)) => {
                    self.metrics.bus_errors.add(1);
                    self.rest_longer();
                    tracing::warn!(%error, "cannot receive: tried again after a rest");
                }
            }
        }
        self.stop().await
    }

    /// Finish what is being tried, give back the rest.
    async fn stop(mut self) -> usize {
        self.stopping = true;
        self.give_back_ready();
        let deadline = tokio::time::Instant::now() + self.settings.shutdown;
        while !(self.tries.is_empty() && self.returns.is_empty()) {
            tokio::select! {
                Some(ended) = self.tries.join_next(), if !self.tries.is_empty() => self.end(ended),
                Some(_) = self.returns.join_next(), if !self.returns.is_empty() => {}
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        self.held.len()
    }

    fn take(&mut self, deliveries: Vec<Delivery>) {
        if deliveries.is_empty() {
            return;
        }
        self.metrics.received.add(deliveries.len());
        for delivery in deliveries {
            let delivery = Arc::new(delivery);
            self.held.insert(&delivery, &self.metrics);
            let event = read(&delivery);
            let group = delivery
                .group
                .clone()
                .or_else(|| event.as_ref().ok().map(|event| event.key().to_owned()))
                // No event and no group: it stands for itself.
                .unwrap_or_else(|| format!("message {}", delivery.message_id));
            let work = Work { delivery, event: Arc::new(event) };
            if let Some(queue) = self.groups.get_mut(&group) {
                // A broker that keeps the order has handed it out in that order.
                let place = if self.source.terms().keeps_group_order {
                    queue.len()
                } else {
                    queue.partition_point(|other| other.delivery.order <= work.delivery.order)
                };
                queue.insert(place, work);
            } else if let Some(delay) = self.must_wait(&group, &work) {
                self.give_back(VecDeque::from([work]), delay);
            } else {
                self.groups.insert(group.clone(), VecDeque::from([work]));
                self.ready.push_back(group);
            }
        }
        self.start();
    }

    fn must_wait(&self, group: &str, work: &Work) -> Option<Duration> {
        if self.source.terms().keeps_group_order {
            return None;
        }
        let delay = self.waiting.behind(group, work.delivery.order)?;
        // The head should be back well before it is given up.
        Some(
            delay.saturating_sub(self.source.terms().visibility * 2).max(Duration::from_millis(50)),
        )
    }

    /// Start as many groups as there are free places for.
    fn start(&mut self) {
        while self.tries.len() < self.settings.concurrency {
            let Some(group) = self.ready.pop_front() else { return };
            let Some(work) = self.groups.get_mut(&group).and_then(VecDeque::pop_front) else {
                self.groups.remove(&group);
                continue;
            };
            let delivery = &work.delivery;
            let attempt = Attempt {
                source: self.source.clone(),
                apply: self.apply.clone(),
                settings: self.settings.clone(),
                metrics: self.metrics.clone(),
                held: self.held.clone(),
                tries: self.untried.tries(&delivery.message_id, delivery.receives),
            };
            self.tries.spawn(async move {
                let verdict = attempt.carry_out(&work).await;
                Ended { group, work, verdict }
            });
        }
    }

    fn end(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        let Ended { group, work, verdict } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Handlers' panics are caught: this is one of ours. What it held comes again by itself.
                tracing::error!(%error, "a task of the consumer died");
                return;
            }
        };
        let delivery = &work.delivery;
        match verdict {
            Verdict::Ended => {
                self.untried.forget(&delivery.message_id);
                self.waiting.end(&group, delivery.order);
                self.rest = Duration::ZERO;
                if self.groups.get(&group).is_some_and(|queue| !queue.is_empty()) {
                    self.ready.push_back(group);
                } else {
                    self.groups.remove(&group);
                }
            }
            Verdict::Left { delay, unavailable } => {
                let comes_within = delay + self.source.terms().visibility * 2;
                self.waiting.hold(&group, delivery.order, comes_within);
                let next = self.groups.get(&group).and_then(VecDeque::front);
                if next.is_some_and(|next| next.delivery.message_id == delivery.message_id) {
                    // It is back already: before we heard that it had been given back.
                    self.ready.push_back(group);
                } else {
                    let queue = self.groups.remove(&group).unwrap_or_default();
                    // Where the broker keeps the order, it holds them back until the failed one was tried again.
                    let kept = self.source.terms().keeps_group_order;
                    self.give_back(queue, if kept { Duration::ZERO } else { delay });
                }
                if unavailable {
                    self.untried.note(&delivery.message_id);
                    self.rest_longer();
                }
            }
        }
        if self.stopping {
            self.give_back_ready();
        } else {
            self.start();
        }
    }

    fn give_back_ready(&mut self) {
        for group in std::mem::take(&mut self.ready) {
            let queue = self.groups.remove(&group).unwrap_or_default();
            self.give_back(queue, Duration::ZERO);
        }
    }

    /// Back to the bus, untried and in order.
    fn give_back(&mut self, queue: VecDeque<Work>, delay: Duration) {
        if queue.is_empty() {
            return;
        }
        self.metrics.passed_over.add(queue.len());
        for work in &queue {
            self.untried.note(&work.delivery.message_id);
            self.held.remove(&work.delivery, &self.metrics);
        }
        let (source, metrics) = (self.source.clone(), self.metrics.clone());
        self.returns.spawn(async move {
            for work in queue {
                if let Err(error) = source.leave(&work.delivery, delay).await {
                    metrics.bus_errors.add(1);
                    tracing::debug!(%error, "not given back: it comes again by itself");
                }
            }
        });
    }

    fn rest_longer(&mut self) {
        self.rest = (self.rest * 2).clamp(REST.0, REST.1);
        self.resume_at = Instant::now() + self.rest;
    }
}

fn read(delivery: &Delivery) -> Result<Event, String> {
    let text = std::str::from_utf8(&delivery.body).map_err(|_| "event is not UTF-8".to_owned())?;
    Event::parse(text).map_err(|defect| defect.to_string())
}

/// One try of one message.
struct Attempt {
    source: Arc<dyn Source>,
    apply: Arc<dyn Apply>,
    settings: ConsumerSettings,
    metrics: Arc<ConsumerMetrics>,
    held: Held,
    /// Which try this is, from 1.
    tries: u32,
}

impl Attempt {
    async fn carry_out(&self, work: &Work) -> Verdict {
        let delivery = &work.delivery;
        let event = match work.event.as_ref() {
            Ok(event) => event,
            Err(defect) => {
                return self.dead_letter(delivery, ReasonCode::Poison, defect.clone()).await;
            }
        };
        if self.tries > self.settings.receives_max {
            // Its last try ended without anybody seeing how: a killed process, most likely.
            let message = format!(
                "delivered {} times, and no try was seen to end",
                self.settings.receives_max
            );
            return self.dead_letter(delivery, ReasonCode::Exhausted, message).await;
        }
        let received = Received {
            event: event.clone(),
            position: delivery.position,
            receives: delivery.receives,
        };
        let started = Instant::now();
        let result = AssertUnwindSafe(self.apply.apply(&received)).catch_unwind().await;
        self.metrics.handler_latency.observe(started.elapsed());
        let event_id = event.event_id();
        match result.unwrap_or_else(|_| Err(ApplyError::Again("the handler panicked".to_owned()))) {
            Ok(applied) => {
                match applied {
                    Applied::Now => self.metrics.applied.add(1),
                    Applied::Before => self.metrics.duplicates.add(1),
                }
                self.metrics.lag_seconds.set(age_seconds(event.occurred_at()));
                self.acknowledge(delivery).await;
                Verdict::Ended
            }
            Err(ApplyError::Reject(message)) => {
                self.dead_letter(delivery, ReasonCode::Rejected, message).await
            }
            Err(ApplyError::Again(message)) if self.tries >= self.settings.receives_max => {
                self.dead_letter(delivery, ReasonCode::Exhausted, message).await
            }
            Err(ApplyError::Again(error)) => {
                self.metrics.failed_tries.add(1);
                tracing::warn!(%event_id, tries = self.tries, %error, "not applied: left to redelivery");
                self.leave(delivery, self.settings.delay_after(self.tries), false).await
            }
            Err(ApplyError::Unavailable(error)) => {
                tracing::warn!(%event_id, %error, "what events are applied to is away: receiving rests");
                self.leave(delivery, self.settings.retry_delay, true).await
            }
        }
    }

    async fn acknowledge(&self, delivery: &Arc<Delivery>) {
        for tried in 1..=ACKNOWLEDGE_TRIES {
            match self.source.acknowledge(delivery).await {
                Ok(()) => break,
                Err(error) => {
                    self.metrics.bus_errors.add(1);
                    if tried == ACKNOWLEDGE_TRIES {
                        tracing::warn!(%error, "applied but not acknowledged: it comes again, and the inbox knows it");
                    }
                }
            }
        }
        self.held.remove(delivery, &self.metrics);
    }

    async fn leave(&self, delivery: &Arc<Delivery>, delay: Duration, unavailable: bool) -> Verdict {
        // First, so that it is not hidden again.
        self.held.remove(delivery, &self.metrics);
        if let Err(error) = self.source.leave(delivery, delay).await {
            self.metrics.bus_errors.add(1);
            tracing::debug!(%error, "not given back: it comes again by itself");
        }
        Verdict::Left { delay, unavailable }
    }

    async fn dead_letter(
        &self,
        delivery: &Arc<Delivery>,
        code: ReasonCode,
        message: String,
    ) -> Verdict {
        let reason = DeadLetterReason { code, message };
        match self.source.dead_letter(delivery, &reason).await {
            Ok(DeadLettered::Moved) => {
                self.metrics.count_dead_letter(code);
                tracing::error!(code = code.as_str(), error = reason.message, "dead-lettered");
                self.held.remove(delivery, &self.metrics);
                Verdict::Ended
            }
            Ok(DeadLettered::LeftToBroker) => {
                let last = self.source.terms().broker_receives_max;
                if last.is_some_and(|last| delivery.receives >= last) {
                    self.metrics.count_dead_letter(code);
                    tracing::error!(
                        code = code.as_str(),
                        error = reason.message,
                        "dead-lettered by the broker next"
                    );
                }
                self.leave(delivery, self.settings.retry_delay, false).await
            }
            Err(error) => {
                self.metrics.bus_errors.add(1);
                tracing::error!(code = code.as_str(), %error, "not dead-lettered: it comes again");
                self.leave(delivery, self.settings.retry_delay_max, false).await
            }
        }
    }
}

fn age_seconds(occurred_at: &str) -> u64 {
    DateTime::parse_from_rfc3339(occurred_at)
        .ok()
        .and_then(|at| u64::try_from((Utc::now() - at.with_timezone(&Utc)).num_seconds()).ok())
        .unwrap_or(0)
}

/// The messages in hand, which must stay hidden from others.
#[derive(Debug, Clone, Default)]
struct Held(Arc<Mutex<HashMap<String, Arc<Delivery>>>>);

impl Held {
    fn insert(&self, delivery: &Arc<Delivery>, metrics: &ConsumerMetrics) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.insert(delivery.receipt.clone(), delivery.clone());
        metrics.held.set(held.len() as u64);
    }

    fn remove(&self, delivery: &Delivery, metrics: &ConsumerMetrics) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&delivery.receipt);
        metrics.held.set(held.len() as u64);
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn all(&self) -> Vec<Arc<Delivery>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Extend what is in hand, a third of the time before it would be seen by others.
async fn keep_hidden(source: Arc<dyn Source>, held: Held, metrics: Arc<ConsumerMetrics>) {
    let pause = (source.terms().visibility / 3).max(Duration::from_millis(10));
    let mut tick = tokio::time::interval(pause);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let deliveries = held.all();
        if !deliveries.is_empty()
            && let Err(error) = source.extend(&deliveries).await
        {
            metrics.bus_errors.add(1);
            tracing::warn!(%error, "not all messages in hand could be kept hidden: some may be delivered twice");
        }
    }
}
