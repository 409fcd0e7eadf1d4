//! `symphony bench`: what the lab measures, shown.

use std::process::ExitCode;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, RoleSource};
use symphony::engine::Points;
use symphony_lab::LabError;
use symphony_lab::bench::idle::{self, IdleReport};
use symphony_lab::bench::triggers::{self, Comparison, Measured};
use symphony_lab::bench::workers::Timing;
use symphony_lab::bench::{self, BenchIdle, BenchTriggers, Line};
use symphony_lab::host::{ServedApps, TriggerHost};

use crate::cli::{Bench as What, Global, LaneName};
use crate::config::Config;
use crate::output::{self, Failure};
use crate::server::Server;
use crate::worker::{Plan, Workers};

pub(super) async fn run(global: &Global, what: &What) -> Result<ExitCode, Failure> {
    match what {
        What::Triggers(options) => return Box::pin(run_triggers(global, options)).await,
        What::Idle(options) => return run_idle(global, options).await,
        What::Sql(_) | What::Events(_) | What::Run(_) => {}
    }
    let server = Server::open_or_private(global).await?;
    let result = measure(server.options(), what, !global.json).await;
    server.close().await?;
    let (lines, timings) = result?;
    show(global, &lines, timings.as_deref())?;
    let holds = lines.iter().all(Line::holds) && timings.iter().flatten().all(Timing::holds);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn measure(
    server: &PgConnectOptions,
    what: &What,
    talk: bool,
) -> Result<(Vec<Line>, Option<Vec<Timing>>), LabError> {
    Ok(match what {
        What::Sql(options) => (bench::sql::measure(server, options, talk).await?, None),
        What::Events(options) => (bench::events::measure(server, options, talk).await?, None),
        What::Run(options) => {
            let (lines, timings) = bench::workers::measure(server, options, talk).await?;
            (lines, Some(timings))
        }
        What::Triggers(_) | What::Idle(_) => (Vec::new(), None),
    })
}

fn show(global: &Global, lines: &[Line], timings: Option<&[Timing]>) -> Result<(), Failure> {
    match timings {
        None if global.json => output::json(&lines),
        None => print_lines(lines),
        Some(timings) if global.json => {
            output::json(&serde_json::json!({ "throughput": lines, "times": timings }))
        }
        Some(timings) => {
            print_lines(lines)?;
            print_timings(timings)
        }
    }
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

fn print_timings(timings: &[Timing]) -> Result<(), Failure> {
    let milliseconds = |micros: u64| format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10);
    output::print(&output::table(
        ["time", "p50", "p99", "most", "target", ""],
        timings.iter().map(|timing| {
            [
                timing.what.clone(),
                milliseconds(timing.p50_micros),
                milliseconds(timing.p99_micros),
                milliseconds(timing.most_micros),
                milliseconds(timing.target_micros),
                if timing.holds() { String::new() } else { "MISSED".to_owned() },
            ]
        }),
    ))
}

async fn run_idle(global: &Global, options: &BenchIdle) -> Result<ExitCode, Failure> {
    let report: IdleReport = idle::measure(options, global.postgres_binaries.clone()).await?;
    if global.json {
        output::json(&report)?;
    } else {
        let share = |hundredths: u64| format!("{}.{:02} %", hundredths / 100, hundredths % 100);
        output::print(&output::table(
            [
                "idle workers",
                "of a core each",
                "the most",
                "of the server's, each",
                "claims/s",
                "enqueues",
                "workers woken",
                "",
            ],
            [[
                report.workers.to_string(),
                share(report.core_share_per_process),
                share(report.core_share_most),
                share(report.core_share_of_server_per_process),
                report.claims_per_second.to_string(),
                report.enqueues.to_string(),
                report.wakeups.to_string(),
                if report.holds() { String::new() } else { "MISSED".to_owned() },
            ]],
        ))?;
    }
    Ok(if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn run_triggers(global: &Global, options: &BenchTriggers) -> Result<ExitCode, Failure> {
    let mut config = Config::load(global.config.as_deref())?;
    "127.0.0.1:0".clone_into(&mut config.triggers.http_listen);
    "off".clone_into(&mut config.triggers.email.listen);
    // What is wrong with it is said before anything is measured.
    plan(&config)?;
    let server = Server::open_or_private(global).await?;
    let host = ConfiguredWorkers { config };
    let result = triggers::measure(server.options(), options, &host, !global.json).await;
    server.close().await?;
    let comparisons = result?;
    if global.json {
        output::json(&comparisons)?;
    } else {
        print_comparisons(&comparisons)?;
    }
    let holds = comparisons.iter().all(Comparison::holds);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn plan(config: &Config) -> Result<Plan, Failure> {
    Plan::new(config, &[LaneName::Triggers], &[])
}

/// The trigger lane as `run` would work it.
struct ConfiguredWorkers {
    config: Config,
}

#[async_trait]
impl TriggerHost for ConfiguredWorkers {
    async fn connect(&self, options: &PgConnectOptions) -> Result<Database, LabError> {
        let section = &self.config.database;
        let roles =
            if section.login_has_role { RoleSource::Login } else { RoleSource::EachTransaction };
        Ok(Database::connect(options.clone(), section.connections_max, roles).await?)
    }

    async fn start(
        &self,
        database: &Database,
        listen: &PgConnectOptions,
    ) -> Result<Box<dyn ServedApps>, LabError> {
        let plan = plan(&self.config)?;
        let starting = plan.start(&self.config, database, listen.clone(), Points::default());
        let workers = Box::pin(starting).await?;
        let address = workers.apps_address().ok_or_else(|| LabError::new("apps are not served"))?;
        Ok(Box::new(ServingWorkers { workers, address }))
    }
}

struct ServingWorkers {
    workers: Workers,
    address: std::net::SocketAddr,
}

#[async_trait]
impl ServedApps for ServingWorkers {
    fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    async fn stop(self: Box<Self>) {
        self.workers.stop().await;
    }
}

fn print_comparisons(comparisons: &[Comparison]) -> Result<(), Failure> {
    let milliseconds = |micros: u64| format!("{}.{:02} ms", micros / 1_000, micros % 1_000 / 10);
    let row = |what: &str, measured: &Measured, ratio: String, target: String, missed: &str| {
        [
            what.to_owned(),
            measured.per_second.to_string(),
            milliseconds(measured.p50_micros),
            milliseconds(measured.p95_micros),
            milliseconds(measured.p99_micros),
            milliseconds(measured.most_micros),
            measured.failures.to_string(),
            ratio,
            target,
            missed.to_owned(),
        ]
    };
    output::print(&output::table(
        [
            "workload",
            "requests/s",
            "p50",
            "p95",
            "p99",
            "most",
            "failures",
            "ratio of p50, p95, p99",
            "target",
            "",
        ],
        comparisons.iter().flat_map(|one| {
            let ratio = one.of_the_other.map_or_else(String::new, |_| {
                format!(
                    "{}, {}, {} %",
                    one.p50_ratio_percent, one.p95_ratio_percent, one.p99_ratio_percent
                )
            });
            let missed = if one.holds() { "" } else { "MISSED" };
            let beside = format!("  beside: {}", one.beside);
            let ours = row(&one.workload, &one.ours, ratio, one.target.to_string(), missed);
            let other = one
                .of_the_other
                .map(|other| row(&beside, &other, String::new(), String::new(), ""));
            std::iter::once(ours).chain(other)
        }),
    ))
}
