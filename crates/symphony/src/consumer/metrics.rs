//! What a consumer counts.

use std::sync::{Mutex, PoisonError};

use crate::metrics::{Counter, Gauge, Histogram};

use super::lag::Lag;
use super::source::ReasonCode;

/// The counters of one consumer in one process.
#[derive(Debug, Default)]
pub struct ConsumerMetrics {
    /// Messages received, repeated ones included.
    pub received: Counter,
    /// Events applied.
    pub applied: Counter,
    /// Events that were applied before: the bus repeated them.
    pub duplicates: Counter,
    /// Tries that failed and are to be repeated.
    pub failed_tries: Counter,
    /// Messages given back untried: when it stops, and when more rests in hand than may.
    pub passed_over: Counter,
    /// Messages dead-lettered because they are no event.
    pub dead_letters_poison: Counter,
    /// Messages dead-lettered because the handler can never apply them.
    pub dead_letters_rejected: Counter,
    /// Messages dead-lettered after their last try.
    pub dead_letters_exhausted: Counter,
    /// Messages that turned up among the dead letters and were not put there by this process.
    pub dead_letters_broker: Counter,
    /// How many dead letters wait for a person, if it is known.
    pub dead_letters_waiting: OptionalGauge,
    /// Calls to the bus that failed.
    pub bus_errors: Counter,
    /// How far it is behind.
    pub lag: Lag,
    /// Messages in hand now.
    pub held: Gauge,
    /// 1 while what events are applied to is away.
    pub away: Gauge,
    /// Time from the start of a try to its end.
    pub handler_latency: Histogram,
}

impl ConsumerMetrics {
    /// All dead-lettered messages, whoever did it.
    pub fn dead_letters(&self) -> u64 {
        self.dead_letters_ours() + self.dead_letters_broker.get()
    }

    pub(super) fn dead_letters_ours(&self) -> u64 {
        self.dead_letters_poison.get()
            + self.dead_letters_rejected.get()
            + self.dead_letters_exhausted.get()
    }

    pub(super) fn count_dead_letter(&self, code: ReasonCode) {
        match code {
            ReasonCode::Poison => self.dead_letters_poison.add(1),
            ReasonCode::Rejected => self.dead_letters_rejected.add(1),
            ReasonCode::Exhausted => self.dead_letters_exhausted.add(1),
        }
    }
}

/// A number that is not always known.
#[derive(Debug, Default)]
pub struct OptionalGauge(Mutex<Option<u64>>);

impl OptionalGauge {
    /// How much it is, if that is known.
    pub fn get(&self) -> Option<u64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, to: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = to;
    }
}
