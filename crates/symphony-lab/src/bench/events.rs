//! `symphony bench events`: the event lane, ordered, ten events per key. In SQL beside the payment lane, by a worker
//! process with a bus that does nothing beside SQL, with a blocked key beside none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, RoleSource};
use symphony::engine::BreakerSettings;
use symphony::engine::{self, Engine, EngineSettings, LaneMetrics, Points, Start};
use symphony::lanes::events::bus::{Bus, Message, Publication, Terms};
use symphony::lanes::events::{
    BusSetup, EventLane, EventSettings, MessageLook, OnFailed, Route, TypePattern,
};

use super::harness::{Bench, Run, per_second};
use super::{BenchEvents, EventWorkload, Line, pair};
use crate::LabError;

/// Behind the blocked key's head.
const BEHIND: u32 = 50_000;

/// Services that keep their transactions open.
const BUSY_PRODUCERS: u32 = 100;

/// Measure, on this server.
pub async fn measure(
    server: &PgConnectOptions,
    options: &BenchEvents,
    talk: bool,
) -> Result<Vec<Line>, LabError> {
    let bench = Bench::prepare(server, talk).await?;
    let result = async {
        bench.extend_template(include_str!("event_workloads.sql")).await?;
        workloads(options, &bench).await
    }
    .await;
    bench.clean_up().await?;
    result
}

async fn workloads(options: &BenchEvents, bench: &Bench<'_>) -> Result<Vec<Line>, LabError> {
    let items = options.items;
    let runs = options.runs;
    let wanted =
        |workload: EventWorkload| options.only.is_empty() || options.only.contains(&workload);
    let mut lines = Vec::new();
    let drained = async |run: &Run<'_>| {
        run.fill_events(items).await?;
        run.drain_events(1, items).await
    };
    if wanted(EventWorkload::Bulk) {
        let name = "bulk enqueue of events, 500 a call, 1 client";
        let ours = async |run: &Run<'_>| {
            run.split(1, items, "CALL bench.enqueue_events(@LO@, @HI@)").await
        };
        let raw =
            async |run: &Run<'_>| run.split(1, items, "CALL bench.raw_insert(@LO@, @HI@)").await;
        lines.push(pair(bench, runs, name, ours, raw).await?.line(name, "raw limit", Some(25)));
    }
    if wanted(EventWorkload::Single) {
        let single = items / 5;
        let name = "single enqueue of events, 8 clients";
        let events = "CALL bench.enqueue_events_one_by_one(@LO@, @HI@)";
        let payments = "CALL bench.enqueue_single(@LO@, @HI@)";
        let ours = async |run: &Run<'_>| run.split(8, single, events).await;
        let beside = async |run: &Run<'_>| run.split(8, single, payments).await;
        lines.push(pair(bench, runs, name, ours, beside).await?.line(name, "of payments", None));
    }
    if wanted(EventWorkload::Drain) {
        for workers in [1, 4] {
            let name = format!("ordered drain in SQL, 10 per key, {workers} worker(s)");
            let ours = async |run: &Run<'_>| {
                run.fill_events(items).await?;
                run.drain_events(workers, items).await
            };
            let payments = async |run: &Run<'_>| {
                run.fill_from_source(items).await?;
                run.drain(workers, items).await
            };
            let measured = pair(bench, runs, &name, ours, payments).await?;
            lines.push(measured.line(&name, "payments", Some(200)));
        }
    }
    if wanted(EventWorkload::Run) {
        let name = "ordered drain by one worker process, bus that does nothing";
        let ours = async |run: &Run<'_>| drain_by_worker(run, options).await;
        let measured = pair(bench, runs, name, ours, drained).await?;
        lines.push(measured.line(name, "drain in SQL, 1 worker", Some(80)));
    }
    if wanted(EventWorkload::Blocked) {
        let name = "ordered drain, one key blocked with 50,000 behind it";
        let ours = async |run: &Run<'_>| {
            run.execute(&format!("CALL bench.block_key({BEHIND})")).await?;
            run.fill_events(items).await?;
            run.drain_events(1, items).await
        };
        let measured = pair(bench, runs, name, ours, drained).await?;
        lines.push(measured.line(name, "no key blocked", Some(90)));
        let name = "the same by one worker process";
        let ours = async |run: &Run<'_>| {
            run.execute(&format!("CALL bench.block_key({BEHIND})")).await?;
            drain_by_worker(run, options).await
        };
        let beside = async |run: &Run<'_>| drain_by_worker(run, options).await;
        lines.push(pair(bench, runs, name, ours, beside).await?.line(
            name,
            "no key blocked",
            Some(90),
        ));
    }
    if wanted(EventWorkload::Snapshot) {
        let name = "ordered drain under a held snapshot";
        let ours = async |run: &Run<'_>| {
            run.fill_events(items).await?;
            let _held = run.hold_snapshot().await?;
            run.drain_events(1, items).await
        };
        let measured = pair(bench, runs, name, ours, drained).await?;
        lines.push(measured.line(name, "undisturbed", Some(80)));
    }
    if wanted(EventWorkload::Busy) {
        // A hundred each: what a session's first call costs does not count.
        let transactions = (items / 20).max(BUSY_PRODUCERS);
        let name = "commits of 100 producers, 100 ms and two events each, in opposite orders";
        let ours = async |run: &Run<'_>| {
            run.split(BUSY_PRODUCERS, transactions, "CALL bench.busy_producer(@LO@, @HI@, true)")
                .await
        };
        let beside = async |run: &Run<'_>| {
            run.split(BUSY_PRODUCERS, transactions, "CALL bench.busy_producer(@LO@, @HI@, false)")
                .await
        };
        let measured = pair(bench, runs, name, ours, beside).await?;
        lines.push(measured.line(name, "without events", Some(95)));
    }
    Ok(lines)
}

/// Accepts everything and tells nobody: it exists only here, where nothing is real.
struct NullBus {
    terms: Terms,
}

#[async_trait]
impl Bus for NullBus {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    async fn publish(&self, _topic: &str, batch: &[&Message]) -> Vec<Publication> {
        batch.iter().map(|_| Publication::Accepted { reference: "NULL".to_owned() }).collect()
    }
}

fn start(run: &Run<'_>, database: &Database, options: &BenchEvents) -> Result<Engine, LabError> {
    let terms = Terms { timeout: Duration::from_secs(1), ..Terms::default() };
    let bus = BusSetup {
        name: "null".to_owned(),
        bus: Arc::new(NullBus { terms }),
        look: MessageLook::default(),
        concurrency_max: 10,
        breaker: BreakerSettings::default(),
    };
    let route = Route {
        pattern: TypePattern::parse("*").map_err(LabError::new)?,
        bus: "null".to_owned(),
        topic: "transfers".to_owned(),
        on_failed: OnFailed::Block,
    };
    let settings = EventSettings {
        window_max: options.window,
        buckets_max: options.buckets,
        ..EventSettings::default()
    };
    let lane = EventLane::new(
        database.worker(),
        engine::new_worker_id("bench"),
        vec![bus],
        vec![route],
        settings,
    )
    .map_err(|error| LabError::new(error.to_string()))?;
    Engine::start(Start {
        lane,
        database: database.clone(),
        listen: run.options().clone(),
        settings: EngineSettings::default(),
        metrics: Arc::new(LaneMetrics::default()),
        points: Points::default(),
    })
    .map_err(|contradiction| LabError::new(contradiction.to_string()))
}

/// Drain so many events with one engine; answers events per second.
async fn drain_by_worker(run: &Run<'_>, options: &BenchEvents) -> Result<u64, LabError> {
    run.fill_events(options.items).await?;
    let database = Database::connect(run.options().clone(), 8, RoleSource::EachTransaction).await?;
    let started = Instant::now();
    let engine = start(run, &database, options)?;
    let metrics = engine.metrics().clone();
    while metrics.dispatched.get() < u64::from(options.items) {
        tokio::time::sleep(Duration::from_millis(2)).await;
        if metrics.failed.get() + metrics.integrity_alarms.get() > 0 {
            return Err(LabError::new("an event of the benchmark failed"));
        }
    }
    let took = started.elapsed();
    engine.stop().await;
    Ok(per_second(options.items, took))
}
