//! The reader's handle: lanes at a glance, and the life of one item as the ledger tells it.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use super::waits::{self, PaymentWaits};
use super::{Database, DbError, Executor, RailSettings, Role, SERVER_RECORD, ServerRecord, calls};
use crate::domain::{AttemptState, LeaseToken, OutboxId, RailKey};

/// Reads.
#[derive(Debug, Clone)]
pub struct Auditor {
    pub(super) database: Database,
}

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
    /// The age of the oldest.
    pub oldest_pending_age_seconds: i64,
    /// Ended FAILED and not redriven.
    pub dlq_count: i64,
    /// The lane is paused.
    pub paused: bool,
    /// Contradictions nobody has closed.
    pub incident_count: i64,
}

/// A late outcome that contradicts the ledger, until a person closes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct Incident {
    /// The lane.
    pub lane: String,
    /// Its number in its lane.
    pub incident_no: i64,
    /// The item.
    pub item_id: Uuid,
    /// Since when.
    pub opened_at: DateTime<Utc>,
    /// Who was late.
    pub worker_id: Option<String>,
    /// What the ledger says.
    pub recorded_state: String,
    /// With this reference.
    pub recorded_reference: Option<String>,
    /// What arrived late.
    pub late_state: String,
    /// With this reference.
    pub late_reference: Option<String>,
}

/// What was asked.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct InstructionRow {
    /// The item.
    pub outbox_id: OutboxId,
    /// The business instruction.
    pub instruction_id: String,
    /// The producer's key.
    pub idempotency_key: String,
    /// Whose stream.
    pub participant_id: String,
    /// Its number there.
    pub sequence_id: i64,
    /// The rail.
    pub rail_type: String,
    /// What the rail is told; `None` for whoever may not see it.
    pub payload: Option<Json<Box<RawValue>>>,
    /// When.
    pub created_at: DateTime<Utc>,
    /// The failed item it tries again.
    pub redrive_of: Option<OutboxId>,
    /// How often.
    pub redrive_no: i32,
}

/// The pending row of a live item.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct LiveItem {
    /// SCHEDULED, DUE, IN_FLIGHT, LEASE_EXPIRED, PARKED, WAITING or PAUSED.
    pub state: String,
    /// Outcomes so far, at most 20.
    pub attempt_count: i32,
    /// The money may have moved.
    pub must_inquire: bool,
    /// When it is due.
    pub next_attempt_at: DateTime<Utc>,
    /// Who has it.
    pub claimed_by: Option<String>,
    /// Until when.
    pub lease_expires_at: Option<DateTime<Utc>>,
}

/// One outcome.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct AttemptRow {
    /// Its number.
    pub attempt_no: i32,
    /// How it ended.
    pub state: AttemptState,
    /// Nobody knew whether the money moved.
    pub outcome_unknown: bool,
    /// When the work began.
    pub claimed_at: Option<DateTime<Utc>>,
    /// When it ended.
    pub completed_at: DateTime<Utc>,
    /// The rail's reference.
    pub rail_reference: Option<String>,
    /// The rail's code.
    pub rail_code: Option<String>,
    /// Our code.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
    /// How long the rail took.
    pub latency_ms: Option<i32>,
    /// Who did it.
    pub worker_id: String,
    /// Under which lease; `None` for whoever may not see it.
    pub lease_token: Option<LeaseToken>,
}

/// One line of the narrative.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct EventRow {
    /// Its number.
    pub event_no: i64,
    /// What happened.
    pub event_type: String,
    /// The worker.
    pub worker_id: Option<String>,
    /// The person.
    pub actor: Option<String>,
    /// The second person.
    pub approver: Option<String>,
    /// The database login.
    pub session_role: String,
    /// Why.
    pub reason: Option<String>,
    /// More.
    pub details: Json<Box<RawValue>>,
    /// When.
    pub created_at: DateTime<Utc>,
}

/// The life of one item.
#[derive(Debug, Clone, Serialize)]
pub struct ItemLife {
    /// What was asked.
    pub instruction: InstructionRow,
    /// Where it stands, in one word.
    pub state: String,
    /// Its pending row, while it lives.
    pub live: Option<LiveItem>,
    /// Its outcomes, in order.
    pub attempts: Vec<AttemptRow>,
    /// What else happened, in order.
    pub events: Vec<EventRow>,
    /// The key its rail gets.
    pub rail_key: Option<RailKey>,
    /// The item that tries it again, if it failed and was redriven.
    pub redriven_as: Option<OutboxId>,
    /// What stands in its way, while it lives.
    pub waits: Option<PaymentWaits>,
}

/// An item that an id names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct FoundItem {
    /// The item.
    pub outbox_id: OutboxId,
    /// The business instruction.
    pub instruction_id: String,
    /// Whose stream.
    pub participant_id: String,
    /// The rail.
    pub rail_type: String,
    /// As [`LiveItem::state`], or DISPATCHED, FAILED or REDRIVEN.
    pub state: String,
}

impl Database {
    /// Which lanes are paused: every role may know, so that nobody acts on a database that is not the one they mean.
    pub async fn lane_states(&self, role: Role) -> Result<Vec<(String, bool)>, DbError> {
        let mut transaction = self.begin(role).await?;
        let sql = "SELECT lane, paused FROM public.outbox_lane_states ORDER BY place";
        Ok(sqlx::query_as(sql).fetch_all(&mut transaction).await?)
    }
}

impl Executor {
    /// Every lane at a glance: figures and nothing else, for whoever watches over this worker.
    pub async fn status(&self) -> Result<Vec<LaneStatus>, DbError> {
        self.call_repeatable(async |connection| {
            Ok(sqlx::query_as(calls::FIGURES.sql).fetch_all(connection).await?)
        })
        .await
    }
}

impl Auditor {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Every lane at a glance.
    pub async fn status(&self) -> Result<Vec<LaneStatus>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(calls::FIGURES.sql).fetch_all(&mut transaction).await?)
    }

    /// The contradictions nobody has closed, oldest first.
    pub async fn incidents(&self, limit: i64) -> Result<Vec<Incident>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT lane, incident_no, item_id, opened_at, worker_id, recorded_state::text, recorded_reference, late_state, late_reference \
               FROM public.outbox_incidents ORDER BY opened_at, incident_no LIMIT $1",
        )
        .bind(limit)
        .fetch_all(&mut transaction)
        .await?)
    }

    /// The key a rail gets with an item.
    pub async fn rail_key(&self, item: OutboxId) -> Result<RailKey, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let key: Option<RailKey> =
            sqlx::query_scalar(calls::RAIL_KEY.sql).bind(item).fetch_one(&mut transaction).await?;
        key.ok_or_else(|| DbError::NoSuchItem { message: format!("there is no item {item}") })
    }

    /// The server on record and the one that answers.
    pub async fn server(&self) -> Result<ServerRecord, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(SERVER_RECORD).fetch_one(&mut transaction).await?)
    }

    /// The items an outbox id, instruction id or rail's key names, oldest first. At most a hundred. A rail's key is looked
    /// for only if nothing else has that name: that reads everything.
    pub async fn find(&self, id: &str) -> Result<Vec<OutboxId>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let found: Vec<OutboxId> = sqlx::query_scalar(
            "SELECT outbox_id FROM public.payment_outbox_instructions \
              WHERE outbox_id = $1 OR instruction_id = $2 ORDER BY created_at, outbox_id LIMIT 100",
        )
        .bind(id.parse::<Uuid>().ok())
        .bind(id)
        .fetch_all(&mut transaction)
        .await?;
        match id.parse::<Uuid>() {
            Ok(key) if found.is_empty() => Ok(sqlx::query_scalar(calls::BY_RAIL_KEY.sql)
                .bind(key)
                .fetch_all(&mut transaction)
                .await?),
            _ => Ok(found),
        }
    }

    /// The same with what an act's reader wants to know of each.
    pub async fn find_items(&self, id: &str) -> Result<Vec<FoundItem>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT i.outbox_id, i.instruction_id, i.participant_id, i.rail_type, \
                    coalesce(live.state, \
                             (SELECT 'REDRIVEN' FROM public.payment_outbox_instructions r WHERE r.redrive_of = i.outbox_id), \
                             (SELECT a.state::text FROM public.payment_outbox_attempts a \
                               WHERE a.outbox_id = i.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')), \
                             'UNKNOWN') AS state \
               FROM public.payment_outbox_instructions i \
               LEFT JOIN public.outbox_operational_status live ON live.outbox_id = i.outbox_id \
              WHERE i.outbox_id = $1 OR i.instruction_id = $2 ORDER BY i.created_at, i.outbox_id LIMIT 100",
        )
        .bind(id.parse::<Uuid>().ok())
        .bind(id)
        .fetch_all(&mut transaction)
        .await?)
    }

    /// What the database knows of one rail, or of all. A rail without a row here has the defaults.
    pub async fn rails(&self, rail_type: Option<&str>) -> Result<Vec<RailSettings>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT rail_type, fifo, on_failed, marks_sending, paused, give_up_after_seconds FROM public.payment_outbox_rails \
              WHERE $1 IS NULL OR rail_type = $1 ORDER BY rail_type",
        )
        .bind(rail_type)
        .fetch_all(&mut transaction)
        .await?)
    }

    /// The life of one item, or `None` if there is no such item.
    pub async fn life(&self, item: OutboxId) -> Result<Option<ItemLife>, DbError> {
        let (mut transaction, sight) = self.database.begin_reading().await?;
        // One snapshot for all of it: otherwise an item that ends between two reads would seem to have vanished.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(&mut transaction)
            .await?;
        let Some(instruction) = sqlx::query_as::<_, InstructionRow>(AssertSqlSafe(format!(
            "SELECT outbox_id, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, \
                    {} AS payload, created_at, redrive_of, redrive_no \
               FROM public.payment_outbox_instructions WHERE outbox_id = $1",
            sight.of("payload", "jsonb")
        )))
        .bind(item)
        .fetch_optional(&mut transaction)
        .await?
        else {
            return Ok(None);
        };
        let live: Option<LiveItem> = sqlx::query_as(
            "SELECT state, attempt_count, must_inquire, next_attempt_at, claimed_by, lease_expires_at \
               FROM public.outbox_operational_status WHERE outbox_id = $1",
        )
        .bind(item)
        .fetch_optional(&mut transaction)
        .await?;
        let attempts: Vec<AttemptRow> = sqlx::query_as(AssertSqlSafe(format!(
            "SELECT attempt_no, state::text, outcome_unknown, claimed_at, completed_at, rail_reference, rail_code, \
                    error_code, error_message, latency_ms, worker_id, {} AS lease_token \
               FROM public.payment_outbox_attempts WHERE outbox_id = $1 ORDER BY attempt_no",
            sight.of("lease_token", "uuid")
        )))
        .bind(item)
        .fetch_all(&mut transaction)
        .await?;
        let events: Vec<EventRow> = sqlx::query_as(
            "SELECT event_no, event_type, worker_id, actor, approver, session_role, reason, details, created_at \
               FROM public.outbox_history WHERE lane = 'payments' AND item_id = $1 ORDER BY event_no",
        )
        .bind(item)
        .fetch_all(&mut transaction)
        .await?;
        let state = match (
            &live,
            attempts.iter().find(|a| a.state == AttemptState::Dispatched),
            attempts.last(),
        ) {
            (Some(live), ..) => live.state.clone(),
            (None, Some(_), _) => "DISPATCHED".to_owned(),
            (None, None, Some(_)) => "FAILED".to_owned(),
            (None, None, None) => "UNKNOWN".to_owned(),
        };
        let (rail_key, redriven_as): (Option<RailKey>, Option<OutboxId>) = sqlx::query_as(
            "SELECT public.payment_rail_key($1), \
                    (SELECT outbox_id FROM public.payment_outbox_instructions WHERE redrive_of = $1)",
        )
        .bind(item)
        .fetch_one(&mut transaction)
        .await?;
        let waits = waits::of_payment(&mut transaction, item).await?;
        Ok(Some(ItemLife {
            instruction,
            state,
            live,
            attempts,
            events,
            rail_key,
            redriven_as,
            waits,
        }))
    }
}

/// The ledger in figures: what an auditor asks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct LedgerFigures {
    /// Payments asked for, redrives included.
    pub instructions: i64,
    /// Ended DISPATCHED.
    pub dispatched: i64,
    /// Ended FAILED.
    pub failed: i64,
    /// Not ended yet.
    pub pending: i64,
    /// Outcomes written down.
    pub outcomes: i64,
    /// Items with more than one terminal outcome: must be 0.
    pub ended_twice: i64,
    /// Items neither pending nor ended: must be 0.
    pub lost: i64,
    /// Missing numbers in participants' streams: must be 0.
    pub gaps: i64,
}

impl LedgerFigures {
    /// Every payment is accounted for, once.
    pub fn holds(&self) -> bool {
        self.ended_twice == 0
            && self.lost == 0
            && self.gaps == 0
            && self.instructions == self.dispatched + self.failed + self.pending
    }
}

impl Auditor {
    /// Count the whole ledger. Reads all of it.
    pub async fn figures(&self) -> Result<LedgerFigures, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT (SELECT count(*) FROM public.payment_outbox_instructions) AS instructions, \
                    (SELECT count(*) FROM public.payment_outbox_attempts WHERE state = 'DISPATCHED') AS dispatched, \
                    (SELECT count(*) FROM public.payment_outbox_attempts WHERE state = 'FAILED') AS failed, \
                    (SELECT count(*) FROM public.payment_outbox_pending) AS pending, \
                    (SELECT count(*) FROM public.payment_outbox_attempts) AS outcomes, \
                    (SELECT count(*) FROM (SELECT outbox_id FROM public.payment_outbox_attempts \
                       WHERE state IN ('DISPATCHED', 'FAILED') GROUP BY outbox_id HAVING count(*) > 1) twice) AS ended_twice, \
                    (SELECT count(*) FROM public.payment_outbox_instructions i \
                      WHERE NOT EXISTS (SELECT FROM public.payment_outbox_attempts a \
                                         WHERE a.outbox_id = i.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')) \
                        AND NOT EXISTS (SELECT FROM public.payment_outbox_pending p WHERE p.outbox_id = i.outbox_id)) AS lost, \
                    (SELECT count(*) FROM public.participant_sequence_gaps) AS gaps",
        )
        .fetch_one(&mut transaction)
        .await?)
    }
}
