//! Says every few seconds which destinations this worker serves and how they are, and hears whether a person wants one tried
//! at once. Nothing depends on it but what people are shown.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::future;
use tokio::sync::watch;

use super::gate::Destination;
use super::{Lane, Shared, Stage};
use crate::db::{DbError, DestinationReport, ReportedOutcomes};

/// How often; at once when a breaker opens or closes.
const EVERY: Duration = Duration::from_secs(3);
/// The limit on one report: without reports a worker counts as gone.
const LIMIT: Duration = Duration::from_secs(10);

/// Report until the engine stops, then take it back; whoever waits for that sees `reporting` dropped.
pub(super) async fn report<L: Lane>(shared: Arc<Shared<L>>, reporting: watch::Receiver<()>) {
    let Some(served) = shared.metrics.destinations.get() else {
        return std::future::pending().await;
    };
    let mut stage = shared.stage.clone();
    let mut reporter = Reporter::default();
    let mut failing = false;
    loop {
        let said = tokio::time::timeout(LIMIT, reporter.say(&shared, served)).await;
        match said {
            Ok(Ok(())) => failing = false,
            // Logged once: claims and completions fail for the same reason, and log it too.
            Ok(Err(error)) if !failing => {
                failing = true;
                shared.metrics.database_errors.add(1);
                tracing::warn!(lane = shared.lane.name(), code = error.code(), %error, "how its destinations are could not be reported");
            }
            Ok(Err(_)) | Err(_) => shared.metrics.database_errors.add(1),
        }
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = any_change(served) => {}
            _ = stage.wait_for(|stage| *stage > Stage::Running) => break,
        }
    }
    // If this fails too, the database drops the worker after some seconds.
    let worker = shared.database.worker();
    let (worker_id, lane) = (shared.lane.worker_id(), shared.lane.name());
    let gone = worker.report_destinations(worker_id, lane, &[], 0, ReportedOutcomes::default());
    drop(tokio::time::timeout(LIMIT, gone).await);
    drop(reporting);
    std::future::pending::<()>().await;
}

async fn any_change(served: &[Arc<Destination>]) {
    if served.is_empty() {
        return std::future::pending().await;
    }
    future::select_all(served.iter().map(|served| Box::pin(served.to_be_reported()))).await;
}

/// What was said and heard before.
#[derive(Default)]
struct Reporter {
    at: Option<Instant>,
    /// Calls and their microseconds, by name.
    before: HashMap<String, (u64, Duration)>,
    /// Dispatched, retryable and failed.
    outcomes_before: [u64; 3],
    /// When a person last asked for each.
    resets: Option<HashMap<String, DateTime<Utc>>>,
}

impl Reporter {
    async fn say<L: Lane>(
        &mut self,
        shared: &Shared<L>,
        served: &[Arc<Destination>],
    ) -> Result<(), DbError> {
        let now = Instant::now();
        let window = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let mut counted = HashMap::new();
        let mut reports = Vec::with_capacity(served.len());
        for destination in served {
            let name = destination.name();
            let all = destination.latency.cumulative().last().copied().unwrap_or(0);
            let took = destination.latency.sum();
            let (all_before, took_before) = self.before.get(name).copied().unwrap_or_default();
            let calls = all.saturating_sub(all_before);
            let micros = took.saturating_sub(took_before).as_micros();
            let mean = micros.checked_div(u128::from(calls)).map(|micros| micros.div_ceil(1_000));
            counted.insert(name.to_owned(), (all, took));
            reports.push(DestinationReport {
                state: destination.look(),
                calls: i32::try_from(calls).unwrap_or(i32::MAX),
                latency_ms: mean.map(|mean| i32::try_from(mean).unwrap_or(i32::MAX)),
            });
        }
        let worker = shared.database.worker();
        let window_ms = i32::try_from(window.as_millis()).unwrap_or(i32::MAX);
        let (worker_id, lane) = (shared.lane.worker_id(), shared.lane.name());
        let written =
            [&shared.metrics.dispatched, &shared.metrics.retryable, &shared.metrics.failed];
        let written = written.map(crate::metrics::Counter::get);
        let since = |place: usize| {
            let all: Option<(&u64, &u64)> = written.get(place).zip(self.outcomes_before.get(place));
            let grown = all.map_or(0, |(all, before)| all.saturating_sub(*before));
            i32::try_from(grown).unwrap_or(i32::MAX)
        };
        let outcomes =
            ReportedOutcomes { dispatched: since(0), retryable: since(1), failed: since(2) };
        let reported = worker.report_destinations(worker_id, lane, &reports, window_ms, outcomes);
        let resets = reported.await?;
        (self.at, self.before, self.outcomes_before) = (Some(now), counted, written);
        let resets: HashMap<String, DateTime<Utc>> = resets.into_iter().collect();
        // A reset asked for before this worker started is not for it.
        if let Some(known) = &self.resets {
            for destination in served {
                let name = destination.name();
                if resets.get(name) > known.get(name) {
                    destination.reset();
                }
            }
        }
        self.resets = Some(resets);
        Ok(())
    }
}
