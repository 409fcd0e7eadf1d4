//! `/metrics`: what a process counted, and what the database says, as Prometheus reads it.

use std::sync::Arc;

use symphony::consumer::ConsumerMetrics;
use symphony::db::LaneStatus;
use symphony::engine::gate::{Answered, BreakerState, Destination, DestinationKind, TroubleKind};
use symphony::engine::{Histogram, LATENCY_BOUNDS_MS, LaneMetrics};

type ReadProcess = fn(&LaneMetrics) -> u64;
type ReadDatabase = fn(&LaneStatus) -> i64;

/// One family of samples: its name, type and meaning.
struct Family<'a> {
    page: &'a mut String,
    name: &'static str,
}

impl<'a> Family<'a> {
    fn new(page: &'a mut String, name: &'static str, kind: &str, help: &str) -> Self {
        page.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Self { page, name }
    }

    fn sample(&mut self, labels: &str, value: impl std::fmt::Display) {
        self.page.push_str(&format!("{}{{{labels}}} {value}\n", self.name));
    }
}

/// The whole page.
pub fn render(lanes: &[(&'static str, Arc<LaneMetrics>)], figures: &[LaneStatus]) -> String {
    let mut page = String::with_capacity(8 * 1024);
    let counters: [(&'static str, &str, ReadProcess); 15] = [
        ("notify_wakeups_total", "Hints that led to a claim.", |m| m.notify_wakeups.get()),
        ("claim_batches_total", "Claims made.", |m| m.claim_batches.get()),
        ("empty_claims_total", "Claims that found nothing.", |m| m.empty_claims.get()),
        ("completion_batches_total", "Writes of gathered outcomes.", |m| {
            m.completion_batches.get()
        }),
        ("claimed_items_total", "Items claimed.", |m| m.claimed_items.get()),
        ("unknown_outcomes_total", "Outcomes nobody knows yet.", |m| m.unknown.get()),
        ("parked_items_total", "Items this process left to a person.", |m| m.parked.get()),
        ("reaper_requeues_total", "Expired leases of lost workers that were ended.", |m| {
            m.reaper_requeues.get()
        }),
        ("leases_lost_total", "Leases this process lost to others.", |m| m.leases_lost.get()),
        ("returned_unsent_total", "Items given back unsent.", |m| m.returned_unsent.get()),
        ("late_outcomes_total", "Outcomes kept as evidence because they came too late.", |m| {
            m.late_outcomes.get()
        }),
        (
            "late_outcome_conflicts_total",
            "Late outcomes that contradict the ledger. Must be 0.",
            |m| m.late_conflicts.get(),
        ),
        (
            "terminal_blocked_total",
            "Second terminal outcomes that the unique index refused and that are kept as evidence.",
            |m| m.terminal_blocked.get(),
        ),
        ("integrity_alarms_total", "Refusals that should be impossible. Must be 0.", |m| {
            m.integrity_alarms.get()
        }),
        ("database_errors_total", "Calls to the database that failed.", |m| {
            m.database_errors.get()
        }),
    ];
    for (name, help, read) in counters {
        let mut family = Family::new(&mut page, name, "counter", help);
        for (lane, metrics) in lanes {
            family.sample(&format!("lane=\"{lane}\""), read(metrics));
        }
    }
    let mut attempts = Family::new(
        &mut page,
        "attempts_total",
        "counter",
        "Outcomes this process wrote into the ledger.",
    );
    for (lane, metrics) in lanes {
        for (state, counter) in [
            ("DISPATCHED", &metrics.dispatched),
            ("RETRYABLE", &metrics.retryable),
            ("FAILED", &metrics.failed),
        ] {
            attempts.sample(&format!("lane=\"{lane}\",state=\"{state}\""), counter.get());
        }
    }
    let process: [(&'static str, &str, ReadProcess); 3] = [
        ("held_items", "Items this process holds.", |m| m.held_items.get()),
        ("listener_up", "1 while hints arrive, proved by a probe.", |m| m.listener_up.get()),
        ("doorman", "1 while this process follows hints at once.", |m| m.doorman.get()),
    ];
    for (name, help, read) in process {
        let mut family = Family::new(&mut page, name, "gauge", help);
        for (lane, metrics) in lanes {
            family.sample(&format!("lane=\"{lane}\""), read(metrics));
        }
    }
    latency(&mut page, lanes);
    for kind in [DestinationKind::Rail, DestinationKind::Bus] {
        destinations(&mut page, kind, lanes);
    }
    database(&mut page, figures);
    page
}

/// The page of a consumer.
pub fn render_consumer(consumer: &str, metrics: &ConsumerMetrics) -> String {
    let mut page = String::with_capacity(4 * 1024);
    let label = format!("consumer=\"{consumer}\"");
    for (name, kind, help, value) in [
        (
            "event_consumer_received_total",
            "counter",
            "Messages received, repeated ones included.",
            metrics.received.get(),
        ),
        ("event_consumer_applied_total", "counter", "Events applied.", metrics.applied.get()),
        (
            "event_consumer_duplicates_total",
            "counter",
            "Events that had been applied before.",
            metrics.duplicates.get(),
        ),
        (
            "event_consumer_failed_tries_total",
            "counter",
            "Tries left to redelivery.",
            metrics.failed_tries.get(),
        ),
        (
            "event_consumer_passed_over_total",
            "counter",
            "Messages given back untried.",
            metrics.passed_over.get(),
        ),
        (
            "event_consumer_bus_errors_total",
            "counter",
            "Calls to the bus that failed.",
            metrics.bus_errors.get(),
        ),
        (
            "event_consumer_lag_seconds",
            "gauge",
            "From an event's occurrence to its effects; 0 when nothing is left.",
            metrics.lag_seconds.get(),
        ),
        ("event_consumer_held", "gauge", "Messages in hand.", metrics.held.get()),
    ] {
        Family::new(&mut page, name, kind, help).sample(&label, value);
    }
    let mut letters =
        Family::new(&mut page, "dead_letter_count", "counter", "Messages dead-lettered.");
    for (reason, counter) in [
        ("POISON", &metrics.dead_letters_poison),
        ("REJECTED", &metrics.dead_letters_rejected),
        ("RECEIVES_EXHAUSTED", &metrics.dead_letters_exhausted),
    ] {
        letters.sample(&format!("{label},reason=\"{reason}\""), counter.get());
    }
    let name = "event_consumer_handler_latency_ms";
    Family::new(&mut page, name, "histogram", "Time from a try's start to its end.");
    histogram(&mut page, name, &label, &metrics.handler_latency);
    page
}

fn latency(page: &mut String, lanes: &[(&'static str, Arc<LaneMetrics>)]) {
    let name = "dispatch_latency_ms";
    Family::new(page, name, "histogram", "Time from a dispatch's start to its outcome.");
    for (lane, metrics) in lanes {
        histogram(page, name, &format!("lane=\"{lane}\""), &metrics.dispatch_latency);
    }
}

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

/// Rails or buses by their configured names, of which there are few: nothing that a stranger sent is a label.
fn destinations(
    page: &mut String,
    kind: DestinationKind,
    lanes: &[(&'static str, Arc<LaneMetrics>)],
) {
    let served: Vec<(String, Arc<Destination>)> = lanes
        .iter()
        .filter_map(|(_, metrics)| metrics.destinations.get())
        .flatten()
        .filter(|destination| destination.kind() == kind)
        .map(|destination| {
            (format!("{}=\"{}\"", kind.name(), escaped(destination.name())), destination.clone())
        })
        .collect();
    if served.is_empty() {
        return;
    }
    let names = if kind == DestinationKind::Rail { RAIL } else { BUS };
    let mut family = Family::new(
        page,
        names.breaker,
        "gauge",
        "0: everything flows; 1: one probe is out; 2: it is in trouble and left alone.",
    );
    for (label, destination) in &served {
        let state = match destination.state() {
            BreakerState::Closed => 0,
            BreakerState::HalfOpen => 1,
            BreakerState::Open => 2,
        };
        family.sample(label, state);
    }
    let mut family = Family::new(page, names.opened, "counter", "How often it was left alone.");
    for (label, destination) in &served {
        family.sample(label, destination.opened.get());
    }
    let mut family = Family::new(page, names.answers, "counter", "What it answered.");
    for (label, destination) in &served {
        for answered in Answered::ALL {
            let labels = format!("{label},answer=\"{}\"", answered.name());
            family.sample(&labels, destination.answers(answered));
        }
    }
    let mut family = Family::new(
        page,
        names.troubles,
        "counter",
        "Answers that show that it is itself in trouble, by kind.",
    );
    for (label, destination) in &served {
        for trouble in TroubleKind::ALL {
            let labels = format!("{label},kind=\"{}\"", trouble.name());
            family.sample(&labels, destination.troubles(trouble));
        }
    }
    let mut family = Family::new(
        page,
        names.rate,
        "gauge",
        "The limit that is kept, calls per second; 0 for none.",
    );
    for (label, destination) in &served {
        family.sample(label, destination.rate_per_second().unwrap_or(0));
    }
    Family::new(page, names.latency, "histogram", "How long one call took.");
    for (label, destination) in &served {
        histogram(page, names.latency, label, &destination.latency);
    }
}

/// As the format wants it within quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn histogram(page: &mut String, name: &str, label: &str, histogram: &Histogram) {
    let counts = histogram.cumulative();
    for (bound, count) in LATENCY_BOUNDS_MS.iter().zip(&counts) {
        page.push_str(&format!("{name}_bucket{{{label},le=\"{bound}\"}} {count}\n"));
    }
    let all = counts.last().copied().unwrap_or(0);
    let sum = histogram.sum();
    page.push_str(&format!(
        "{name}_bucket{{{label},le=\"+Inf\"}} {all}\n{name}_sum{{{label}}} {}.{:03}\n{name}_count{{{label}}} {all}\n",
        sum.as_millis(),
        sum.subsec_micros() % 1_000,
    ));
}

fn database(page: &mut String, figures: &[LaneStatus]) {
    let gauges: [(&'static str, &str, ReadDatabase); 7] = [
        ("outbox_pending_depth", "Items not ended yet.", |l| l.pending),
        ("oldest_pending_age_seconds", "Age of the oldest item not ended yet.", |l| {
            l.oldest_pending_age_seconds
        }),
        ("dlq_depth", "Items that failed and were not redriven.", |l| l.dlq_count),
        ("stuck_dispatching_count", "Leases that have expired.", |l| l.expired_lease_count),
        (
            "open_incidents",
            "Late outcomes that contradict the ledger and that nobody has closed.",
            |l| l.incident_count,
        ),
        ("parked_depth", "Items waiting for a person.", |l| l.parked_count),
        ("due_unleased_depth", "Items that are due and nobody has.", |l| l.due_unleased_count),
    ];
    for (name, help, read) in gauges {
        let mut family = Family::new(page, name, "gauge", help);
        for lane in figures {
            family.sample(&format!("lane=\"{}\"", lane.lane), read(lane));
        }
    }
    // The event lane's own names, as its contract has them.
    let events: [(&'static str, &str, ReadDatabase); 2] = [
        ("event_outbox_backlog", "Events not published yet.", |l| l.pending),
        ("event_publish_lag_seconds", "Age of the oldest event not published yet.", |l| {
            l.oldest_pending_age_seconds
        }),
    ];
    for (name, help, read) in events {
        let mut family = Family::new(page, name, "gauge", help);
        for lane in figures.iter().filter(|lane| lane.lane == "events") {
            family.sample("lane=\"events\"", read(lane));
        }
    }
}
