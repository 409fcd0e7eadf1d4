//! Rails and buses as the workers see them, what waits only for them, and what a person is shown of it.

#[cfg(feature = "admin")]
use super::{Auditor, Operator, Role, SwitchAnswer};
use super::{DbError, calls};
#[cfg(feature = "worker")]
use super::{Worker, leases::each};
#[cfg(feature = "admin")]
use crate::domain::{Act, Switch};
#[cfg(feature = "worker")]
use crate::engine::DestinationState;
use chrono::{DateTime, Utc};
#[cfg(feature = "admin")]
use serde::Serialize;
#[cfg(feature = "worker")]
use std::time::Duration;

/// What a worker says of one destination.
#[cfg(feature = "worker")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DestinationReport {
    /// How it is.
    pub state: DestinationState,
    /// Calls since the report before.
    pub calls: i32,
    /// How long these took on average.
    pub latency_ms: Option<i32>,
}

/// The outcomes of its lane that a worker wrote since the report before.
#[cfg(feature = "worker")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReportedOutcomes {
    /// Dispatched.
    pub dispatched: i32,
    /// Tries that are repeated.
    pub retryable: i32,
    /// Failed.
    pub failed: i32,
}

/// A rail or bus that live workers serve: the worst of what they say.
#[cfg(feature = "admin")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct DestinationStatus {
    /// `payments` for a rail, `events` for a bus, `triggers` for what runs scripts.
    pub lane: String,
    /// Its name.
    pub name: String,
    /// How many live workers serve it.
    pub workers: i64,
    /// How many of them leave it alone.
    pub workers_away: i64,
    /// CLOSED, OPEN or HALF_OPEN.
    pub breaker: String,
    /// Since when it is left alone.
    pub open_since: Option<DateTime<Utc>>,
    /// When it is probed next.
    pub next_probe_at: Option<DateTime<Utc>>,
    /// Troubles in a row.
    pub troubles: i32,
    /// The last one's code.
    pub last_trouble: Option<String>,
    /// When that was.
    pub last_trouble_at: Option<DateTime<Utc>>,
    /// Calls of all workers.
    pub calls_per_minute: i64,
    /// How long these took on average.
    pub latency_ms: Option<i64>,
    /// The limit that is kept.
    pub rate_per_second: Option<i32>,
}

/// Work that no live worker serves.
#[cfg(feature = "admin")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct Unserved {
    /// The lane.
    pub lane: String,
    /// The rail; `*` for a whole lane.
    pub name: String,
    /// How many items wait, where that is known.
    pub pending: Option<i64>,
    /// For how long the oldest has.
    pub oldest_seconds: i64,
}

/// Something that is paused, with who did it and why.
#[cfg(feature = "admin")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct Paused {
    /// `lane`, `rail`, `participant`, `topic` or `app`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Since when, if it is on record.
    pub since: Option<DateTime<Utc>>,
    /// Who did it.
    pub actor: Option<String>,
    /// Why.
    pub reason: Option<String>,
}

#[cfg(feature = "worker")]
impl Worker {
    /// Say how this worker's destinations are; none of them: it stops. Answers when a person last asked for each to be tried.
    pub async fn report_destinations(
        &self,
        worker_id: &str,
        lane: &str,
        reports: &[DestinationReport],
        window_ms: i32,
        outcomes: ReportedOutcomes,
    ) -> Result<Vec<(String, DateTime<Utc>)>, DbError> {
        let milliseconds = |length: Option<Duration>| {
            length.map(|l| i64::try_from(l.as_millis()).unwrap_or(i64::MAX))
        };
        let query = sqlx::query_as(calls::REPORT_DESTINATIONS.sql)
            .bind(worker_id)
            .bind(lane)
            .bind(each(reports, |r| r.state.name.clone()))
            .bind(each(reports, |r| r.state.breaker.name()))
            .bind(each(reports, |r| milliseconds(r.state.open_for)))
            .bind(each(reports, |r| milliseconds(r.state.next_probe_in)))
            .bind(each(reports, |r| i32::try_from(r.state.troubles).unwrap_or(i32::MAX)))
            .bind(each(reports, |r| r.state.last_trouble.as_ref().map(|(code, _)| code.clone())))
            .bind(each(reports, |r| {
                milliseconds(r.state.last_trouble.as_ref().map(|(_, ago)| *ago))
            }))
            .bind(each(reports, |r| r.calls))
            .bind(each(reports, |r| r.latency_ms))
            .bind(window_ms)
            .bind(each(reports, |r| {
                r.state.rate_per_second.map(|rate| i32::try_from(rate).unwrap_or(i32::MAX))
            }))
            .bind(outcomes.dispatched)
            .bind(outcomes.retryable)
            .bind(outcomes.failed);
        self.call_repeatable(async |session| query.fetch_all(session).await).await
    }

    /// The rail is well again, or one payment shall find out: bring forward what waits only for it. Answers how many.
    pub async fn hasten_payments(&self, rail: &str, items_max: i32) -> Result<i32, DbError> {
        self.hasten(calls::HASTEN_PAYMENTS.sql, rail, items_max).await
    }

    /// The same of a bus: keys that wait only for it.
    pub async fn hasten_events(&self, bus: &str, keys_max: i32) -> Result<i32, DbError> {
        self.hasten(calls::HASTEN_EVENTS.sql, bus, keys_max).await
    }

    async fn hasten(&self, sql: &'static str, name: &str, most: i32) -> Result<i32, DbError> {
        let query = sqlx::query_scalar(sql).bind(name).bind(most);
        self.call_repeatable(async |session| query.fetch_one(session).await).await
    }
}

#[cfg(feature = "admin")]
impl Operator {
    /// Have a rail (`payments`) or a bus (`events`) tried at once by every worker that leaves it alone.
    pub async fn reset_destination(
        &self,
        lane: &str,
        name: &str,
        act: &Act,
    ) -> Result<SwitchAnswer, DbError> {
        let query = sqlx::query_as(calls::RESET_DESTINATION.sql)
            .bind(lane)
            .bind(name)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(act.dry_run);
        self.act(query).await
    }
}

#[cfg(feature = "admin")]
impl Auditor {
    /// What live workers serve, of one lane or of all.
    pub async fn destinations(
        &self,
        lane: Option<&str>,
    ) -> Result<Vec<DestinationStatus>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT lane, name, workers, workers_away, breaker, open_since, next_probe_at, troubles, last_trouble, last_trouble_at, \
                    calls_per_minute, latency_ms, rate_per_second \
               FROM symphony.outbox_destination_status WHERE $1 IS NULL OR lane = $1 ORDER BY lane, name",
        )
        .bind(lane)
        .fetch_all(transaction.session())
        .await?)
    }

    /// Work that waits and that no live worker serves.
    pub async fn unserved(&self) -> Result<Vec<Unserved>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(UNSERVED).fetch_all(transaction.session()).await?)
    }

    /// Everything that is paused.
    pub async fn paused(&self) -> Result<Vec<Paused>, DbError> {
        self.paused_after(None, i64::MAX).await
    }

    /// Every rail that is configured, served or was used of late, for whoever mistyped one.
    pub async fn rail_names(&self) -> Result<Vec<String>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_scalar(
            "SELECT rail_type FROM symphony.payment_outbox_rails UNION SELECT rail_type FROM symphony.payment_outbox_endpoints \
             UNION SELECT name FROM symphony.outbox_destinations WHERE lane = 'payments' \
             UNION SELECT name FROM symphony.outbox_unserved WHERE lane = 'payments' \
             UNION SELECT rail_type FROM ( \
                 SELECT rail_type FROM symphony.payment_outbox_instructions ORDER BY outbox_id DESC LIMIT 10000) recent ORDER BY 1",
        )
        .fetch_all(transaction.session())
        .await?)
    }

    /// Whether there is anything of that name. A topic may be named without its bus.
    pub async fn is_known(&self, named: &Switch) -> Result<bool, DbError> {
        let (name, sql) = match named {
            Switch::Payments | Switch::Events | Switch::Triggers => return Ok(true),
            Switch::Rail(name) => return Ok(self.rail_names().await?.contains(name)),
            Switch::Topic(name) => {
                let ends = format!("/{name}");
                let topics = self.topic_names().await?;
                return Ok(topics.iter().any(|topic| topic == name || topic.ends_with(&ends)));
            }
            Switch::Participant(name) => (
                name,
                "SELECT EXISTS (SELECT FROM symphony.payment_outbox_instructions WHERE participant_id = $1) \
                     OR EXISTS (SELECT FROM symphony.payment_outbox_paused_participants WHERE participant_id = $1)",
            ),
            Switch::App(name) => {
                (name, "SELECT EXISTS (SELECT FROM symphony.apps WHERE name = $1)")
            }
        };
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_scalar(sql).bind(name).fetch_one(transaction.session()).await?)
    }

    /// Every topic that a worker has had a route to, for whoever mistyped one.
    pub async fn topic_names(&self) -> Result<Vec<String>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_scalar("SELECT topic FROM symphony.event_outbox_topics ORDER BY 1")
            .fetch_all(transaction.session())
            .await?)
    }

    /// Participants of recent payments, for whoever mistyped one.
    pub async fn participant_names(&self) -> Result<Vec<String>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_scalar(
            "SELECT DISTINCT participant_id FROM ( \
                 SELECT participant_id FROM symphony.payment_outbox_instructions ORDER BY outbox_id DESC LIMIT 10000) recent \
             UNION SELECT participant_id FROM symphony.payment_outbox_paused_participants ORDER BY 1",
        )
        .fetch_all(transaction.session())
        .await?)
    }
}

/// What waits and nobody serves; also asked by `symphony doctor`, as whoever the login may be.
#[cfg(feature = "admin")]
pub const UNSERVED: &str = "SELECT lane, name, pending, \
        greatest(0, floor(extract(epoch FROM clock_timestamp() - oldest_created_at)))::bigint AS oldest_seconds \
   FROM symphony.outbox_unserved ORDER BY array_position(ARRAY['payments', 'events', 'triggers'], lane), name";

/// The last PAUSED of each: the narrative says who and why. From after a kind and a name ($1, $2), at most $3.
#[cfg(feature = "admin")]
pub(super) const PAUSED: &str = "WITH everything(place, kind, name) AS ( \
        SELECT 1, 'lane', lane FROM symphony.outbox_lane_states WHERE paused \
        UNION ALL SELECT 2, 'rail', rail_type FROM symphony.payment_outbox_rails WHERE paused \
        UNION ALL SELECT 3, 'participant', participant_id FROM symphony.payment_outbox_paused_participants \
        UNION ALL SELECT 4, 'topic', topic FROM symphony.event_outbox_topics WHERE paused \
        UNION ALL SELECT 5, 'app', name FROM symphony.apps WHERE paused), \
    paused AS MATERIALIZED ( \
        SELECT * FROM everything e \
         WHERE $1::text IS NULL \
            OR (e.place, e.name COLLATE \"C\") > (array_position(ARRAY['lane', 'rail', 'participant', 'topic', 'app'], $1), $2) \
         ORDER BY e.place, e.name COLLATE \"C\" LIMIT $3), \
    told AS MATERIALIZED ( \
        SELECT h.lane, h.details, h.created_at, h.actor, h.reason FROM symphony.outbox_history h \
         WHERE h.item_id IS NULL AND h.event_type = 'PAUSED' AND h.actor IS NOT NULL AND h.lane IN ('payments', 'events') \
           AND EXISTS (SELECT FROM paused)) \
    SELECT p.kind, p.name, e.created_at AS since, e.actor, e.reason FROM paused p \
      LEFT JOIN LATERAL (SELECT * FROM ( \
          SELECT t.created_at, t.actor, t.reason FROM told t \
           WHERE CASE p.kind WHEN 'lane' THEN t.lane = p.name AND NOT t.details ?| ARRAY['rail_type', 'participant_id', 'topic'] \
                             WHEN 'rail' THEN t.details->>'rail_type' = p.name \
                             WHEN 'participant' THEN t.details->>'participant_id' = p.name \
                             WHEN 'topic' THEN t.details->>'topic' = p.name END \
          UNION ALL \
          SELECT t.created_at, t.actor, t.reason FROM symphony.trigger_outbox_events t \
           WHERE t.event_type = 'PAUSED' AND (p.kind = 'lane' AND p.name = 'triggers' AND t.app_id IS NULL \
              OR p.kind = 'app' AND t.app_id = (SELECT a.id FROM symphony.apps a WHERE a.name = p.name))) all_of \
         ORDER BY created_at DESC LIMIT 1) e ON true \
     ORDER BY p.place, p.name COLLATE \"C\"";
