//! Ask for payments, inside your own transaction: your state and the payment commit together, or neither does.
//!
//! ```no_run
//! use symphony::payments::{self, ItemState, Payload, PaymentRequest};
//!
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = pool.begin().await?;
//! sqlx::query("UPDATE invoices SET paid = true WHERE id = 17").execute(&mut *tx).await?;
//! let payload = Payload::parse(
//!     r#"{"amount": {"value": "10.00", "currency": "EUR"}, "destination": {"iban": "DE89370400440532013000"}}"#,
//! )?;
//! let request = PaymentRequest::new("invoice-17", "acme", "sepa", payload);
//! let enqueued = payments::enqueue(&mut *tx, &request).await?;
//! assert_eq!(enqueued.state, ItemState::Pending);
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The login must be a member of `symphony_ingest`. An installation in another schema is named with the connection:
//!
//! ```no_run
//! # use symphony::db::{Schema, Session};
//! # use symphony::payments::{self, PaymentRequest};
//! # async fn example(tx: &mut sqlx::PgConnection, request: PaymentRequest) -> Result<(), Box<dyn std::error::Error>> {
//! let schema = Schema::new("billing_outbox")?;
//! payments::enqueue(Session::from(&mut *tx).in_schema(&schema), &request).await?;
//! # Ok(())
//! # }
//! ```

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::Json;

use crate::db::producer::{Enqueue, answers, item_states};
use crate::db::{DbError, Session, calls};
use crate::domain::OutboxId;
pub use crate::domain::{Payload, PaymentRequest};

item_states! {
    /// Where a payment stands.
    ItemState {
        /// It waits to be sent.
        Pending = "PENDING",
        /// A worker has it.
        InFlight = "IN_FLIGHT",
        /// The worker that had it is lost; it comes back.
        LeaseExpired = "LEASE_EXPIRED",
        /// It waits for a person.
        Parked = "PARKED",
        /// The rail has accepted it.
        Dispatched = "DISPATCHED",
        /// The money did not move.
        Failed = "FAILED",
        /// It failed, and a person has asked for it again as a new item.
        Redriven = "REDRIVEN",
    }
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
#[non_exhaustive]
pub struct Enqueued {
    /// The item, new or known.
    pub outbox_id: OutboxId,
    /// Its number in the participant's stream.
    pub sequence_id: i64,
    /// When it was first asked for.
    pub created_at: DateTime<Utc>,
    /// Where it stands.
    #[sqlx(try_from = "String")]
    pub state: ItemState,
    /// It was known already; nothing was written.
    pub duplicate: bool,
}

impl Enqueue for Enqueued {
    fn refusal_message(row: &PgRow) -> Result<String, sqlx::Error> {
        // The item is the caller's own: it is named, in the words of the single form.
        match row.try_get::<Option<OutboxId>, _>("outbox_id")? {
            Some(outbox_id) => Ok(format!(
                "idempotency key reused: this instruction and key already belong to item {outbox_id}, \
                 asked with another rail or payload"
            )),
            None => row.try_get("error_message"),
        }
    }
}

/// Ask for one payment inside the caller's own transaction.
///
/// Repeated under the same idempotency key it answers with the item that is there, and writes nothing. The participant's
/// stream is locked until the transaction ends: enqueue last, and commit soon.
///
/// # Errors
/// [`DbError::InvalidArgument`] names the field; [`DbError::KeyReused`] if the key belongs to another request.
pub async fn enqueue(
    connection: impl Into<Session<'_>>,
    request: &PaymentRequest,
) -> Result<Enqueued, DbError> {
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

/// Ask for many payments in one call, inside the caller's own transaction: one answer each, in the order given. One that is
/// refused never fails the others.
///
/// ```no_run
/// # use symphony::payments::{self, PaymentRequest};
/// # async fn example(tx: &mut sqlx::PgConnection, requests: &[PaymentRequest]) -> Result<(), symphony::Error> {
/// for (request, answer) in requests.iter().zip(payments::enqueue_batch(tx, requests).await?) {
///     match answer {
///         Ok(enqueued) => println!("{}: {}", request.instruction_id, enqueued.outbox_id),
///         Err(refusal) => println!("{}: {refusal}", request.instruction_id),
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub async fn enqueue_batch(
    connection: impl Into<Session<'_>>,
    requests: &[PaymentRequest],
) -> Result<Vec<Result<Enqueued, DbError>>, DbError> {
    let session: Session<'_> = connection.into();
    let rows = sqlx::query(calls::ENQUEUE_PAYMENTS.sql)
        .bind(requests.iter().map(|r| r.instruction_id.as_str()).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.participant_id.as_str()).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.idempotency_key.as_str()).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.rail_type.as_str()).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| Json(r.payload.as_raw())).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.traceparent.as_deref()).collect::<Vec<_>>())
        .fetch_all(session)
        .await?;
    answers(&rows, requests.len())
}
