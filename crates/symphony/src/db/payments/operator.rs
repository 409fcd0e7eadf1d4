//! What operators do with payments.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;

use crate::db::operator::{NOT_NAMED, act_query};
use crate::db::session::Row;
use crate::db::{DbError, Operator, calls};
use crate::domain::{Act, OutboxId, Resolution};

/// What an act changed, or would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ActAnswer {
    /// The item.
    pub outbox_id: OutboxId,
    /// Where it stood.
    pub state_before: String,
    /// Where it stands, or would stand.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// What is known and what is not about everything tried so far, with an act that may send again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct Known {
    /// Every try, late outcome and act, of the item and of what it redrives, oldest first.
    pub tries: Json<Vec<KnownTry>>,
    /// The rail never said what became of one of them: the act needs `despite_unknown`.
    pub needs_despite_unknown: bool,
    /// The rail told a lost worker that it was executed: the act needs a second person.
    pub needs_approver: bool,
}

/// One thing that happened to an item before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownTry {
    /// When.
    pub at: DateTime<Utc>,
    /// To which item: this one, or one it redrives.
    pub outbox_id: OutboxId,
    /// TRY, MUST_INQUIRE, or what the narrative calls it.
    pub what: String,
    /// The try's number.
    pub attempt_no: Option<i32>,
    /// The worker or the person.
    pub by: Option<String>,
    /// How it ended.
    pub outcome: Option<String>,
    /// Nobody knows whether the money moved then.
    pub unknown: bool,
    /// The rail's reference.
    pub rail_reference: Option<String>,
    /// The rail's code.
    pub rail_code: Option<String>,
    /// Our code.
    pub error_code: Option<String>,
    /// Why a person did it.
    pub reason: Option<String>,
}

/// What an act changed, or would change, and what is known of earlier tries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct JudgedAnswer {
    /// What changed.
    #[serde(flatten)]
    #[sqlx(flatten)]
    pub answer: ActAnswer,
    /// What is known.
    #[serde(flatten)]
    #[sqlx(flatten)]
    pub known: Known,
}

/// What a redrive made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct RedriveAnswer {
    /// The failed item, which stays as it is.
    pub outbox_id: OutboxId,
    /// Where it stood.
    pub state_before: String,
    /// Where it stands, or would stand.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// The new item.
    pub redriven_as: Option<OutboxId>,
    /// Its number in the participant's stream.
    pub sequence_id: Option<i64>,
    /// What is known of earlier tries.
    #[serde(flatten)]
    #[sqlx(flatten)]
    pub known: Known,
}

/// What the database knows of a rail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, sqlx::FromRow)]
pub struct RailSettings {
    /// The rail.
    pub rail_type: String,
    /// Strict order per participant.
    pub fifo: bool,
    /// `block` or `continue`.
    pub on_failed: String,
    /// It can neither deduplicate nor be asked.
    pub marks_sending: bool,
    /// It is paused.
    pub paused: bool,
    /// How long an item is tried while the rail is busy or away.
    pub give_up_after_seconds: i32,
}

/// The payment lane's switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct PaymentLaneSettings {
    /// The lane is paused.
    pub paused: bool,
    /// LEASE_CLAIMED and ATTEMPT_COMPLETED are recorded.
    pub record_routine_events: bool,
    /// Acts need a second person.
    pub approval_required: bool,
}

impl Operator {
    /// Take a pending item out of the machine's hands.
    pub async fn park_payment(&self, item: OutboxId, act: &Act) -> Result<ActAnswer, DbError> {
        self.act_on(calls::PARK_PAYMENT.sql, item, act).await
    }

    /// Give a parked item back to the machine.
    pub async fn release_payment(
        &self,
        item: OutboxId,
        act: &Act,
    ) -> Result<JudgedAnswer, DbError> {
        self.act_despite(calls::RELEASE_PAYMENT.sql, item, act).await
    }

    /// As [`act_on`](Self::act_on), for acts after which something may be sent again.
    async fn act_despite<T: Row>(
        &self,
        sql: &'static str,
        item: OutboxId,
        act: &Act,
    ) -> Result<T, DbError> {
        self.act(act_query(sql, item, act).bind(act.despite_unknown)).await
    }

    /// Settle a parked item by what a person has found out.
    pub async fn resolve_payment(
        &self,
        item: OutboxId,
        resolution: &Resolution,
        act: &Act,
    ) -> Result<JudgedAnswer, DbError> {
        let (word, reference) = resolution.words();
        let query = sqlx::query_as(calls::RESOLVE_PAYMENT.sql)
            .bind(item)
            .bind(word)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(reference)
            .bind(NOT_NAMED)
            .bind(act.dry_run)
            .bind(act.despite_unknown);
        self.act(query).await
    }

    /// Try a FAILED payment again, as a new item that names the old one.
    pub async fn redrive_payment(
        &self,
        item: OutboxId,
        act: &Act,
    ) -> Result<RedriveAnswer, DbError> {
        self.act_despite(calls::REDRIVE_PAYMENT.sql, item, act).await
    }

    /// Let a FIFO lane go on past its head.
    pub async fn skip_payment_head(
        &self,
        participant_id: &str,
        rail_type: &str,
        act: &Act,
    ) -> Result<ActAnswer, DbError> {
        let query = sqlx::query_as(calls::SKIP_PAYMENT_HEAD.sql)
            .bind(participant_id)
            .bind(rail_type)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(NOT_NAMED)
            .bind(act.dry_run);
        self.act(query).await
    }

    /// Say what the database must know of a rail; `None` leaves a setting as it is. A dry run is the call itself,
    /// rolled back: it meets the same refusals, and for a moment takes the same locks.
    pub async fn configure_rail(
        &self,
        rail_type: &str,
        act: &Act,
        fifo: Option<bool>,
        on_failed: Option<&str>,
        marks_sending: Option<bool>,
        give_up_after_seconds: Option<i32>,
    ) -> Result<RailSettings, DbError> {
        let query = sqlx::query_as(calls::CONFIGURE_RAIL.sql)
            .bind(rail_type)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(fifo)
            .bind(on_failed)
            .bind(marks_sending)
            .bind(give_up_after_seconds);
        self.change(act, query).await
    }

    /// Set the lane's switches; `None` leaves a setting as it is. A dry run is the call itself, rolled back.
    pub async fn configure_payments(
        &self,
        act: &Act,
        record_routine_events: Option<bool>,
        approval_required: Option<bool>,
    ) -> Result<PaymentLaneSettings, DbError> {
        let query = sqlx::query_as(calls::CONFIGURE_PAYMENTS.sql)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(record_routine_events)
            .bind(approval_required)
            .bind(NOT_NAMED);
        self.change(act, query).await
    }
}
