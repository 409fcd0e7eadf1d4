//! What operators do with events.

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use crate::db::operator::act_query;
use crate::db::{DbError, Operator, Role, calls};
use crate::domain::Act;

/// What a redrive of an event changed, or would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventRedriveAnswer {
    /// The event.
    pub event_id: Uuid,
    /// Where it stood.
    pub state_before: String,
    /// Where it stands, or would stand.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// When it is published at the earliest: not while the bus would swallow its id.
    pub due_at: DateTime<Utc>,
}

/// What skipping an event changed, or would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventSkipAnswer {
    /// The event.
    pub event_id: Uuid,
    /// Where it stood.
    pub state_before: String,
    /// Where it stands, or would stand.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// How many events wait behind it.
    pub waiting: i64,
}

/// How to redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resend {
    /// Events that were SENT, too.
    pub sent_too: bool,
    /// How long the bus swallows a repeated id.
    pub dedup_window_seconds: i32,
}

/// The event lane's switches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventLaneSettings {
    /// The lane is paused.
    pub paused: bool,
    /// Members no payload may have.
    pub denied_payload_keys: Vec<String>,
    /// Acts need a second person.
    pub approval_required: bool,
}

impl Operator {
    /// Publish events again, under the same event ids; all of them or none. One answer each, in the order given.
    pub async fn redrive_events(
        &self,
        events: &[Uuid],
        resend: Resend,
        act: &Act,
    ) -> Result<Vec<EventRedriveAnswer>, DbError> {
        let mut transaction = self.database.begin(Role::Operator).await?;
        // In the order in which workers lock buckets, so that neither waits for the other in a circle.
        let in_order: Vec<Uuid> = sqlx::query_scalar(
            "SELECT t.event_id FROM unnest($1::uuid[]) t(event_id) \
               LEFT JOIN symphony.event_outbox_identities i ON i.event_id = t.event_id ORDER BY i.bucket, i.position",
        )
        .bind(events)
        .fetch_all(transaction.session())
        .await?;
        let mut answers: Vec<EventRedriveAnswer> = Vec::with_capacity(events.len());
        for event in in_order {
            let query = act_query(calls::REDRIVE_EVENT.sql, event, act)
                .bind(resend.sent_too)
                .bind(resend.dedup_window_seconds);
            answers.push(query.fetch_one(transaction.session()).await?);
        }
        transaction.commit().await?;
        answers
            .sort_by_cached_key(|answer| events.iter().position(|event| *event == answer.event_id));
        Ok(answers)
    }

    /// Let a key go on past the FAILED event that blocks it.
    pub async fn skip_event(&self, event: Uuid, act: &Act) -> Result<EventSkipAnswer, DbError> {
        self.act_on(calls::SKIP_EVENT.sql, event, act).await
    }

    /// Set which members no payload may have, and whether acts need a second person; `None` leaves a setting as it is.
    pub async fn configure_events(
        &self,
        denied_payload_keys: Option<&[String]>,
        approval_required: Option<bool>,
        act: &Act,
    ) -> Result<EventLaneSettings, DbError> {
        let query = sqlx::query_as(calls::CONFIGURE_EVENTS.sql)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(denied_payload_keys)
            .bind(approval_required);
        self.change(act, query).await
    }
}
