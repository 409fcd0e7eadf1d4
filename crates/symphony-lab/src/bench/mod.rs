//! What `symphony bench` measures.
//!
//! - [`sql`]: the payment lane in SQL, each workload beside the raw limit in the same run.
//! - [`workers`]: one engine beside SQL; latency and recovery.
//! - [`events`]: the event lane, both ways.
//! - [`triggers`]: scripts over HTTP, with `http_clients`; [`idle`]: what workers cost that have nothing to do.
//! - `harness`: databases for the benchmark, and the clock around it.
//!
//! Every timed run has a database of its own, cloned from one template, so that no run inherits another's
//! dead rows. Figures are medians of several runs; ratios are what counts. Whole numbers only.

pub mod events;
mod harness;
mod http_clients;
pub mod idle;
mod options;
pub mod sql;
pub mod triggers;
pub mod workers;

use serde::Serialize;

use crate::LabError;
use harness::median;
use harness::{Bench, Run};
pub use options::{
    BenchEvents, BenchIdle, BenchRun, BenchSql, BenchTriggers, EventWorkload, TriggerWorkload,
    WorkerWorkload, Workload,
};

/// One line of the report.
#[derive(Debug, Serialize)]
pub struct Line {
    /// What was measured.
    pub workload: String,
    /// How fast it was.
    pub items_per_second: u64,
    /// What it is compared with.
    pub beside: &'static str,
    /// How fast that was.
    pub beside_per_second: u64,
    /// The one as a share of the other.
    pub ratio_percent: u64,
    /// What the share must be at least.
    pub target_percent: Option<u64>,
}

impl Line {
    /// Whether the target is met.
    pub fn holds(&self) -> bool {
        self.target_percent.is_none_or(|target| self.ratio_percent >= target)
    }
}

/// Runs of one workload and of what stands beside it, in turn, so that both see the same machine.
struct Pair {
    ours: Vec<u64>,
    beside: Vec<u64>,
}

impl Pair {
    fn line(self, workload: &str, beside: &'static str, target_percent: Option<u64>) -> Line {
        let (items_per_second, beside_per_second) = (median(self.ours), median(self.beside));
        Line {
            workload: workload.to_owned(),
            items_per_second,
            beside,
            beside_per_second,
            ratio_percent: items_per_second * 100 / beside_per_second.max(1),
            target_percent,
        }
    }
}

async fn pair(
    bench: &Bench<'_>,
    runs: u32,
    name: &str,
    ours: impl AsyncFn(&Run<'_>) -> Result<u64, LabError>,
    beside: impl AsyncFn(&Run<'_>) -> Result<u64, LabError>,
) -> Result<Pair, LabError> {
    let mut pair = Pair { ours: Vec::new(), beside: Vec::new() };
    for round in 1..=runs {
        bench.progress(&format!("{name}, run {round} of {runs}"));
        pair.beside.push(bench.measure(&beside).await?);
        pair.ours.push(bench.measure(&ours).await?);
    }
    Ok(pair)
}
