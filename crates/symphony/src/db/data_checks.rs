//! Whether the data agrees with itself: what was asked, what waits, what the ledger says and how it was numbered.
//!
//! The functions keep all of this true, so whatever is found here was done around them. Each check is one statement,
//! hence one snapshot: it may run while everything works. No function of the database is called.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::migrate::{self, MigrateError};
use super::tables::{self, Table};
use super::{DbError, Schema};

/// Up to this size the big tables are compared without being asked to: about two million payments, some ten seconds.
pub const COMPARED_BYTES_MAX: i64 = 1 << 30;
/// How many findings of one check are named.
const NAMED_MAX: u32 = 20;

/// What a look at the data found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataReport {
    /// Every contradiction, in one line each.
    pub contradictions: Vec<String>,
    /// How much would have to be read to compare every row, where it was too much.
    pub not_compared_bytes: Option<i64>,
}

/// Look at the data. Without `deep`, tables of more than [`COMPARED_BYTES_MAX`] together are left out.
pub async fn contradictions(
    connection: &mut PgConnection,
    schema: &Schema,
    deep: bool,
) -> Result<DataReport, MigrateError> {
    let mut transaction = connection.begin().await?;
    migrate::become_reader(&mut transaction, schema).await?;
    // Whole tables are compared: hash joins, in one process.
    sqlx::raw_sql(
        "SET LOCAL search_path = pg_catalog; SET LOCAL enable_nestloop = off; SET LOCAL jit = off; \
         SET LOCAL work_mem = '64MB'",
    )
    .execute(&mut *transaction)
    .await?;
    let mut found = Vec::new();
    for check in SMALL {
        found.extend(ask(&mut transaction, schema, check).await?);
    }
    if may_read_counters(&mut transaction, schema).await? {
        for check in COUNTERS {
            found.extend(ask(&mut transaction, schema, check).await?);
        }
    }
    let bytes: i64 = sqlx::query_scalar(schema.sql(
        "SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint FROM pg_class c \
          WHERE c.relnamespace = 'symphony'::regnamespace AND c.relname = ANY ($1)",
    ))
    .bind(read_whole())
    .fetch_one(&mut *transaction)
    .await?;
    let too_much = !deep && bytes > COMPARED_BYTES_MAX;
    if !too_much {
        for check in LARGE {
            found.extend(ask(&mut transaction, schema, check).await?);
        }
    }
    transaction.rollback().await?;
    Ok(DataReport { contradictions: found, not_compared_bytes: too_much.then_some(bytes) })
}

/// The tables that the large checks read.
fn read_whole() -> Vec<&'static str> {
    let read = |table: &Table| {
        let name = format!("symphony.{} ", table.name);
        LARGE.iter().any(|check| check.contains(&name))
    };
    tables::ALL.iter().filter(|table| read(table)).map(|table| table.name).collect()
}

async fn ask(
    connection: &mut PgConnection,
    schema: &Schema,
    check: &str,
) -> Result<Vec<String>, DbError> {
    let sql = format!("{} LIMIT {NAMED_MAX}", schema.text(check));
    Ok(sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(connection).await?)
}

/// Only the owner may read the counters; an auditor sees what the views show of them.
async fn may_read_counters(
    connection: &mut PgConnection,
    schema: &Schema,
) -> Result<bool, DbError> {
    Ok(sqlx::query_scalar(schema.sql(
        "SELECT has_table_privilege('symphony.participant_outbox_sequences', 'SELECT') \
            AND has_sequence_privilege('symphony.event_outbox_position', 'SELECT')",
    ))
    .fetch_one(connection)
    .await?)
}

/// As long as what waits.
const SMALL: &[&str] = &[
    "SELECT format('payment %s is pending and was never asked for', p.outbox_id)
       FROM symphony.payment_outbox_pending p
      WHERE NOT EXISTS (SELECT FROM symphony.payment_outbox_instructions i WHERE i.outbox_id = p.outbox_id)",
    "SELECT format('payment %s is pending as something else than was asked for', p.outbox_id)
       FROM symphony.payment_outbox_pending p JOIN symphony.payment_outbox_instructions i USING (outbox_id)
      WHERE (p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type)
            IS DISTINCT FROM (i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key, i.rail_type)",
    "SELECT format('payment %s is pending although it ended %s', p.outbox_id, a.state)
       FROM symphony.payment_outbox_pending p JOIN symphony.payment_outbox_attempts a
         ON a.outbox_id = p.outbox_id AND a.state IN ('DISPATCHED', 'FAILED')",
    "SELECT format('payment %s counts %s attempts, its ledger has %s', p.outbox_id, p.attempt_count, l.attempts)
       FROM symphony.payment_outbox_pending p
      CROSS JOIN LATERAL (SELECT count(*) AS attempts FROM symphony.payment_outbox_attempts a WHERE a.outbox_id = p.outbox_id) l
      WHERE p.attempt_count > l.attempts",
    "SELECT format('FIFO lane %s/%s: its first item waits for nobody', h.participant_id, h.rail_type)
       FROM symphony.payment_outbox_pending h
      WHERE h.hold = 'BEHIND_HEAD'
        AND NOT EXISTS (SELECT FROM symphony.payment_outbox_pending e WHERE e.participant_id = h.participant_id
                          AND e.rail_type = h.rail_type AND e.lane_position > 0
                          AND (e.lane_position < h.lane_position OR e.lease_token IS NOT NULL))
        AND NOT EXISTS (SELECT FROM symphony.payment_outbox_blocked_lanes b
                         WHERE b.participant_id = h.participant_id AND b.rail_type = h.rail_type)",
    "SELECT format('FIFO lane %s/%s is blocked by %s, which has not FAILED', b.participant_id, b.rail_type, b.outbox_id)
       FROM symphony.payment_outbox_blocked_lanes b
      WHERE NOT EXISTS (SELECT FROM symphony.payment_outbox_attempts a WHERE a.outbox_id = b.outbox_id AND a.state = 'FAILED')",
    "SELECT format('event at %s of bucket %s waits and is not in the log under its key', w.position, w.bucket)
       FROM symphony.event_outbox_waiting w
      WHERE NOT EXISTS (SELECT FROM symphony.event_outbox_log l
                         WHERE l.bucket = w.bucket AND l.position = w.position AND l.event_key = w.event_key)",
    "SELECT format('event at %s of bucket %s waits behind a key that is not blocked', w.position, w.bucket)
       FROM symphony.event_outbox_waiting w
      WHERE NOT EXISTS (SELECT FROM symphony.event_outbox_blocked k WHERE k.bucket = w.bucket AND k.event_key = w.event_key)",
    "SELECT format('a key of bucket %s is blocked for nothing', k.bucket)
       FROM symphony.event_outbox_blocked k
      WHERE k.failed_position IS NULL
        AND NOT EXISTS (SELECT FROM symphony.event_outbox_waiting w WHERE w.bucket = k.bucket AND w.event_key = k.event_key)",
    "SELECT format('a key of bucket %s is blocked by the event at %s, which has not FAILED', k.bucket, k.failed_position)
       FROM symphony.event_outbox_blocked k
      WHERE k.failed_position IS NOT NULL
        AND NOT EXISTS (SELECT FROM symphony.event_outbox_attempts a
                         WHERE a.bucket = k.bucket AND a.position = k.failed_position AND a.state = 'FAILED')",
    "SELECT format('the event lane has %s cursors instead of 256', count(*)) FROM symphony.event_outbox_cursors HAVING count(*) <> 256",
    "SELECT format('execution %s is pending although it ended %s', p.id, a.state)
       FROM symphony.trigger_outbox_pending p JOIN symphony.trigger_outbox_attempts a
         ON a.id = p.id AND a.state IN ('DISPATCHED', 'FAILED')",
    "SELECT format('execution %s counts %s attempts, its ledger has %s', p.id, p.attempt_count, l.attempts)
       FROM symphony.trigger_outbox_pending p
      CROSS JOIN LATERAL (SELECT count(*) AS attempts FROM symphony.trigger_outbox_attempts a WHERE a.id = p.id) l
      WHERE p.attempt_count > l.attempts",
    "SELECT format('execution %s is pending for a script that does not exist', p.id)
       FROM symphony.trigger_outbox_pending p
      WHERE p.script_id IS NOT NULL AND NOT EXISTS (SELECT FROM symphony.scripts s WHERE s.id = p.script_id AND s.app_id = p.app_id)",
    "SELECT format('the %s lane has no settings', lane)
       FROM (SELECT 'payment' AS lane, count(*) AS n FROM symphony.payment_outbox_settings
             UNION ALL SELECT 'event', count(*) FROM symphony.event_outbox_settings
             UNION ALL SELECT 'trigger', count(*) FROM symphony.trigger_outbox_settings) s WHERE n <> 1",
    "SELECT 'the installation has no identity: no key to a rail can be derived'
       WHERE NOT EXISTS (SELECT FROM symphony.symphony_installation)",
    // ON CONFLICT counts a lost race as a deletion, so deletions are looked at only where no function uses it.
    "SELECT format('%s only grows, but since its counters were reset %s rows of it were updated and %s deleted', s.relname,
                   s.n_tup_upd, s.n_tup_del)
       FROM pg_stat_user_tables s
      WHERE s.schemaname = 'symphony'::TEXT
        AND EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                     WHERE t.tgrelid = s.relid AND p.proname = 'refuse_ledger_change')
        AND (s.n_tup_upd > 0
             OR s.n_tup_del > 0 AND s.relname NOT IN ('payment_outbox_instructions', 'event_outbox_identities'))",
];

/// What only the owner can compare.
const COUNTERS: &[&str] = &[
    "SELECT format('participant %s has payments and no counter: its numbers would start anew', i.participant_id)
       FROM symphony.payment_outbox_instructions i
      WHERE i.sequence_id = 1
        AND NOT EXISTS (SELECT FROM symphony.participant_outbox_sequences s WHERE s.participant_id = i.participant_id)",
    "SELECT format('the horizon of the event lane is %s, but only %s places of the log are taken: late commits would be passed over', b.bound, p.taken)
       FROM (SELECT GREATEST(s.last_value, b.last_value) AS bound FROM symphony.event_outbox_horizon s, symphony.event_outbox_next_horizon b) b,
            (SELECT CASE WHEN p.is_called THEN p.last_value ELSE 0 END AS taken FROM symphony.event_outbox_position p) p
      WHERE b.bound > p.taken",
    "SELECT format('the next event would stand at %s of the log, behind what bucket %s has published (%s)', s.last_value + 1, c.bucket,
                   GREATEST(c.published_through, c.claimed_through))
       FROM symphony.event_outbox_position s JOIN symphony.event_outbox_cursors c
         ON GREATEST(c.published_through, c.claimed_through, c.ragged_through) > CASE WHEN s.is_called THEN s.last_value ELSE 0 END",
    "SELECT format('the next event would stand at %s of the log, where one stands already', s.last_value + 1)
       FROM symphony.event_outbox_position s
      WHERE (SELECT max(l.position) FROM symphony.event_outbox_log l) > CASE WHEN s.is_called THEN s.last_value ELSE 0 END",
];

/// Every row of every lane.
const LARGE: &[&str] = &[
    "SELECT format('participant %s: numbers %s to %s are missing, or its counter is wrong', participant_id, missing_from, missing_to)
       FROM symphony.participant_sequence_gaps",
    "SELECT format('payment %s is neither pending nor ended', i.outbox_id)
       FROM symphony.payment_outbox_instructions i
      WHERE NOT EXISTS (SELECT FROM symphony.payment_outbox_pending p WHERE p.outbox_id = i.outbox_id)
        AND NOT EXISTS (SELECT FROM symphony.payment_outbox_attempts a
                         WHERE a.outbox_id = i.outbox_id AND a.state IN ('DISPATCHED', 'FAILED'))",
    "SELECT format('payment %s is not what was asked for: its contents do not have the hash of the request', i.outbox_id)
       FROM symphony.payment_outbox_instructions i
      WHERE i.request_hash <> sha256(convert_to(
                i.payload::text || length(i.participant_id)::text || ':' || i.participant_id || i.rail_type, 'UTF8'))",
    "SELECT format('payment %s redrives %s, which has not FAILED', i.outbox_id, i.redrive_of)
       FROM symphony.payment_outbox_instructions i
      WHERE i.redrive_of IS NOT NULL
        AND NOT EXISTS (SELECT FROM symphony.payment_outbox_attempts a WHERE a.outbox_id = i.redrive_of AND a.state = 'FAILED')",
    "SELECT format('ledger row %s of payment %s is of a payment nobody asked for', a.attempt_no, a.outbox_id)
       FROM symphony.payment_outbox_attempts a
      WHERE NOT EXISTS (SELECT FROM symphony.payment_outbox_instructions i WHERE i.outbox_id = a.outbox_id)",
    "SELECT format('ledger row %s of payment %s says something else than was asked for', a.attempt_no, a.outbox_id)
       FROM symphony.payment_outbox_attempts a JOIN symphony.payment_outbox_instructions i USING (outbox_id)
      WHERE (a.instruction_id, a.participant_id, a.sequence_id, a.idempotency_key, a.rail_type)
            IS DISTINCT FROM (i.instruction_id, i.participant_id, i.sequence_id, i.idempotency_key, i.rail_type)",
    "SELECT format('the ledger of payment %s has %s rows numbered up to %s, its end is number %s', a.outbox_id, count(*), max(a.attempt_no),
                   coalesce(max(a.attempt_no) FILTER (WHERE a.state IN ('DISPATCHED', 'FAILED'))::text, 'none'))
       FROM symphony.payment_outbox_attempts a GROUP BY a.outbox_id
     HAVING count(*) <> max(a.attempt_no)
         OR max(a.attempt_no) FILTER (WHERE a.state IN ('DISPATCHED', 'FAILED')) <> max(a.attempt_no)",
    "SELECT format('ledger row %s of payment %s was written without a lease, and no person settled it', a.attempt_no, a.outbox_id)
       FROM symphony.payment_outbox_attempts a
      WHERE a.lease_token IS NULL
        AND NOT EXISTS (SELECT FROM symphony.payment_outbox_events e WHERE e.outbox_id = a.outbox_id AND e.actor IS NOT NULL)",
    "SELECT format('event %s: identity and log do not agree', coalesce(i.event_id, l.event_id))
       FROM symphony.event_outbox_identities i FULL JOIN symphony.event_outbox_log l ON l.event_id = i.event_id
      WHERE (i.bucket, i.position) IS DISTINCT FROM (l.bucket, l.position)",
    "SELECT format('event %s stands in bucket %s, where its key does not belong', l.event_id, l.bucket)
       FROM symphony.event_outbox_log l WHERE l.bucket <> get_byte(sha256(convert_to(l.event_key, 'UTF8')), 0)",
    "SELECT format('event %s carries another id', l.event_id)
       FROM symphony.event_outbox_log l WHERE (l.event #>> '{envelope,eventId}') IS DISTINCT FROM l.event_id::text
        AND lower(l.event #>> '{envelope,eventId}') IS DISTINCT FROM l.event_id::text",
    "SELECT format('event %s was passed over: no outcome, and it waits for none', l.event_id)
       FROM symphony.event_outbox_log l JOIN symphony.event_outbox_cursors c ON c.bucket = l.bucket AND l.position <= c.published_through
      WHERE NOT EXISTS (SELECT FROM symphony.event_outbox_attempts a
                         WHERE a.bucket = l.bucket AND a.position = l.position AND a.outcome_no = 0)
        AND NOT EXISTS (SELECT FROM symphony.event_outbox_waiting w
                         WHERE w.bucket = l.bucket AND w.event_key = l.event_key AND w.position = l.position)",
    "SELECT format('ledger row %s of event %s is of no event in the log, or of another', a.attempt_no, a.event_id)
       FROM symphony.event_outbox_attempts a LEFT JOIN symphony.event_outbox_log l USING (bucket, position)
      WHERE (a.event_id, a.event_key) IS DISTINCT FROM (l.event_id, l.event_key)",
    "SELECT format('ledger row %s of event %s is of an event nobody has claimed', a.attempt_no, a.event_id)
       FROM symphony.event_outbox_attempts a JOIN symphony.event_outbox_cursors c USING (bucket)
      WHERE a.position > GREATEST(c.published_through, c.claimed_through, c.ragged_through)",
    "SELECT format('the ledger of the event at %s of bucket %s has %s rows numbered up to %s', a.position, a.bucket, count(*), max(a.attempt_no))
       FROM symphony.event_outbox_attempts a GROUP BY a.bucket, a.position, a.redrive_no
     HAVING count(*) <> max(a.attempt_no)
         OR max(a.attempt_no) FILTER (WHERE a.outcome_no = 0) <> max(a.attempt_no)",
    "SELECT format('execution %s has attempts and is neither pending nor ended', a.id)
       FROM symphony.trigger_outbox_attempts a
      WHERE NOT EXISTS (SELECT FROM symphony.trigger_outbox_pending p WHERE p.id = a.id)
      GROUP BY a.id HAVING NOT bool_or(a.state IN ('DISPATCHED', 'FAILED'))",
    "SELECT format('execution %s and its ledger do not agree', coalesce(e.id, a.id))
       FROM symphony.trigger_outbox_executions e
       FULL JOIN (SELECT t.* FROM symphony.trigger_outbox_attempts t WHERE t.state IN ('DISPATCHED', 'FAILED')) a ON a.id = e.id
      WHERE (e.state, e.app_id, e.source_kind, e.script_id, e.root_execution_id, e.attempts)
            IS DISTINCT FROM (a.state, a.app_id, a.source_kind, a.script_id, a.root_execution_id, a.attempt_no)
        -- A deleted app may take its executions along, and what is old is retired: written a moment after its ledger row.
        AND (e.id IS NOT NULL OR EXISTS (SELECT FROM symphony.apps p WHERE p.id = a.app_id)
             AND NOT EXISTS (SELECT FROM symphony.trigger_retention r
                              WHERE r.app_id = a.app_id AND a.completed_at < r.executions_retired_before))",
    "SELECT format('the ledger of execution %s has %s rows numbered up to %s', a.id, count(*), max(a.attempt_no))
       FROM symphony.trigger_outbox_attempts a GROUP BY a.id
     HAVING count(*) <> max(a.attempt_no)
         OR max(a.attempt_no) FILTER (WHERE a.state IN ('DISPATCHED', 'FAILED')) <> max(a.attempt_no)",
];
