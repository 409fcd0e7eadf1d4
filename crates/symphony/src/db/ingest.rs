//! The producer's handle: ask for payments, inside the producer's own transaction.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::types::Json;

use super::{Database, DbError, Role, RoleTransaction, Session, calls};
use crate::domain::{OutboxId, PaymentRequest};

/// Enqueues payments.
#[derive(Debug, Clone)]
pub struct Ingest {
    pub(super) database: Database,
}

/// What an enqueue answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EnqueuedPayment {
    /// The item, new or known.
    pub outbox_id: OutboxId,
    /// Its number in the participant's stream.
    pub sequence_id: i64,
    /// When it was first asked for.
    pub created_at: DateTime<Utc>,
    /// Where it stands: PENDING, IN_FLIGHT, LEASE_EXPIRED, PARKED, DISPATCHED, FAILED or REDRIVEN.
    pub state: String,
    /// It was known already; nothing was written.
    pub duplicate: bool,
}

/// What a batch answered about one item, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct EnqueueAnswer {
    /// Its place in the batch, from 1.
    pub item_no: i32,
    /// The item; none if it was refused as invalid.
    pub outbox_id: Option<OutboxId>,
    /// Its number in the participant's stream.
    pub sequence_id: Option<i64>,
    /// When it was first asked for.
    pub created_at: Option<DateTime<Utc>>,
    /// Where it stands.
    pub state: Option<String>,
    /// It was known already.
    pub duplicate: Option<bool>,
    /// P7004 or P7005, if it was refused.
    pub error_code: Option<String>,
    /// Why.
    pub error_message: Option<String>,
}

impl Ingest {
    pub(super) fn new(database: Database) -> Self {
        Self { database }
    }

    /// Ask for one payment inside the caller's own transaction: state and intent commit together.
    ///
    /// The caller's login must be a member of `symphony_ingest`. The participant's stream is locked until
    /// the transaction ends, so enqueue last.
    pub async fn enqueue(
        connection: impl Into<Session<'_>>,
        request: &PaymentRequest,
    ) -> Result<EnqueuedPayment, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_as(calls::ENQUEUE_PAYMENT.sql)
            .bind(&request.instruction_id)
            .bind(&request.participant_id)
            .bind(&request.idempotency_key)
            .bind(&request.rail_type)
            .bind(Json(request.payload.as_raw()))
            .bind(&request.traceparent)
            .fetch_one(session)
            .await?)
    }

    /// Ask for many payments inside the caller's own transaction. One bad item never fails the others.
    pub async fn enqueue_batch(
        connection: impl Into<Session<'_>>,
        requests: &[PaymentRequest],
    ) -> Result<Vec<EnqueueAnswer>, DbError> {
        let session: Session<'_> = connection.into();
        Ok(sqlx::query_as(calls::ENQUEUE_PAYMENTS.sql)
            .bind(requests.iter().map(|r| r.instruction_id.as_str()).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| r.participant_id.as_str()).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| r.idempotency_key.as_str()).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| r.rail_type.as_str()).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| Json(r.payload.as_raw())).collect::<Vec<_>>())
            .bind(requests.iter().map(|r| r.traceparent.as_deref()).collect::<Vec<_>>())
            .fetch_all(session)
            .await?)
    }

    /// One call of a producer that has no transaction of its own.
    pub(super) async fn alone<T>(
        &self,
        work: impl AsyncFnOnce(&mut RoleTransaction) -> Result<T, DbError>,
    ) -> Result<T, DbError> {
        let mut transaction = self.database.begin(Role::Ingest).await?;
        let answer = work(&mut transaction).await?;
        transaction.commit().await?;
        Ok(answer)
    }

    /// Ask for one payment in a transaction of its own. An uncertain COMMIT is looked up, not guessed.
    pub async fn enqueue_alone(
        &self,
        request: &PaymentRequest,
    ) -> Result<EnqueuedPayment, DbError> {
        self.alone(async |connection| Self::enqueue(connection, request).await).await
    }

    /// Ask for many payments in a transaction of their own.
    pub async fn enqueue_batch_alone(
        &self,
        requests: &[PaymentRequest],
    ) -> Result<Vec<EnqueueAnswer>, DbError> {
        self.alone(async |connection| Self::enqueue_batch(connection, requests).await).await
    }
}
