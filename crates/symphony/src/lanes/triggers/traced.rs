//! What is told of a run in its trace.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use super::{Ended, TriggerLane, Underway};
use crate::db::{ClaimedTrigger, TriggerState};
use crate::engine::Completed;
use crate::trace::{Item, ItemTrace, TraceId, Traces, is_due_since_written};

impl ClaimedTrigger {
    /// Its trace: what its row names, or that of the first of its fan-out.
    pub fn trace_id(&self) -> TraceId {
        TraceId::of(self.traceparent.as_deref(), self.root_execution_id)
    }
}

impl TriggerLane {
    /// Tell of every run in its trace. Before [`leased_requests`](Self::leased_requests).
    #[must_use]
    pub fn with_traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// The app's name, for its trace.
    pub(super) fn app_of(&self, item: &ClaimedTrigger) -> Option<String> {
        self.traces.now()?;
        let scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        Some(scripts.get(&item.script_id?)?.app.clone())
    }
}

fn trace(traces: &Traces, item: &ClaimedTrigger) -> Option<Arc<ItemTrace>> {
    traces.of(&Item {
        lane: "triggers",
        id: item.id,
        root: item.root_execution_id,
        cause: item.parent_execution_id,
        traceparent: item.traceparent.as_deref(),
        lease: item.lease_token.0,
        attempt: item.attempt_count.saturating_add(1),
    })
}

/// A claim that was begun at that time has brought it.
pub(super) fn claimed(
    traces: &Traces,
    item: &ClaimedTrigger,
    asked_at: Option<SystemTime>,
) -> Option<Arc<ItemTrace>> {
    let trace = trace(traces, item)?;
    let is_first = is_due_since_written(item.created_at, item.next_attempt_at);
    trace.claimed(asked_at?, item.created_at, Some(item.next_attempt_at), is_first);
    Some(trace)
}

/// This process has written it, and holds it already.
pub(super) fn written(
    traces: &Traces,
    item: &ClaimedTrigger,
    asked_at: Option<SystemTime>,
) -> Option<Arc<ItemTrace>> {
    let trace = trace(traces, item)?;
    trace.written(asked_at?);
    Some(trace)
}

impl Underway {
    /// What goes out with whatever its script calls.
    pub(super) fn traceparent(&self) -> Option<Arc<str>> {
        match &self.trace {
            Some(trace) => Some(trace.outgoing().into()),
            None => self.item.traceparent.as_deref().map(Into::into),
        }
    }
}

impl Ended {
    /// The same, told of in its trace.
    pub(super) fn traced(self, work: &Underway, took: Duration, app: Option<&str>) -> Self {
        if let Some(trace) = &work.trace {
            let outcome = match self.outcome.state {
                TriggerState::Dispatched => "DISPATCHED",
                TriggerState::Retryable => "RETRYABLE",
                TriggerState::Failed => "FAILED",
            };
            trace.dispatched(took, app, outcome, self.outcome.error_code.as_deref());
        }
        Self { trace: work.trace.clone(), ..self }
    }
}

/// What became of runs whose outcomes' writing was begun at that time.
pub(super) fn tell_completed(asked_at: Option<SystemTime>, done: &[Ended], answers: &[Completed]) {
    let Some(asked_at) = asked_at else { return };
    // Nothing was tried of what was left for the next batch.
    let tried = done.iter().zip(answers).filter(|(_, answer)| **answer != Completed::NextBatch);
    for (ended, answer) in tried {
        if let Some(trace) = &ended.trace {
            trace.completed(asked_at, answer.named());
        }
    }
}
