//! `symphony bench triggers`: synchronous requests through the trigger outbox, beside an axum handler that commits one
//! row, with and without an entry that the script writes; one app's requests beside a neighbour's endless loops and memory
//! bombs; a deep queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde::Serialize;
use serde_json::json;
use serde_json::value::to_raw_value;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use symphony::db::Database;
use tokio::net::TcpListener;
use uuid::Uuid;

use super::harness::{Bench, Run, per_second};
use super::http_clients::Load;
pub use super::http_clients::Measured;
use super::{BenchTriggers, TriggerWorkload};
use crate::LabError;
use crate::host::{ServedApps, TriggerHost};

/// p99 beside an axum handler that commits one row.
const SYNC_TARGET_PERCENT: u64 = 200;
/// The same of p50 with a single client: nothing is gathered for it.
const ALONE_TARGET_PERCENT: u64 = 250;
/// p99 of a script that writes an entry.
const WRITE_TARGET_PERCENT: u64 = 300;
const NEIGHBOUR_TARGET_PERCENT: u64 = 150;
/// Messages of a queue.
const QUEUE_TARGET_PER_SECOND: u64 = 5_000;
const ECHO: &str = "export default r => r.payload.body";
/// A key of its own for each request: none waits for another.
const WRITE: &str =
    "export default r => { kv.set('n/' + r.payload.body, r.payload.body); return r.payload.body }";
const NOTHING: &str = "export default () => {}";
const LOOP: &str = "export default () => { for (;;); }";
const BOMB: &str = "export default () => { const all = []; for (;;) all.push(new Array(10000).fill(all.length)); }";
const ECHO_PATH: &str = "/apps/fair/echo";
/// How often a queue is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long one of the neighbour's loops runs.
const LOOP_MS: u32 = 1_000;

/// One workload, and what stands beside it.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// What was measured.
    pub workload: String,
    /// How that was.
    pub ours: Measured,
    /// What it is compared with.
    pub beside: String,
    /// How that was; nothing where the target is a rate.
    pub of_the_other: Option<Measured>,
    /// The one's p50 as a share of the other's.
    pub p50_ratio_percent: u64,
    /// The same of p95.
    pub p95_ratio_percent: u64,
    /// The same of p99.
    pub p99_ratio_percent: u64,
    /// What is wanted.
    pub target: Target,
}

/// What a workload should reach.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The share of p50, at most.
    P50Percent(u64),
    /// The share of p99, at most.
    P99Percent(u64),
    /// As many a second, at least.
    PerSecond(u64),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::P50Percent(most) => write!(f, "p50 ≤ {most} %"),
            Self::P99Percent(most) => write!(f, "p99 ≤ {most} %"),
            Self::PerSecond(least) => write!(f, "≥ {least}/s"),
        }
    }
}

impl Comparison {
    /// Whether the target is met, without a failure.
    pub fn holds(&self) -> bool {
        let failures = self.ours.failures + self.of_the_other.map_or(0, |other| other.failures);
        failures == 0
            && match self.target {
                Target::P50Percent(most) => self.p50_ratio_percent <= most,
                Target::P99Percent(most) => self.p99_ratio_percent <= most,
                Target::PerSecond(least) => self.ours.per_second >= least,
            }
    }
}

/// Clients and server are one process: two open files for each connection.
fn allow_open_files() -> Result<(), LabError> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).map_err(
        |error| LabError::new(format!("the limit of open files cannot be raised: {error}")),
    )
}

/// Measure on this server.
pub async fn measure(
    server: &PgConnectOptions,
    options: &BenchTriggers,
    host: &dyn TriggerHost,
    talk: bool,
) -> Result<Vec<Comparison>, LabError> {
    allow_open_files()?;
    let bench = Bench::prepare(server, talk).await?;
    let result = async {
        bench
            .extend_template(
                "CREATE TABLE bench.committed (id UUID PRIMARY KEY, payload JSONB NOT NULL)",
            )
            .await?;
        workloads(options, host, &bench).await
    }
    .await;
    bench.clean_up().await?;
    result
}

async fn workloads(
    options: &BenchTriggers,
    host: &dyn TriggerHost,
    bench: &Bench<'_>,
) -> Result<Vec<Comparison>, LabError> {
    let wanted =
        |workload: TriggerWorkload| options.only.is_empty() || options.only.contains(&workload);
    let mut comparisons = Vec::new();
    let beside_commit = "an axum handler that commits one row";
    let few = options.requests / 4;
    let mut beside_one_commit = async |name: &str, path, clients, requests, target| {
        let ours = async |run: &Run<'_>| through_outbox(run, host, path, clients, requests).await;
        let beside = async |run: &Run<'_>| one_commit(run, host, clients, requests).await;
        let (ours, other) = in_turn(bench, options.runs, name, ours, beside).await?;
        comparisons.push(compared(name.to_owned(), ours, beside_commit, other, target));
        Ok::<(), LabError>(())
    };
    if wanted(TriggerWorkload::Sync) {
        for (clients, requests, target) in [
            (options.clients, options.requests, Target::P99Percent(SYNC_TARGET_PERCENT)),
            (16, few, Target::P99Percent(SYNC_TARGET_PERCENT)),
            (1, few / 4, Target::P50Percent(ALONE_TARGET_PERCENT)),
        ] {
            let name = format!("synchronous requests, {clients} clients");
            beside_one_commit(&name, ECHO_PATH, clients, requests, target).await?;
        }
    }
    if wanted(TriggerWorkload::Write) {
        let name = "the same with one kv.set, 16 clients";
        let target = Target::P99Percent(WRITE_TARGET_PERCENT);
        beside_one_commit(name, "/apps/fair/write", 16, few, target).await?;
    }
    if wanted(TriggerWorkload::Neighbour) {
        let hostile = options.hostile_clients;
        let name = format!("8 clients beside an app with {hostile} endless loops and memory bombs");
        let ours = async |run: &Run<'_>| beside_hostile(run, host, hostile, few).await;
        let beside = async |run: &Run<'_>| through_outbox(run, host, ECHO_PATH, 8, few).await;
        let (ours, alone) = in_turn(bench, options.runs, &name, ours, beside).await?;
        let target = Target::P99Percent(NEIGHBOUR_TARGET_PERCENT);
        comparisons.push(compared(name, ours, "alone", alone, target));
    }
    if wanted(TriggerWorkload::Queue) {
        let messages = options.messages;
        let name = format!("a queue of {messages} messages");
        let mut drained = Vec::new();
        for round in 1..=options.runs {
            bench.progress(&format!("{name}, run {round} of {}", options.runs));
            drained
                .push(bench.measure(async |run| drained_queue(run, host, messages).await).await?);
        }
        drained.sort_unstable();
        let per_second = drained.get(drained.len() / 2).copied().unwrap_or(0);
        comparisons.push(Comparison {
            workload: name,
            ours: Measured::rate(per_second),
            beside: "nothing".to_owned(),
            of_the_other: None,
            p50_ratio_percent: 0,
            p95_ratio_percent: 0,
            p99_ratio_percent: 0,
            target: Target::PerSecond(QUEUE_TARGET_PER_SECOND),
        });
    }
    Ok(comparisons)
}

fn compared(
    workload: String,
    ours: Measured,
    beside: &str,
    of_the_other: Measured,
    target: Target,
) -> Comparison {
    let ratio_of = |at: fn(&Measured) -> u64| at(&ours) * 100 / at(&of_the_other).max(1);
    Comparison {
        workload,
        ours,
        beside: beside.to_owned(),
        of_the_other: Some(of_the_other),
        p50_ratio_percent: ratio_of(|measured| measured.p50_micros),
        p95_ratio_percent: ratio_of(|measured| measured.p95_micros),
        p99_ratio_percent: ratio_of(|measured| measured.p99_micros),
        target,
    }
}

/// Both in turn, so that they see the same machine; of each the run with the middle p99, and all failures.
async fn in_turn(
    bench: &Bench<'_>,
    runs: u32,
    name: &str,
    ours: impl AsyncFn(&Run<'_>) -> Result<Measured, LabError>,
    beside: impl AsyncFn(&Run<'_>) -> Result<Measured, LabError>,
) -> Result<(Measured, Measured), LabError> {
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
    both.ok_or_else(|| LabError::new("nothing was measured"))
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

/// A worker process of the trigger lane, with its own HTTP surface.
async fn start(
    run: &Run<'_>,
    host: &dyn TriggerHost,
    database: &Database,
) -> Result<Box<dyn ServedApps>, LabError> {
    push(database).await?;
    host.start(database, run.options()).await
}

async fn push(database: &Database) -> Result<(), LabError> {
    let route = |path: &str, script: &str| json!({ "method": "POST", "path": path, "script": script, "waitMs": 30_000 });
    let fair = json!({
        "scripts": [
            { "name": "echo", "source": ECHO },
            { "name": "write", "source": WRITE },
            { "name": "nothing", "source": NOTHING },
        ],
        "routes": [route("/echo", "echo"), route("/write", "write")],
        "queues": ["jobs"],
        "triggers": [{ "name": "jobs", "kind": "queue", "filter": "jobs", "script": "nothing" }],
    });
    let hostile = json!({
        "scripts": [
            { "name": "loop", "source": LOOP, "timeoutMs": LOOP_MS },
            { "name": "bomb", "source": BOMB, "timeoutMs": LOOP_MS },
        ],
        "routes": [route("/loop", "loop"), route("/bomb", "bomb")],
    });
    for (app, manifest) in [("fair", fair), ("hostile", hostile)] {
        let manifest = to_raw_value(&manifest).map_err(|error| LabError::new(error.to_string()))?;
        database.operator().push_app(app, &manifest, "bench").await?;
    }
    Ok(())
}

/// Messages a second, from a queue that is full when the worker starts.
async fn drained_queue(
    run: &Run<'_>,
    host: &dyn TriggerHost,
    messages: u32,
) -> Result<u64, LabError> {
    let database = host.connect(run.options()).await?;
    push(&database).await?;
    let fill = "SELECT count(symphony.send_to_queue('fair', 'jobs', to_jsonb(n))) FROM generate_series(1, $1) n";
    sqlx::query(fill).bind(i64::from(messages)).execute(database.pool()).await?;
    let started = Instant::now();
    let workers = host.start(&database, run.options()).await?;
    let is_left = "SELECT EXISTS (SELECT FROM symphony.trigger_outbox_pending)";
    while sqlx::query_scalar(is_left).fetch_one(database.pool()).await? {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let took = started.elapsed();
    workers.stop().await;
    Ok(per_second(messages, took))
}

async fn through_outbox(
    run: &Run<'_>,
    host: &dyn TriggerHost,
    path: &'static str,
    clients: u32,
    requests: u32,
) -> Result<Measured, LabError> {
    let database = host.connect(run.options()).await?;
    let workers = start(run, host, &database).await?;
    let measured = load(workers.address(), path, clients, requests).send().await;
    workers.stop().await;
    measured
}

async fn beside_hostile(
    run: &Run<'_>,
    host: &dyn TriggerHost,
    hostile_clients: u32,
    requests: u32,
) -> Result<Measured, LabError> {
    let database = host.connect(run.options()).await?;
    let workers = start(run, host, &database).await?;
    let address = workers.address();
    let stop = Arc::new(AtomicBool::new(false));
    let hostile = ["/apps/hostile/loop", "/apps/hostile/bomb"].map(|path| {
        let clients = hostile_clients.div_ceil(2);
        let endless =
            Load { requests: u32::MAX, stop: stop.clone(), ..load(address, path, clients, 0) };
        tokio::spawn(endless.send())
    });
    let measured = load(address, ECHO_PATH, 8, requests).send().await;
    stop.store(true, Ordering::Relaxed);
    for one in hostile {
        let theirs = one.await.map_err(|error| LabError::new(error.to_string()))??;
        // A loop that was answered with a value, or none at all: then there was no hostile neighbour.
        if theirs.failures == 0 {
            return Err(LabError::new("the hostile app was not hostile"));
        }
    }
    workers.stop().await;
    measured
}

/// What an application without an outbox would do.
async fn one_commit(
    run: &Run<'_>,
    host: &dyn TriggerHost,
    clients: u32,
    requests: u32,
) -> Result<Measured, LabError> {
    let database = host.connect(run.options()).await?;
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
