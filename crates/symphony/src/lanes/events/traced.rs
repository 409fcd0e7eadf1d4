//! What is told of an event in its trace.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::decide::Tries;
use super::window::{Outgoing, Window};
use super::{EventLane, WindowDone};
use crate::db::{BucketLease, EventOutcome, EventState};
use crate::engine::Completed;
use crate::trace::{Item, ItemTrace, Traces};

/// Of the outcomes of a window, each in its place.
pub(super) type OutcomeTraces = Vec<Option<Arc<ItemTrace>>>;

impl EventLane {
    /// Tell of every event in its trace.
    #[must_use]
    pub fn with_traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    pub(super) fn trace(
        &self,
        event_id: Uuid,
        lease: BucketLease,
        tries: Tries,
        traceparent: Option<&str>,
    ) -> Option<Arc<ItemTrace>> {
        self.traces.of(&Item {
            lane: "events",
            id: event_id,
            root: event_id,
            cause: None,
            traceparent,
            lease: lease.lease_token.0,
            attempt: tries.outcomes.saturating_add(1),
        })
    }
}

impl Outgoing {
    /// A claim that was begun at that time has brought it.
    pub(super) fn tell_claimed(&self, asked_at: Option<SystemTime>) {
        let (Some(asked_at), Some(trace)) = (asked_at, &self.trace) else { return };
        let is_first = self.tries.outcomes == 0;
        let created_at = self.message.created_at;
        // When it was due again is not in the claim.
        trace.claimed(asked_at, created_at, is_first.then_some(created_at), is_first);
    }

    /// It was sent, and nobody waited for the answer.
    pub(super) fn tell_interrupted(&self, error_code: &str) {
        if let Some(trace) = &self.trace {
            trace.dispatched(Duration::ZERO, None, "UNKNOWN", Some(error_code));
        }
    }
}

/// What a bus answered after so long.
pub(super) fn tell_dispatched(
    events: &[(usize, &Outgoing)],
    outcomes: &[EventOutcome],
    took: Duration,
) {
    for ((_, outgoing), outcome) in events.iter().zip(outcomes) {
        if let Some(trace) = &outgoing.trace {
            let destination = outcome.destination.as_deref();
            trace.dispatched(took, destination, name(outcome), outcome.error_code.as_deref());
        }
    }
}

impl Window {
    /// How it ended.
    pub(super) fn done(&self, outcomes: Vec<EventOutcome>, rest_unsent: bool) -> WindowDone {
        let is_traced = self.events.iter().any(|outgoing| outgoing.trace.is_some());
        let trace = |outcome: &EventOutcome| {
            let of = |outgoing: &&Outgoing| outgoing.message.position == outcome.log_position;
            self.events.iter().find(of)?.trace.clone()
        };
        let traces = if is_traced { outcomes.iter().map(trace).collect() } else { Vec::new() };
        WindowDone { lease: self.lease, outcomes, rest_unsent, traces }
    }
}

/// What became of windows whose outcomes' writing was begun at that time.
pub(super) fn tell_completed(
    asked_at: Option<SystemTime>,
    windows: &[WindowDone],
    answers: &[Completed],
) {
    let Some(asked_at) = asked_at else { return };
    for (window, answer) in windows.iter().zip(answers) {
        let each = window.outcomes.iter().zip(&window.traces);
        for (outcome, trace) in each.filter_map(|(outcome, trace)| Some((outcome, trace.as_ref()?)))
        {
            // Of a window that came too late some outcomes may be written: which, only the ledger knows.
            let is_recorded = matches!(answer, Completed::Recorded { .. });
            trace.completed(asked_at, if is_recorded { name(outcome) } else { answer.named() });
        }
    }
}

fn name(outcome: &EventOutcome) -> &'static str {
    match outcome.state {
        EventState::Dispatched => "DISPATCHED",
        EventState::Retryable { unknown: true } => "UNKNOWN",
        EventState::Retryable { unknown: false } => "RETRYABLE",
        EventState::Failed { .. } => "FAILED",
        EventState::Unsent => "UNSENT",
    }
}
