//! Lists by pages, for programs: each begins after a key, is read in the order of that key, and has at most as many rows as are
//! asked for.

use chrono::{DateTime, Utc};
use sqlx::AssertSqlSafe;

use super::destinations::PAUSED;
use super::{
    Auditor, DbError, DestinationStatus, Incident, LeaseRow, Paused, RailSettings, Role, TopicRow,
    WorkerRow,
};

/// A place among incidents: when, in which lane, and its number there.
pub type IncidentPlace = (DateTime<Utc>, String, i64);
/// A place among leases: until when, in which lane, and which one.
pub type LeasePlace = (DateTime<Utc>, String, String);

impl Auditor {
    /// Contradictions nobody has closed, of a lane or of all, oldest first.
    pub async fn incidents_after(
        &self,
        lane: Option<&str>,
        after: Option<&IncidentPlace>,
        limit: i64,
    ) -> Result<Vec<Incident>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT lane, incident_no, item_id, opened_at, worker_id, recorded_state::text, recorded_reference, late_state, late_reference \
               FROM symphony.outbox_incidents \
              WHERE ($1::text IS NULL OR lane = $1) \
                AND ($2::timestamptz IS NULL OR (opened_at, lane COLLATE \"C\", incident_no) > ($2, $3, $4)) \
              ORDER BY opened_at, lane COLLATE \"C\", incident_no LIMIT $5",
        )
        .bind(lane)
        .bind(after.map(|(at, _, _)| at))
        .bind(after.map(|(_, lane, _)| lane))
        .bind(after.map(|(_, _, number)| number))
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// What is paused: lanes, rails, participants, topics, apps; by kind and name.
    pub async fn paused_after(
        &self,
        after: Option<(&str, &str)>,
        limit: i64,
    ) -> Result<Vec<Paused>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(PAUSED)
            .bind(after.map(|(kind, _)| kind))
            .bind(after.map(|(_, name)| name))
            .bind(limit)
            .fetch_all(transaction.session())
            .await?)
    }

    /// What live workers serve, by lane and name.
    pub async fn destinations_after(
        &self,
        after: Option<(&str, &str)>,
        limit: i64,
    ) -> Result<Vec<DestinationStatus>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT lane, name, workers, workers_away, breaker, open_since, next_probe_at, troubles, last_trouble, last_trouble_at, \
                    calls_per_minute, latency_ms, rate_per_second \
               FROM symphony.outbox_destination_status \
              WHERE $1::text IS NULL OR (lane COLLATE \"C\", name COLLATE \"C\") > ($1, $2) \
              ORDER BY lane COLLATE \"C\", name COLLATE \"C\" LIMIT $3",
        )
        .bind(after.map(|(lane, _)| lane))
        .bind(after.map(|(_, name)| name))
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// What the database knows of rails, by name. A rail without a row here has the defaults.
    pub async fn rails_after(
        &self,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<RailSettings>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT rail_type, fifo, on_failed, marks_sending, paused, give_up_after_seconds FROM symphony.payment_outbox_rails \
              WHERE rail_type > $1 ORDER BY rail_type LIMIT $2",
        )
        .bind(after.unwrap_or_default())
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// Topics that a worker has had a route to, as `bus/topic`, by name.
    pub async fn topics_after(
        &self,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<TopicRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT topic, paused, first_seen_at FROM symphony.event_outbox_topics WHERE topic > $1 ORDER BY topic LIMIT $2",
        )
        .bind(after.unwrap_or_default())
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// Workers as they last reported, by name and lane.
    pub async fn workers_after(
        &self,
        after: Option<(&str, &str)>,
        limit: i64,
    ) -> Result<Vec<WorkerRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT d.worker_id, d.lane, max(d.reported_at) > clock_timestamp() - INTERVAL '20 seconds' AS live, \
                    count(*) AS destinations, count(*) FILTER (WHERE d.breaker <> 'CLOSED') AS left_alone, \
                    sum(d.calls * 60000::bigint / greatest(d.window_ms, 1))::bigint AS calls_per_minute, \
                    max(d.reported_at) AS reported_at, \
                    greatest(0, extract(epoch FROM clock_timestamp() - max(d.reported_at)))::bigint AS silent_seconds \
               FROM symphony.outbox_destinations d \
              WHERE $1::text IS NULL OR (d.worker_id COLLATE \"C\", d.lane COLLATE \"C\") > ($1, $2) \
              GROUP BY d.worker_id, d.lane ORDER BY d.worker_id COLLATE \"C\", d.lane COLLATE \"C\" LIMIT $3",
        )
        .bind(after.map(|(worker, _)| worker))
        .bind(after.map(|(_, lane)| lane))
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// What workers hold, or what one of them holds; those leases that expire first.
    pub async fn leases_after(
        &self,
        worker: Option<&str>,
        after: Option<&LeasePlace>,
        limit: i64,
    ) -> Result<Vec<LeaseRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let page = |held: &str, lane: &str, who: &str, until: &str, which: &str| {
            format!(
                "({held} AND ($1::text IS NULL OR {who} = $1) \
                   AND ($2::timestamptz IS NULL OR ({until}, '{lane}'::text COLLATE \"C\", {which} COLLATE \"C\") > ($2, $3, $4)) \
                  ORDER BY {until}, {which} COLLATE \"C\" LIMIT $5)"
            )
        };
        let lanes = [
            page(
                "SELECT 'payments' AS lane, l.worker_id, l.outbox_id AS item_id, l.rail_type AS name, 1::bigint AS items, \
                        l.claimed_at, l.lease_expires_at \
                   FROM symphony.payment_outbox_leases l WHERE true",
                "payments",
                "l.worker_id",
                "l.lease_expires_at",
                "l.outbox_id::text",
            ),
            page(
                "SELECT 'events', c.claimed_by, NULL, 'bucket ' || c.bucket, c.unanswered::bigint, c.claimed_at, c.lease_expires_at \
                   FROM symphony.event_outbox_cursors c WHERE c.claimed_by IS NOT NULL",
                "events",
                "c.claimed_by",
                "c.lease_expires_at",
                "('bucket ' || c.bucket)",
            ),
            page(
                "SELECT 'triggers', p.claimed_by, p.id, a.name, 1, p.claimed_at, p.lease_expires_at \
                   FROM symphony.trigger_outbox_pending p JOIN symphony.apps a ON a.id = p.app_id WHERE p.claimed_by IS NOT NULL",
                "triggers",
                "p.claimed_by",
                "p.lease_expires_at",
                "p.id::text",
            ),
        ];
        let sql = format!(
            "SELECT x.*, x.lease_expires_at <= clock_timestamp() AS expired FROM ({}) x \
              ORDER BY x.lease_expires_at, x.lane COLLATE \"C\", coalesce(x.item_id::text, x.name) COLLATE \"C\" LIMIT $5",
            lanes.join(" UNION ALL ")
        );
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(worker)
            .bind(after.map(|(until, _, _)| until))
            .bind(after.map(|(_, lane, _)| lane))
            .bind(after.map(|(_, _, which)| which))
            .bind(limit)
            .fetch_all(transaction.session())
            .await?)
    }
}

/// The place of a lease in that list.
pub fn place_of_lease(lease: &LeaseRow) -> LeasePlace {
    let which = lease.item_id.map_or_else(|| lease.name.clone(), |id| id.to_string());
    (lease.lease_expires_at, lease.lane.clone(), which)
}
