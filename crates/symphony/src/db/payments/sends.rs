//! What a worker asks about earlier sends: when they may have happened, and where they went.

use crate::db::{DbError, Worker, calls};
use crate::domain::OutboxId;

/// When an item may have been sent so far, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, sqlx::FromRow)]
pub struct SendHistory {
    /// Outcomes in the ledger.
    pub outcomes: i64,
    /// Seconds since it may first have been sent: the rail has known its key for at most this long.
    pub first_claim_age_seconds: i64,
    /// Seconds since the last outcome was written of a try that may have reached the rail, or since a loss of data was decided
    /// upon: for at least this long nothing was sent that could still arrive.
    pub last_send_age_seconds: i64,
}

/// Items that may have been sent to one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct UnknownItems {
    /// Its fingerprint; `None` where nobody knows it.
    pub endpoint: Option<String>,
    /// In words.
    pub description: Option<String>,
    /// How many, parked ones included.
    pub items: i64,
    /// Of these, how many wait for a person.
    pub parked: i64,
}

impl Worker {
    /// When this item may have been sent so far; `None` if it has no outcome yet.
    pub async fn send_history(&self, item: OutboxId) -> Result<Option<SendHistory>, DbError> {
        let query = sqlx::query_as(
            // Without a ledger row it may still have been sent in a life of this database that was lost.
            "SELECT h.outcomes,
                    ceil(extract(epoch FROM clock_timestamp() - h.first_at))::bigint AS first_claim_age_seconds,
                    floor(extract(epoch FROM clock_timestamp() - coalesce(h.last_at, clock_timestamp())))::bigint AS last_send_age_seconds
               FROM (SELECT count(a.outbox_id) AS outcomes,
                            LEAST(min(coalesce(a.claimed_at, a.completed_at)), min(s.lost_since)) AS first_at,
                            GREATEST(coalesce(
                                max(a.completed_at) FILTER (WHERE a.state = 'ZOMBIE_REQUEUE' OR a.outcome_unknown AND NOT a.asked_only),
                                -- No send is on record: nothing was sent since it was first asked about.
                                min(a.claimed_at) FILTER (WHERE a.asked_only AND a.attempt_no > tried.last_no)),
                                min(s.decided_at) FILTER (WHERE s.lost_since IS NOT NULL)) AS last_at
                       FROM symphony.payment_outbox_instructions i
                       LEFT JOIN symphony.symphony_installation s ON i.created_at < s.ask_first_until
                       LEFT JOIN symphony.payment_outbox_attempts a ON a.outbox_id = i.outbox_id
                      CROSS JOIN (SELECT coalesce(max(t.attempt_no), 0) AS last_no FROM symphony.payment_outbox_attempts t
                                   WHERE t.outbox_id = $1 AND NOT t.asked_only) tried
                      WHERE i.outbox_id = $1) h
              WHERE h.first_at IS NOT NULL",
        )
        .bind(item);
        self.call(async |session| query.fetch_optional(session).await).await
    }

    /// Say in words what a fingerprint stands for.
    pub async fn register_endpoint(
        &self,
        rail: &str,
        fingerprint: &str,
        description: &str,
    ) -> Result<(), DbError> {
        let query = sqlx::query(calls::REGISTER_PAYMENT_ENDPOINT.sql)
            .bind(rail)
            .bind(fingerprint)
            .bind(description);
        self.call(async |session| query.execute(session).await).await?;
        Ok(())
    }

    /// What may have been sent on a rail, and where.
    pub async fn unknown_by_endpoint(&self, rail: &str) -> Result<Vec<UnknownItems>, DbError> {
        let query = sqlx::query_as(
            "SELECT p.endpoint, e.description, count(*) AS items, count(*) FILTER (WHERE p.hold = 'PARKED') AS parked
               FROM symphony.payment_outbox_pending p LEFT JOIN symphony.payment_outbox_endpoints e ON e.endpoint = ltrim(p.endpoint, '?')
              WHERE p.must_inquire AND p.rail_type = $1 GROUP BY p.endpoint, e.description ORDER BY 1",
        )
        .bind(rail);
        self.call(async |session| query.fetch_all(session).await).await
    }

    /// The rails on which unmarked means unsent.
    pub async fn rails_that_mark_sending(&self) -> Result<Vec<String>, DbError> {
        let sql = "SELECT rail_type FROM symphony.payment_outbox_rails WHERE marks_sending";
        let query = sqlx::query_scalar(sql);
        self.call(async |session| query.fetch_all(session).await).await
    }
}
