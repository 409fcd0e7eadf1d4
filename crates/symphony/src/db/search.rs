//! What an id names that is no item's own: a number of a request or of a contradiction, a worker, a bank's reference, a trace.

use std::time::{Duration, Instant};

use serde::Serialize;
use uuid::Uuid;

use super::roles::ReadAccess;
use super::{Auditor, DbError, Role};

/// An item that something else than its own id names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct FoundElsewhere {
    /// payments, events or triggers.
    pub lane: String,
    /// The item.
    pub item_id: Uuid,
    /// What names it, in words.
    pub named_by: String,
}

/// Of each kind.
const FOUND_MAX: i64 = 100;

impl Auditor {
    /// The items of contradictions with this number, closed ones too: each lane counts its own.
    pub async fn find_incident(&self, number: i64) -> Result<Vec<FoundElsewhere>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT lane, item_id, 'contradiction ' || event_no AS named_by FROM symphony.outbox_history \
              WHERE event_no = $1 AND event_type = 'LATE_OUTCOME' AND item_id IS NOT NULL ORDER BY lane",
        )
        .bind(number)
        .fetch_all(transaction.session())
        .await?)
    }

    /// Items by what has no index: a rail's or a bus's reference, an idempotency key, the trace that wrote them. This reads
    /// everything, for so long at most. Events' traces stand in the event itself: only whoever sees payloads finds them.
    pub async fn find_everywhere(
        &self,
        text: &str,
        time_max: Duration,
    ) -> Result<Vec<FoundElsewhere>, DbError> {
        let until = Instant::now() + time_max;
        let (mut transaction, access) = self.database.begin_reading().await?;
        transaction.give_up_statements_after(time_max).await?;
        let is_trace = text.len() == 32 && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        let trace = is_trace.then(|| format!("00-{}-%", text.to_lowercase()));
        let found = "SELECT * FROM ( \
             (SELECT 'payments' AS lane, i.outbox_id AS item_id, 'its idempotency key' AS named_by \
                FROM symphony.payment_outbox_instructions i WHERE i.idempotency_key = $1 LIMIT $3) \
             UNION ALL \
             (SELECT DISTINCT 'payments', a.outbox_id, 'the rail''s reference' \
                FROM symphony.payment_outbox_attempts a WHERE a.rail_reference = $1 LIMIT $3) \
             UNION ALL \
             (SELECT DISTINCT 'events', a.event_id, 'the bus''s reference' \
                FROM symphony.event_outbox_attempts a WHERE a.bus_reference = $1 LIMIT $3) \
             UNION ALL \
             (SELECT 'payments', i.outbox_id, 'its trace' \
                FROM symphony.payment_outbox_instructions i WHERE i.traceparent LIKE $2 LIMIT $3) \
             UNION ALL \
             (SELECT 'triggers', p.id, 'its trace' FROM symphony.trigger_outbox_pending p WHERE p.traceparent LIKE $2 LIMIT $3) \
             UNION ALL \
             (SELECT 'triggers', e.id, 'its trace' FROM symphony.trigger_outbox_executions e WHERE e.traceparent LIKE $2 LIMIT $3)) x \
             ORDER BY lane, item_id";
        let mut items: Vec<FoundElsewhere> = sqlx::query_as(found)
            .bind(text)
            .bind(&trace)
            .bind(FOUND_MAX)
            .fetch_all(transaction.session())
            .await?;
        if let (Some(trace), ReadAccess::Whole) = (trace, access) {
            // Not 0, which would mean no limit.
            let left = until.saturating_duration_since(Instant::now());
            transaction.give_up_statements_after(left.max(Duration::from_millis(1))).await?;
            let events: Vec<FoundElsewhere> = sqlx::query_as(
                "SELECT 'events' AS lane, l.event_id AS item_id, 'its trace' AS named_by FROM symphony.event_outbox_log l \
                  WHERE l.event->'envelope'->>'traceparent' LIKE $1 ORDER BY l.event_id LIMIT $2",
            )
            .bind(trace)
            .bind(FOUND_MAX)
            .fetch_all(transaction.session())
            .await?;
            items.extend(events);
        }
        Ok(items)
    }
}
