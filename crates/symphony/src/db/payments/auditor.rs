//! What is read of payments.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::AssertSqlSafe;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::waits::{self, PaymentWaits};
use crate::db::{Auditor, DbError, RailSettings, Role, calls};
use crate::domain::{AttemptState, LeaseToken, OutboxId, RailKey};

/// What was asked.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct PaymentInstructionRow {
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
pub struct LivePayment {
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
pub struct PaymentAttemptRow {
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
pub struct PaymentHistoryRow {
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
pub struct PaymentLife {
    /// What was asked.
    pub instruction: PaymentInstructionRow,
    /// Where it stands, in one word.
    pub state: String,
    /// Its pending row, while it lives.
    pub live: Option<LivePayment>,
    /// Its outcomes, in order.
    pub attempts: Vec<PaymentAttemptRow>,
    /// What else happened, in order.
    pub events: Vec<PaymentHistoryRow>,
    /// The key its rail gets.
    pub rail_key: Option<RailKey>,
    /// The item that tries it again, if it failed and was redriven.
    pub redriven_as: Option<OutboxId>,
    /// What stands in its way, while it lives.
    pub waits: Option<PaymentWaits>,
}

/// An item that an id names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct FoundPayment {
    /// The item.
    pub outbox_id: OutboxId,
    /// The business instruction.
    pub instruction_id: String,
    /// Whose stream.
    pub participant_id: String,
    /// The rail.
    pub rail_type: String,
    /// As [`LivePayment::state`], or DISPATCHED, FAILED or REDRIVEN.
    pub state: String,
}

/// The ledger in figures: what an auditor asks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct PaymentFigures {
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

impl PaymentFigures {
    /// Every payment is accounted for, once.
    pub fn holds(&self) -> bool {
        self.ended_twice == 0
            && self.lost == 0
            && self.gaps == 0
            && self.instructions == self.dispatched + self.failed + self.pending
    }
}

impl Auditor {
    /// The key a rail gets with an item.
    pub async fn rail_key(&self, item: OutboxId) -> Result<RailKey, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let key: Option<RailKey> = sqlx::query_scalar(calls::PAYMENT_RAIL_KEY.sql)
            .bind(item)
            .fetch_one(transaction.session())
            .await?;
        key.ok_or_else(|| DbError::NoSuchItem { message: format!("there is no item {item}") })
    }

    /// The items an outbox id, instruction id or rail's key names, oldest first. At most a hundred. A rail's key is looked
    /// for only if nothing else has that name: that reads everything, so this is for a person's own shell.
    pub async fn find_payments(&self, id: &str) -> Result<Vec<OutboxId>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let found: Vec<OutboxId> = sqlx::query_scalar(
            "SELECT outbox_id FROM symphony.payment_outbox_instructions \
              WHERE outbox_id = $1 OR instruction_id = $2 ORDER BY created_at, outbox_id LIMIT 100",
        )
        .bind(id.parse::<Uuid>().ok())
        .bind(id)
        .fetch_all(transaction.session())
        .await?;
        match id.parse::<Uuid>() {
            Ok(key) if found.is_empty() => Ok(sqlx::query_scalar(calls::PAYMENT_BY_RAIL_KEY.sql)
                .bind(key)
                .fetch_all(transaction.session())
                .await?),
            _ => Ok(found),
        }
    }

    /// What `skip_outbox_head` would act on in this FIFO lane: the FAILED item that blocks it, else its head.
    pub async fn lane_head(
        &self,
        participant_id: &str,
        rail_type: &str,
    ) -> Result<Option<OutboxId>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let sql = "SELECT x.outbox_id FROM ( \
             (SELECT b.outbox_id, b.lane_position FROM symphony.payment_outbox_blocked_lanes b \
               WHERE b.participant_id = $1 AND b.rail_type = $2 ORDER BY b.lane_position LIMIT 1) \
             UNION ALL \
             (SELECT h.outbox_id, h.lane_position FROM symphony.payment_outbox_pending h \
               WHERE h.participant_id = $1 AND h.rail_type = $2 AND h.lane_position > 0 ORDER BY h.lane_position LIMIT 1)) x \
             ORDER BY x.lane_position LIMIT 1";
        Ok(sqlx::query_scalar(sql)
            .bind(participant_id)
            .bind(rail_type)
            .fetch_optional(transaction.session())
            .await?)
    }

    /// The items that a rail knows by this key. It is derived and has no index: all payments are looked at, for at most so long.
    pub async fn find_by_rail_key(
        &self,
        key: Uuid,
        time_max: Duration,
    ) -> Result<Vec<OutboxId>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        transaction.give_up_statements_after(time_max).await?;
        Ok(sqlx::query_scalar(calls::PAYMENT_BY_RAIL_KEY.sql)
            .bind(key)
            .fetch_all(transaction.session())
            .await?)
    }

    /// The items an outbox or instruction id names, with what an act's reader wants to know of each. At most a hundred.
    pub async fn find_payment_items(&self, id: &str) -> Result<Vec<FoundPayment>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            // Found first, then looked up: joined, the whole queue was read for one item.
            "WITH found AS MATERIALIZED ( \
                 SELECT i.outbox_id, i.instruction_id, i.participant_id, i.rail_type, i.created_at \
                   FROM symphony.payment_outbox_instructions i \
                  WHERE i.outbox_id = $1 OR i.instruction_id = $2 ORDER BY i.created_at, i.outbox_id LIMIT 100) \
             SELECT f.outbox_id, f.instruction_id, f.participant_id, f.rail_type, \
                    coalesce((SELECT l.state FROM symphony.outbox_operational_status l WHERE l.outbox_id = f.outbox_id), \
                             (SELECT 'REDRIVEN' FROM symphony.payment_outbox_instructions r WHERE r.redrive_of = f.outbox_id), \
                             (SELECT a.state::text FROM symphony.payment_outbox_attempts a \
                               WHERE a.outbox_id = f.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')), \
                             'UNKNOWN') AS state \
               FROM found f ORDER BY f.created_at, f.outbox_id",
        )
        .bind(id.parse::<Uuid>().ok())
        .bind(id)
        .fetch_all(transaction.session())
        .await?)
    }

    /// What the database knows of one rail, or of all. A rail without a row here has the defaults.
    pub async fn rails(&self, rail_type: Option<&str>) -> Result<Vec<RailSettings>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT rail_type, fifo, on_failed, marks_sending, paused, give_up_after_seconds FROM symphony.payment_outbox_rails \
              WHERE $1 IS NULL OR rail_type = $1 ORDER BY rail_type",
        )
        .bind(rail_type)
        .fetch_all(transaction.session())
        .await?)
    }

    /// The life of one item, or `None` if there is no such item.
    pub async fn payment_life(&self, item: OutboxId) -> Result<Option<PaymentLife>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        // One snapshot for all of it: otherwise an item that ends between two reads would seem to have vanished.
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(transaction.session())
            .await?;
        let Some(instruction) = sqlx::query_as::<_, PaymentInstructionRow>(AssertSqlSafe(format!(
            "SELECT outbox_id, instruction_id, idempotency_key, participant_id, sequence_id, rail_type, \
                    {} AS payload, created_at, redrive_of, redrive_no \
               FROM symphony.payment_outbox_instructions WHERE outbox_id = $1",
            access.of("payload", "jsonb")
        )))
        .bind(item)
        .fetch_optional(transaction.session())
        .await?
        else {
            return Ok(None);
        };
        let live: Option<LivePayment> = sqlx::query_as(
            "SELECT state, attempt_count, must_inquire, next_attempt_at, claimed_by, lease_expires_at \
               FROM symphony.outbox_operational_status WHERE outbox_id = $1",
        )
        .bind(item)
        .fetch_optional(transaction.session())
        .await?;
        let attempts: Vec<PaymentAttemptRow> = sqlx::query_as(AssertSqlSafe(format!(
            "SELECT attempt_no, state::text, outcome_unknown, claimed_at, completed_at, rail_reference, rail_code, \
                    error_code, error_message, latency_ms, worker_id, {} AS lease_token \
               FROM symphony.payment_outbox_attempts WHERE outbox_id = $1 ORDER BY attempt_no",
            access.of("lease_token", "uuid")
        )))
        .bind(item)
        .fetch_all(transaction.session())
        .await?;
        let events: Vec<PaymentHistoryRow> = sqlx::query_as(
            "SELECT event_no, event_type, worker_id, actor, approver, session_role, reason, details, created_at \
               FROM symphony.outbox_history WHERE lane = 'payments' AND item_id = $1 ORDER BY event_no",
        )
        .bind(item)
        .fetch_all(transaction.session())
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
            "SELECT symphony.payment_rail_key($1), \
                    (SELECT outbox_id FROM symphony.payment_outbox_instructions WHERE redrive_of = $1)",
        )
        .bind(item)
        .fetch_one(transaction.session())
        .await?;
        let waits = waits::of_payment(&mut transaction, item).await?;
        Ok(Some(PaymentLife {
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

impl Auditor {
    /// Count the whole ledger. Reads all of it.
    pub async fn payment_figures(&self) -> Result<PaymentFigures, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT (SELECT count(*) FROM symphony.payment_outbox_instructions) AS instructions, \
                    (SELECT count(*) FROM symphony.payment_outbox_attempts WHERE state = 'DISPATCHED') AS dispatched, \
                    (SELECT count(*) FROM symphony.payment_outbox_attempts WHERE state = 'FAILED') AS failed, \
                    (SELECT count(*) FROM symphony.payment_outbox_pending) AS pending, \
                    (SELECT count(*) FROM symphony.payment_outbox_attempts) AS outcomes, \
                    (SELECT count(*) FROM (SELECT outbox_id FROM symphony.payment_outbox_attempts \
                       WHERE state IN ('DISPATCHED', 'FAILED') GROUP BY outbox_id HAVING count(*) > 1) twice) AS ended_twice, \
                    (SELECT count(*) FROM symphony.payment_outbox_instructions i \
                      WHERE NOT EXISTS (SELECT FROM symphony.payment_outbox_attempts a \
                                         WHERE a.outbox_id = i.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')) \
                        AND NOT EXISTS (SELECT FROM symphony.payment_outbox_pending p WHERE p.outbox_id = i.outbox_id)) AS lost, \
                    (SELECT count(*) FROM symphony.participant_sequence_gaps) AS gaps",
        )
        .fetch_one(transaction.session())
        .await?)
    }
}
