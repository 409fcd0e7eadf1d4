//! What is told of a payment in its trace.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Done, PaymentLane};
use crate::db::ClaimedPayment;
use crate::domain::Outcome;
use crate::engine::Completed;
use crate::trace::{Item, ItemTrace, TraceId, Traces, is_due_since_written};

impl ClaimedPayment {
    /// Its trace: what its row names, or one of its own.
    pub fn trace_id(&self) -> TraceId {
        TraceId::of(self.traceparent.as_deref(), self.outbox_id.0)
    }
}

impl PaymentLane {
    /// Tell of every payment in its trace.
    #[must_use]
    pub fn with_traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    pub(super) fn trace(&self, item: &ClaimedPayment) -> Option<Arc<ItemTrace>> {
        self.traces.of(&Item {
            lane: "payments",
            id: item.outbox_id.0,
            root: item.outbox_id.0,
            cause: None,
            traceparent: item.traceparent.as_deref(),
            lease: item.lease_token.0,
            attempt: item.attempt_count.saturating_add(1),
        })
    }

    pub(super) fn tell_claimed(&self, asked_at: Option<SystemTime>, items: &[ClaimedPayment]) {
        let Some(asked_at) = asked_at else { return };
        for (item, trace) in items.iter().filter_map(|item| Some((item, self.trace(item)?))) {
            // An ordered item is due when the one before it has ended.
            let is_untried = item.attempt_count == 0 && !item.must_inquire;
            let is_first = is_untried
                && (item.ordered || is_due_since_written(item.created_at, item.next_attempt_at));
            trace.claimed(asked_at, item.created_at, Some(item.next_attempt_at), is_first);
        }
    }
}

impl Done {
    /// The same, told of in its trace.
    pub(super) fn traced(
        self,
        trace: Option<Arc<ItemTrace>>,
        took: Duration,
        item: &ClaimedPayment,
    ) -> Self {
        if let Some(trace) = &trace {
            let error_code = self.completion.error_code.as_deref();
            trace.dispatched(took, Some(&item.rail_type), self.outcome(), error_code);
        }
        Self { trace, ..self }
    }

    fn outcome(&self) -> &'static str {
        match self.completion.outcome {
            Outcome::Dispatched => "DISPATCHED",
            Outcome::Retryable => "RETRYABLE",
            Outcome::Unknown => "UNKNOWN",
            Outcome::Failed => "FAILED",
        }
    }
}

/// What became of outcomes whose writing was begun at that time.
pub(super) fn tell_completed(
    asked_at: Option<SystemTime>,
    outcomes: &[Done],
    answers: &[Completed],
) {
    let Some(asked_at) = asked_at else { return };
    for (done, answer) in outcomes.iter().zip(answers) {
        if let Some(trace) = &done.trace {
            trace.completed(asked_at, answer.named());
        }
    }
}
