//! The events of one bucket under one lease, and the order in which they may go out.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bus::Message;
use super::decide::Tries;
use crate::db::{BucketLease, EventOutcome};
use crate::trace::{ItemTrace, TraceId};

/// One bucket's next events.
#[derive(Debug)]
pub struct Window {
    pub(super) lease: BucketLease,
    pub(super) events: Vec<Outgoing>,
    pub(super) progress: Arc<Progress>,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) message: Arc<Message>,
    pub(super) tries: Tries,
    /// Its place among the routes; `None` if no route is for its type.
    pub(super) route: Option<usize>,
    pub(super) trace_id: TraceId,
    pub(super) trace: Option<Arc<ItemTrace>>,
}

/// How far publishing has come. Kept beside the work and not inside the call that does it, so that what was answered is
/// known even if that call is cut off.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<Made>);

#[derive(Debug, Default)]
struct Made {
    in_flight: Vec<usize>,
    outcomes: Vec<EventOutcome>,
}

impl Progress {
    fn made(&self) -> MutexGuard<'_, Made> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first byte of these is about to leave.
    pub(super) fn sent(&self, indices: impl Iterator<Item = usize>) {
        self.made().in_flight.extend(indices);
    }

    /// So many have been sent and not answered.
    pub(super) fn in_flight(&self) -> usize {
        self.made().in_flight.len()
    }
}

impl Window {
    pub(super) fn new(lease: BucketLease, events: Vec<Outgoing>) -> Self {
        Self { lease, events, progress: Arc::default() }
    }

    pub(super) fn answered(&self, events: &[(usize, &Outgoing)], outcomes: Vec<EventOutcome>) {
        let mut progress = self.progress.made();
        progress.in_flight.retain(|flying| events.iter().all(|(index, _)| index != flying));
        progress.outcomes.extend(outcomes);
    }

    /// What is known, and what is still in flight.
    pub(super) fn take_progress(&self) -> (Vec<EventOutcome>, Vec<usize>) {
        let progress = std::mem::take(&mut *self.progress.made());
        (progress.outcomes, progress.in_flight)
    }
}

/// Which events may go out now: the first of each key, and the next of a key once the one before it is out of the way.
#[derive(Debug)]
pub(super) struct Chains {
    next_of_key: Vec<Option<usize>>,
    ready: VecDeque<usize>,
}

impl Chains {
    pub(super) fn new<'a>(keys: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let mut next_of_key = vec![None; keys.len()];
        let mut ready = VecDeque::new();
        let mut last_of_key: HashMap<&str, usize> = HashMap::with_capacity(keys.len());
        for (index, key) in keys.enumerate() {
            match last_of_key.insert(key, index) {
                None => ready.push_back(index),
                Some(before) => {
                    if let Some(next) = next_of_key.get_mut(before) {
                        *next = Some(index);
                    }
                }
            }
        }
        Self { next_of_key, ready }
    }

    /// Take events that may go out together: never two of one key, because only one of a key is ready at a time.
    pub(super) fn take(
        &mut self,
        batch_max: impl Fn(usize) -> usize,
        together: impl Fn(usize, usize) -> bool,
    ) -> Option<Vec<usize>> {
        let first = self.ready.pop_front()?;
        let batch_max = batch_max(first).max(1);
        let mut batch = Vec::with_capacity(batch_max.min(self.ready.len() + 1));
        batch.push(first);
        let mut others = VecDeque::with_capacity(self.ready.len());
        while let Some(index) = self.ready.pop_front() {
            if batch.len() < batch_max && together(first, index) {
                batch.push(index);
            } else {
                others.push_back(index);
            }
            if batch.len() == batch_max {
                break;
            }
        }
        others.append(&mut self.ready);
        self.ready = others;
        Some(batch)
    }

    /// This one is out of the way: the next of its key may go.
    pub(super) fn go_on(&mut self, index: usize) {
        if let Some(Some(next)) = self.next_of_key.get(index) {
            self.ready.push_back(*next);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn all_together(chains: &mut Chains, batch_max: usize) -> Option<Vec<usize>> {
        chains.take(|_| batch_max, |_, _| true)
    }

    #[test]
    fn the_next_of_a_key_goes_only_once_the_one_before_is_out_of_the_way() {
        let mut chains = Chains::new(["a", "b", "a", "a", "c"].into_iter());
        assert_eq!(all_together(&mut chains, 10), Some(vec![0, 1, 4]));
        assert_eq!(all_together(&mut chains, 10), None);
        chains.go_on(0);
        assert_eq!(all_together(&mut chains, 10), Some(vec![2]));
        chains.go_on(1);
        assert_eq!(all_together(&mut chains, 10), None, "b had one event");
        chains.go_on(2);
        assert_eq!(all_together(&mut chains, 10), Some(vec![3]));
    }

    #[test]
    fn a_key_that_does_not_go_on_holds_up_no_other() {
        let mut chains = Chains::new(["a", "a", "b", "b", "b"].into_iter());
        let mut out = Vec::new();
        while let Some(batch) = all_together(&mut chains, 1) {
            for index in batch {
                out.push(index);
                if index != 0 {
                    chains.go_on(index);
                }
            }
        }
        assert_eq!(out, [0, 2, 3, 4]);
    }

    #[test]
    fn batches_have_their_limit_and_one_destination() {
        let mut chains = Chains::new(["a", "b", "c", "d", "e"].into_iter());
        let odd = |one: usize, other: usize| one % 2 == other % 2;
        assert_eq!(chains.take(|_| 2, odd), Some(vec![0, 2]));
        assert_eq!(chains.take(|_| 2, odd), Some(vec![1, 3]));
        assert_eq!(chains.take(|_| 2, odd), Some(vec![4]));
        assert_eq!(chains.take(|_| 2, odd), None);
    }
}
