//! Forgetting executions and logs that are older than their app, or the configuration, wants.

use std::sync::Arc;
use std::time::Duration;

use crate::db::{DbError, RetiredExecutions, Worker};
use crate::engine::LaneMetrics;

/// How often to look through all apps.
const PASS_EVERY: Duration = Duration::from_mins(10);
/// At most so many rows are looked at in one transaction.
const BATCH: i32 = 500;

/// Retires executions and logs by age. Any number of processes may run one: the database lets one at a time work.
pub struct Retention {
    worker: Worker,
    metrics: Arc<LaneMetrics>,
    executions_days: i32,
    logs_days: i32,
}

impl Retention {
    /// Retention on this database, where an app's manifest says nothing else.
    pub fn new(
        worker: Worker,
        metrics: Arc<LaneMetrics>,
        executions_days: u16,
        logs_days: u16,
    ) -> Self {
        Self {
            worker,
            metrics,
            executions_days: executions_days.into(),
            logs_days: logs_days.into(),
        }
    }

    /// Go through all apps once.
    pub async fn pass(&self) -> Result<(), DbError> {
        let mut after = RetiredExecutions::default();
        loop {
            after = self
                .worker
                .retire_executions(self.executions_days, self.logs_days, BATCH, &after)
                .await?;
            self.metrics.retired.add(usize::try_from(after.retired).unwrap_or(0));
            if after.next_app.is_none() {
                return Ok(());
            }
        }
    }

    /// Go through them for ever.
    pub async fn run(self) {
        loop {
            if let Err(error) = self.pass().await {
                tracing::warn!(
                    lane = "triggers", code = error.code(), %error,
                    "old executions were not retired: tried again later"
                );
            }
            tokio::time::sleep(PASS_EVERY).await;
        }
    }
}
