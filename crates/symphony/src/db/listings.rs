//! Lists that people page through: participants and their numbers, workers and leases, topics, acts, an app's executions. Each
//! answers at most as many rows as are asked for.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use super::triggers::auditor::told;
use super::{Auditor, DbError, ExecutionRow, Role};
use crate::domain::OutboxId;

/// A participant with payments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ParticipantRow {
    /// Its name.
    pub participant_id: String,
    /// The number of its newest payment.
    pub last_number: i64,
    /// When that was asked for.
    pub last_at: DateTime<Utc>,
    /// Nothing of it is claimed.
    pub paused: bool,
}

/// Numbers that are missing from a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct SequenceGap {
    /// The first of them.
    pub missing_from: i64,
    /// The last.
    pub missing_to: i64,
}

/// Whether a stretch of a participant's numbers is whole. That none is there twice is a constraint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SequenceProof {
    /// Payments of the stretch.
    pub counted: i64,
    /// The last number.
    pub last: i64,
    /// What is missing; the first of it.
    pub gaps: Vec<SequenceGap>,
}

/// A payment in its participant's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct NumberedPayment {
    /// Its number.
    pub sequence_id: i64,
    /// The item.
    pub outbox_id: OutboxId,
    /// The business instruction.
    pub instruction_id: String,
    /// The rail.
    pub rail_type: String,
    /// As [`FoundPayment::state`](super::FoundPayment::state).
    pub state: String,
    /// When it was asked for.
    pub created_at: DateTime<Utc>,
}

/// A topic that a worker has had a route to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct TopicRow {
    /// Its name.
    pub topic: String,
    /// Nothing is published to it.
    pub paused: bool,
    /// Since when it is known.
    pub first_seen_at: DateTime<Utc>,
}

/// A worker of a lane, as it last reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct WorkerRow {
    /// Its name.
    pub worker_id: String,
    /// The lane.
    pub lane: String,
    /// It reported within twenty seconds.
    pub live: bool,
    /// How many destinations it serves.
    pub destinations: i64,
    /// How many of them it leaves alone.
    pub left_alone: i64,
    /// Its calls.
    pub calls_per_minute: i64,
    /// When it last reported.
    pub reported_at: DateTime<Utc>,
    /// How long ago that was, by the database's clock.
    pub silent_seconds: i64,
}

/// A lease: of a payment, of an execution, or of a bucket of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct LeaseRow {
    /// The lane.
    pub lane: String,
    /// Who has it.
    pub worker_id: String,
    /// The item; none for a bucket.
    pub item_id: Option<Uuid>,
    /// The rail, the bucket or the app.
    pub name: String,
    /// How many items it is for.
    pub items: i64,
    /// Since when.
    pub claimed_at: Option<DateTime<Utc>>,
    /// Until when.
    pub lease_expires_at: DateTime<Utc>,
    /// That is past.
    pub expired: bool,
}

/// Which workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkersQuery<'a> {
    /// Of this name only.
    pub worker_id: Option<&'a str>,
    /// After this one: whether it is live, its name and its lane.
    pub after: Option<(bool, &'a str, &'a str)>,
    /// At most so many.
    pub limit: i64,
}

/// Which leases.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeasesQuery<'a> {
    /// Of this worker only.
    pub worker_id: Option<&'a str>,
    /// After this one: when it expires, its lane, and its item or bucket.
    pub after: Option<(DateTime<Utc>, &'a str, &'a str)>,
    /// At most so many.
    pub limit: i64,
}

impl LeaseRow {
    /// What tells it from another one of its lane.
    pub fn key(&self) -> String {
        self.item_id.map_or_else(|| self.name.clone(), |id| id.to_string())
    }
}

/// Something a person did, or asked for, or decided.
#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct ActRow {
    /// The lane.
    pub lane: String,
    /// Its number in the lane.
    pub event_no: i64,
    /// What it was.
    pub event_type: String,
    /// The item, where it is about one.
    pub item_id: Option<Uuid>,
    /// Who.
    pub actor: String,
    /// Who approved it.
    pub approver: Option<String>,
    /// From which login.
    pub session_role: String,
    /// Why.
    pub reason: Option<String>,
    /// More.
    pub details: Json<Value>,
    /// When.
    pub created_at: DateTime<Utc>,
}

/// A place among the acts: each lane counts its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActCursor {
    /// Payments before this number.
    pub payments: i64,
    /// Events before this number.
    pub events: i64,
    /// Triggers before this number.
    pub triggers: i64,
}

impl Default for ActCursor {
    fn default() -> Self {
        Self { payments: i64::MAX, events: i64::MAX, triggers: i64::MAX }
    }
}

impl ActCursor {
    /// The place after a page of rows.
    #[must_use]
    pub fn after(self, rows: &[ActRow]) -> Self {
        let last = |lane: &str, before: i64| {
            let of_lane = rows.iter().filter(|row| row.lane == lane).map(|row| row.event_no);
            of_lane.min().unwrap_or(before)
        };
        Self {
            payments: last("payments", self.payments),
            events: last("events", self.events),
            triggers: last("triggers", self.triggers),
        }
    }
}

/// Which acts.
#[derive(Debug, Clone, Copy, Default)]
pub struct ActsQuery<'a> {
    /// Of this lane only.
    pub lane: Option<&'a str>,
    /// Before this place.
    pub before: ActCursor,
    /// At most so many.
    pub limit: i64,
}

/// Missing stretches that are named one by one.
const GAPS_NAMED_MAX: i64 = 20;

impl Auditor {
    /// Participants by name, from after the one named. Each is one probe of the index, whatever the number of their payments.
    pub async fn participants(
        &self,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<ParticipantRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "WITH RECURSIVE named(participant_id, place) AS ( \
                 (SELECT i.participant_id, 1 FROM symphony.payment_outbox_instructions i \
                   WHERE i.participant_id > $1 COLLATE \"C\" ORDER BY i.participant_id LIMIT 1) \
                 UNION ALL \
                 SELECT (SELECT i.participant_id FROM symphony.payment_outbox_instructions i \
                          WHERE i.participant_id > n.participant_id ORDER BY i.participant_id LIMIT 1), n.place + 1 \
                   FROM named n WHERE n.participant_id IS NOT NULL AND n.place < $2) \
             SELECT n.participant_id, newest.sequence_id AS last_number, newest.created_at AS last_at, \
                    EXISTS (SELECT FROM symphony.payment_outbox_paused_participants x WHERE x.participant_id = n.participant_id) AS paused \
               FROM named n \
              CROSS JOIN LATERAL (SELECT i.sequence_id, i.created_at FROM symphony.payment_outbox_instructions i \
                                   WHERE i.participant_id = n.participant_id ORDER BY i.sequence_id DESC LIMIT 1) newest \
              WHERE n.participant_id IS NOT NULL ORDER BY n.place",
        )
        .bind(after.unwrap_or_default())
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// One participant.
    pub async fn participant(&self, id: &str) -> Result<Option<ParticipantRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT i.participant_id, i.sequence_id AS last_number, i.created_at AS last_at, \
                    EXISTS (SELECT FROM symphony.payment_outbox_paused_participants x WHERE x.participant_id = i.participant_id) AS paused \
               FROM symphony.payment_outbox_instructions i WHERE i.participant_id = $1 ORDER BY i.sequence_id DESC LIMIT 1",
        )
        .bind(id)
        .fetch_optional(transaction.session())
        .await?)
    }

    /// Whether a participant's numbers are whole, from after one of them to the last. With 0 the whole stream is read.
    pub async fn sequence_proof(&self, id: &str, after: i64) -> Result<SequenceProof, DbError> {
        self.sequence_proof_within(id, after, Duration::ZERO).await
    }

    /// The same, given up after this time; zero is for ever.
    pub async fn sequence_proof_within(
        &self,
        id: &str,
        after: i64,
        time_max: Duration,
    ) -> Result<SequenceProof, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        // One snapshot: otherwise a payment that is asked for between the two would seem to be a gap.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(transaction.session())
            .await?;
        if !time_max.is_zero() {
            transaction.give_up_statements_after(time_max).await?;
        }
        let (counted, last): (i64, i64) = sqlx::query_as(
            "SELECT count(*), coalesce(max(i.sequence_id), $2) FROM symphony.payment_outbox_instructions i \
              WHERE i.participant_id = $1 AND i.sequence_id > $2",
        )
        .bind(id)
        .bind(after)
        .fetch_one(transaction.session())
        .await?;
        let gaps = sqlx::query_as(
            "SELECT n.previous + 1 AS missing_from, n.sequence_id - 1 AS missing_to \
               FROM (SELECT i.sequence_id, lag(i.sequence_id, 1, $2::bigint) OVER (ORDER BY i.sequence_id) AS previous \
                       FROM symphony.payment_outbox_instructions i WHERE i.participant_id = $1 AND i.sequence_id > $2) n \
              WHERE n.sequence_id > n.previous + 1 ORDER BY n.sequence_id LIMIT $3",
        )
        .bind(id)
        .bind(after)
        .bind(GAPS_NAMED_MAX)
        .fetch_all(transaction.session())
        .await?;
        Ok(SequenceProof { counted, last, gaps })
    }

    /// The payments of a participant, the newest first, from before a number.
    pub async fn payments_of(
        &self,
        participant: &str,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<NumberedPayment>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "WITH page AS MATERIALIZED ( \
                 SELECT i.sequence_id, i.outbox_id, i.instruction_id, i.rail_type, i.created_at \
                   FROM symphony.payment_outbox_instructions i \
                  WHERE i.participant_id = $1 AND i.sequence_id < $2 ORDER BY i.sequence_id DESC LIMIT $3) \
             SELECT p.sequence_id, p.outbox_id, p.instruction_id, p.rail_type, p.created_at, \
                    coalesce((SELECT l.state FROM symphony.outbox_operational_status l WHERE l.outbox_id = p.outbox_id), \
                             (SELECT 'REDRIVEN' FROM symphony.payment_outbox_instructions r WHERE r.redrive_of = p.outbox_id), \
                             (SELECT a.state::text FROM symphony.payment_outbox_attempts a \
                               WHERE a.outbox_id = p.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')), \
                             'UNKNOWN') AS state \
               FROM page p ORDER BY p.sequence_id DESC",
        )
        .bind(participant)
        .bind(before.unwrap_or(i64::MAX))
        .bind(limit)
        .fetch_all(transaction.session())
        .await?)
    }

    /// Every topic that a worker has had a route to.
    pub async fn topics(&self) -> Result<Vec<TopicRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let sql =
            "SELECT topic, paused, first_seen_at FROM symphony.event_outbox_topics ORDER BY topic";
        Ok(sqlx::query_as(sql).fetch_all(transaction.session()).await?)
    }

    /// Workers by lane, those first that still report.
    pub async fn workers(&self, query: WorkersQuery<'_>) -> Result<Vec<WorkerRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let (live, worker, lane) = query.after.unwrap_or_default();
        Ok(sqlx::query_as(
            "SELECT w.* FROM ( \
                 SELECT d.worker_id, d.lane, max(d.reported_at) > clock_timestamp() - INTERVAL '20 seconds' AS live, \
                        count(*) AS destinations, count(*) FILTER (WHERE d.breaker <> 'CLOSED') AS left_alone, \
                        sum(d.calls * 60000::bigint / greatest(d.window_ms, 1))::bigint AS calls_per_minute, \
                        max(d.reported_at) AS reported_at, \
                        greatest(0, extract(epoch FROM clock_timestamp() - max(d.reported_at)))::bigint AS silent_seconds \
                   FROM symphony.outbox_destinations d WHERE $2::text IS NULL OR d.worker_id = $2 GROUP BY d.worker_id, d.lane) w \
              WHERE NOT $3 OR (NOT w.live, w.worker_id, w.lane) > (NOT $4, $5 COLLATE \"C\", $6 COLLATE \"C\") \
              ORDER BY NOT w.live, w.worker_id, w.lane LIMIT $1",
        )
        .bind(query.limit)
        .bind(query.worker_id)
        .bind(query.after.is_some())
        .bind(live)
        .bind(worker)
        .bind(lane)
        .fetch_all(transaction.session())
        .await?)
    }

    /// What workers hold, those leases that expire first.
    pub async fn leases(&self, query: LeasesQuery<'_>) -> Result<Vec<LeaseRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        // Each lane by itself first, so that an index may answer.
        let lane = |lane: &str, columns: &str, from: &str, worker: &str, key: &str| {
            format!(
                "(SELECT '{lane}' AS lane, {columns}, {key} AS place FROM {from} \
                   WHERE {worker} IS NOT NULL AND ($2::text IS NULL OR {worker} = $2) \
                     AND ($3::timestamptz IS NULL OR (x.lease_expires_at, '{lane}' COLLATE \"C\", {key}) > ($3, $4 COLLATE \"C\", $5 COLLATE \"C\")) \
                   ORDER BY x.lease_expires_at, {key} LIMIT $1)"
            )
        };
        let lanes = [
            lane(
                "payments",
                "x.worker_id, x.outbox_id AS item_id, x.rail_type AS name, 1::bigint AS items, x.claimed_at, x.lease_expires_at",
                "symphony.payment_outbox_leases x",
                "x.worker_id",
                "x.outbox_id::text COLLATE \"C\"",
            ),
            lane(
                "events",
                "x.claimed_by, NULL, 'bucket ' || x.bucket, x.unanswered::bigint, x.claimed_at, x.lease_expires_at",
                "symphony.event_outbox_cursors x",
                "x.claimed_by",
                "('bucket ' || x.bucket) COLLATE \"C\"",
            ),
            lane(
                "triggers",
                "x.claimed_by, x.id, a.name, 1, x.claimed_at, x.lease_expires_at",
                "symphony.trigger_outbox_pending x JOIN symphony.apps a ON a.id = x.app_id",
                "x.claimed_by",
                "x.id::text COLLATE \"C\"",
            ),
        ];
        let sql = format!(
            "SELECT l.*, l.lease_expires_at <= clock_timestamp() AS expired FROM ({}) l \
              ORDER BY l.lease_expires_at, l.lane COLLATE \"C\", l.place LIMIT $1",
            lanes.join(" UNION ALL ")
        );
        let (at, lane, key) = match query.after {
            Some((at, lane, key)) => (Some(at), lane, key),
            None => (None, "", ""),
        };
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(query.limit)
            .bind(query.worker_id)
            .bind(at)
            .bind(lane)
            .bind(key)
            .fetch_all(transaction.session())
            .await?)
    }

    /// What people did, the newest first.
    pub async fn acts(&self, query: ActsQuery<'_>) -> Result<Vec<ActRow>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let lane = |name: &str, place: u8| {
            format!(
                "(SELECT h.lane, h.event_no, h.event_type, h.item_id, h.actor, h.approver, h.session_role, h.reason, h.details, \
                         h.created_at \
                    FROM symphony.outbox_history h \
                   WHERE h.lane = '{name}' AND h.actor IS NOT NULL AND h.event_no < ${place} \
                     AND ($4::text IS NULL OR $4 = '{name}') ORDER BY h.event_no DESC LIMIT $5)"
            )
        };
        let lanes =
            [lane("payments", 1), lane("events", 2), lane("triggers", 3)].join(" UNION ALL ");
        let sql = format!(
            "SELECT x.* FROM ({lanes}) x ORDER BY x.created_at DESC, x.lane, x.event_no DESC LIMIT $5"
        );
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(query.before.payments)
            .bind(query.before.events)
            .bind(query.before.triggers)
            .bind(query.lane)
            .bind(query.limit)
            .fetch_all(transaction.session())
            .await?)
    }

    /// Executions of an app that ended, the newest first, from before a place; without payload, result and logs.
    pub async fn ended_executions(
        &self,
        app: Uuid,
        before: Option<(DateTime<Utc>, Uuid)>,
        limit: i64,
    ) -> Result<Vec<ExecutionRow>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        let sql = format!(
            "SELECT e.id, e.app_name, e.source_kind, e.script_name, e.script_version, e.parent_execution_id, e.root_execution_id, \
                    e.trigger_depth, e.state::text AS state, NULL::jsonb AS payload, NULL::jsonb AS result, e.error_code, \
                    {} AS error_message, NULL::jsonb AS logs, e.attempts, e.created_at, e.completed_at, e.origin_principal, e.principal \
               FROM symphony.trigger_outbox_executions e \
              WHERE e.app_id = $1 AND e.completed_at <= $2 AND (e.completed_at < $2 OR e.id < $3) \
              ORDER BY e.completed_at DESC, e.id DESC LIMIT $4",
            access.of("e.error_message", "text")
        );
        let sql = format!("{} ORDER BY x.completed_at DESC, x.id DESC", told(access, &sql));
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(app)
            .bind(before.map_or(END_OF_TIME, |(at, _)| at))
            .bind(before.map_or(Uuid::max(), |(_, id)| id))
            .bind(limit)
            .fetch_all(transaction.session())
            .await?)
    }

    /// Executions of an app that have not ended, in the order they were written, from after one of them; without payloads.
    pub async fn pending_executions(
        &self,
        app: Uuid,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<ExecutionRow>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        let sql = format!(
            "WITH page AS MATERIALIZED ( \
                 SELECT p.* FROM (SELECT q.id, q.source_kind, q.script_id, q.parent_execution_id, q.root_execution_id, q.trigger_depth, \
                                         q.attempt_count, q.created_at, q.app_id, q.origin_principal, q.principal \
                                    FROM symphony.trigger_outbox_pending q WHERE q.app_id = $1 AND q.id > $3 \
                                   ORDER BY q.id LIMIT $2) p) \
             SELECT p.id, a.name AS app_name, p.source_kind, s.name AS script_name, s.version AS script_version, p.parent_execution_id, \
                    p.root_execution_id, p.trigger_depth, 'PENDING' AS state, NULL::jsonb AS payload, NULL::jsonb AS result, \
                    last.error_code, last.error_message, NULL::jsonb AS logs, p.attempt_count AS attempts, p.created_at, \
                    NULL::timestamptz AS completed_at, p.origin_principal, p.principal \
               FROM page p JOIN symphony.apps a ON a.id = p.app_id \
               LEFT JOIN symphony.scripts s ON s.id = p.script_id \
               LEFT JOIN LATERAL (SELECT t.error_code, {} AS error_message FROM symphony.trigger_outbox_attempts t WHERE t.id = p.id \
                                   ORDER BY t.attempt_no DESC LIMIT 1) last ON true",
            access.of("t.error_message", "text")
        );
        let sql = format!("{} ORDER BY x.id", told(access, &sql));
        Ok(sqlx::query_as(AssertSqlSafe(sql))
            .bind(app)
            .bind(limit)
            .bind(after.unwrap_or_default())
            .fetch_all(transaction.session())
            .await?)
    }
}

/// Later than anything that happened, and not too late for the database.
const END_OF_TIME: DateTime<Utc> = match DateTime::from_timestamp(253_402_300_799, 0) {
    Some(end) => end,
    None => DateTime::<Utc>::MAX_UTC,
};
