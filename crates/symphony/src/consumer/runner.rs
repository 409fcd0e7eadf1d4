//! The loop: receive, apply, acknowledge. Messages of one group one after another, different groups at once.
//!
//! One task owns all of the state and never waits for the bus, the database or the handler: those are tasks that report
//! to it. A message that fails is given back, and with it, untried, whatever of its group is in hand behind it.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::attempt::{Attempt, Verdict, Work};
use super::held::{Held, keep_hidden};
use super::memory::{Untried, Waiting};
use super::{Apply, ConsumerMetrics, ConsumerSettings, Delivery, Source};

/// For each event at work, this many messages may be in hand: a batch of one long group must not starve the others.
const HELD_PER_CONCURRENT: usize = 4;
/// How long receiving rests after trouble, at first and at most.
const REST: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

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
    // Ends with this future, however that ends: otherwise what it held would be hidden from everybody, forever.
    let mut keeper = JoinSet::new();
    keeper.spawn(keep_hidden(source.clone(), held.clone(), metrics.clone()));
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
    runner.run(stop).await
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
            let work = Work::new(delivery);
            let group = work.group();
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
                // A panic of ours must not keep the message hidden, and its key standing, for ever.
                let carried = AssertUnwindSafe(attempt.carry_out(&work)).catch_unwind().await;
                let verdict = carried.unwrap_or_else(|_| {
                    tracing::error!("a task of the consumer panicked: its message comes again");
                    attempt.held.remove(&work.delivery, &attempt.metrics);
                    Verdict::Left { delay: Duration::from_secs(1), unavailable: false }
                });
                Ended { group, work, verdict }
            });
        }
    }

    fn end(&mut self, ended: Result<Ended, tokio::task::JoinError>) {
        let Ended { group, work, verdict } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Panics are caught: only a runtime that ends does this.
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
