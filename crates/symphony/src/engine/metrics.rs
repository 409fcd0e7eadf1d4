//! What a lane's worker counts.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::gate::Destination;
use crate::db::EndedLeases;
use crate::metrics::{Counter, Gauge, Histogram};

/// The counters of one lane in one process.
#[derive(Debug, Default)]
pub struct LaneMetrics {
    /// Hints that led to a claim at once.
    pub notify_wakeups: Counter,
    /// Claims made.
    pub claim_batches: Counter,
    /// Claims that found nothing.
    pub empty_claims: Counter,
    /// Items claimed.
    pub claimed_items: Counter,
    /// Writes of gathered outcomes.
    pub completion_batches: Counter,
    /// Outcomes written, by what the ledger says.
    pub dispatched: Counter,
    /// Outcomes written as RETRYABLE, unknown ones included.
    pub retryable: Counter,
    /// Outcomes written as FAILED.
    pub failed: Counter,
    /// Outcomes that are unknown.
    pub unknown: Counter,
    /// Items parked for a person.
    pub parked: Counter,
    /// Written into the ledger as ZOMBIE_REQUEUE, for workers that were lost.
    pub zombies: Counter,
    /// Items of lost workers whose expired leases this one ended, by repair or by taking them over.
    pub reaper_requeues: Counter,
    /// Leases this worker lost: concurrency events.
    pub leases_lost: Counter,
    /// Items given back unsent.
    pub returned_unsent: Counter,
    /// Outcomes kept as evidence because they came too late.
    pub late_outcomes: Counter,
    /// Late outcomes that contradict the ledger: an alarm.
    pub late_conflicts: Counter,
    /// Second terminal outcomes that the unique index refused: the backstop held.
    pub terminal_blocked: Counter,
    /// Refusals of the database that should be impossible: an alarm.
    pub integrity_alarms: Counter,
    /// Calls to the database that failed.
    pub database_errors: Counter,
    /// Executions that were forgotten because of their age.
    pub retired: Counter,
    /// Spans that a collector has taken.
    pub spans_exported: Counter,
    /// Spans that found no room, or that the collector did not take.
    pub spans_dropped: Counter,
    /// Time from claim to outcome known.
    pub dispatch_latency: Histogram,
    /// Items held now.
    pub held_items: Gauge,
    /// 1 while hints arrive, proved by a probe.
    pub listener_up: Gauge,
    /// 1 while this worker is the one that follows hints at once.
    pub hint_leader: Gauge,
    /// Its destinations, by their configured names.
    pub destinations: OnceLock<Vec<Arc<Destination>>>,
    /// How its scripts are, if it runs any.
    pub scripts: OnceLock<Arc<dyn ScriptHealth>>,
}

/// How scripts of this process are, as it is when somebody asks.
pub trait ScriptHealth: fmt::Debug + Send + Sync {
    /// Threads whose run's time is up and that still run.
    fn overdue(&self) -> usize;
    /// Those of them that have lost their slots.
    fn stuck(&self) -> usize;
    /// Outcomes that wait for a lock.
    fn held_up(&self) -> usize;
    /// This process runs no more scripts: too many threads are stuck.
    fn has_ended(&self) -> bool;
}

impl LaneMetrics {
    /// Leases of lost workers were ended.
    pub(super) fn count_ended(&self, ended: EndedLeases) {
        self.reaper_requeues.add(ended.ended);
        self.zombies.add(ended.zombies);
        self.parked.add(ended.parked);
        self.failed.add(ended.failed);
    }
}
