//! One topic of a bus as this process sees it: its breaker, its share of the bus's calls, and what waits for its turn.
//!
//! Each topic is a destination of its own, so that one in trouble stops nobody else: of the calls a bus may have at once,
//! half belong to the topics, in equal parts and at least one each; the other half is whoever's comes first. What a
//! topic in trouble cannot take now is given back, and its window goes on without it.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use tokio::sync::{Notify, oneshot};

use super::bus::{Bus, Cause, Message, Publication, Trouble};
use super::window::Progress;
use super::{again, decide};
use crate::engine::{Allowance, Destination, Hold, Point, Unsent};
use crate::event::envelope::Format;

/// A topic that has answered nothing for this long is waited for no longer by what was not sent yet.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// That waits for so long before it is tried again.
const STALLED_PAUSE: Duration = Duration::from_secs(2);
/// How long keys are set aside at least while their topic is left alone: they are brought forward as soon as it is well
/// again, and looking at all of them with every probe would be work for nothing.
const SET_ASIDE: Duration = Duration::from_secs(30);

const PANICKED: &str = "the bus's code panicked; it may have been published";

/// A topic of a bus.
pub(super) struct Topic {
    /// Bus and topic as the ledger writes them, which cuts them off at the same length.
    pub(super) name: Arc<str>,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) format: Format,
    pub(super) destination: Arc<Destination>,
    /// As the bus knows it.
    name_at_bus: String,
    /// As the last claim was told. Nothing else depends on its order in memory.
    paused: AtomicBool,
    queue: Mutex<Queue>,
    queued: Notify,
    /// How many windows are being published, and so may fill a call.
    windows: Arc<AtomicUsize>,
}

/// What waits for a call.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Somebody gathers it.
    gathering: bool,
    calls: usize,
    /// Since when no call has ended, while there are some.
    quiet_since: Option<Instant>,
}

struct Waiting {
    group: SendGroup,
    reply: oneshot::Sender<Sent>,
}

/// Messages of one window that go out together, no two of one key.
pub(super) struct SendGroup {
    pub(super) messages: Vec<(usize, Arc<Message>)>,
    pub(super) hold: Arc<Hold>,
    pub(super) progress: Arc<Progress>,
}

/// What became of a group.
pub(super) enum Sent {
    /// One answer per message.
    Answered { answers: Vec<Publication>, took: Duration },
    /// Nothing was sent: the topic can take nothing for so long.
    SetAside(Duration),
    /// Nothing was sent, and nothing more may be.
    Unsent(Unsent),
}

impl Topic {
    pub(super) fn new(
        bus: Arc<dyn Bus>,
        topic: &str,
        format: Format,
        destination: Arc<Destination>,
        windows: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            name: destination.name().into(),
            bus,
            format,
            destination,
            name_at_bus: topic.to_owned(),
            paused: AtomicBool::new(false),
            queue: Mutex::default(),
            queued: Notify::new(),
            windows,
        }
    }

    /// These topics are paused, and no others.
    pub(super) fn learn_paused(&self, topics: &[String]) {
        let paused = topics.iter().any(|topic| **topic == *self.name);
        self.paused.store(paused, Ordering::Relaxed);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// At most so many messages in one group. Where calls are filled from several windows, each message is one: so any
    /// ten of them fill a call.
    pub(super) fn group_max(&self) -> usize {
        let terms = self.bus.terms();
        if terms.fill_within.is_zero() { terms.batch_max } else { 1 }
    }

    /// Hand a group over, and hear what became of it.
    pub(super) async fn send(self: &Arc<Self>, group: SendGroup) -> Sent {
        let messages = group.messages.len();
        let (reply, answer) = oneshot::channel();
        let gathers = {
            let mut queue = self.queue();
            queue.waiting.push_back(Waiting { group, reply });
            !std::mem::replace(&mut queue.gathering, true)
        };
        if gathers {
            self.clone().start_gathering();
        } else {
            self.queued.notify_one();
        }
        // Everybody is answered, whatever the bus's code does.
        answer.await.unwrap_or_else(|_| {
            let unknown = again(Trouble::new("PANIC", PANICKED), true, Cause::Destination);
            Sent::Answered { answers: vec![unknown; messages], took: Duration::ZERO }
        })
    }

    // Not inside `gather`, whose future would contain itself.
    fn start_gathering(self: Arc<Self>) {
        tokio::spawn(self.gather());
    }

    /// Wait until a call may be made, fill it and make it; whatever waits then is the next one's.
    async fn gather(self: Arc<Self>) {
        let _permit = loop {
            if let Some(until) = self.destination.resting_until() {
                return self.give_back(|| Sent::SetAside(resting(until)));
            }
            match tokio::time::timeout(STALLED_AFTER, self.destination.slot()).await {
                Ok(Ok(permit)) => break permit,
                Ok(Err(_)) => return self.give_back(|| Sent::Unsent(Unsent::Stopping)),
                Err(_elapsed) if self.is_stalled() => {
                    return self.give_back(|| Sent::SetAside(STALLED_PAUSE));
                }
                Err(_elapsed) => {}
            }
        };
        // Asked last: the answer may take the breaker's only probe.
        if let Allowance::Nothing { until } = self.destination.allowance() {
            return self.give_back(|| Sent::SetAside(resting(until)));
        }
        self.fill().await;
        let (groups, more) = self.take();
        if more {
            self.clone().start_gathering();
        }
        let groups: Vec<Waiting> = groups.into_iter().filter_map(|w| self.begin(w)).collect();
        if groups.is_empty() {
            self.destination.probe_unused();
        } else {
            self.call(groups).await;
        }
    }

    /// Other windows may have something for the same call: wait for them a little.
    async fn fill(&self) {
        let terms = self.bus.terms();
        let until = tokio::time::Instant::now() + terms.fill_within;
        while !terms.fill_within.is_zero()
            && self.windows.load(Ordering::Acquire) > 1
            && self.queue().waiting.len() < terms.batch_max
        {
            if tokio::time::timeout_at(until, self.queued.notified()).await.is_err() {
                break;
            }
        }
    }

    /// What fits into one call, and whether there is more.
    fn take(&self) -> (Vec<Waiting>, bool) {
        let batch_max = self.bus.terms().batch_max.max(1);
        let mut queue = self.queue();
        let mut taken: Vec<Waiting> = Vec::new();
        let mut messages = 0;
        while let Some(next) = queue.waiting.pop_front() {
            if next.reply.is_closed() {
                continue;
            }
            messages += next.group.messages.len();
            if messages > batch_max && !taken.is_empty() {
                queue.waiting.push_front(next);
                break;
            }
            taken.push(next);
        }
        queue.gathering = !queue.waiting.is_empty();
        (taken, queue.gathering)
    }

    /// Say of a group that its first byte is about to leave, or give it back.
    fn begin(&self, waiting: Waiting) -> Option<Waiting> {
        let group = &waiting.group;
        match group.hold.begin_sending(self.bus.terms().timeout) {
            Ok(()) => {
                group.progress.sent(group.messages.iter().map(|(index, _)| *index));
                Some(waiting)
            }
            Err(unsent) => {
                let _nobody_waits = waiting.reply.send(Sent::Unsent(unsent));
                None
            }
        }
    }

    async fn call(&self, groups: Vec<Waiting>) {
        let limit = self.bus.terms().timeout;
        for waiting in &groups {
            waiting.group.hold.at(Point::BeforeSend);
        }
        self.began();
        let messages: Vec<&Message> = groups
            .iter()
            .flat_map(|waiting| waiting.group.messages.iter().map(|(_, message)| &**message))
            .collect();
        let started = Instant::now();
        let publish =
            AssertUnwindSafe(self.bus.publish(&self.name_at_bus, &messages)).catch_unwind();
        let answers = tokio::time::timeout(limit, publish).await;
        let took = started.elapsed();
        self.ended();
        for waiting in &groups {
            waiting.group.hold.at(Point::AfterSend);
        }
        let (mut answers, otherwise) = match answers {
            Ok(Ok(answers)) => (answers, Trouble::new("NO_ANSWER", "the bus did not speak of it")),
            Ok(Err(_panic)) => {
                tracing::error!(lane = "events", bus = &*self.name, "a publish panicked");
                (Vec::new(), Trouble::new("PANIC", PANICKED))
            }
            Err(_elapsed) => {
                let message = format!("no answer within {} ms", limit.as_millis());
                (Vec::new(), Trouble::new("TIMEOUT", message))
            }
        };
        // Fewer answers than messages count as no answer.
        answers.resize_with(messages.len(), || again(otherwise.clone(), true, Cause::Destination));
        self.destination.ended(took, answers.iter().map(decide::counted));
        let mut answers = answers.into_iter();
        for waiting in groups {
            let answers = answers.by_ref().take(waiting.group.messages.len()).collect();
            let _nobody_waits = waiting.reply.send(Sent::Answered { answers, took });
        }
    }

    fn give_back(&self, answer: impl Fn() -> Sent) {
        let given_back = {
            let mut queue = self.queue();
            queue.gathering = false;
            std::mem::take(&mut queue.waiting)
        };
        for waiting in given_back {
            let _nobody_waits = waiting.reply.send(answer());
        }
    }

    fn began(&self) {
        let mut queue = self.queue();
        queue.calls += 1;
        queue.quiet_since.get_or_insert_with(Instant::now);
    }

    fn ended(&self) {
        let mut queue = self.queue();
        queue.calls = queue.calls.saturating_sub(1);
        queue.quiet_since = (queue.calls > 0).then(Instant::now);
    }

    /// There are calls, and for a while none has ended.
    fn is_stalled(&self) -> bool {
        let quiet_since = self.queue().quiet_since;
        quiet_since.is_some_and(|since| since.elapsed() >= STALLED_AFTER)
    }

    // A panic while the lock was held cannot leave it half changed.
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn resting(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now()).max(SET_ASIDE)
}
