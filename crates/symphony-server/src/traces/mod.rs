//! Traces: takes the lanes' spans and hands them to a collector. Nobody waits for it: spans that find no room, or that the
//! collector does not take, are dropped and counted.
//!
//! - `otlp.rs`: spans as OTLP has them, and one post.

mod otlp;

use std::sync::{Arc, Mutex, PoisonError};

use symphony::engine::LaneMetrics;
use symphony::trace::{Span, SpanSink, TraceId, Traces};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::bounds::{SPANS_FILL_TIME, SPANS_FLUSH_TIME, SPANS_PAUSE, SPANS_TRIES_MAX};
use crate::config::TracesSection;
use crate::output::Failure;
use otlp::{Otlp, Refused};

type Lanes = Vec<(&'static str, Arc<LaneMetrics>)>;

/// What exports this process's spans.
#[derive(Debug)]
pub struct Exporter {
    traces: Traces,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    task: JoinHandle<()>,
}

impl Exporter {
    /// Start, unless traces are off. Counts by lane.
    pub fn start(section: &TracesSection, lanes: Lanes) -> Result<Option<Self>, Failure> {
        let collector = section.collector().map_err(|error| error.within("traces"));
        let collector = collector.map_err(|error| Failure::new(error.to_string()))?;
        let Some(collector) = collector else { return Ok(None) };
        let otlp = Otlp::new(&section.endpoint, collector)
            .map_err(|problem| Failure::new(format!("traces.endpoint: {problem}")))?;
        let (queue, spans) = mpsc::channel(section.queue_max);
        let sink = Sink { queue, lanes: lanes.clone(), per_thousand: section.sampled_per_thousand };
        let (stop, stopped) = oneshot::channel();
        let export = Export { otlp, lanes, batch_max: section.batch_max, lost: None };
        Ok(Some(Self {
            traces: Traces::new(Arc::new(sink)),
            stop: Mutex::new(Some(stop)),
            task: tokio::spawn(export.run(spans, stopped)),
        }))
    }

    /// Where lanes tell of their items.
    pub fn traces(&self) -> Traces {
        self.traces.clone()
    }

    /// Hand over what waits, for a short while.
    pub async fn stop(self) {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        let mut task = self.task;
        if tokio::time::timeout(SPANS_FLUSH_TIME, &mut task).await.is_err() {
            task.abort();
        }
    }
}

/// Where spans wait.
struct Sink {
    queue: mpsc::Sender<Span>,
    lanes: Lanes,
    per_thousand: u32,
}

impl SpanSink for Sink {
    fn samples(&self, trace_id: TraceId) -> bool {
        sampled(trace_id, self.per_thousand)
    }

    fn record(&self, span: Span) {
        let lane = span.lane;
        if self.queue.try_send(span).is_err() {
            count(&self.lanes, lane, |metrics| metrics.spans_dropped.add(1));
        }
    }
}

/// By the id alone, so that every process answers the same. Ids of one batch differ in few bits: these are mixed.
fn sampled(trace_id: TraceId, per_thousand: u32) -> bool {
    let id = u128::from_be_bytes(trace_id.to_bytes());
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let mixed = (mixed ^ (mixed >> 61)).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    (mixed >> 96) % 1_000 < u128::from(per_thousand)
}

fn count(lanes: &Lanes, lane: &str, by: impl Fn(&LaneMetrics)) {
    if let Some((_, metrics)) = lanes.iter().find(|(name, _)| *name == lane) {
        by(metrics);
    }
}

/// Takes spans from the queue and posts them.
struct Export {
    otlp: Otlp,
    lanes: Lanes,
    batch_max: usize,
    /// How many were lost since the collector takes nothing.
    lost: Option<usize>,
}

impl Export {
    async fn run(mut self, mut spans: mpsc::Receiver<Span>, mut stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(self.batch_max);
        loop {
            let got = tokio::select! {
                biased;
                _ = &mut stopped, if !spans.is_closed() => {
                    spans.close();
                    continue;
                }
                got = spans.recv_many(&mut batch, self.batch_max) => got,
            };
            if got == 0 {
                return;
            }
            if batch.len() < self.batch_max && !spans.is_closed() {
                tokio::time::sleep(SPANS_FILL_TIME).await;
                while batch.len() < self.batch_max
                    && let Ok(span) = spans.try_recv()
                {
                    batch.push(span);
                }
            }
            let is_last_chance = spans.is_closed();
            self.post(&batch, is_last_chance).await;
            batch.clear();
        }
    }

    async fn post(&mut self, batch: &[Span], is_last_chance: bool) {
        for tried in 1..=SPANS_TRIES_MAX {
            match self.otlp.post(batch).await {
                Ok(()) => {
                    for span in batch {
                        count(&self.lanes, span.lane, |metrics| metrics.spans_exported.add(1));
                    }
                    if let Some(lost) = self.lost.take() {
                        tracing::info!(lost, "the collector takes spans again");
                    }
                    return;
                }
                Err(Refused { problem, may_pass }) => {
                    // One line for as long as it lasts.
                    if self.lost.is_none() {
                        tracing::warn!(
                            error = problem,
                            "the collector takes no spans: they are dropped and counted, and nothing waits for it"
                        );
                        self.lost = Some(0);
                    }
                    if !may_pass || is_last_chance || tried == SPANS_TRIES_MAX {
                        break;
                    }
                }
            }
            tokio::time::sleep(SPANS_PAUSE).await;
        }
        self.lost = self.lost.map(|lost| lost.saturating_add(batch.len()));
        for span in batch {
            count(&self.lanes, span.lane, |metrics| metrics.spans_dropped.add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_ratio_is_kept_for_random_ids_and_for_ids_of_one_batch() {
        let share = |ids: &mut dyn Iterator<Item = Uuid>| {
            ids.filter(|id| sampled(TraceId::of_item(*id), 100)).count()
        };
        let random = share(&mut (0..20_000).map(|_| Uuid::new_v4()));
        assert!((1_700..2_300).contains(&random), "{random} of 20,000");
        let batch = 0x019a_8b1c_0c51_7d0a_8f0e_5d3c_2b7a_9e10_u128;
        // Those that differ in a number in the middle, as ids of one enqueue do.
        let batch = share(&mut (0..20_000).map(|n| Uuid::from_u128(batch ^ (n << 62))));
        assert!((1_700..2_300).contains(&batch), "{batch} of 20,000");
        let all = Uuid::new_v4();
        assert!(sampled(TraceId::of_item(all), 1_000));
        assert!(!sampled(TraceId::of_item(all), 0));
    }

    /// A span that is dropped must not make anybody wait.
    #[tokio::test]
    async fn a_full_queue_drops_and_counts() {
        let metrics: Arc<LaneMetrics> = Arc::default();
        let lanes: Lanes = vec![("payments", metrics.clone())];
        let (queue, _never_read) = mpsc::channel(3);
        let traces = Traces::new(Arc::new(Sink { queue, lanes, per_thousand: 1_000 }));
        let id = Uuid::new_v4();
        let item = symphony::trace::Item {
            lane: "payments",
            id,
            root: id,
            cause: None,
            traceparent: None,
            lease: Uuid::new_v4(),
            attempt: 1,
        };
        for _ in 0..5 {
            if let Some(trace) = traces.of(&item) {
                trace.dispatched(Duration::ZERO, None, "DISPATCHED", None);
            }
        }
        assert_eq!(metrics.spans_dropped.get(), 2);
    }
}
