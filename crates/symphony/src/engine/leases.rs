//! Renews the leases of this worker, and ends the expired ones of lost workers.

use std::sync::Arc;
use std::time::Duration;

use super::pacer::between;
use super::{Lane, Shared, Stage, holds, jitter};
use crate::db::{EndedLeases, LaneLease as _};

/// How many repaired ids one log line names.
const LOGGED_IDS_MAX: usize = 20;

/// Renew leases while there is work on them.
pub(super) async fn renew<L: Lane>(shared: Arc<Shared<L>>) {
    // Several tries fit before a lease expires, so that one failed call does not lose it.
    let pause = (holds::renew_after(shared.settings.lease) / 4).max(Duration::from_millis(50));
    let lease_seconds = i32::try_from(shared.settings.lease.as_secs()).unwrap_or(i32::MAX);
    loop {
        tokio::time::sleep(pause).await;
        if *shared.stage.borrow() == Stage::Broken {
            // The task that would complete these may be dead. Let the leases expire, so that other workers get them.
            return;
        }
        let due = shared.holds.due_for_renewal(shared.clock.now());
        for leases in due.chunks(shared.settings.batch_items_max) {
            let asked_at = shared.clock.now();
            match shared.worker.renew(shared.lane.worker_id(), leases, lease_seconds).await {
                Ok(held) => {
                    let answers: Vec<_> = leases.iter().copied().zip(held).collect();
                    let lost = shared.holds.renewed(asked_at, &answers);
                    if lost > 0 {
                        shared.metrics.leases_lost.add(lost);
                        tracing::warn!(
                            lane = shared.lane.name(),
                            worker_id = shared.lane.worker_id(),
                            lost,
                            event = "CONCURRENCY_EVENT",
                            "leases passed to others"
                        );
                    }
                }
                Err(error) => {
                    shared.metrics.database_errors.add(1);
                    tracing::warn!(lane = shared.lane.name(), code = error.code(), %error, "leases were not renewed");
                    break;
                }
            }
        }
    }
}

/// End expired leases of lost workers.
pub(super) async fn repair<L: Lane>(shared: Arc<Shared<L>>) {
    let leases_max = i32::try_from(shared.settings.batch_items_max).unwrap_or(i32::MAX);
    loop {
        tokio::time::sleep(between(shared.settings.repair, jitter())).await;
        loop {
            match shared.worker.repair::<L::Lease>(shared.lane.worker_id(), leases_max).await {
                Ok(items) => {
                    if items.is_empty() {
                        break;
                    }
                    let mut all = EndedLeases::default();
                    for item in &items {
                        all += L::Lease::ended(item);
                    }
                    shared.metrics.count_ended(all);
                    let named: Vec<_> =
                        items.iter().take(LOGGED_IDS_MAX).map(L::Lease::repaired_id).collect();
                    // Else something has only waited in vain.
                    if all.ended > 0 {
                        tracing::warn!(
                            lane = shared.lane.name(),
                            worker_id = shared.lane.worker_id(),
                            expired_leases_detected = all.ended,
                            leases_repaired = all.ended,
                            outbox_ids = named.join(","),
                            "lost workers' leases were repaired"
                        );
                    }
                    if items.len() < shared.settings.batch_items_max {
                        break;
                    }
                }
                Err(error) => {
                    shared.metrics.database_errors.add(1);
                    tracing::warn!(lane = shared.lane.name(), code = error.code(), %error, "expired leases were not looked for");
                    break;
                }
            }
        }
    }
}
