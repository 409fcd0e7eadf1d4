//! `symphony bench run`: the engine itself. A rail that does nothing, the sandbox over HTTP, latency at light load,
//! recovery after a lost worker; each beside what it is to be compared with, in the same run.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::sandbox::{Sandbox, Settings as SandboxSettings};
use async_trait::async_trait;
use serde::Serialize;
use sqlx::ConnectOptions as _;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, RoleSource};
use symphony::domain::{Payload, PaymentRequest};
use symphony::engine::BreakerSettings;
use symphony::engine::{self, Engine, EngineSettings, LaneMetrics, Points, Start};
use symphony::lanes::payments::rail::{
    Answer, Endpoint, Inquiry, InquiryTerms, Payment, Rail, Terms,
};
use symphony::lanes::payments::{PaymentLane, RailSetup};
use symphony::money::{Defect, DestinationRule};
use symphony_connect::rails::http::{HttpRail, HttpRailSettings};

use super::harness::{Bench, Run, per_second};
use super::{BenchRun, Line, Pair, WorkerWorkload, pair};
use crate::LabError;

/// The rail every item of the benchmark's source is for.
const RAIL: &str = "ACH";
const LATENCY_PER_SECOND: u64 = 100;
/// The best peer's p99 (docs/PERFORMANCE.md).
const LATENCY_P99_MAX_MICROS: u64 = 6_500;
const RECOVERY_LEASE: Duration = Duration::from_secs(2);
/// After the lease has ended, lost items must be claimable within this.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

/// One measured time.
#[derive(Debug, Serialize)]
pub struct Timing {
    /// What was measured.
    pub what: String,
    /// The median.
    pub p50_micros: u64,
    /// All but one in a hundred.
    pub p99_micros: u64,
    /// The longest.
    pub most_micros: u64,
    /// What the p99 may be at most.
    pub target_micros: u64,
}

impl Timing {
    /// Whether the target is met.
    pub fn holds(&self) -> bool {
        self.p99_micros <= self.target_micros
    }
}

/// Measure, on this server.
pub async fn measure(
    server: &PgConnectOptions,
    options: &BenchRun,
    talk: bool,
) -> Result<(Vec<Line>, Vec<Timing>), LabError> {
    let bench = Bench::prepare(server, talk).await?;
    let result = workloads(options, &bench).await;
    bench.clean_up().await?;
    result
}

async fn workloads(
    options: &BenchRun,
    bench: &Bench<'_>,
) -> Result<(Vec<Line>, Vec<Timing>), LabError> {
    let wanted =
        |workload: WorkerWorkload| options.only.is_empty() || options.only.contains(&workload);
    let items = options.items;
    let (mut lines, mut timings) = (Vec::new(), Vec::new());
    let noop = async |run: &Run<'_>| drain(run, items, options, noop_rail(options)).await;
    if wanted(WorkerWorkload::Noop) {
        let name = "drain by one worker process, rail that does nothing";
        let sql = async |run: &Run<'_>| {
            run.fill_from_source(items).await?;
            run.drain(1, items).await
        };
        let measured: Pair = pair(bench, options.runs, name, noop, sql).await?;
        lines.push(measured.line(name, "drain in SQL, 1 worker", Some(85)));
    }
    if wanted(WorkerWorkload::Sandbox) {
        let name = "the same, sandbox provider over HTTP, durable record";
        let sandbox = async |run: &Run<'_>| drain_to_sandbox(run, items, options).await;
        let measured = pair(bench, options.runs, name, sandbox, noop).await?;
        lines.push(measured.line(name, "rail that does nothing", None));
    }
    if wanted(WorkerWorkload::Latency) {
        bench.progress("latency at light load");
        let seconds = u64::from(options.latency_seconds);
        timings.push(bench.measure(async |run| latency(run, seconds).await).await?);
    }
    if wanted(WorkerWorkload::Recovery) {
        bench.progress("recovery after a lost worker");
        timings.push(bench.measure(recovery).await?);
    }
    Ok((lines, timings))
}

/// Accepts everything and moves nothing: it exists only here, where nothing is real.
struct NullRail {
    terms: Terms,
    dispatched: Option<Arc<Mutex<HashMap<String, Instant>>>>,
}

impl NullRail {
    fn new() -> Self {
        Self {
            terms: Terms {
                endpoint: Endpoint::new("null", "nowhere", "", ""),
                timeout: Duration::from_secs(1),
                inquiry_timeout: Duration::from_secs(1),
                key_lifetime: Some(Duration::from_hours(24)),
                inquiry: InquiryTerms::NotFoundProvesNothing,
            },
            dispatched: None,
        }
    }
}

#[async_trait]
impl Rail for NullRail {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn validate(&self, _: &Payment) -> Result<(), Defect> {
        Ok(())
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        if let Some(dispatched) = &self.dispatched {
            let mut dispatched = dispatched.lock().unwrap_or_else(PoisonError::into_inner);
            dispatched.insert(payment.instruction_id.clone(), Instant::now());
        }
        Answer::accepted("NULL")
    }

    async fn inquire(&self, _: &Payment) -> Inquiry {
        Inquiry::Found(Answer::accepted("NULL"))
    }
}

fn setup(rail: impl Rail, concurrency_max: usize) -> RailSetup {
    RailSetup {
        previous: Vec::new(),
        name: RAIL.to_owned(),
        rail: Arc::new(rail),
        concurrency_max,
        rate: None,
        breaker: BreakerSettings::default(),
    }
}

fn noop_rail(options: &BenchRun) -> RailSetup {
    setup(NullRail::new(), options.concurrency_noop)
}

async fn connect(run: &Run<'_>) -> Result<Database, LabError> {
    Ok(Database::connect(run.options().clone(), 8, RoleSource::EachTransaction).await?)
}

fn start(
    run: &Run<'_>,
    database: &Database,
    rail: RailSetup,
    settings: EngineSettings,
) -> Result<Engine, LabError> {
    Engine::start(Start {
        lane: PaymentLane::new(database.worker(), engine::new_worker_id("bench"), vec![rail]),
        database: database.clone(),
        listen: run.options().clone(),
        settings,
        metrics: Arc::new(LaneMetrics::default()),
        points: Points::default(),
    })
    .map_err(|contradiction| LabError::new(contradiction.to_string()))
}

/// Drain so many items with one engine; answers items per second.
async fn drain(
    run: &Run<'_>,
    items: u32,
    options: &BenchRun,
    rail: RailSetup,
) -> Result<u64, LabError> {
    run.fill_from_source(items).await?;
    let database = connect(run).await?;
    let defaults = EngineSettings::default();
    let settings = EngineSettings {
        batch_items_max: options.batch,
        held_items_max: defaults.held_items_max.max(rail.concurrency_max * 2),
        gather: Duration::from_millis(options.gather_ms),
        ..defaults
    };
    let started = Instant::now();
    let engine = start(run, &database, rail, settings)?;
    let metrics = engine.metrics().clone();
    while metrics.dispatched.get() < u64::from(items) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        if metrics.failed.get() + metrics.integrity_alarms.get() > 0 {
            return Err(LabError::new("a payment of the benchmark failed"));
        }
    }
    let took = started.elapsed();
    engine.stop().await;
    Ok(per_second(items, took))
}

async fn drain_to_sandbox(run: &Run<'_>, items: u32, options: &BenchRun) -> Result<u64, LabError> {
    let record = std::env::temp_dir().join(format!("symphony-bench-{}.jsonl", std::process::id()));
    let result = async {
        let sandbox = Sandbox::start(SandboxSettings::new(&record))
            .await
            .map_err(|error| LabError::new(error.to_string()))?;
        let base = format!("http://{}/transfers", sandbox.address());
        let settings = HttpRailSettings {
            inquiry_url: Some(format!("{base}/{{key}}")),
            url: base,
            key_lifetime_seconds: Some(86_400),
            destination: Some(DestinationRule::Any),
            allow_private_addresses: true,
            ..HttpRailSettings::default()
        };
        let rail = HttpRail::new(&settings, |name| std::env::var(name).ok())
            .map_err(|error| LabError::new(error.to_string()))?;
        let speed = drain(run, items, options, setup(rail, options.concurrency_http)).await?;
        let summary = sandbox.stop().await.map_err(|error| LabError::new(error.to_string()))?;
        if summary.executed != u64::from(items) || summary.executed_twice != 0 {
            return Err(LabError::new(format!(
                "the provider's record does not add up: {summary:?}"
            )));
        }
        Ok(speed)
    }
    .await;
    if record.exists() {
        std::fs::remove_file(&record)?;
    }
    result
}

/// From the commit of an enqueue, as its producer learns of it, to the call of the rail.
async fn latency(run: &Run<'_>, seconds: u64) -> Result<Timing, LabError> {
    let database = connect(run).await?;
    let dispatched = Arc::new(Mutex::new(HashMap::new()));
    let rail = NullRail { dispatched: Some(dispatched.clone()), ..NullRail::new() };
    let engine = start(run, &database, setup(rail, 64), EngineSettings::default())?;
    let metrics = engine.metrics().clone();
    while metrics.listener_up.get() == 0 || metrics.hint_leader.get() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let producer = connect(run).await?.producer();
    let payload = Payload::parse(r#"{"amount": {"value": "10.00", "currency": "EUR"}}"#)
        .map_err(|error| LabError::new(error.to_string()))?;
    let mut committed = HashMap::new();
    let mut tick = tokio::time::interval(Duration::from_millis(1_000 / LATENCY_PER_SECOND));
    for n in 0..seconds * LATENCY_PER_SECOND {
        tick.tick().await;
        let instruction_id = format!("latency-{n}");
        let request = PaymentRequest {
            instruction_id: instruction_id.clone(),
            participant_id: format!("participant-{}", n % 100),
            idempotency_key: "key".to_owned(),
            rail_type: RAIL.to_owned(),
            payload: payload.clone(),
            traceparent: None,
        };
        producer.enqueue_payment(&request).await?;
        committed.insert(instruction_id, Instant::now());
    }
    while metrics.dispatched.get() < seconds * LATENCY_PER_SECOND {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    engine.stop().await;
    let dispatched = dispatched.lock().unwrap_or_else(PoisonError::into_inner);
    let times = committed
        .iter()
        .filter_map(|(id, at)| dispatched.get(id).map(|then| then.saturating_duration_since(*at)))
        .collect();
    Ok(timing(
        format!("commit of enqueue to dispatch, {LATENCY_PER_SECOND}/s for {seconds} s"),
        times,
        Duration::from_micros(LATENCY_P99_MAX_MICROS),
    ))
}

/// A worker claims and is never heard of again: how long after its lease ended does another have the items?
async fn recovery(run: &Run<'_>) -> Result<Timing, LabError> {
    run.fill(RAIL, "lost", 500, 100).await?;
    let database = connect(run).await?;
    let lost = symphony::db::PaymentClaim {
        endpoints: None,
        worker_id: "lost",
        batch_size: 500,
        lease_seconds: i32::try_from(RECOVERY_LEASE.as_secs()).unwrap_or(i32::MAX),
        rails: None,
        due_from: None,
    };
    let claimed = database.worker().claim_payments(&lost).await?.items.len() as u64;
    let lease_ends = Instant::now() + RECOVERY_LEASE;
    let engine = start(run, &database, setup(NullRail::new(), 250), EngineSettings::default())?;
    let metrics = engine.metrics().clone();
    while metrics.dispatched.get() < claimed {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let waited = Instant::now().saturating_duration_since(lease_ends);
    engine.stop().await;
    let mut connection = run.options().connect().await?;
    let zombies: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM symphony.payment_outbox_attempts WHERE state = 'ZOMBIE_REQUEUE'",
    )
    .fetch_one(&mut connection)
    .await?;
    if u64::try_from(zombies) != Ok(claimed) {
        return Err(LabError::new(format!("{zombies} of {claimed} lost items left their trace")));
    }
    Ok(timing(
        format!("a lost worker's {claimed} items, from the end of its lease to dispatched again"),
        vec![waited],
        RECOVERY_MAX,
    ))
}

fn timing(what: String, mut times: Vec<Duration>, target: Duration) -> Timing {
    times.sort_unstable();
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let at = |percent: usize| {
        let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
        times.get(place).copied().map_or(0, micros)
    };
    Timing {
        what,
        p50_micros: at(50),
        p99_micros: at(99),
        most_micros: at(100),
        target_micros: micros(target),
    }
}
