//! `/metrics`: what a process counted, and what the database says, in Prometheus's text format 0.0.4.
//!
//! The engine counts in plain atomics. They are read at each scrape; `prometheus-client` writes the page and escapes the
//! labels. docs/METRICS.md lists every family; a test compares.

mod figures;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use symphony::consumer::ConsumerMetrics;
use symphony::db::LaneStatus;
use symphony::engine::{Answered, BreakerState, Destination, DestinationKind, TroubleKind};
use symphony::engine::{Histogram, LATENCY_BOUNDS_MS, LaneMetrics, ScriptHealth};

pub use figures::{Figures, Known};

type Lanes = Vec<(&'static str, Arc<LaneMetrics>)>;
type ReadProcess = fn(&LaneMetrics) -> u64;
type ReadScripts = fn(&dyn ScriptHealth) -> usize;
type ReadDatabase = fn(&LaneStatus) -> i64;

/// The page of a worker or a server of apps.
pub fn render(lanes: &[(&'static str, Arc<LaneMetrics>)], known: &Known) -> String {
    page(Process { lanes: lanes.to_vec(), known: known.clone() })
}

/// The page of a consumer.
pub fn render_consumer(consumer: &str, metrics: &Arc<ConsumerMetrics>) -> String {
    page(Consumer { name: consumer.to_owned(), metrics: metrics.clone() })
}

fn page(collector: impl Collector) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(collector));
    let mut page = String::with_capacity(16 * 1024);
    // Writing into a String cannot fail.
    let _infallible = text::encode_registry(&mut page, &registry);
    page
}

#[derive(Debug)]
struct Process {
    lanes: Lanes,
    known: Known,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut encoder;
        for (name, help, read) in COUNTERS {
            let mut family = Family::counter(page, name, help)?;
            for (lane, metrics) in &self.lanes {
                family.sample(&[("lane", *lane)], read(metrics))?;
            }
        }
        let help = "Outcomes this process wrote into the ledger.";
        let mut attempts = Family::counter(page, "attempts_total", help)?;
        for (lane, metrics) in &self.lanes {
            for (state, counter) in [
                ("DISPATCHED", &metrics.dispatched),
                ("RETRYABLE", &metrics.retryable),
                ("FAILED", &metrics.failed),
                ("ZOMBIE_REQUEUE", &metrics.zombies),
            ] {
                attempts.sample(&[("lane", *lane), ("state", state)], counter.get())?;
            }
        }
        for (name, help, read) in PROCESS_GAUGES {
            let mut family = Family::gauge(page, name, help)?;
            for (lane, metrics) in &self.lanes {
                family.sample(&[("lane", *lane)], read(metrics))?;
            }
        }
        for (name, help, read) in SCRIPT_GAUGES {
            let mut family = Family::gauge(page, name, help)?;
            for (lane, metrics) in &self.lanes {
                if let Some(scripts) = metrics.scripts.get() {
                    family.sample(&[("lane", *lane)], read(&**scripts))?;
                }
            }
        }
        let help = "Time from a dispatch's start to its outcome.";
        let mut latency = Family::histogram(page, "dispatch_latency_ms", help)?;
        for (lane, metrics) in &self.lanes {
            latency.latencies(&[("lane", *lane)], &metrics.dispatch_latency)?;
        }
        destinations(page, DestinationKind::Rail, &RAIL, &self.lanes)?;
        destinations(page, DestinationKind::Bus, &BUS, &self.lanes)?;
        let help = "1 while the database answers this process.";
        let mut family = Family::gauge(page, "database_up", help)?;
        if let Some(up) = self.known.database_up {
            family.0.encode_gauge(&u64::from(up))?;
        }
        for (name, help, read) in DATABASE_GAUGES {
            let mut family = Family::gauge(page, name, help)?;
            for figures in &self.known.lanes {
                family.sample(&[("lane", figures.lane.as_str())], read(figures))?;
            }
        }
        for (name, help, read) in EVENT_GAUGES {
            let mut family = Family::gauge(page, name, help)?;
            for figures in self.known.lanes.iter().filter(|figures| figures.lane == "events") {
                family.sample(&[("lane", "events")], read(figures))?;
            }
        }
        Ok(())
    }
}

const COUNTERS: [(&str, &str, ReadProcess); 18] = [
    ("notify_wakeups_total", "Hints that led to a claim.", |m| m.notify_wakeups.get()),
    ("claim_batches_total", "Claims made.", |m| m.claim_batches.get()),
    ("empty_claims_total", "Claims that found nothing.", |m| m.empty_claims.get()),
    ("completion_batches_total", "Writes of gathered outcomes.", |m| m.completion_batches.get()),
    ("claimed_items_total", "Items claimed.", |m| m.claimed_items.get()),
    ("unknown_outcomes_total", "Outcomes nobody knows yet.", |m| m.unknown.get()),
    ("parked_items_total", "Items this process left to a person.", |m| m.parked.get()),
    ("reaper_requeues_total", "Items of lost workers whose expired leases were ended.", |m| {
        m.reaper_requeues.get()
    }),
    ("leases_lost_total", "Leases this process lost to others.", |m| m.leases_lost.get()),
    ("returned_unsent_total", "Items given back unsent.", |m| m.returned_unsent.get()),
    ("late_outcomes_total", "Outcomes kept as evidence because they came too late.", |m| {
        m.late_outcomes.get()
    }),
    ("late_outcome_conflicts_total", "Late outcomes that contradict the ledger. Must be 0.", |m| {
        m.late_conflicts.get()
    }),
    (
        "terminal_blocked_total",
        "Second terminal outcomes that the unique index refused and that are kept as evidence.",
        |m| m.terminal_blocked.get(),
    ),
    ("integrity_alarms_total", "Refusals that should be impossible. Must be 0.", |m| {
        m.integrity_alarms.get()
    }),
    ("database_errors_total", "Calls to the database that failed.", |m| m.database_errors.get()),
    ("retired_executions_total", "Executions that this process retired by age.", |m| {
        m.retired.get()
    }),
    ("trace_spans_exported_total", "Spans that the collector took.", |m| m.spans_exported.get()),
    (
        "trace_spans_dropped_total",
        "Spans that found no room in the queue, or that the collector did not take.",
        |m| m.spans_dropped.get(),
    ),
];

const PROCESS_GAUGES: [(&str, &str, ReadProcess); 3] = [
    ("held_items", "Items this process holds.", |m| m.held_items.get()),
    ("listener_up", "1 while hints arrive, proved by a probe.", |m| m.listener_up.get()),
    ("hint_leader", "1 while this process follows hints at once.", |m| m.hint_leader.get()),
];

const SCRIPT_GAUGES: [(&str, &str, ReadScripts); 4] = [
    ("script_threads_overdue", "Scripts' threads that run though their time is up.", |s| {
        s.overdue()
    }),
    ("script_threads_stuck", "Those of them that do not come back, at the lowest priority.", |s| {
        s.stuck()
    }),
    ("outcomes_held_up", "Outcomes of runs that wait for a lock.", |s| s.held_up()),
    ("scripts_ended", "1 if this process runs no more scripts: too many do not come back.", |s| {
        usize::from(s.has_ended())
    }),
];

const DATABASE_GAUGES: [(&str, &str, ReadDatabase); 12] = [
    ("outbox_pending_depth", "Items not ended yet.", |l| l.pending),
    (
        "oldest_pending_age_seconds",
        "Age of the oldest item neither ended, parked nor stopped.",
        |l| l.oldest_pending_age_seconds,
    ),
    (
        "oldest_stopped_age_seconds",
        "Age of the oldest item that a pause, or the parked head of its FIFO lane, holds up.",
        |l| l.oldest_stopped_age_seconds,
    ),
    ("dlq_depth", "Items that failed and were not redriven.", |l| l.dlq_count),
    ("stuck_dispatching_count", "Leases that have expired.", |l| l.expired_lease_count),
    (
        "open_incidents",
        "Late outcomes that contradict the ledger and that nobody has closed.",
        |l| l.incident_count,
    ),
    ("parked_depth", "Items waiting for a person.", |l| l.parked_count),
    ("oldest_parked_age_seconds", "Age of the oldest of them.", |l| l.oldest_parked_age_seconds),
    ("live_workers", "Workers that spoke in the last twenty seconds.", |l| l.live_worker_count),
    ("due_unleased_depth", "Items that are due and nobody has.", |l| l.due_unleased_count),
    ("approvals_waiting", "Acts that wait for a second person.", |l| l.approval_waiting_count),
    ("oldest_approval_age_seconds", "For how long the oldest of them waits.", |l| {
        l.oldest_approval_age_seconds
    }),
];

/// The event lane's own names, as its contract has them.
const EVENT_GAUGES: [(&str, &str, ReadDatabase); 2] = [
    ("event_outbox_backlog", "Events not published yet.", |l| l.pending),
    ("event_publish_lag_seconds", "Age of the oldest event not published yet.", |l| {
        l.oldest_pending_age_seconds
    }),
];

/// The names of one kind of destination's families.
struct DestinationNames {
    breaker: &'static str,
    opened: &'static str,
    answers: &'static str,
    troubles: &'static str,
    rate: &'static str,
    latency: &'static str,
}

const RAIL: DestinationNames = DestinationNames {
    breaker: "rail_breaker_state",
    opened: "rail_breaker_opened_total",
    answers: "rail_answers_total",
    troubles: "rail_troubles_total",
    rate: "rail_rate_limit_per_second",
    latency: "rail_latency_ms",
};

const BUS: DestinationNames = DestinationNames {
    breaker: "bus_breaker_state",
    opened: "bus_breaker_opened_total",
    answers: "bus_answers_total",
    troubles: "bus_troubles_total",
    rate: "bus_rate_limit_per_second",
    latency: "bus_latency_ms",
};

/// Rails, or buses and their topics, by their configured names, of which there are few: nothing that a stranger sent is a
/// label.
fn destinations(
    page: &mut DescriptorEncoder<'_>,
    kind: DestinationKind,
    names: &DestinationNames,
    lanes: &Lanes,
) -> fmt::Result {
    let served: Vec<&Arc<Destination>> = lanes
        .iter()
        .filter_map(|(_, metrics)| metrics.destinations.get())
        .flatten()
        .filter(|destination| destination.kind() == kind)
        .collect();
    let labels = |destination: &Arc<Destination>, more: Option<(&'static str, &'static str)>| {
        let (name, topic) = match (kind, destination.name().split_once('/')) {
            (DestinationKind::Bus, Some((bus, topic))) => (bus, Some(("topic", topic.to_owned()))),
            _ => (destination.name(), None),
        };
        let more = more.map(|(label, value)| (label, value.to_owned()));
        [Some((kind.name(), name.to_owned())), topic, more]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
    };
    let help = "0: everything flows; 1: one probe is out; 2: it is in trouble and left alone.";
    let mut family = Family::gauge(page, names.breaker, help)?;
    for destination in &served {
        let state: u64 = match destination.state() {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        family.sample(&labels(destination, None).as_slice(), state)?;
    }
    let mut family = Family::counter(page, names.opened, "How often it was left alone.")?;
    for destination in &served {
        family.sample(&labels(destination, None).as_slice(), destination.opened.get())?;
    }
    let mut family = Family::counter(page, names.answers, "What it answered.")?;
    for destination in &served {
        for answered in Answered::ALL {
            let labels = labels(destination, Some(("answer", answered.name())));
            family.sample(&labels.as_slice(), destination.answers(answered))?;
        }
    }
    let help = "Answers that show that it is itself in trouble, by kind.";
    let mut family = Family::counter(page, names.troubles, help)?;
    for destination in &served {
        for trouble in TroubleKind::ALL {
            let labels = labels(destination, Some(("kind", trouble.name())));
            family.sample(&labels.as_slice(), destination.troubles(trouble))?;
        }
    }
    let help = "The limit that is kept, calls per second; 0 for none.";
    let mut family = Family::gauge(page, names.rate, help)?;
    for destination in &served {
        let rate = u64::from(destination.rate_per_second().unwrap_or(0));
        family.sample(&labels(destination, None).as_slice(), rate)?;
    }
    let mut family = Family::histogram(page, names.latency, "How long one call took.")?;
    for destination in &served {
        family.latencies(&labels(destination, None).as_slice(), &destination.latency)?;
    }
    Ok(())
}

#[derive(Debug)]
struct Consumer {
    name: String,
    metrics: Arc<ConsumerMetrics>,
}

impl Collector for Consumer {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let page = &mut encoder;
        let metrics = &*self.metrics;
        let label = ("consumer", self.name.as_str());
        for (name, help, counter) in [
            (
                "event_consumer_received_total",
                "Messages received, repeated ones included.",
                &metrics.received,
            ),
            ("event_consumer_applied_total", "Events applied.", &metrics.applied),
            (
                "event_consumer_duplicates_total",
                "Events that had been applied before.",
                &metrics.duplicates,
            ),
            (
                "event_consumer_failed_tries_total",
                "Tries that failed and are repeated.",
                &metrics.failed_tries,
            ),
            (
                "event_consumer_passed_over_total",
                "Messages given back untried.",
                &metrics.passed_over,
            ),
            (
                "event_consumer_bus_errors_total",
                "Calls to the bus that failed.",
                &metrics.bus_errors,
            ),
        ] {
            Family::counter(page, name, help)?.sample(&[label], counter.get())?;
        }
        for (name, help, value) in [
            (
                "event_consumer_lag_seconds",
                "Age of the oldest event not applied; 0 when the source is empty; absent when unknown.",
                metrics.lag.seconds(),
            ),
            (
                "event_consumer_dead_letters_waiting",
                "Dead letters that wait for a person; absent when unknown.",
                metrics.dead_letters_waiting.get(),
            ),
            ("event_consumer_held", "Messages in hand.", Some(metrics.held.get())),
            (
                "event_consumer_away",
                "1 while what events are applied to is away.",
                Some(metrics.away.get()),
            ),
        ] {
            let mut family = Family::gauge(page, name, help)?;
            if let Some(value) = value {
                family.sample(&[label], value)?;
            }
        }
        let mut letters = Family::counter(page, "dead_letter_count", "Messages dead-lettered.")?;
        for (reason, counter) in [
            ("POISON", &metrics.dead_letters_poison),
            ("REJECTED", &metrics.dead_letters_rejected),
            ("RECEIVES_EXHAUSTED", &metrics.dead_letters_exhausted),
            ("BROKER", &metrics.dead_letters_broker),
        ] {
            letters.sample(&[label, ("reason", reason)], counter.get())?;
        }
        let help = "Time from a try's start to its end.";
        Family::histogram(page, "event_consumer_handler_latency_ms", help)?
            .latencies(&[label], &metrics.handler_latency)
    }
}

/// One family of samples.
struct Family<'a>(MetricEncoder<'a>);

impl<'a> Family<'a> {
    /// The whole name is given, `_total` included: that is how text format 0.0.4 declares a counter, where OpenMetrics
    /// would leave the suffix out.
    fn counter(page: &'a mut DescriptorEncoder<'_>, name: &'a str, help: &str) -> Described<'a> {
        page.encode_descriptor(name, help, None, MetricType::Counter).map(Self)
    }

    fn gauge(page: &'a mut DescriptorEncoder<'_>, name: &'a str, help: &str) -> Described<'a> {
        page.encode_descriptor(name, help, None, MetricType::Gauge).map(Self)
    }

    fn histogram(page: &'a mut DescriptorEncoder<'_>, name: &'a str, help: &str) -> Described<'a> {
        page.encode_descriptor(name, help, None, MetricType::Histogram).map(Self)
    }

    fn sample(
        &mut self,
        labels: &impl EncodeLabelSet,
        value: impl EncodeGaugeValue + Copy,
    ) -> fmt::Result {
        self.0.encode_family(labels)?.encode_gauge(&value)
    }

    fn latencies(&mut self, labels: &impl EncodeLabelSet, histogram: &Histogram) -> fmt::Result {
        let cumulative = histogram.cumulative();
        let bounds =
            LATENCY_BOUNDS_MS.iter().map(|bound| milliseconds(Duration::from_millis(*bound)));
        let mut before = 0;
        let buckets: Vec<(f64, u64)> = bounds
            .chain([f64::INFINITY])
            .zip(&cumulative)
            .map(|(bound, count)| {
                let own = count.saturating_sub(before);
                before = *count;
                (bound, own)
            })
            .collect();
        let all = cumulative.last().copied().unwrap_or(0);
        let sum = milliseconds(histogram.sum());
        self.0.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, all, &buckets, None)
    }
}

type Described<'a> = Result<Family<'a>, fmt::Error>;

fn milliseconds(time: Duration) -> f64 {
    time.div_duration_f64(Duration::from_millis(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_histograms_cumulative() {
        let metrics = Arc::new(ConsumerMetrics::default());
        metrics.handler_latency.observe(Duration::from_micros(1_500));
        metrics.handler_latency.observe(Duration::from_mins(1));
        let page = render_consumer("a\"b\\c\nd", &metrics);
        let samples = |name: &str| page.lines().filter(|line| line.starts_with(name)).count();
        assert_eq!(samples("event_consumer_lag_seconds{"), 0, "absent, because it is unknown");
        assert_eq!(samples("event_consumer_dead_letters_waiting{"), 0);
        assert_eq!(samples("event_consumer_held{"), 1);
        let label = r#"consumer="a\"b\\c\nd""#;
        for line in [
            "# TYPE event_consumer_applied_total counter",
            &format!("event_consumer_applied_total{{{label}}} 0"),
            &format!("dead_letter_count{{{label},reason=\"POISON\"}} 0"),
            &format!("event_consumer_handler_latency_ms_bucket{{le=\"1.0\",{label}}} 0"),
            &format!("event_consumer_handler_latency_ms_bucket{{le=\"2.0\",{label}}} 1"),
            &format!("event_consumer_handler_latency_ms_bucket{{le=\"+Inf\",{label}}} 2"),
            &format!("event_consumer_handler_latency_ms_sum{{{label}}} 60001.5"),
            &format!("event_consumer_handler_latency_ms_count{{{label}}} 2"),
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
