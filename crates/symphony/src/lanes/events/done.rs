//! How a window ended, and what the ledger's answers mean for it.

use super::traced::OutcomeTraces;
use crate::db::{BucketLease, EventOutcome, EventRecorded, EventState};
use crate::domain::limits;
use crate::engine::{Completed, Tallies, Tally};

/// How one window ended.
#[derive(Debug)]
pub struct WindowDone {
    pub(super) lease: BucketLease,
    pub(super) outcomes: Vec<EventOutcome>,
    /// Some events were not sent: give the rest of the lease back.
    pub(super) rest_unsent: bool,
    /// Of the outcomes, each in its place; empty where nobody collects.
    pub(super) traces: OutcomeTraces,
}

/// How many windows fit into one call: at least one, and no window is cut in two.
pub(super) fn windows_per_call(windows: &[WindowDone]) -> usize {
    let mut events = 0;
    let fitting = windows.iter().take_while(|window| {
        events += window.outcomes.len();
        events <= limits::BATCH_ITEMS_MAX
    });
    fitting.count().max(1)
}

/// What the ledger's answers mean for a window.
pub(super) fn account(
    window: &WindowDone,
    recorded: impl Iterator<Item = EventRecorded>,
) -> Completed {
    let mut tallies = Tallies::default();
    let mut successor = window.rest_unsent;
    let mut late = false;
    for (outcome, recorded) in window.outcomes.iter().zip(recorded) {
        match (recorded, outcome.state) {
            (EventRecorded::Recorded { more }, state) => {
                successor |= more;
                match state {
                    EventState::Dispatched => tallies.count(Tally::Dispatched),
                    EventState::Retryable { unknown: true } => tallies.count(Tally::Unknown),
                    EventState::Retryable { unknown: false } => tallies.count(Tally::Retryable),
                    EventState::Failed { .. } => tallies.count(Tally::Failed),
                    EventState::Unsent => {}
                }
            }
            // Nothing was answered, so nothing is lost.
            (_, EventState::Unsent) => {}
            (EventRecorded::NotHeld | EventRecorded::TerminalExists, _) => late = true,
        }
    }
    if late { Completed::Late } else { Completed::Recorded { tallies, successor } }
}
