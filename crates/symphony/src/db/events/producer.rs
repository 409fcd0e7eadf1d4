//! Tell events, inside your own transaction: your state and the event commit together, or neither does.
//!
//! ```no_run
//! use symphony::events::{self, Event};
//!
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = pool.begin().await?;
//! sqlx::query("UPDATE orders SET shipped = true WHERE id = 17").execute(&mut *tx).await?;
//! let event = Event::builder("events.orders.shipped", "acme")
//!     .key("orderId", "17")
//!     .payload(&serde_json::json!({"parcels": 2}))
//!     .build()?;
//! let enqueued = events::enqueue(&mut *tx, &event).await?;
//! println!("{} is {}", enqueued.event_id, enqueued.state);
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The login must be a member of `symphony_ingest`. For an installation in another schema, see
//! [`Session::in_schema`](crate::db::Session::in_schema).

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::producer::{Enqueue, answers, item_states};
use crate::db::{DbError, Session, calls};
pub use crate::event::{Event, EventBuilder};

item_states! {
    /// Where an event stands.
    ItemState {
        /// It waits to be published.
        Pending = "PENDING",
        /// The bus has it.
        Sent = "SENT",
        /// It could not be published.
        Failed = "FAILED",
    }
}

/// What became of an event that was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
#[non_exhaustive]
pub struct Enqueued {
    /// The event, new or known.
    pub event_id: Uuid,
    /// Its place in the log.
    pub log_position: i64,
    /// When it was first told.
    pub created_at: DateTime<Utc>,
    /// Where it stands.
    #[sqlx(try_from = "String")]
    pub state: ItemState,
    /// It was known already; nothing was written.
    pub duplicate: bool,
}

impl Enqueue for Enqueued {}

/// Tell one event inside the caller's own transaction.
///
/// Repeated with the same event id it answers with what is there, and writes nothing. The key is locked until the
/// transaction ends: only producers of the same key wait. What was told after it is published after it ends, so commit
/// soon. Several events in one call ([`enqueue_batch`]) never deadlock with others.
///
/// # Errors
/// [`DbError::InvalidArgument`] names the field; [`DbError::KeyReused`] if the event id belongs to another event.
pub async fn enqueue(
    connection: impl Into<Session<'_>>,
    event: &Event,
) -> Result<Enqueued, DbError> {
    let session: Session<'_> = connection.into();
    Ok(sqlx::query_as(calls::ENQUEUE_EVENT.sql).bind(Json(event.body())).fetch_one(session).await?)
}

/// Tell many events in one call, inside the caller's own transaction: one answer each, in the order given. One that is
/// refused never fails the others.
///
/// ```no_run
/// # use symphony::events::{self, Event};
/// # async fn example(tx: &mut sqlx::PgConnection, told: &[Event]) -> Result<(), symphony::Error> {
/// for answer in events::enqueue_batch(tx, told).await? {
///     println!("{}", answer?.log_position);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn enqueue_batch(
    connection: impl Into<Session<'_>>,
    events: &[Event],
) -> Result<Vec<Result<Enqueued, DbError>>, DbError> {
    let bodies: Vec<&RawValue> = events.iter().map(Event::body).collect();
    enqueue_batch_unchecked(connection, &bodies).await
}

/// The same with events as JSON texts that nobody has looked at: the database checks them by the same rules.
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection, lines: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
/// let texts: Vec<Box<serde_json::value::RawValue>> =
///     lines.into_iter().map(serde_json::value::RawValue::from_string).collect::<Result<_, _>>()?;
/// let texts: Vec<_> = texts.iter().map(AsRef::as_ref).collect();
/// let answers = symphony::events::enqueue_batch_unchecked(tx, &texts).await?;
/// println!("{} were refused", answers.iter().filter(|answer| answer.is_err()).count());
/// # Ok(())
/// # }
/// ```
pub async fn enqueue_batch_unchecked(
    connection: impl Into<Session<'_>>,
    events: &[&RawValue],
) -> Result<Vec<Result<Enqueued, DbError>>, DbError> {
    let session: Session<'_> = connection.into();
    let rows = sqlx::query(calls::ENQUEUE_EVENTS.sql)
        .bind(events.iter().map(|event| Json(*event)).collect::<Vec<_>>())
        .fetch_all(session)
        .await?;
    answers(&rows, events.len())
}
