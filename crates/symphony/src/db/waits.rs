//! What stands in the way of an item that has not ended: a head, a pause, a breaker, nobody who serves it.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::roles::Sight;
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
                EXISTS (SELECT FROM public.payment_outbox_paused_participants x WHERE x.participant_id = p.participant_id) AS participant_paused, \
                coalesce(d.workers, 0) AS workers, d.breaker, d.open_since, p.only_ask, \
                (SELECT h.outbox_id FROM public.payment_outbox_pending h \
                  WHERE h.participant_id = p.participant_id AND h.rail_type = p.rail_type AND h.lane_position > 0 \
                    AND h.lane_position < p.lane_position ORDER BY h.lane_position LIMIT 1) AS head, \
                (SELECT b.outbox_id FROM public.payment_outbox_blocked_lanes b \
                  WHERE b.participant_id = p.participant_id AND b.rail_type = p.rail_type AND b.lane_position < p.lane_position \
                  ORDER BY b.lane_position LIMIT 1) AS blocked_by, \
                (SELECT count(*) FROM public.payment_outbox_pending h \
                  WHERE h.participant_id = p.participant_id AND h.rail_type = p.rail_type AND p.lane_position > 0 \
                    AND h.lane_position > p.lane_position) AS behind \
           FROM public.payment_outbox_pending p CROSS JOIN public.payment_outbox_settings s \
           LEFT JOIN public.payment_outbox_rails r ON r.rail_type = p.rail_type \
           LEFT JOIN public.outbox_destination_status d ON d.lane = 'payments' AND d.name = p.rail_type \
          WHERE p.outbox_id = $1",
    )
    .bind(item)
    .fetch_optional(transaction)
    .await?)
}

pub(super) async fn of_event(
    transaction: &mut RoleTransaction,
    sight: Sight,
    event: Uuid,
) -> Result<Option<EventWaits>, DbError> {
    Ok(sqlx::query_as(AssertSqlSafe(format!(
        "SELECT s.paused AS lane_paused, \
                (SELECT coalesce(max(d.workers), 0) FROM public.outbox_destination_status d WHERE d.lane = 'events') AS workers, \
                (SELECT f.event_id FROM public.event_outbox_waiting w \
                   JOIN public.event_outbox_log f ON f.bucket = w.bucket AND f.position = w.position \
                  WHERE w.bucket = l.bucket AND w.event_key = l.event_key AND w.position < l.position \
                  ORDER BY w.position LIMIT 1) AS behind, \
                away.name AS bus, away.open_since \
           FROM public.event_outbox_identities i \
           JOIN public.event_outbox_log l ON l.bucket = i.bucket AND l.position = i.position \
          CROSS JOIN public.event_outbox_settings s \
           LEFT JOIN public.event_outbox_blocked k ON k.bucket = l.bucket AND k.event_key = l.event_key \
           LEFT JOIN public.outbox_destination_status away \
             ON away.lane = 'events' AND away.open_since IS NOT NULL AND starts_with({}, away.name || '/') \
          WHERE i.event_id = $1",
        sight.of("k.destination", "text")
    )))
    .bind(event)
    .fetch_optional(transaction)
    .await?)
}

pub(super) async fn of_trigger(
    transaction: &mut RoleTransaction,
    id: Uuid,
) -> Result<Option<TriggerWaits>, DbError> {
    Ok(sqlx::query_as(
        "SELECT s.paused AS lane_paused, a.paused AS app_paused, p.next_attempt_at, p.claimed_by, \
                (SELECT coalesce(max(d.workers), 0) FROM public.outbox_destination_status d WHERE d.lane = 'triggers') AS workers \
           FROM public.trigger_outbox_pending p JOIN public.apps a ON a.id = p.app_id \
          CROSS JOIN public.trigger_outbox_settings s WHERE p.id = $1",
    )
    .bind(id)
    .fetch_optional(transaction)
    .await?)
}
