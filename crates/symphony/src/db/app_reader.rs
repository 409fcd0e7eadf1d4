//! What is read of apps beyond a glance: their parts, to say what a push changed, and an execution's attempts.

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::{Auditor, DbError, Role};

/// One part of an app, as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct AppPart {
    /// `script`, `route`, `trigger`, `topic` or `queue`.
    pub kind: String,
    /// Its name; a route's is its method and path.
    pub name: String,
    /// A script's newest version.
    pub version: Option<i32>,
    /// Everything else about it: the same text as long as nothing of it changes.
    pub stands_as: String,
}

/// One outcome of an execution, as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ExecutionAttemptRow {
    /// From 1.
    pub attempt_no: i32,
    /// DISPATCHED, RETRYABLE, FAILED or `ZOMBIE_REQUEUE`.
    pub state: String,
    /// Our code.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// How long it ran.
    pub latency_ms: Option<i32>,
    /// Who ran it, or ended it.
    pub worker_id: String,
    /// When it was written down.
    pub completed_at: DateTime<Utc>,
}

impl Auditor {
    /// The parts of an app, in order; none if there is no such app.
    pub async fn app_parts(&self, app: &str) -> Result<Vec<AppPart>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT x.kind, x.name, x.version, x.stands_as FROM public.apps a CROSS JOIN LATERAL ( \
                 SELECT 1 AS place, 'script' AS kind, s.name, max(s.version) AS version, max(s.version)::text AS stands_as \
                   FROM public.scripts s WHERE s.app_id = a.id GROUP BY s.name \
                 UNION ALL SELECT 2, 'route', r.method || ' ' || r.path, NULL, (to_jsonb(r) - 'id')::text \
                   FROM public.routes r WHERE r.app_id = a.id \
                 UNION ALL SELECT 3, 'trigger', t.name, NULL, (to_jsonb(t) - 'id')::text \
                   FROM public.triggers t WHERE t.app_id = a.id \
                 UNION ALL SELECT 4, 'topic', o.name, NULL, '' FROM public.topics o WHERE o.app_id = a.id \
                 UNION ALL SELECT 5, 'queue', q.name, NULL, '' FROM public.queues q WHERE q.app_id = a.id) x \
              WHERE a.name = $1 ORDER BY x.place, x.name",
        )
        .bind(app)
        .fetch_all(&mut transaction)
        .await?)
    }

    /// The outcomes of an execution so far, in order.
    pub async fn execution_attempts(&self, id: Uuid) -> Result<Vec<ExecutionAttemptRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT attempt_no, state::text AS state, error_code, error_message, latency_ms, worker_id, completed_at \
               FROM public.trigger_outbox_attempts WHERE id = $1 ORDER BY attempt_no",
        )
        .bind(id)
        .fetch_all(&mut transaction)
        .await?)
    }
}
