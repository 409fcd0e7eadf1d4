//! Who acts on items: one act, one transaction. What is done is filed by lane.

use serde::Serialize;
use sqlx::{Encode, Postgres, Type};
use uuid::Uuid;

use super::session::{Query, Row};
use super::{Auditor, Database, DbError, Role, calls};
use crate::domain::{Act, Switch};

/// Acts on items on behalf of a person.
///
/// ```no_run
/// # async fn example(database: symphony::db::Database) -> Result<(), symphony::Error> {
/// use symphony::domain::{Act, Switch};
///
/// let act = Act {
///     actor: "dana".to_owned(),
///     reason: "the bank asks for an hour".to_owned(),
///     dry_run: false,
///     despite_unknown: false,
/// };
/// let paused = database.operator().pause(&Switch::Rail("sepa".to_owned()), &act).await?;
/// println!("{}: {} -> {}", paused.target, paused.state_before, paused.state_after);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Operator {
    pub(super) database: Database,
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
    /// The lane, rail, participant, topic or app.
    pub target: String,
    /// RUNNING or PAUSED.
    pub state_before: String,
    /// RUNNING or PAUSED.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
}

impl Operator {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// One act: a transaction of its own.
    pub(super) async fn act<T: Row>(&self, query: Query<'_, T>) -> Result<T, DbError> {
        let mut transaction = self.database.begin(Role::Operator).await?;
        let answer = query.fetch_one(transaction.session()).await?;
        transaction.commit().await?;
        Ok(answer)
    }

    /// A change of settings. A dry run is the call itself, rolled back: it meets the same refusals, and for a moment
    /// takes the same locks.
    pub(super) async fn change<T: Row>(
        &self,
        act: &Act,
        query: Query<'_, T>,
    ) -> Result<T, DbError> {
        if !act.dry_run {
            return self.act(query).await;
        }
        let mut transaction = self.database.begin(Role::Operator).await?;
        let answer = query.fetch_one(transaction.session()).await?;
        transaction.rollback().await?;
        Ok(answer)
    }

    /// The act that names one thing, and nothing else.
    pub(super) async fn act_on<'q, T: Row>(
        &self,
        sql: &'static str,
        key: impl Encode<'q, Postgres> + Type<Postgres> + 'q,
        act: &'q Act,
    ) -> Result<T, DbError> {
        self.act(act_query(sql, key, act)).await
    }

    /// What the operator reads: the same as an auditor, whose role the login need not have.
    pub fn reader(&self) -> Auditor {
        self.database.auditor()
    }

    /// Claim nothing more of it, until it is resumed.
    pub async fn pause(&self, switch: &Switch, act: &Act) -> Result<SwitchAnswer, DbError> {
        match switch {
            Switch::Payments => self.switch(calls::PAUSE_PAYMENTS, None, act).await,
            Switch::Rail(rail) => self.switch(calls::PAUSE_RAIL, Some(rail), act).await,
            Switch::Participant(id) => self.switch(calls::PAUSE_PARTICIPANT, Some(id), act).await,
            Switch::Events => self.switch(calls::PAUSE_EVENTS, None, act).await,
            Switch::Topic(topic) => self.switch(calls::PAUSE_TOPIC, Some(topic), act).await,
            Switch::Triggers => self.switch(calls::PAUSE_TRIGGERS, None, act).await,
            Switch::App(app) => self.switch(calls::PAUSE_APP, Some(app), act).await,
        }
    }

    /// Claim of it again.
    pub async fn resume(&self, switch: &Switch, act: &Act) -> Result<SwitchAnswer, DbError> {
        match switch {
            Switch::Payments => self.switch(calls::RESUME_PAYMENTS, None, act).await,
            Switch::Rail(rail) => self.switch(calls::RESUME_RAIL, Some(rail), act).await,
            Switch::Participant(id) => self.switch(calls::RESUME_PARTICIPANT, Some(id), act).await,
            Switch::Events => self.switch(calls::RESUME_EVENTS, None, act).await,
            Switch::Topic(topic) => self.switch(calls::RESUME_TOPIC, Some(topic), act).await,
            Switch::Triggers => self.switch(calls::RESUME_TRIGGERS, None, act).await,
            Switch::App(app) => self.switch(calls::RESUME_APP, Some(app), act).await,
        }
    }

    async fn switch(
        &self,
        call: calls::Call,
        target: Option<&str>,
        act: &Act,
    ) -> Result<SwitchAnswer, DbError> {
        let mut query = sqlx::query_as(call.sql);
        if let Some(target) = target {
            query = query.bind(target);
        }
        self.act(query.bind(&act.actor).bind(&act.reason).bind(act.dry_run)).await
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
}

/// `p_approver`: only an approval gives it.
pub(super) const NOT_NAMED: Option<&str> = None;

/// The act on one thing, as most functions take it: what, who, why, and whether only to look.
pub(super) fn act_query<'q, T: Row>(
    sql: &'static str,
    key: impl Encode<'q, Postgres> + Type<Postgres> + 'q,
    act: &'q Act,
) -> Query<'q, T> {
    sqlx::query_as(sql)
        .bind(key)
        .bind(&act.actor)
        .bind(&act.reason)
        .bind(NOT_NAMED)
        .bind(act.dry_run)
}
