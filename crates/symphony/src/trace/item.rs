//! One item's place in its trace, and the spans it has there.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::context::{SpanId, TraceId, TraceParent};

/// Longer error codes are cut off: an adapter of somebody else's may put anything there.
const ERROR_CODE_CHARACTERS_MAX: usize = 64;

/// What a span is about: an item's life, step by step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It was written.
    Enqueue,
    /// It was due, and nobody had it yet.
    Wait,
    /// A worker leased it.
    Claim,
    /// A rail, a bus or a script had it.
    Dispatch,
    /// The outcome was written down.
    Complete,
}

impl Step {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Enqueue, Self::Wait, Self::Claim, Self::Dispatch, Self::Complete];

    /// The step's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Wait => "wait",
            Self::Claim => "claim",
            Self::Dispatch => "dispatch",
            Self::Complete => "complete",
        }
    }
}

/// One span. It has no place for anything of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace.
    pub trace_id: TraceId,
    /// Its own id.
    pub span_id: SpanId,
    /// What it is a part of; `None` for the first of a trace.
    pub parent: Option<SpanId>,
    /// What it is about.
    pub step: Step,
    /// Of which lane.
    pub lane: &'static str,
    /// Of which item.
    pub item: Uuid,
    /// Which of the item's attempts, from 1.
    pub attempt: i32,
    /// Which rail, topic or app, of a dispatch.
    pub destination: Option<String>,
    /// How it ended, in the ledger's words.
    pub outcome: Option<&'static str>,
    /// Our code for what went wrong.
    pub error_code: Option<String>,
    /// From when,
    pub started_at: SystemTime,
    /// until when.
    pub ended_at: SystemTime,
}

/// Takes spans. Called on the way of every item: it must not block.
pub trait SpanSink: Send + Sync + 'static {
    /// Whether to collect a trace that nobody outside has begun. The same answer in every process.
    fn samples(&self, trace_id: TraceId) -> bool;
    /// Take one.
    fn record(&self, span: Span);
}

/// Who takes spans, if anybody does.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<dyn SpanSink>>);

/// What says where an item belongs.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// Its lane.
    pub lane: &'static str,
    /// Its id.
    pub id: Uuid,
    /// The first of its fan-out, or itself: names the trace where nobody else has.
    pub root: Uuid,
    /// The item whose run has fired it.
    pub cause: Option<Uuid>,
    /// As its row has it.
    pub traceparent: Option<&'a str>,
    /// Under which lease.
    pub lease: Uuid,
    /// Which attempt this is, from 1.
    pub attempt: i32,
}

/// An attempt's place in the item's trace.
pub struct ItemTrace {
    sink: Arc<dyn SpanSink>,
    trace_id: TraceId,
    /// Whoever caused the item.
    cause: Option<SpanId>,
    lane: &'static str,
    item: Uuid,
    lease: Uuid,
    attempt: i32,
}

impl Traces {
    /// Give spans to this.
    pub fn new(sink: Arc<dyn SpanSink>) -> Self {
        Self(Some(sink))
    }

    /// The time, where somebody wants to know.
    pub fn now(&self) -> Option<SystemTime> {
        self.0.is_some().then(SystemTime::now)
    }

    /// An attempt's place in its trace; `None` if nobody collects it.
    pub fn of(&self, item: &Item<'_>) -> Option<Arc<ItemTrace>> {
        let sink = self.0.as_ref()?;
        let parent = item.traceparent.and_then(TraceParent::parse);
        let trace_id = parent.map_or_else(|| TraceId::of_item(item.root), |parent| parent.trace_id);
        if !parent.map_or_else(|| sink.samples(trace_id), |parent| parent.sampled) {
            return None;
        }
        Some(Arc::new(ItemTrace {
            sink: sink.clone(),
            trace_id,
            cause: match item.cause {
                Some(cause) => Some(enqueue_span(cause)),
                None => parent.map(|parent| parent.span_id),
            },
            lane: item.lane,
            item: item.id,
            lease: item.lease,
            attempt: item.attempt,
        }))
    }
}

/// Whether an item is due as it was written. What was tried is due later, and no try takes less than a millisecond.
pub(crate) fn is_due_since_written(created_at: DateTime<Utc>, due_at: DateTime<Utc>) -> bool {
    due_at.signed_duration_since(created_at) < chrono::TimeDelta::milliseconds(1)
}

/// An item's first span, known to all that it causes.
fn enqueue_span(item: Uuid) -> SpanId {
    derive(Step::Enqueue, item, Uuid::nil())
}

/// Of one step under one lease there is one span, whoever tells of it and however often.
fn derive(step: Step, item: Uuid, lease: Uuid) -> SpanId {
    let mut hash = Sha256::new();
    hash.update(step.name());
    hash.update(item.as_bytes());
    hash.update(lease.as_bytes());
    let mut bytes = [0; 8];
    for (byte, hashed) in bytes.iter_mut().zip(hash.finalize()) {
        *byte = hashed;
    }
    SpanId::new(bytes)
}

impl ItemTrace {
    /// What goes out with a dispatch: whatever it causes is a part of it.
    pub fn outgoing(&self) -> String {
        let span_id = derive(Step::Dispatch, self.item, self.lease);
        TraceParent { trace_id: self.trace_id, span_id, sampled: true }.to_string()
    }

    /// This process has written it, and waited for that since `asked_at`.
    pub fn written(&self, asked_at: SystemTime) {
        self.record(Step::Enqueue, asked_at, SystemTime::now(), |_| {});
    }

    /// A claim that was begun at `asked_at` has leased it, due since `due_at`; `is_first`: nobody has had it before, so that
    /// nobody has told of its writing.
    pub fn claimed(
        &self,
        asked_at: SystemTime,
        created_at: DateTime<Utc>,
        due_at: Option<DateTime<Utc>>,
        is_first: bool,
    ) {
        if is_first {
            self.record(Step::Enqueue, created_at.into(), created_at.into(), |_| {});
        }
        if let Some(due_at) = due_at {
            self.record(Step::Wait, due_at.into(), asked_at, |_| {});
        }
        self.record(Step::Claim, asked_at, SystemTime::now(), |_| {});
    }

    /// It was at its destination for so long, until now.
    pub fn dispatched(
        &self,
        took: Duration,
        destination: Option<&str>,
        outcome: &'static str,
        error_code: Option<&str>,
    ) {
        let now = SystemTime::now();
        let started_at = now.checked_sub(took).unwrap_or(now);
        self.record(Step::Dispatch, started_at, now, |span| {
            span.destination = destination.map(str::to_owned);
            span.outcome = Some(outcome);
            span.error_code =
                error_code.map(|code| code.chars().take(ERROR_CODE_CHARACTERS_MAX).collect());
        });
    }

    /// Its outcome was written down, by a call that was begun at that time.
    pub fn completed(&self, asked_at: SystemTime, outcome: &'static str) {
        self.record(Step::Complete, asked_at, SystemTime::now(), |span| {
            span.outcome = Some(outcome);
        });
    }

    fn record(&self, step: Step, from: SystemTime, to: SystemTime, fill: impl FnOnce(&mut Span)) {
        let first = enqueue_span(self.item);
        let is_first = step == Step::Enqueue;
        let mut span = Span {
            trace_id: self.trace_id,
            span_id: if is_first { first } else { derive(step, self.item, self.lease) },
            parent: self.cause.or((!is_first).then_some(first)),
            step,
            lane: self.lane,
            item: self.item,
            attempt: self.attempt,
            destination: None,
            outcome: None,
            error_code: None,
            started_at: from,
            // The database's clock and ours may differ.
            ended_at: to.max(from),
        };
        fill(&mut span);
        self.sink.record(span);
    }
}

impl fmt::Debug for ItemTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemTrace").field("trace_id", &self.trace_id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Traces(collected)" } else { "Traces" })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Kept {
        spans: Mutex<Vec<Span>>,
        samples: bool,
    }

    impl SpanSink for Kept {
        fn samples(&self, _: TraceId) -> bool {
            self.samples
        }

        fn record(&self, span: Span) {
            self.spans.lock().unwrap().push(span);
        }
    }

    fn item(id: Uuid, traceparent: Option<&str>) -> Item<'_> {
        Item {
            lane: "payments",
            id,
            root: id,
            cause: None,
            traceparent,
            lease: Uuid::new_v4(),
            attempt: 1,
        }
    }

    fn kept(samples: bool) -> (Arc<Kept>, Traces) {
        let kept = Arc::new(Kept { samples, ..Kept::default() });
        (kept.clone(), Traces::new(kept))
    }

    const PRODUCER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn tell(trace: &ItemTrace) {
        let now = SystemTime::now();
        trace.claimed(now, Utc::now(), Some(Utc::now()), true);
        trace.dispatched(Duration::from_millis(5), Some("sepa"), "DISPATCHED", None);
        trace.completed(now, "DISPATCHED");
    }

    #[test]
    fn every_attempt_is_a_part_of_the_producers_span() {
        let (kept, traces) = kept(false);
        let id = Uuid::new_v4();
        for _ in 0..2 {
            tell(&traces.of(&item(id, Some(PRODUCER))).unwrap());
        }
        let spans = kept.spans.lock().unwrap();
        let parent = TraceParent::parse(PRODUCER).unwrap();
        assert!(spans.iter().all(|span| span.trace_id == parent.trace_id));
        assert!(spans.iter().all(|span| span.parent == Some(parent.span_id)));
        let mut ids: Vec<_> = spans.iter().map(|span| span.span_id.to_bytes()).collect();
        ids.sort_unstable();
        ids.dedup();
        // Five steps, two attempts; it was written once.
        assert_eq!(ids.len(), 9);
        assert!(spans.iter().all(|span| span.started_at <= span.ended_at));
    }

    #[test]
    fn without_a_producers_span_the_items_own_is_the_first() {
        let (kept, traces) = kept(true);
        let id = Uuid::new_v4();
        let child = Item { cause: Some(id), ..item(Uuid::new_v4(), None) };
        tell(&traces.of(&item(id, None)).unwrap());
        tell(&traces.of(&Item { root: id, ..child }).unwrap());
        let spans = kept.spans.lock().unwrap();
        assert!(spans.iter().all(|span| span.trace_id == TraceId::of_item(id)));
        assert_eq!(spans.iter().filter(|span| span.parent.is_none()).count(), 1);
        let first = spans.first().unwrap();
        assert!(spans.iter().skip(1).all(|span| span.parent == Some(first.span_id)));
    }

    #[test]
    fn what_goes_out_names_the_dispatch() {
        let (kept, traces) = kept(true);
        let trace = traces.of(&item(Uuid::new_v4(), Some(PRODUCER))).unwrap();
        tell(&trace);
        let out = TraceParent::parse(&trace.outgoing()).unwrap();
        let spans = kept.spans.lock().unwrap();
        let dispatch = spans.iter().find(|span| span.step == Step::Dispatch).unwrap();
        assert_eq!((out.trace_id, out.span_id), (dispatch.trace_id, dispatch.span_id));
    }

    #[test]
    fn a_trace_that_nobody_collects_costs_no_span() {
        let unsampled = PRODUCER.replace("-01", "-00");
        let (_, traces) = kept(false);
        assert!(traces.of(&item(Uuid::new_v4(), Some(&unsampled))).is_none());
        assert!(traces.of(&item(Uuid::new_v4(), None)).is_none());
        assert!(Traces::default().of(&item(Uuid::new_v4(), Some(PRODUCER))).is_none());
    }
}
