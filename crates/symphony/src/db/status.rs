//! Every lane at a glance, for whoever works or reads.

use super::{Database, DbError, Role};
#[cfg(feature = "worker")]
use super::{Worker, calls};
use serde::Serialize;

/// One lane at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct LaneStatus {
    /// The lane.
    pub lane: String,
    /// Items not ended yet.
    pub pending: i64,
    /// Due, and nobody has them.
    pub due_unleased_count: i64,
    /// In flight.
    pub leased_count: i64,
    /// Held by a worker that did not report in time.
    pub expired_lease_count: i64,
    /// Waiting for a person.
    pub parked_count: i64,
    /// Due later.
    pub scheduled_count: i64,
    /// Behind a FIFO head, or of a paused participant.
    pub waiting_count: i64,
    /// The age of the oldest that waits for no person: neither parked nor stopped.
    pub oldest_pending_age_seconds: i64,
    /// Ended FAILED and not redriven.
    pub dlq_count: i64,
    /// The lane is paused.
    pub paused: bool,
    /// Contradictions nobody has closed.
    pub incident_count: i64,
    /// Acts that wait for a second person.
    pub approval_waiting_count: i64,
    /// For how long the oldest of them has.
    pub oldest_approval_age_seconds: i64,
    /// The age of the oldest that is parked.
    pub oldest_parked_age_seconds: i64,
    /// Workers that spoke in the last seconds.
    pub live_worker_count: i64,
    /// The age of the oldest that a person has stopped: by a pause, or by the parked head of its FIFO lane.
    pub oldest_stopped_age_seconds: i64,
}

/// One lane at a glance, with what its live workers do.
#[cfg(feature = "worker")]
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct LaneFigures {
    /// What is to be done.
    #[sqlx(flatten)]
    pub status: LaneStatus,
    /// What is done.
    #[sqlx(flatten)]
    pub activity: LaneActivity,
}

/// What all live workers of a lane do.
#[cfg(feature = "worker")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct LaneActivity {
    /// Calls of its destinations.
    pub calls_per_minute: i64,
    /// How long these took on average.
    pub latency_ms: Option<i64>,
    /// Destinations that are left alone.
    pub breakers_open: i64,
    /// Outcomes written: dispatched.
    pub dispatched_per_minute: i64,
    /// To be tried again.
    pub retryable_per_minute: i64,
    /// Failed.
    pub failed_per_minute: i64,
}

impl Database {
    /// Which lanes are paused: every role may know, so that nobody acts on a database that is not the one they mean.
    pub async fn lane_states(&self, role: Role) -> Result<Vec<(String, bool)>, DbError> {
        let mut transaction = self.begin(role).await?;
        let sql = "SELECT lane, paused FROM symphony.outbox_lane_states ORDER BY place";
        Ok(sqlx::query_as(sql).fetch_all(transaction.session()).await?)
    }
}

#[cfg(feature = "worker")]
impl Worker {
    /// Every lane at a glance, for whoever watches over this worker: figures that any worker has counted within this time,
    /// or that this one counts. Nothing if somebody else is counting the first ones.
    pub async fn status(&self, age_max: std::time::Duration) -> Result<Vec<LaneStatus>, DbError> {
        let figures = self.figures(age_max).await?;
        Ok(figures.into_iter().map(|figures| figures.status).collect())
    }

    /// The same, with what the live workers do.
    pub async fn figures(&self, age_max: std::time::Duration) -> Result<Vec<LaneFigures>, DbError> {
        let age_ms_max = i32::try_from(age_max.as_millis()).unwrap_or(i32::MAX);
        let query = sqlx::query_as(calls::SHARED_FIGURES.sql).bind(age_ms_max);
        self.call_repeatable(async |session| query.fetch_all(session).await).await
    }
}
