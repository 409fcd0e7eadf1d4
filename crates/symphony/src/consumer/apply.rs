//! What is done with one event: by a handler inside a transaction with the inbox, or by anything else.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgConnection;

use super::Received;
use crate::db::{ActsAs, Consumer, DbError};

/// Applies events; the loop does not care how.
#[async_trait]
pub trait Apply: Send + Sync + 'static {
    /// Apply one event, or find that it was applied before. After `Ok` its message is acknowledged.
    async fn apply(&self, received: &Received) -> Result<Applied, ApplyError>;
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// Its effects were made.
    Now,
    /// They had been made before.
    Before,
}

/// Why an event was not applied. Texts never repeat the payload: they are logged and kept beside dead letters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Try again later, a bounded number of times.
    #[error("{0}")]
    Again(String),
    /// It can never be applied: dead-letter it at once.
    #[error("{0}")]
    Reject(String),
    /// Nothing is wrong with the event: what all events are applied to is away. Everything rests in hand, one event at
    /// a time is tried now and then, and no try is counted.
    #[error("{message}")]
    Unavailable {
        /// In words.
        message: String,
        /// How long to leave it alone, if it said so.
        retry_after: Option<Duration>,
    },
}

impl ApplyError {
    /// What events are applied to is away, nobody knows for how long.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::Unavailable { message: message.into(), retry_after: None }
    }
}

impl From<DbError> for ApplyError {
    fn from(error: DbError) -> Self {
        // Messages of statements that are not ours may repeat values; codes never do.
        let what = format!("the database said {}", error.code());
        match &error {
            DbError::Unreachable { .. } => Self::unavailable(what),
            error if error.needs_operator() => Self::unavailable(what),
            DbError::Refused { sqlstate, .. } if error.is_transient() => {
                Self::unavailable(format!("the database said {sqlstate}"))
            }
            DbError::Refused { sqlstate, .. } => {
                Self::Again(format!("the database refused a statement: SQLSTATE {sqlstate}"))
            }
            // An unknown COMMIT too: whether it was applied is what the inbox tells at the next delivery.
            _ => Self::Again(what),
        }
    }
}

impl From<sqlx::Error> for ApplyError {
    fn from(error: sqlx::Error) -> Self {
        DbError::from(error).into()
    }
}

/// What a program does with an event, inside the transaction that also holds the inbox row.
///
/// Write through the connection only, and neither commit nor roll back: effects elsewhere (an HTTP call, another database)
/// are not undone when the transaction is. An SQL error that is passed over in silence makes the whole event fail.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Make the event's effects.
    async fn handle(
        &self,
        received: &Received,
        connection: &mut PgConnection,
    ) -> Result<(), ApplyError>;

    /// A key of the consumer's own domain, at most 255 characters: of all events that share one, the first is applied.
    fn dedupe_key(&self, _received: &Received) -> Option<String> {
        None
    }
}

/// Applies each event once: inbox row and effects in one transaction.
pub struct InboxApply {
    name: String,
    handler: Arc<dyn Handler>,
    consumer: Consumer,
    acts_as: ActsAs,
    timeout: Duration,
}

impl InboxApply {
    /// Under this name, with this handler, which may take this long.
    pub fn new(
        name: String,
        handler: Arc<dyn Handler>,
        consumer: Consumer,
        acts_as: ActsAs,
        timeout: Duration,
    ) -> Self {
        Self { name, handler, consumer, acts_as, timeout }
    }
}

impl std::fmt::Debug for InboxApply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxApply").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How much longer than the handler may take a transaction may rest before the server ends it.
const REST_MARGIN: Duration = Duration::from_secs(5);

#[async_trait]
impl Apply for InboxApply {
    async fn apply(&self, received: &Received) -> Result<Applied, ApplyError> {
        let work = async {
            let mut transaction =
                self.consumer.begin(self.acts_as, self.timeout + REST_MARGIN).await?;
            let key = self.handler.dedupe_key(received);
            let event_id = received.event.event_id();
            if !Consumer::record(&mut transaction, &self.name, event_id, key.as_deref()).await? {
                transaction.rollback().await?;
                return Ok(None);
            }
            self.handler.handle(received, transaction.connection()).await?;
            Ok::<_, ApplyError>(Some(transaction))
        };
        // COMMIT is not cut off: it has its own way of finding out what became of it.
        match tokio::time::timeout(self.timeout, work).await {
            Err(_elapsed) => Err(ApplyError::Again(format!(
                "the handler took longer than {} ms: raise handler_timeout or make it faster",
                self.timeout.as_millis()
            ))),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) => Ok(Applied::Before),
            Ok(Ok(Some(transaction))) => {
                transaction.commit_written().await?;
                Ok(Applied::Now)
            }
        }
    }
}
