//! What a consumer counts.

use crate::engine::{Counter, Gauge, Histogram};

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
    /// Tries that failed and were left to redelivery.
    pub failed_tries: Counter,
    /// Messages given back untried, because an earlier one of their key failed.
    pub passed_over: Counter,
    /// Messages dead-lettered because they are no event.
    pub dead_letters_poison: Counter,
    /// Messages dead-lettered because the handler can never apply them.
    pub dead_letters_rejected: Counter,
    /// Messages dead-lettered after their last try.
    pub dead_letters_exhausted: Counter,
    /// Calls to the bus that failed.
    pub bus_errors: Counter,
    /// Seconds from an event's occurrence to its effects, of the last one applied; 0 when there is none left.
    pub lag_seconds: Gauge,
    /// Messages in hand now.
    pub held: Gauge,
    /// Time from the start of a try to its end.
    pub handler_latency: Histogram,
}

impl ConsumerMetrics {
    /// All dead-lettered messages.
    pub fn dead_letters(&self) -> u64 {
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
