//! Forgetting executions and logs by age.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::db::{DbError, Worker, calls};

/// How far a pass of retention has come, and what this step of it did.
#[derive(Debug, Clone, Default, PartialEq, Eq, sqlx::FromRow)]
pub struct RetiredExecutions {
    /// Executions that were forgotten.
    pub retired: i32,
    /// Executions whose logs were emptied.
    pub logs_emptied: i32,
    /// The app to go on with, or after; `None`: the pass has ended.
    pub next_app: Option<Uuid>,
    /// From when on in that app; `None`: with the next one.
    pub next_after: Option<DateTime<Utc>>,
}

impl Worker {
    /// Forget executions older than this, unless their app says otherwise, and empty the logs of younger ones: one step of a
    /// pass, after where the last one has come to.
    pub async fn retire_executions(
        &self,
        executions_days: i32,
        logs_days: i32,
        batch_size: i32,
        after: &RetiredExecutions,
    ) -> Result<RetiredExecutions, DbError> {
        let query = sqlx::query_as(calls::RETIRE_EXECUTIONS.sql)
            .bind(executions_days)
            .bind(logs_days)
            .bind(batch_size)
            .bind(after.next_app)
            .bind(after.next_after);
        self.call(async |session| query.fetch_one(session).await).await
    }
}
