//! Renewal of what this worker holds, and repair of what lost workers held.

use std::sync::Arc;
use std::time::Duration;

use super::pacer::between;
use super::{Lane, Shared, Stage, holds, jitter};

/// How many repaired ids one log line names.
const LOGGED_IDS_MAX: usize = 20;

/// Renew leases while there is work on them.
pub(super) async fn renew<L: Lane>(shared: Arc<Shared<L>>) {
    // Several looks per renewal, so that one failed call is not a lost lease.
    let pause = (holds::renew_after(shared.settings.lease) / 4).max(Duration::from_millis(50));
    loop {
        tokio::time::sleep(pause).await;
        if *shared.stage.borrow() == Stage::Broken {
            // Whoever should complete these may be dead: others must get them.
            return;
        }
        let due = shared.holds.due_for_renewal(shared.clock.now());
        for leases in due.chunks(shared.settings.batch_items_max) {
            let asked_at = shared.clock.now();
            match shared.lane.renew(leases, shared.settings.lease).await {
                Ok(answers) => {
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
    loop {
        tokio::time::sleep(between(shared.settings.repair, jitter())).await;
        loop {
            match shared.lane.repair(shared.settings.batch_items_max).await {
                Ok(items) => {
                    if items.is_empty() {
                        break;
                    }
                    shared.metrics.reaper_requeues.add(items.len());
                    let named: Vec<_> =
                        items.iter().take(LOGGED_IDS_MAX).map(String::as_str).collect();
                    tracing::warn!(
                        lane = shared.lane.name(),
                        worker_id = shared.lane.worker_id(),
                        expired_leases_detected = items.len(),
                        leases_repaired = items.len(),
                        outbox_ids = named.join(","),
                        "lost workers' leases were repaired"
                    );
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
