//! What stands in the way of an item that has not ended: a head, a pause, a breaker, nobody who serves it.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::roles::ReadAccess;
use super::{DbError, RoleTransaction};
use crate::domain::OutboxId;

/// What a payment waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
#[allow(clippy::struct_excessive_bools)] // each is a switch of its own
pub struct PaymentWaits {
    /// The lane is paused.
    pub lane_paused: bool,
    /// Its rail is.
    pub rail_paused: bool,
    /// Its participant is.
    pub participant_paused: bool,
    /// How many live workers serve its rail.
    pub workers: i64,
    /// CLOSED, OPEN or HALF_OPEN, as they say.
    pub breaker: Option<String>,
    /// Since when the rail is left alone.
    pub open_since: Option<DateTime<Utc>>,
    /// What stands before it in its FIFO lane.
    pub head: Option<OutboxId>,
    /// What failed before it there, and blocks it.
    pub blocked_by: Option<OutboxId>,
    /// It is only asked about, and parked again.
    pub only_ask: bool,
    /// How many stand behind it in its FIFO lane.
    pub behind: i64,
}

/// What an event waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EventWaits {
    /// The lane is paused.
    pub lane_paused: bool,
    /// How many live workers serve the lane.
    pub workers: i64,
    /// The earlier event of its key that goes first.
    pub behind: Option<Uuid>,
    /// The topic that it, or an earlier event of its key, waits for, if that is paused.
    pub topic_paused: Option<String>,
    /// Since when, if it is on record.
    pub paused_since: Option<DateTime<Utc>>,
    /// Who did it.
    pub paused_by: Option<String>,
    /// Its bus, if that is left alone.
    pub bus: Option<String>,
    /// Since when.
    pub open_since: Option<DateTime<Utc>>,
}

/// What an execution waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct TriggerWaits {
    /// The lane is paused.
    pub lane_paused: bool,
    /// Its app is.
    pub app_paused: bool,
    /// How many live workers serve the lane.
    pub workers: i64,
    /// When it is due.
    pub next_attempt_at: DateTime<Utc>,
    /// Who has it.
    pub claimed_by: Option<String>,
}

pub(super) async fn of_payment(
    transaction: &mut RoleTransaction,
    item: OutboxId,
) -> Result<Option<PaymentWaits>, DbError> {
    Ok(sqlx::query_as(
        "SELECT s.paused AS lane_paused, coalesce(r.paused, false) AS rail_paused, \
                EXISTS (SELECT FROM symphony.payment_outbox_paused_participants x WHERE x.participant_id = p.participant_id) AS participant_paused, \
                coalesce(d.workers, 0) AS workers, d.breaker, d.open_since, p.only_ask, \
                (SELECT h.outbox_id FROM symphony.payment_outbox_pending h \
                  WHERE h.participant_id = p.participant_id AND h.rail_type = p.rail_type AND h.lane_position > 0 \
                    AND h.lane_position < p.lane_position ORDER BY h.lane_position LIMIT 1) AS head, \
                (SELECT b.outbox_id FROM symphony.payment_outbox_blocked_lanes b \
                  WHERE b.participant_id = p.participant_id AND b.rail_type = p.rail_type AND b.lane_position < p.lane_position \
                  ORDER BY b.lane_position LIMIT 1) AS blocked_by, \
                (SELECT count(*) FROM symphony.payment_outbox_pending h \
                  WHERE h.participant_id = p.participant_id AND h.rail_type = p.rail_type AND p.lane_position > 0 \
                    AND h.lane_position > p.lane_position) AS behind \
           FROM symphony.payment_outbox_pending p CROSS JOIN symphony.payment_outbox_settings s \
           LEFT JOIN symphony.payment_outbox_rails r ON r.rail_type = p.rail_type \
           LEFT JOIN symphony.outbox_destination_status d ON d.lane = 'payments' AND d.name = p.rail_type \
          WHERE p.outbox_id = $1",
    )
    .bind(item)
    .fetch_optional(transaction.session())
    .await?)
}

pub(super) async fn of_event(
    transaction: &mut RoleTransaction,
    access: ReadAccess,
    event: Uuid,
) -> Result<Option<EventWaits>, DbError> {
    Ok(sqlx::query_as(AssertSqlSafe(format!(
        "SELECT s.paused AS lane_paused, \
                (SELECT coalesce(max(d.workers), 0) FROM symphony.outbox_destination_status d WHERE d.lane = 'events') AS workers, \
                (SELECT f.event_id FROM symphony.event_outbox_waiting w \
                   JOIN symphony.event_outbox_log f ON f.bucket = w.bucket AND f.position = w.position \
                  WHERE w.bucket = l.bucket AND w.event_key = l.event_key AND w.position < l.position \
                  ORDER BY w.position LIMIT 1) AS behind, \
                t.topic AS topic_paused, told.created_at AS paused_since, told.actor AS paused_by, \
                away.name AS bus, away.open_since \
           FROM symphony.event_outbox_identities i \
           JOIN symphony.event_outbox_log l ON l.bucket = i.bucket AND l.position = i.position \
          CROSS JOIN symphony.event_outbox_settings s \
           LEFT JOIN symphony.event_outbox_blocked k ON k.bucket = l.bucket AND k.event_key = l.event_key \
           LEFT JOIN symphony.event_outbox_topics t ON t.topic = k.paused_topic AND t.paused \
           LEFT JOIN LATERAL (SELECT h.created_at, h.actor FROM symphony.outbox_history h \
                               WHERE h.lane = 'events' AND h.item_id IS NULL AND h.event_type = 'PAUSED' \
                                 AND h.details->>'topic' = t.topic ORDER BY h.event_no DESC LIMIT 1) told ON t.topic IS NOT NULL \
           LEFT JOIN symphony.outbox_destination_status away \
             ON away.lane = 'events' AND away.open_since IS NOT NULL AND starts_with({}, away.name || '/') \
          WHERE i.event_id = $1",
        access.of("k.destination", "text")
    )))
    .bind(event)
    .fetch_optional(transaction.session())
    .await?)
}

pub(super) async fn of_trigger(
    transaction: &mut RoleTransaction,
    id: Uuid,
) -> Result<Option<TriggerWaits>, DbError> {
    Ok(sqlx::query_as(
        "SELECT s.paused AS lane_paused, a.paused AS app_paused, p.next_attempt_at, p.claimed_by, \
                (SELECT coalesce(max(d.workers), 0) FROM symphony.outbox_destination_status d WHERE d.lane = 'triggers') AS workers \
           FROM symphony.trigger_outbox_pending p JOIN symphony.apps a ON a.id = p.app_id \
          CROSS JOIN symphony.trigger_outbox_settings s WHERE p.id = $1",
    )
    .bind(id)
    .fetch_optional(transaction.session())
    .await?)
}
