//! The groups in hand: of each, one message is tried at a time, the others wait behind it in their order.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use super::Delivery;
use super::attempt::Work;

/// All groups in hand.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_name: HashMap<String, Group>,
    /// Those that wait for a free place.
    ready: VecDeque<String>,
    /// Those whose first message rests after a failed try, by when it may be tried again.
    resting: BTreeSet<(Instant, String)>,
}

#[derive(Debug)]
struct Group {
    /// Without the one that is being tried.
    queue: VecDeque<Work>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Trying,
    Resting(Instant),
}

impl Groups {
    /// A message came in. Answers the older delivery that it replaces, if the same message waits already.
    pub(super) fn insert(
        &mut self,
        mut work: Work,
        keeps_group_order: bool,
    ) -> Option<Arc<Delivery>> {
        let name = work.group();
        let Some(group) = self.by_name.get_mut(&name) else {
            let group = Group { queue: VecDeque::from([work]), state: State::Ready };
            self.by_name.insert(name.clone(), group);
            self.ready.push_back(name);
            return None;
        };
        let same = |other: &&mut Work| other.delivery.message_id == work.delivery.message_id;
        if let Some(waiting) = group.queue.iter_mut().find(same) {
            work.take_over(waiting);
            return Some(std::mem::replace(waiting, work).delivery);
        }
        // A broker that keeps the order has handed it out in that order.
        let place = if keeps_group_order {
            group.queue.len()
        } else {
            group.queue.partition_point(|other| other.delivery.order <= work.delivery.order)
        };
        group.queue.insert(place, work);
        None
    }

    /// The next message to try, of a group that none is being tried of.
    pub(super) fn next_ready(&mut self) -> Option<Work> {
        while let Some(name) = self.ready.pop_front() {
            let Some(group) = self.by_name.get_mut(&name) else { continue };
            if let Some(work) = group.queue.pop_front() {
                group.state = State::Trying;
                return Some(work);
            }
            self.by_name.remove(&name);
        }
        None
    }

    /// The try of this message has ended for good: the next one of its group may be tried. Answers another delivery of
    /// the same message, if there is one.
    pub(super) fn ended(&mut self, work: &Work) -> Option<Work> {
        let name = work.group();
        let group = self.by_name.get_mut(&name)?;
        let same = |other: &Work| other.delivery.message_id == work.delivery.message_id;
        let place = group.queue.iter().position(same);
        let again = place.and_then(|place| group.queue.remove(place));
        if group.queue.is_empty() {
            self.by_name.remove(&name);
        } else {
            group.state = State::Ready;
            self.ready.push_back(name);
        }
        again
    }

    /// It must be tried again: at once when there is a place, or after a rest. Answers the older delivery, if the
    /// message was delivered again meanwhile.
    pub(super) fn put_back(
        &mut self,
        work: Work,
        rest_until: Option<Instant>,
    ) -> Option<Arc<Delivery>> {
        let name = work.group();
        let group = self
            .by_name
            .entry(name.clone())
            .or_insert_with(|| Group { queue: VecDeque::new(), state: State::Trying });
        let same = |other: &Work| other.delivery.message_id == work.delivery.message_id;
        let (front, replaced) = match group.queue.iter().position(same) {
            Some(place) => {
                let newer = group.queue.remove(place);
                let older = work.delivery.clone();
                let merged = newer.map(|mut newer| {
                    newer.take_over(&work);
                    newer
                });
                (merged.unwrap_or(work), Some(older))
            }
            None => (work, None),
        };
        group.queue.push_front(front);
        if let Some(until) = rest_until {
            group.state = State::Resting(until);
            self.resting.insert((until, name));
        } else {
            group.state = State::Ready;
            self.ready.push_back(name);
        }
        replaced
    }

    /// Those whose rest is over may be tried.
    pub(super) fn wake(&mut self, now: Instant) {
        while self.resting.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, name)) = self.resting.pop_first() else { return };
            if let Some(group) = self.by_name.get_mut(&name) {
                group.state = State::Ready;
                self.ready.push_back(name);
            }
        }
    }

    /// When the next rest is over.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.resting.first().map(|(until, _)| *until)
    }

    /// How many messages rest, with those behind them.
    pub(super) fn resting_messages(&self) -> usize {
        let length =
            |(_, name): &(Instant, String)| self.by_name.get(name).map(|group| group.queue.len());
        self.resting.iter().filter_map(length).sum()
    }

    /// Whether there is one that waits for a place.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether there is none at all.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Everything that waits behind a resting message: only for brokers that then hold it back themselves.
    pub(super) fn take_tails(&mut self) -> Vec<Work> {
        let mut taken = Vec::new();
        for (_, name) in &self.resting {
            if let Some(group) = self.by_name.get_mut(name) {
                taken.extend(group.queue.split_off(1.min(group.queue.len())));
            }
        }
        taken
    }

    /// All that waits in groups with a message like this, in order. What is being tried stays.
    pub(super) fn take_where(&mut self, wanted: impl Fn(&Work) -> bool) -> Vec<Work> {
        self.take(|group| group.queue.iter().any(&wanted))
    }

    /// All that waits in groups of which none is being tried, in order: a later one must not be back before the first.
    pub(super) fn take_untried(&mut self) -> Vec<Work> {
        self.take(|group| group.state != State::Trying)
    }

    fn take(&mut self, wanted: impl Fn(&Group) -> bool) -> Vec<Work> {
        let mut taken = Vec::new();
        self.by_name.retain(|name, group| {
            if wanted(group) {
                taken.extend(group.queue.drain(..));
            }
            let stays = group.state == State::Trying || !group.queue.is_empty();
            if !stays && let State::Resting(until) = group.state {
                self.resting.remove(&(until, name.clone()));
            }
            stays
        });
        self.ready.retain(|name| self.by_name.contains_key(name));
        taken
    }
}
