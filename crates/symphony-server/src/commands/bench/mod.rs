//! `symphony bench`: `sql` measures the payment lane in SQL, each workload beside the raw limit in the same run;
//! `run` (workers.rs) the engine beside SQL; `events` (events.rs) the event lane, both ways; `triggers` (triggers.rs) scripts over
//! HTTP; `idle` (idle.rs) what workers cost that have nothing to do.
//!
//! Every timed run has a database of its own, cloned from one template, so that no run inherits another's
//! dead rows. Figures are medians of several runs; ratios are what counts. Whole numbers only.

mod events;
mod harness;
mod http_clients;
mod idle;
mod triggers;
mod workers;

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::{Bench as What, BenchSql, Global, Workload};
use crate::output::{self, Failure};
use crate::server::Server;
use harness::{Bench, Run, median};

/// One line of the report.
#[derive(Debug, Serialize)]
struct Line {
    workload: String,
    items_per_second: u64,
    beside: &'static str,
    beside_per_second: u64,
    ratio_percent: u64,
    target_percent: Option<u64>,
}

impl Line {
    fn holds(&self) -> bool {
        self.target_percent.is_none_or(|target| self.ratio_percent >= target)
    }
}

pub(super) async fn run(global: &Global, what: &What) -> Result<ExitCode, Failure> {
    match what {
        What::Sql(options) => run_sql(global, options).await,
        What::Events(options) => events::run(global, options).await,
        What::Triggers(options) => Box::pin(triggers::run(global, options)).await,
        What::Run(options) => workers::run(global, options).await,
        What::Idle(options) => idle::run(global, options).await,
    }
}

async fn run_sql(global: &Global, options: &BenchSql) -> Result<ExitCode, Failure> {
    let server = Server::open_or_private(global).await?;
    let result = measure(global, options, &server).await;
    server.close().await?;
    let lines = result?;
    if global.json {
        output::json(&lines)?;
    } else {
        print_lines(&lines)?;
    }
    Ok(if lines.iter().all(Line::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_lines(lines: &[Line]) -> Result<(), Failure> {
    output::print(&output::table(
        ["workload", "items/s", "beside", "items/s", "ratio", "target", ""],
        lines.iter().map(|line| {
            [
                line.workload.clone(),
                line.items_per_second.to_string(),
                line.beside.to_owned(),
                line.beside_per_second.to_string(),
                format!("{} %", line.ratio_percent),
                line.target_percent.map(|target| format!("{target} %")).unwrap_or_default(),
                if line.holds() { String::new() } else { "MISSED".to_owned() },
            ]
        }),
    ))
}

async fn measure(
    global: &Global,
    options: &BenchSql,
    server: &Server,
) -> Result<Vec<Line>, Failure> {
    let bench = Bench::prepare(server, !global.json).await?;
    let result = workloads(options, &bench).await;
    bench.clean_up().await?;
    result
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
    ours: impl AsyncFn(&Run<'_>) -> Result<u64, Failure>,
    beside: impl AsyncFn(&Run<'_>) -> Result<u64, Failure>,
) -> Result<Pair, Failure> {
    let mut pair = Pair { ours: Vec::new(), beside: Vec::new() };
    for round in 1..=runs {
        bench.progress(&format!("{name}, run {round} of {runs}"));
        pair.beside.push(bench.measure(&beside).await?);
        pair.ours.push(bench.measure(&ours).await?);
    }
    Ok(pair)
}

async fn workloads(options: &BenchSql, bench: &Bench<'_>) -> Result<Vec<Line>, Failure> {
    let items = options.items;
    let wanted = |workload: Workload| options.only.is_empty() || options.only.contains(&workload);
    let mut lines = Vec::new();
    let raw = "raw limit";

    if wanted(Workload::Bulk) {
        for (clients, sessions, target) in [(1, 1, 10), (4, 2, 15)] {
            let name = format!("bulk enqueue, 500 a call, {clients} client(s)");
            let measured = pair(
                bench,
                options.runs,
                &name,
                async |run| {
                    run.split(clients, items, "CALL bench.enqueue_bulk(@LO@, @HI@, 'ACH')").await
                },
                async |run| run.split(sessions, items, "CALL bench.raw_insert(@LO@, @HI@)").await,
            )
            .await?;
            lines.push(measured.line(&name, raw, Some(target)));
        }
    }
    if wanted(Workload::Single) {
        let single = items / 5;
        let name = "single enqueue, 8 clients";
        let measured = pair(
            bench,
            options.runs,
            name,
            async |run| run.split(8, single, "CALL bench.enqueue_single(@LO@, @HI@)").await,
            async |run| {
                run.execute("ALTER TABLE public.payment_outbox_pending DISABLE TRIGGER payment_outbox_pending_wakes_workers").await?; // symphony-guard: allow, measures its cost
                run.split(8, single, "CALL bench.enqueue_single(@LO@, @HI@)").await
            },
        )
        .await?;
        lines.push(measured.line(name, "without NOTIFY", Some(80)));
    }
    if wanted(Workload::Drain) {
        for (workers, sessions, target) in [(1, 1, 50), (4, 2, 60)] {
            let name = format!("claim 500 + complete 500, {workers} worker(s)");
            let measured = pair(
                bench,
                options.runs,
                &name,
                async |run| {
                    run.fill_from_source(items).await?;
                    run.drain(workers, items).await
                },
                async |run| run.raw_drain(sessions, items).await,
            )
            .await?;
            lines.push(measured.line(&name, raw, Some(target)));
        }
    }
    if wanted(Workload::Deep) {
        let name = format!("drain with {} pending", options.deep);
        let measured = pair(
            bench,
            options.runs,
            &name,
            async |run| {
                run.fill("ACH", "deep", options.deep, 10_000).await?;
                run.drain(1, items).await
            },
            async |run| {
                run.fill("ACH", "shallow", 10_000, 10_000).await?;
                run.drain_repeatedly(items, 10_000).await
            },
        )
        .await?;
        lines.push(measured.line(&name, "with 10,000", Some(90)));
    }
    let undisturbed = async |run: &Run<'_>| {
        run.fill_from_source(items).await?;
        run.drain(1, items).await
    };
    if wanted(Workload::Snapshot) {
        let name = "drain under a held snapshot";
        let measured = pair(
            bench,
            options.runs,
            name,
            async |run| {
                run.fill_from_source(items).await?;
                let _held = run.hold_snapshot().await?;
                run.drain(1, items).await
            },
            undisturbed,
        )
        .await?;
        lines.push(measured.line(name, "undisturbed", Some(80)));
    }
    if wanted(Workload::Fifo) {
        let fifo = async |run: &Run<'_>| {
            run.make_fifo("ACH").await?;
            run.fill_from_source(items).await?;
            run.drain(1, items).await
        };
        let name = "FIFO drain, one lane blocked with 50,000 behind its head";
        let measured = pair(
            bench,
            options.runs,
            name,
            async |run| {
                run.make_fifo("ACH").await?;
                run.block_lane("ACH", 50_000).await?;
                run.fill_from_source(items).await?;
                run.drain(1, items).await
            },
            fifo,
        )
        .await?;
        lines.push(measured.line(name, "no lane blocked", Some(90)));
        let name = "setting those 50,000 aside, once";
        let measured = pair(
            bench,
            options.runs,
            name,
            async |run| {
                run.make_fifo("ACH").await?;
                run.block_lane("ACH", 50_000).await
            },
            fifo,
        )
        .await?;
        lines.push(measured.line(name, "FIFO drain", None));
        let name = "FIFO drain, 10,000 lanes";
        let measured = pair(bench, options.runs, name, fifo, undisturbed).await?;
        lines.push(measured.line(name, "unordered", None));
    }
    if wanted(Workload::Paused) {
        let name = format!("drain beside a paused rail with {} pending", options.deep);
        let measured = pair(
            bench,
            options.runs,
            &name,
            async |run| {
                run.fill("PAUSED", "paused", options.deep, 10_000).await?;
                run.pause("PAUSED").await?;
                run.fill_from_source(items).await?;
                run.drain(1, items).await
            },
            undisturbed,
        )
        .await?;
        lines.push(measured.line(&name, "undisturbed", Some(90)));
    }
    if wanted(Workload::Statistics) {
        let raw_drain = async |run: &Run<'_>| run.raw_drain(1, items).await;
        for (which, before, after) in
            [("empty", false, false), ("stale", true, false), ("fresh", false, true)]
        {
            let name = format!("drain, 1 worker, statistics {which}");
            let measured = pair(
                bench,
                options.runs,
                &name,
                async |run| {
                    run.freeze_statistics(before).await?;
                    run.fill_from_source(items).await?;
                    if after {
                        run.execute("ANALYZE").await?;
                    }
                    run.drain(1, items).await
                },
                raw_drain,
            )
            .await?;
            lines.push(measured.line(&name, raw, Some(50)));
        }
    }
    if wanted(Workload::Routine) {
        let name = "drain with routine events recorded";
        let measured = pair(
            bench,
            options.runs,
            name,
            async |run| {
                run.record_routine_events().await?;
                run.fill_from_source(items).await?;
                run.drain(1, items).await
            },
            undisturbed,
        )
        .await?;
        lines.push(measured.line(name, "without", None));
    }
    Ok(lines)
}
