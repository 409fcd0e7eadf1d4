//! `symphony bench triggers`: synchronous requests through the trigger outbox, beside an axum handler that commits one
//! row; and one app's requests beside a neighbour's endless loops and memory bombs.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde::Serialize;
use serde_json::json;
use serde_json::value::to_raw_value;
use sqlx::PgPool;
use symphony::db::{Database, RoleSource};
use symphony::engine::Points;
use tokio::net::TcpListener;
use uuid::Uuid;

use super::harness::{Bench, Run};
use super::http_clients::{Load, Measured};
use crate::cli::{BenchTriggers, Global, LaneName, TriggerWorkload};
use crate::config::Config;
use crate::output::{self, Failure};
use crate::server::Server;
use crate::worker::{Plan, Workers};

/// MEASURED.md: p99 within three times an axum handler that commits one row.
const SYNC_TARGET_PERCENT: u64 = 300;
const NEIGHBOUR_TARGET_PERCENT: u64 = 200;
const ECHO: &str = "export default r => r.payload.body";
const LOOP: &str = "export default () => { for (;;); }";
const BOMB: &str = "export default () => { const all = []; for (;;) all.push(new Array(10000).fill(all.length)); }";
/// How long one of the neighbour's loops runs.
const LOOP_MS: u32 = 1_000;

/// One workload, and what stands beside it.
#[derive(Debug, Serialize)]
struct Comparison {
    workload: String,
    ours: Measured,
    beside: String,
    of_the_other: Measured,
    p50_ratio_percent: u64,
    p95_ratio_percent: u64,
    p99_ratio_percent: u64,
    target_percent: u64,
}

impl Comparison {
    fn holds(&self) -> bool {
        self.p99_ratio_percent <= self.target_percent
            && self.ours.failures + self.of_the_other.failures == 0
    }
}

pub(super) async fn run(global: &Global, options: &BenchTriggers) -> Result<ExitCode, Failure> {
    let mut config = Config::load(global.config.as_deref())?;
    "127.0.0.1:0".clone_into(&mut config.triggers.http_listen);
    "off".clone_into(&mut config.triggers.email.listen);
    allow_open_files()?;
    let server = Server::open_or_private(global).await?;
    let result = measure(global, options, &config, &server).await;
    server.close().await?;
    let comparisons = result?;
    if global.json {
        output::json(&comparisons)?;
    } else {
        print(&comparisons)?;
    }
    let holds = comparisons.iter().all(Comparison::holds);
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Clients and server are one process: two open files for each connection.
fn allow_open_files() -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .map_err(|error| Failure::new(format!("the limit of open files cannot be raised: {error}")))
}

fn print(comparisons: &[Comparison]) -> Result<(), Failure> {
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
            "target of p99",
            "",
        ],
        comparisons.iter().flat_map(|one| {
            let ratio = format!(
                "{}, {}, {} %",
                one.p50_ratio_percent, one.p95_ratio_percent, one.p99_ratio_percent
            );
            let target = format!("≤ {} %", one.target_percent);
            let missed = if one.holds() { "" } else { "MISSED" };
            let beside = format!("  beside: {}", one.beside);
            [
                row(&one.workload, &one.ours, ratio, target, missed),
                row(&beside, &one.of_the_other, String::new(), String::new(), ""),
            ]
        }),
    ))
}

async fn measure(
    global: &Global,
    options: &BenchTriggers,
    config: &Config,
    server: &Server,
) -> Result<Vec<Comparison>, Failure> {
    let bench = Bench::prepare(server, !global.json).await?;
    let result = async {
        bench
            .extend_template(
                "CREATE TABLE bench.committed (id UUID PRIMARY KEY, payload JSONB NOT NULL)",
            )
            .await?;
        workloads(options, config, &bench).await
    }
    .await;
    bench.clean_up().await?;
    result
}

async fn workloads(
    options: &BenchTriggers,
    config: &Config,
    bench: &Bench<'_>,
) -> Result<Vec<Comparison>, Failure> {
    let wanted =
        |workload: TriggerWorkload| options.only.is_empty() || options.only.contains(&workload);
    let mut comparisons = Vec::new();
    if wanted(TriggerWorkload::Sync) {
        for (clients, requests) in [(options.clients, options.requests), (16, options.requests / 4)]
        {
            let name = format!("synchronous requests, {clients} clients");
            let ours = async |run: &Run<'_>| through_outbox(run, config, clients, requests).await;
            let beside = async |run: &Run<'_>| one_commit(run, config, clients, requests).await;
            let (ours, of_the_other) = in_turn(bench, options.runs, &name, ours, beside).await?;
            let beside = "an axum handler that commits one row";
            comparisons.push(compared(name, ours, beside, of_the_other, SYNC_TARGET_PERCENT));
        }
    }
    if wanted(TriggerWorkload::Neighbour) {
        let requests = options.requests / 4;
        let hostile = options.hostile_clients;
        let name = format!("8 clients beside an app with {hostile} endless loops and memory bombs");
        let ours = async |run: &Run<'_>| beside_hostile(run, config, hostile, requests).await;
        let beside = async |run: &Run<'_>| through_outbox(run, config, 8, requests).await;
        let (ours, alone) = in_turn(bench, options.runs, &name, ours, beside).await?;
        comparisons.push(compared(name, ours, "alone", alone, NEIGHBOUR_TARGET_PERCENT));
    }
    Ok(comparisons)
}

fn compared(
    workload: String,
    ours: Measured,
    beside: &str,
    of_the_other: Measured,
    target_percent: u64,
) -> Comparison {
    let ratio_of = |at: fn(&Measured) -> u64| at(&ours) * 100 / at(&of_the_other).max(1);
    Comparison {
        workload,
        ours,
        beside: beside.to_owned(),
        of_the_other,
        p50_ratio_percent: ratio_of(|measured| measured.p50_micros),
        p95_ratio_percent: ratio_of(|measured| measured.p95_micros),
        p99_ratio_percent: ratio_of(|measured| measured.p99_micros),
        target_percent,
    }
}

/// Both in turn, so that they see the same machine; of each the run with the middle p99, and all failures.
async fn in_turn(
    bench: &Bench<'_>,
    runs: u32,
    name: &str,
    ours: impl AsyncFn(&Run<'_>) -> Result<Measured, Failure>,
    beside: impl AsyncFn(&Run<'_>) -> Result<Measured, Failure>,
) -> Result<(Measured, Measured), Failure> {
    let (mut of_ours, mut of_the_other) = (Vec::new(), Vec::new());
    for round in 1..=runs {
        bench.progress(&format!("{name}, run {round} of {runs}"));
        of_the_other.push(bench.measure(&beside).await?);
        of_ours.push(bench.measure(&ours).await?);
    }
    let middle = |mut all: Vec<Measured>| {
        all.sort_by_key(|measured| measured.p99_micros);
        let failures = all.iter().map(|measured| measured.failures).sum();
        let middle = all.get(all.len() / 2).copied();
        middle.map(|middle| Measured { failures, ..middle })
    };
    let both = middle(of_ours).zip(middle(of_the_other));
    both.ok_or_else(|| Failure::new("nothing was measured"))
}

fn load(address: std::net::SocketAddr, path: &'static str, clients: u32, requests: u32) -> Load {
    Load {
        address,
        path,
        clients,
        requests,
        // Every client and every connection has answered a few times by then.
        warm_up: (requests / 10).max(clients.saturating_mul(2)),
        stop: Arc::default(),
    }
}

async fn connect(run: &Run<'_>, config: &Config) -> Result<Database, Failure> {
    let section = &config.database;
    let roles =
        if section.login_has_role { RoleSource::Login } else { RoleSource::EachTransaction };
    Ok(Database::connect(run.options().clone(), section.connections_max, roles).await?)
}

/// A worker process of the trigger lane, with its own HTTP surface.
async fn start(run: &Run<'_>, config: &Config, database: &Database) -> Result<Workers, Failure> {
    let route = |path: &str, script: &str| json!({ "method": "POST", "path": path, "script": script, "waitMs": 30_000 });
    let fair = json!({
        "scripts": [{ "name": "echo", "source": ECHO }],
        "routes": [route("/echo", "echo")],
    });
    let hostile = json!({
        "scripts": [
            { "name": "loop", "source": LOOP, "timeoutMs": LOOP_MS },
            { "name": "bomb", "source": BOMB, "timeoutMs": LOOP_MS },
        ],
        "routes": [route("/loop", "loop"), route("/bomb", "bomb")],
    });
    for (app, manifest) in [("fair", fair), ("hostile", hostile)] {
        let manifest = to_raw_value(&manifest).map_err(|error| Failure::new(error.to_string()))?;
        database.operator().push_app(app, &manifest, "bench", None).await?;
    }
    let plan = Plan::new(config, &[LaneName::Triggers], &[])?;
    plan.start(config, database, run.options().clone(), Points::default()).await
}

fn address_of(workers: &Workers) -> Result<std::net::SocketAddr, Failure> {
    workers.apps_address().ok_or_else(|| Failure::new("apps are not served"))
}

async fn through_outbox(
    run: &Run<'_>,
    config: &Config,
    clients: u32,
    requests: u32,
) -> Result<Measured, Failure> {
    let database = connect(run, config).await?;
    let workers = start(run, config, &database).await?;
    let measured = load(address_of(&workers)?, "/apps/fair/echo", clients, requests).send().await;
    workers.stop().await;
    measured
}

async fn beside_hostile(
    run: &Run<'_>,
    config: &Config,
    hostile_clients: u32,
    requests: u32,
) -> Result<Measured, Failure> {
    let database = connect(run, config).await?;
    let workers = start(run, config, &database).await?;
    let address = address_of(&workers)?;
    let stop = Arc::new(AtomicBool::new(false));
    let hostile = ["/apps/hostile/loop", "/apps/hostile/bomb"].map(|path| {
        let clients = hostile_clients.div_ceil(2);
        let endless =
            Load { requests: u32::MAX, stop: stop.clone(), ..load(address, path, clients, 0) };
        tokio::spawn(endless.send())
    });
    let measured = load(address, "/apps/fair/echo", 8, requests).send().await;
    stop.store(true, Ordering::Relaxed);
    for one in hostile {
        let theirs = one.await.map_err(|error| Failure::new(error.to_string()))??;
        // A loop that was answered with a value, or none at all: then there was no hostile neighbour.
        if theirs.failures == 0 {
            return Err(Failure::new("the hostile app was not hostile"));
        }
    }
    workers.stop().await;
    measured
}

/// What an application without an outbox would do.
async fn one_commit(
    run: &Run<'_>,
    config: &Config,
    clients: u32,
    requests: u32,
) -> Result<Measured, Failure> {
    let database = connect(run, config).await?;
    let router = Router::new().route("/commit", post(commit)).with_state(database.pool().clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let measured = load(address, "/commit", clients, requests).send().await;
    serving.abort();
    measured
}

async fn commit(State(pool): State<PgPool>, body: Bytes) -> (StatusCode, String) {
    let text = String::from_utf8_lossy(&body).into_owned();
    let written =
        sqlx::query("INSERT INTO bench.committed (id, payload) VALUES ($1, $2::text::jsonb)")
            .bind(Uuid::new_v4())
            .bind(&text)
            .execute(&pool)
            .await;
    match written {
        Ok(_) => (StatusCode::OK, text),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}
