//! What waits for a person, in every lane: listed by pages, counted, closed; and what a bank's statement says of it.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::session::Row;
use super::waits::{self, TriggerWaits};
use super::{
    Auditor, DbError, FoundEvent, Operator, PaymentHistoryRow, Role, RoleTransaction, calls,
};
use crate::domain::{Act, OutboxId};

/// Which of them, whatever the lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LetterFilter<'a> {
    /// Our code or the destination's of the latest outcome.
    pub code: Option<&'a str>,
    /// Those that have waited since then or later.
    pub since: Option<DateTime<Utc>>,
    /// Those that have waited since before.
    pub until: Option<DateTime<Utc>>,
    /// The newest first; otherwise those that wait longest.
    pub newest: bool,
    /// Only what comes after this one in that order.
    pub after: Option<(DateTime<Utc>, Uuid)>,
    /// At most so many.
    pub limit: i64,
}

/// Which payments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingQuery<'a> {
    /// Parked ones.
    pub parked: bool,
    /// FAILED ones that nobody has redriven or closed.
    pub failed: bool,
    /// Of this rail only.
    pub rail_type: Option<&'a str>,
    /// Of this participant only.
    pub participant_id: Option<&'a str>,
    /// Which of those.
    pub filter: LetterFilter<'a>,
}

/// A payment that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct WaitingItem {
    /// The item.
    pub outbox_id: OutboxId,
    /// The business instruction.
    pub instruction_id: String,
    /// Whose stream.
    pub participant_id: String,
    /// The rail.
    pub rail_type: String,
    /// PARKED or FAILED.
    pub state: String,
    /// Our code of the latest outcome.
    pub error_code: Option<String>,
    /// The rail's code of the latest outcome.
    pub rail_code: Option<String>,
    /// Since when it waits.
    pub since: DateTime<Utc>,
    /// For how long.
    pub age_seconds: i64,
    /// The money may have moved: ask the rail.
    pub must_inquire: bool,
    /// It failed in a strict order, and others wait behind it.
    pub blocks_its_lane: bool,
    /// A rail told a lost worker that it was executed.
    pub late_yes: bool,
}

/// An execution that ended FAILED and that nobody has replayed or closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct FailedExecution {
    /// The execution.
    pub id: Uuid,
    /// Its app; unknown where executions do not outlive theirs.
    pub app_name: Option<String>,
    /// Its script.
    pub script_name: Option<String>,
    /// What fired it.
    pub source_kind: String,
    /// When it failed.
    pub failed_at: DateTime<Utc>,
    /// At which attempt.
    pub attempt_no: i32,
    /// Our code.
    pub error_code: Option<String>,
    /// In words.
    pub error_message: Option<String>,
}

/// How many of one kind there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct LetterCount {
    /// The lane.
    pub lane: String,
    /// PARKED or FAILED.
    pub state: String,
    /// The rail, bus and topic, or app.
    pub place: Option<String>,
    /// Our code.
    pub code: Option<String>,
    /// So many.
    pub items: i64,
    /// The one that waits longest.
    pub oldest: DateTime<Utc>,
}

/// A lane with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterLane {
    /// Payments.
    Payments,
    /// Events.
    Events,
    /// Triggers.
    Triggers,
}

/// A dead letter that was closed, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct ClosedLetter {
    /// The payment, event or execution.
    pub item_id: Uuid,
    /// FAILED, as before.
    pub state: String,
    /// With this code.
    pub error_code: Option<String>,
    /// Nothing was changed.
    pub dry_run: bool,
}

/// What the ledger knows of a payment that a bank's statement names.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct StatedItem {
    /// The key the bank saw.
    pub rail_key: Uuid,
    /// The item.
    pub outbox_id: OutboxId,
    /// The business instruction.
    pub instruction_id: String,
    /// As [`FoundPayment::state`](super::FoundPayment::state), or REDRIVEN.
    pub state: String,
    /// DISPATCHED or FAILED, if it has ended.
    pub ended: Option<String>,
    /// The reference it ended with.
    pub reference: Option<String>,
    /// A lost worker was told that it was executed.
    pub late_yes: bool,
    /// With this reference.
    pub late_reference: Option<String>,
}

/// What an inquiry was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct InquiryAnswer {
    /// The item.
    pub outbox_id: OutboxId,
    /// PARKED or PENDING.
    pub state_before: String,
    /// PENDING.
    pub state_after: String,
    /// Nothing was changed.
    pub dry_run: bool,
    /// Outcomes it had by then: the next one is the answer.
    pub attempts_before: i32,
}

/// Parked items from the table itself: through the view every pending item's ledger would be looked up.
macro_rules! waiting_payments {
    ($order:literal, $beyond:literal) => {
        concat!(
            "WITH parked AS ( \
                 SELECT p.outbox_id, p.instruction_id, p.participant_id, p.rail_type, 'PARKED' AS state, \
                        latest.error_code, latest.rail_code, p.must_inquire, false AS blocks_its_lane, \
                        coalesce((SELECT max(e.created_at) FROM symphony.payment_outbox_events e \
                                   WHERE e.outbox_id = p.outbox_id AND e.event_type IN ('PARKED', 'SKIPPED')), \
                                 latest.completed_at, p.created_at) AS since \
                   FROM symphony.payment_outbox_pending p \
                   LEFT JOIN LATERAL (SELECT a.error_code, a.rail_code, a.completed_at FROM symphony.payment_outbox_attempts a \
                                       WHERE a.outbox_id = p.outbox_id ORDER BY a.attempt_no DESC LIMIT 1) latest ON true \
                  WHERE $1 AND p.hold = 'PARKED' AND ($3::text IS NULL OR p.rail_type = $3) \
                    AND ($10::text IS NULL OR p.participant_id = $10) \
             ), failed AS ( \
                 SELECT d.outbox_id, d.instruction_id, d.participant_id, d.rail_type, 'FAILED' AS state, d.error_code, \
                        d.rail_code, false AS must_inquire, d.blocks_its_lane, d.failed_at AS since \
                   FROM symphony.payment_outbox_dead_letters d \
                  WHERE $2 AND ($3::text IS NULL OR d.rail_type = $3) AND ($10::text IS NULL OR d.participant_id = $10) \
                    AND ($5::text IS NULL OR d.error_code = $5 OR d.rail_code = $5) \
                    AND ($6::timestamptz IS NULL OR d.failed_at >= $6) AND ($7::timestamptz IS NULL OR d.failed_at < $7) \
                    AND ($8::timestamptz IS NULL OR (d.failed_at, d.outbox_id) ", $beyond, " ($8, $9)) \
                  ORDER BY d.failed_at ", $order, ", d.outbox_id ", $order, " LIMIT $4 \
             ), waiting AS ( \
                 SELECT * FROM (SELECT * FROM parked UNION ALL SELECT * FROM failed) w \
                  WHERE ($5::text IS NULL OR w.error_code = $5 OR w.rail_code = $5) \
                    AND ($6::timestamptz IS NULL OR w.since >= $6) AND ($7::timestamptz IS NULL OR w.since < $7) \
                    AND ($8::timestamptz IS NULL OR (w.since, w.outbox_id) ", $beyond, " ($8, $9)) \
                  ORDER BY w.since ", $order, ", w.outbox_id ", $order, " LIMIT $4 \
             ) \
             SELECT w.*, floor(extract(epoch FROM clock_timestamp() - w.since))::bigint AS age_seconds, \
                    EXISTS (SELECT FROM symphony.outbox_history e \
                             WHERE e.lane = 'payments' AND e.item_id = w.outbox_id AND e.event_type = 'LATE_OUTCOME' \
                               AND e.details->>'state' = 'DISPATCHED') AS late_yes \
               FROM waiting w ORDER BY w.since ", $order, ", w.outbox_id ", $order
        )
    };
}

impl Auditor {
    /// Payments that wait for a person.
    pub async fn waiting(&self, query: WaitingQuery<'_>) -> Result<Vec<WaitingItem>, DbError> {
        let filter = query.filter;
        let sql = if filter.newest {
            waiting_payments!("DESC", "<")
        } else {
            waiting_payments!("ASC", ">")
        };
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(sql)
            .bind(query.parked)
            .bind(query.failed)
            .bind(query.rail_type)
            .bind(filter.limit)
            .bind(filter.code)
            .bind(filter.since)
            .bind(filter.until)
            .bind(filter.after.map(|(since, _)| since))
            .bind(filter.after.map(|(_, id)| id))
            .bind(query.participant_id)
            .fetch_all(transaction.session())
            .await?)
    }

    /// Events that FAILED; `topic` is one of any bus, or `bus/topic`. Whoever may not see destinations finds none by one.
    pub async fn failed_events(
        &self,
        topic: Option<&str>,
        filter: LetterFilter<'_>,
    ) -> Result<Vec<FoundEvent>, DbError> {
        let (order, beyond) = if filter.newest { ("DESC", "<") } else { ("ASC", ">") };
        let (transaction, access) = self.database.begin_reading().await?;
        let destination = access.of("d.destination", "text");
        let sql = format!(
            "SELECT d.event_id, l.event_type, d.event_key, d.log_position, 'FAILED' AS state, d.failed_at AS ended_at, \
                    {destination} AS destination, d.error_code, d.error_message, d.blocks_its_key \
               FROM symphony.event_outbox_dead_letters d \
               JOIN symphony.event_outbox_envelopes l ON l.bucket = d.bucket AND l.position = d.log_position \
              WHERE ($1::text IS NULL OR {destination} = $1 OR right({destination}, length($1) + 1) = '/' || $1) \
                AND ($2::text IS NULL OR d.error_code = $2) \
                AND ($3::timestamptz IS NULL OR d.failed_at >= $3) AND ($4::timestamptz IS NULL OR d.failed_at < $4) \
                AND ($5::timestamptz IS NULL OR (d.failed_at, d.event_id) {beyond} ($5, $6)) \
              ORDER BY d.failed_at {order}, d.event_id {order} LIMIT $7"
        );
        letters(transaction, AssertSqlSafe(sql), topic, filter).await
    }

    /// Executions that FAILED.
    pub async fn failed_executions(
        &self,
        app: Option<&str>,
        filter: LetterFilter<'_>,
    ) -> Result<Vec<FailedExecution>, DbError> {
        let (order, beyond) = if filter.newest { ("DESC", "<") } else { ("ASC", ">") };
        let (transaction, access) = self.database.begin_reading().await?;
        let sql = format!(
            "SELECT d.id, d.app_name, d.script_name, d.source_kind, d.failed_at, d.attempt_no, d.error_code, {} AS error_message \
               FROM symphony.trigger_outbox_dead_letters d \
              WHERE ($1::text IS NULL OR d.app_name = $1) AND ($2::text IS NULL OR d.error_code = $2) \
                AND ($3::timestamptz IS NULL OR d.failed_at >= $3) AND ($4::timestamptz IS NULL OR d.failed_at < $4) \
                AND ($5::timestamptz IS NULL OR (d.failed_at, d.id) {beyond} ($5, $6)) \
              ORDER BY d.failed_at {order}, d.id {order} LIMIT $7",
            access.of("d.error_message", "text")
        );
        letters(transaction, AssertSqlSafe(sql), app, filter).await
    }

    /// How many wait for a person, by lane, state, place and code; the most first.
    pub async fn letter_counts(&self) -> Result<Vec<LetterCount>, DbError> {
        let (mut transaction, access) = self.database.begin_reading().await?;
        Ok(sqlx::query_as(AssertSqlSafe(format!(
            "SELECT lane, state, place, code, count(*) AS items, min(since) AS oldest FROM ( \
                 SELECT 'payments' AS lane, 'PARKED' AS state, p.rail_type AS place, latest.error_code AS code, \
                        coalesce(latest.completed_at, p.created_at) AS since \
                   FROM symphony.payment_outbox_pending p \
                   LEFT JOIN LATERAL (SELECT a.error_code, a.completed_at FROM symphony.payment_outbox_attempts a \
                                       WHERE a.outbox_id = p.outbox_id ORDER BY a.attempt_no DESC LIMIT 1) latest ON true \
                  WHERE p.hold = 'PARKED' \
                 UNION ALL SELECT 'payments', 'FAILED', d.rail_type, d.error_code, d.failed_at FROM symphony.payment_outbox_dead_letters d \
                 UNION ALL SELECT 'events', 'FAILED', {}, d.error_code, d.failed_at FROM symphony.event_outbox_dead_letters d \
                 UNION ALL SELECT 'triggers', 'FAILED', d.app_name, d.error_code, d.failed_at FROM symphony.trigger_outbox_dead_letters d) x \
              GROUP BY lane, state, place, code \
              ORDER BY array_position(ARRAY['payments', 'events', 'triggers'], lane), state DESC, items DESC, place, code",
            access.of("d.destination", "text")
        )))
        .fetch_all(transaction.session())
        .await?)
    }

    /// What the ledger knows of the payments with these keys, which a bank saw. Reads all instructions once.
    pub async fn stated(&self, keys: &[Uuid]) -> Result<Vec<StatedItem>, DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        Ok(sqlx::query_as(
            "SELECT k.rail_key, i.outbox_id, i.instruction_id, \
                    coalesce(live.state, (SELECT 'REDRIVEN' FROM symphony.payment_outbox_instructions r WHERE r.redrive_of = i.outbox_id), \
                             ended.state::text, 'UNKNOWN') AS state, \
                    ended.state::text AS ended, ended.rail_reference AS reference, late.event_no IS NOT NULL AS late_yes, \
                    late.details->>'rail_reference' AS late_reference \
               FROM symphony.payments_by_rail_keys(p_rail_keys => $1) k \
               JOIN symphony.payment_outbox_instructions i ON i.outbox_id = k.outbox_id \
               LEFT JOIN symphony.outbox_operational_status live ON live.outbox_id = i.outbox_id \
               LEFT JOIN symphony.payment_outbox_attempts ended ON ended.outbox_id = i.outbox_id AND ended.state IN ('DISPATCHED', 'FAILED') \
               LEFT JOIN LATERAL (SELECT e.event_no, e.details FROM symphony.outbox_history e \
                                   WHERE e.lane = 'payments' AND e.item_id = i.outbox_id AND e.event_type = 'LATE_OUTCOME' \
                                     AND e.details->>'state' = 'DISPATCHED' ORDER BY e.event_no LIMIT 1) late ON true",
        )
        .bind(keys)
        .fetch_all(transaction.session())
        .await?)
    }

    /// What was done to an execution, and what it waits for.
    pub async fn execution_story(
        &self,
        id: Uuid,
    ) -> Result<(Vec<PaymentHistoryRow>, Option<TriggerWaits>), DbError> {
        let mut transaction = self.database.begin(Role::Auditor).await?;
        let events = sqlx::query_as(
            "SELECT event_no, event_type, worker_id, actor, approver, session_role, reason, details, created_at \
               FROM symphony.outbox_history WHERE lane = 'triggers' AND item_id = $1 ORDER BY event_no",
        )
        .bind(id)
        .fetch_all(transaction.session())
        .await?;
        Ok((events, waits::of_trigger(&mut transaction, id).await?))
    }
}

/// A page of dead letters: place, code, times, cursor and limit are bound in this order.
async fn letters<T: Row>(
    mut transaction: RoleTransaction,
    sql: impl sqlx::SqlSafeStr,
    place: Option<&str>,
    filter: LetterFilter<'_>,
) -> Result<Vec<T>, DbError> {
    Ok(sqlx::query_as(sql)
        .bind(place)
        .bind(filter.code)
        .bind(filter.since)
        .bind(filter.until)
        .bind(filter.after.map(|(since, _)| since))
        .bind(filter.after.map(|(_, id)| id))
        .bind(filter.limit)
        .fetch_all(transaction.session())
        .await?)
}

impl Operator {
    /// Say that a dead letter needs nothing more.
    pub async fn close_letter(
        &self,
        lane: LetterLane,
        id: Uuid,
        act: &Act,
    ) -> Result<ClosedLetter, DbError> {
        let call = match lane {
            LetterLane::Payments => calls::CLOSE_PAYMENT_LETTER,
            LetterLane::Events => calls::CLOSE_EVENT_LETTER,
            LetterLane::Triggers => calls::CLOSE_TRIGGER_LETTER,
        };
        self.act_on(call.sql, id, act).await
    }

    /// Have the rail asked now what became of a payment; a parked one is never sent by this.
    pub async fn inquire(&self, item: OutboxId, act: &Act) -> Result<InquiryAnswer, DbError> {
        let query = sqlx::query_as(calls::INQUIRE_PAYMENT.sql)
            .bind(item)
            .bind(&act.actor)
            .bind(&act.reason)
            .bind(act.dry_run);
        self.act(query).await
    }
}
