//! The operator's handle: act on items, pause and resume, configure. Every act names its actor and reason.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::Postgres;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Auditor, Database, DbError, Role, RoleTransaction, calls};
use crate::domain::{Act, OutboxId, Resolution, Switch};

/// Acts on items on behalf of a person.
#[derive(Debug, Clone)]
pub struct Operator {
    pub(super) database: Database,
}

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

/// A lane whose incidents can be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncidentLane {
    /// Payments.
    Payments,
    /// Events.
    Events,
    /// Triggers.
    Triggers,
}

/// An incident that was closed, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ClosedIncident {
    /// Its number in its lane.
    pub incident_no: i64,
    /// The item.
    pub item_id: Uuid,
    /// What the ledger says.
    pub recorded_state: String,
    /// With this reference.
    pub recorded_reference: Option<String>,
    /// What arrived late.
    pub late_state: String,
    /// With this reference.
    pub late_reference: Option<String>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// What a pause or resume changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct SwitchAnswer {
    /// The lane, rail or participant.
    pub target: String,
    /// RUNNING or PAUSED.
    pub state_before: String,
    /// RUNNING or PAUSED.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// What the database knows of a rail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
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
pub struct LaneSettings {
    /// The lane is paused.
    pub paused: bool,
    /// LEASE_CLAIMED and ATTEMPT_COMPLETED are recorded.
    pub record_routine_events: bool,
    /// Resolve, redrive and skip need a second person.
    pub approval_required: bool,
}

impl Operator {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// One act: a transaction of its own.
    pub(super) async fn act<T>(
        &self,
        work: impl AsyncFnOnce(&mut RoleTransaction) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        self.transact(true, work).await
    }

    /// A change of settings. A dry run is the call itself, rolled back: it meets the same refusals, and for a moment
    /// takes the same locks.
    pub(super) async fn change<T>(
        &self,
        act: &Act,
        work: impl AsyncFnOnce(&mut RoleTransaction) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        self.transact(!act.dry_run, work).await
    }

    async fn transact<T>(
        &self,
        commit: bool,
        work: impl AsyncFnOnce(&mut RoleTransaction) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let mut transaction = self.database.begin(Role::Operator).await?;
        let answer = work(&mut transaction).await?;
        if commit {
            transaction.commit().await?;
        }
        Ok(answer)
    }

    /// The act that names one thing, and nothing else.
    pub(super) async fn act_on<K, T>(
        &self,
        sql: &'static str,
        key: K,
        act: &Act,
    ) -> Result<T, DbError>
    where
        K: for<'q> sqlx::Encode<'q, Postgres> + sqlx::Type<Postgres> + Send,
        T: for<'r> sqlx::FromRow<'r, PgRow> + Send + Unpin,
    {
        self.act(async |connection| {
            Ok(sqlx::query_as(sql)
                .bind(key)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(&act.approver)
                .bind(act.dry_run)
                .fetch_one(connection)
                .await?)
        })
        .await
    }

    /// What the operator reads: the same as an auditor, whose role the login need not have.
    pub fn reader(&self) -> Auditor {
        self.database.auditor()
    }

    /// Take a pending item out of the machine's hands.
    pub async fn park(&self, item: OutboxId, act: &Act) -> Result<ActAnswer, DbError> {
        self.act_on(calls::PARK.sql, item, act).await
    }

    /// Give a parked item back to the machine.
    pub async fn release(&self, item: OutboxId, act: &Act) -> Result<JudgedAnswer, DbError> {
        self.act_despite(calls::RELEASE.sql, item, act).await
    }

    /// As [`act_on`](Self::act_on), for acts after which something may be sent again.
    async fn act_despite<T>(
        &self,
        sql: &'static str,
        item: OutboxId,
        act: &Act,
    ) -> Result<T, DbError>
    where
        T: for<'r> sqlx::FromRow<'r, PgRow> + Send + Unpin,
    {
        self.act(async |connection| {
            Ok(sqlx::query_as(sql)
                .bind(item)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(&act.approver)
                .bind(act.dry_run)
                .bind(act.despite_unknown)
                .fetch_one(connection)
                .await?)
        })
        .await
    }

    /// Say what became of a contradiction, so that it is not listed any more.
    pub async fn close_incident(
        &self,
        lane: IncidentLane,
        incident_no: i64,
        act: &Act,
    ) -> Result<ClosedIncident, DbError> {
        let call = match lane {
            IncidentLane::Payments => calls::CLOSE_PAYMENT_INCIDENT,
            IncidentLane::Events => calls::CLOSE_EVENT_INCIDENT,
            IncidentLane::Triggers => calls::CLOSE_TRIGGER_INCIDENT,
        };
        self.act_on(call.sql, incident_no, act).await
    }

    /// Settle a parked item by what a person has found out.
    pub async fn resolve(
        &self,
        item: OutboxId,
        resolution: &Resolution,
        act: &Act,
    ) -> Result<JudgedAnswer, DbError> {
        let (word, reference) = match resolution {
            Resolution::Dispatched { rail_reference } => {
                ("DISPATCHED", Some(rail_reference.as_str()))
            }
            Resolution::Failed => ("FAILED", None),
            Resolution::Retry => ("RETRY", None),
        };
        self.act(async |connection| {
            Ok(sqlx::query_as(calls::RESOLVE.sql)
                .bind(item)
                .bind(word)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(reference)
                .bind(&act.approver)
                .bind(act.dry_run)
                .bind(act.despite_unknown)
                .fetch_one(connection)
                .await?)
        })
        .await
    }

    /// Try a FAILED payment again, as a new item that names the old one.
    pub async fn redrive(&self, item: OutboxId, act: &Act) -> Result<RedriveAnswer, DbError> {
        self.act_despite(calls::REDRIVE.sql, item, act).await
    }

    /// Let a FIFO lane go on past its head.
    pub async fn skip_head(
        &self,
        participant_id: &str,
        rail_type: &str,
        act: &Act,
    ) -> Result<ActAnswer, DbError> {
        self.act(async |connection| {
            Ok(sqlx::query_as(calls::SKIP_HEAD.sql)
                .bind(participant_id)
                .bind(rail_type)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(&act.approver)
                .bind(act.dry_run)
                .fetch_one(connection)
                .await?)
        })
        .await
    }

    /// Stop claiming from a lane, a rail or a participant.
    pub async fn pause(&self, switch: &Switch, act: &Act) -> Result<SwitchAnswer, DbError> {
        match switch {
            Switch::Lane => self.switch(calls::PAUSE_LANE.sql, None, act).await,
            Switch::Rail(rail) => self.switch(calls::PAUSE_RAIL.sql, Some(rail), act).await,
            Switch::Participant(id) => {
                self.switch(calls::PAUSE_PARTICIPANT.sql, Some(id), act).await
            }
        }
    }

    /// Claim again from a lane, a rail or a participant.
    pub async fn resume(&self, switch: &Switch, act: &Act) -> Result<SwitchAnswer, DbError> {
        match switch {
            Switch::Lane => self.switch(calls::RESUME_LANE.sql, None, act).await,
            Switch::Rail(rail) => self.switch(calls::RESUME_RAIL.sql, Some(rail), act).await,
            Switch::Participant(id) => {
                self.switch(calls::RESUME_PARTICIPANT.sql, Some(id), act).await
            }
        }
    }

    async fn switch(
        &self,
        sql: &'static str,
        target: Option<&str>,
        act: &Act,
    ) -> Result<SwitchAnswer, DbError> {
        self.act(async |connection| {
            let mut query = sqlx::query_as(sql);
            if let Some(target) = target {
                query = query.bind(target);
            }
            Ok(query
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(act.dry_run)
                .fetch_one(connection)
                .await?)
        })
        .await
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
        self.change(act, async |connection| {
            Ok(sqlx::query_as(calls::CONFIGURE_RAIL.sql)
                .bind(rail_type)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(fifo)
                .bind(on_failed)
                .bind(marks_sending)
                .bind(give_up_after_seconds)
                .fetch_one(connection)
                .await?)
        })
        .await
    }

    /// Set the lane's switches; `None` leaves a setting as it is. A dry run is the call itself, rolled back.
    pub async fn configure_lane(
        &self,
        act: &Act,
        record_routine_events: Option<bool>,
        approval_required: Option<bool>,
    ) -> Result<LaneSettings, DbError> {
        self.change(act, async |connection| {
            Ok(sqlx::query_as(calls::CONFIGURE_LANE.sql)
                .bind(&act.actor)
                .bind(&act.reason)
                .bind(record_routine_events)
                .bind(approval_required)
                .bind(&act.approver)
                .fetch_one(connection)
                .await?)
        })
        .await
    }
}
