//! Fire scripts, inside your own transaction: your state and the run that follows from it commit together, or neither does.
//!
//! ```no_run
//! use serde_json::value::to_raw_value;
//! use symphony::triggers::{self, Source, TriggerRequest};
//!
//! # async fn example(pool: sqlx::PgPool, trigger_id: uuid::Uuid) -> Result<(), Box<dyn std::error::Error>> {
//! let mut tx = pool.begin().await?;
//! sqlx::query("UPDATE orders SET paid = true WHERE id = 17").execute(&mut *tx).await?;
//! let payload = to_raw_value(&serde_json::json!({"order": 17}))?;
//! let request = TriggerRequest::new("shop", Source::Queue, trigger_id, &payload);
//! let enqueued = triggers::enqueue(&mut *tx, &request).await?;
//! println!("execution {} is {}", enqueued.id, enqueued.state);
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Whoever does not know a trigger's id writes what triggers watch: [`kv_set`], [`publish_topic`], [`send_to_queue`].

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::producer::{Enqueue, answers, item_states};
use crate::db::session::Row;
use crate::db::{DbError, Session, calls};

item_states! {
    /// What fires a script.
    Source {
        /// A request.
        Http = "http",
        /// An entry that was written or removed.
        Kv = "kv",
        /// A clock.
        Cron = "cron",
        /// A message for every subscriber.
        Pubsub = "pubsub",
        /// A message for one consumer.
        Queue = "queue",
        /// Mail.
        Email = "email",
        /// An item that failed for good.
        DeadLetter = "dead_letter",
    }
}

item_states! {
    /// Where a run stands.
    ItemState {
        /// It waits for a worker.
        Pending = "PENDING",
    }
}

/// One run asked for. [`TriggerRequest::new`] has what every one needs; the other fields can be set with their methods.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct TriggerRequest<'a> {
    /// The app's name.
    pub app: &'a str,
    /// What fires it.
    pub source: Source,
    /// The route or trigger.
    pub trigger_id: Uuid,
    /// With what: a JSON object.
    pub payload: &'a RawValue,
    /// Who causes it.
    pub origin_principal: Option<Uuid>,
    /// Under which name somebody waits, and for how many milliseconds.
    pub reply: Option<(Uuid, i32)>,
    /// W3C trace context of version 00.
    pub traceparent: Option<&'a str>,
}

impl<'a> TriggerRequest<'a> {
    /// A run that nobody waits for.
    pub fn new(app: &'a str, source: Source, trigger_id: Uuid, payload: &'a RawValue) -> Self {
        Self {
            app,
            source,
            trigger_id,
            payload,
            origin_principal: None,
            reply: None,
            traceparent: None,
        }
    }

    /// Who causes it.
    #[must_use]
    pub fn origin_principal(self, principal: Option<Uuid>) -> Self {
        Self { origin_principal: principal, ..self }
    }

    /// Somebody waits for the answer under this name, for so many milliseconds.
    #[must_use]
    pub fn reply(self, name: Uuid, wait_ms: i32) -> Self {
        Self { reply: Some((name, wait_ms)), ..self }
    }

    /// What caused it, as W3C trace context of version 00.
    #[must_use]
    pub fn traceparent(self, traceparent: Option<&'a str>) -> Self {
        Self { traceparent, ..self }
    }
}

/// What was enqueued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
#[non_exhaustive]
pub struct Enqueued {
    /// The item, and its execution.
    pub id: Uuid,
    /// Its app.
    pub app_id: Uuid,
    /// Until when somebody waits.
    pub reply_deadline_at: Option<DateTime<Utc>>,
    /// Where it stands.
    #[sqlx(try_from = "String")]
    pub state: ItemState,
}

impl Enqueue for Enqueued {}

/// Fire one route or trigger inside the caller's own transaction.
///
/// # Errors
/// [`DbError::NoSuchItem`] if there is no such app, route or trigger.
pub async fn enqueue(
    connection: impl Into<Session<'_>>,
    request: &TriggerRequest<'_>,
) -> Result<Enqueued, DbError> {
    let session: Session<'_> = connection.into();
    Ok(sqlx::query_as(calls::ENQUEUE_TRIGGER.sql)
        .bind(request.app)
        .bind(request.source.as_str())
        .bind(request.trigger_id)
        .bind(Json(request.payload))
        .bind(request.origin_principal)
        .bind(request.reply.map(|(name, _)| name))
        .bind(request.reply.map(|(_, wait_ms)| wait_ms))
        .bind(request.traceparent)
        .fetch_one(session)
        .await?)
}

/// Fire many routes or triggers in one call, inside the caller's own transaction: one answer each, in the order given. One
/// that is refused never fails the others.
///
/// ```no_run
/// # use symphony::triggers::{self, TriggerRequest};
/// # async fn example(tx: &mut sqlx::PgConnection, fired: &[TriggerRequest<'_>]) -> Result<(), symphony::Error> {
/// for answer in triggers::enqueue_batch(tx, fired).await? {
///     println!("{}", answer?.id);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn enqueue_batch(
    connection: impl Into<Session<'_>>,
    requests: &[TriggerRequest<'_>],
) -> Result<Vec<Result<Enqueued, DbError>>, DbError> {
    let session: Session<'_> = connection.into();
    let rows = sqlx::query(calls::ENQUEUE_TRIGGERS.sql)
        .bind(requests.iter().map(|r| r.app).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.source.as_str()).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.trigger_id).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| Json(r.payload)).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.origin_principal).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.reply.map(|(name, _)| name)).collect::<Vec<_>>())
        .bind(requests.iter().map(|r| r.reply.map(|(_, wait_ms)| wait_ms)).collect::<Vec<_>>())
        .bind(traceparents(requests))
        .fetch_all(session)
        .await?;
    answers(&rows, requests.len())
}

/// As the database takes them: none at all, where nobody has one.
pub(super) fn traceparents<'a>(requests: &[TriggerRequest<'a>]) -> Option<Vec<Option<&'a str>>> {
    let any = requests.iter().any(|request| request.traceparent.is_some());
    any.then(|| requests.iter().map(|request| request.traceparent).collect())
}

/// Write an entry of an app inside the caller's own transaction; answers its version.
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let value = serde_json::value::to_raw_value(&serde_json::json!({"paid": true}))?;
/// let version = symphony::triggers::kv_set(tx, "shop", "order/17", &value, None).await?;
/// # Ok(())
/// # }
/// ```
pub async fn kv_set(
    connection: impl Into<Session<'_>>,
    app: &str,
    key: &str,
    value: &RawValue,
    principal: Option<Uuid>,
) -> Result<i64, DbError> {
    let session: Session<'_> = connection.into();
    let query = named(calls::KV_SET.sql, app, key, value, principal).bind(None::<i32>);
    let (version,) = query.fetch_one(session).await?;
    Ok(version)
}

/// Remove an entry of an app inside the caller's own transaction; answers whether there was one.
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection) -> Result<(), symphony::Error> {
/// let was_there = symphony::triggers::kv_delete(tx, "shop", "order/17", None).await?;
/// # Ok(())
/// # }
/// ```
pub async fn kv_delete(
    connection: impl Into<Session<'_>>,
    app: &str,
    key: &str,
    principal: Option<Uuid>,
) -> Result<bool, DbError> {
    let session: Session<'_> = connection.into();
    Ok(sqlx::query_scalar(calls::KV_DELETE.sql)
        .bind(app)
        .bind(key)
        .bind(principal)
        .fetch_one(session)
        .await?)
}

/// A message for every subscriber, inside the caller's own transaction; answers how many.
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let message = serde_json::value::to_raw_value(&serde_json::json!({"order": 17}))?;
/// let subscribers = symphony::triggers::publish_topic(tx, "shop", "paid", &message, None).await?;
/// # Ok(())
/// # }
/// ```
pub async fn publish_topic(
    connection: impl Into<Session<'_>>,
    app: &str,
    topic: &str,
    message: &RawValue,
    principal: Option<Uuid>,
) -> Result<i32, DbError> {
    let session: Session<'_> = connection.into();
    let query = named(calls::PUBLISH_TOPIC.sql, app, topic, message, principal);
    let (subscribers,) = query.fetch_one(session).await?;
    Ok(subscribers)
}

/// A message for one consumer, inside the caller's own transaction; answers whether there is one already.
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let message = serde_json::value::to_raw_value(&serde_json::json!({"order": 17}))?;
/// let has_consumer = symphony::triggers::send_to_queue(tx, "shop", "receipts", &message, None).await?;
/// # Ok(())
/// # }
/// ```
pub async fn send_to_queue(
    connection: impl Into<Session<'_>>,
    app: &str,
    queue: &str,
    message: &RawValue,
    principal: Option<Uuid>,
) -> Result<bool, DbError> {
    send(connection, app, queue, message, principal, None).await
}

/// The same with a key: messages with one key run one after another, in the order in which they were sent.
///
/// ```no_run
/// # async fn example(tx: &mut sqlx::PgConnection) -> Result<(), Box<dyn std::error::Error>> {
/// use symphony::triggers;
///
/// let message = serde_json::value::to_raw_value(&serde_json::json!({"order": 17, "state": "paid"}))?;
/// triggers::send_to_queue_in_order(tx, "shop", "orders", &message, None, "order/17").await?;
/// # Ok(())
/// # }
/// ```
pub async fn send_to_queue_in_order(
    connection: impl Into<Session<'_>>,
    app: &str,
    queue: &str,
    message: &RawValue,
    principal: Option<Uuid>,
    key: &str,
) -> Result<bool, DbError> {
    send(connection, app, queue, message, principal, Some(key)).await
}

async fn send(
    connection: impl Into<Session<'_>>,
    app: &str,
    queue: &str,
    message: &RawValue,
    principal: Option<Uuid>,
    key: Option<&str>,
) -> Result<bool, DbError> {
    let session: Session<'_> = connection.into();
    let query = named(calls::SEND_TO_QUEUE.sql, app, queue, message, principal).bind(key);
    let (has_consumer,) = query.fetch_one(session).await?;
    Ok(has_consumer)
}

/// Something of an app that triggers may watch, by its name.
fn named<'q, T>(
    sql: &'static str,
    app: &'q str,
    name: &'q str,
    value: &'q RawValue,
    principal: Option<Uuid>,
) -> sqlx::query::QueryAs<'q, sqlx::Postgres, (T,), sqlx::postgres::PgArguments>
where
    (T,): Row,
{
    sqlx::query_as(sql).bind(app).bind(name).bind(Json(value)).bind(principal)
}

/// Mail that came in.
#[derive(Debug, Clone, Copy)]
pub struct ReceivedEmail<'a> {
    /// What the scripts get.
    pub mail: &'a RawValue,
    /// Who was verified as its sender, or handed it in.
    pub principal: Option<Uuid>,
    /// The ids of mail that it answers: it stands one deeper than those of ours.
    pub answers_to: &'a [Uuid],
    /// Whom it says it is from.
    pub sender: &'a str,
    /// How much one sender may send to one address.
    pub per_hour_max: i32,
    /// How much all together may send to one address.
    pub address_per_hour_max: i32,
}

/// Mail came in for a recipient; answers how many triggers wanted it. [`DbError::TooMuchMail`]: nothing was written.
pub async fn receive_email(
    connection: impl Into<Session<'_>>,
    recipient: &str,
    received: &ReceivedEmail<'_>,
) -> Result<i32, DbError> {
    let session: Session<'_> = connection.into();
    Ok(sqlx::query_scalar(calls::RECEIVE_EMAIL.sql)
        .bind(recipient)
        .bind(Json(received.mail))
        .bind(received.principal)
        .bind(received.answers_to)
        .bind(received.sender)
        .bind(received.per_hour_max)
        .bind(received.address_per_hour_max)
        .fetch_one(session)
        .await?)
}

/// Whether any trigger is for mail to a recipient.
pub async fn knows_recipient(
    connection: impl Into<Session<'_>>,
    recipient: &str,
) -> Result<bool, DbError> {
    let session: Session<'_> = connection.into();
    let triggers: i32 = sqlx::query_scalar(calls::RECEIVE_EMAIL.sql)
        .bind(recipient)
        .bind(None::<Json<&RawValue>>)
        .bind(None::<Uuid>)
        .bind(None::<&[Uuid]>)
        .bind(None::<&str>)
        .bind(None::<i32>)
        .bind(None::<i32>)
        .fetch_one(session)
        .await?;
    Ok(triggers > 0)
}
