//! The payment lane in SQL, each workload beside the raw limit in the same run.

use sqlx::postgres::PgConnectOptions;

use super::harness::{Bench, Run};
use super::{BenchSql, Line, Workload, pair};
use crate::LabError;

/// Measure, on this server.
pub async fn measure(
    server: &PgConnectOptions,
    options: &BenchSql,
    talk: bool,
) -> Result<Vec<Line>, LabError> {
    let bench = Bench::prepare(server, talk).await?;
    let result = workloads(options, &bench).await;
    bench.clean_up().await?;
    result
}

async fn workloads(options: &BenchSql, bench: &Bench<'_>) -> Result<Vec<Line>, LabError> {
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
                run.execute("ALTER TABLE symphony.payment_outbox_pending DISABLE TRIGGER payment_outbox_pending_wakes_workers").await?; // symphony-guard: allow, measures its cost
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
