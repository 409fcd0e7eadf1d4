//! Applying events once, whatever the bus repeats.
//!
//! A bus delivers at least once. A [`ConsumerLoop`] has a name and a handler; for each event it opens a transaction, records
//! the event in the inbox, lets the handler write beside it, commits, and only then acknowledges the message. A
//! repeated message finds the inbox row and is acknowledged without effect.
//!
//! In reading order:
//! - [`Received`]: an event as it arrived.
//! - [`Source`]: what a bus must be able to do: receive, acknowledge, extend, leave, dead-letter.
//! - [`Handler`] and [`Apply`]: what is done with one event, with or without the inbox.
//! - [`run`]: the loop: events of one key one after another, different keys at once.

mod apply;
mod attempt;
mod dead_letters;
mod groups;
mod held;
mod lag;
mod memory;
mod metrics;
mod received;
mod retention;
mod runner;
mod settings;
mod source;

pub use apply::{Applied, Apply, ApplyError, Handler, InboxApply};
pub use dead_letters::watch_dead_letters;
pub use lag::Lag;
pub use metrics::{ConsumerMetrics, OptionalGauge};
pub use received::Received;
pub use retention::{INBOX_RETENTION_DAYS_MIN, keep_retention};
pub use runner::run;
pub use settings::ConsumerSettings;
pub use source::{DeadLetterReason, Delivery, ReasonCode, Source, SourceError, SourceTerms};

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::db::{ActsAs, Database, DbError};

/// A name, under which the inbox remembers what was applied, and what is done with an event.
///
/// One name for one kind of effect: two programs with the same name share the work, two names each apply every event.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use symphony::consumer::{ApplyError, ConsumerLoop, ConsumerSettings, Handler, Received, Source};
/// # use symphony::db::Database;
/// struct Balances;
///
/// #[async_trait::async_trait]
/// impl Handler for Balances {
///     async fn handle(
///         &self,
///         received: &Received,
///         connection: &mut sqlx::PgConnection,
///     ) -> Result<(), ApplyError> {
///         // In the transaction that also notes that the event was applied.
///         sqlx::query("UPDATE balances SET events = events + 1 WHERE account = $1")
///             .bind(received.event.key())
///             .execute(connection)
///             .await?;
///         Ok(())
///     }
/// }
///
/// # async fn example(
/// #     database: Database, source: Arc<dyn Source>, stop: tokio::sync::watch::Receiver<bool>,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let consumer = ConsumerLoop::new("balances", Balances);
/// let left = consumer.run(&database, source, ConsumerSettings::default(), stop).await?;
/// println!("{left} left in hand");
/// # Ok(())
/// # }
/// ```
pub struct ConsumerLoop {
    name: String,
    handler: Arc<dyn Handler>,
    metrics: Arc<ConsumerMetrics>,
}

impl ConsumerLoop {
    /// With this name, 1 to 255 characters, and this handler.
    pub fn new(name: impl Into<String>, handler: impl Handler) -> Self {
        Self { name: name.into(), handler: Arc::new(handler), metrics: Arc::default() }
    }

    /// What it counts while it runs.
    pub fn metrics(&self) -> Arc<ConsumerMetrics> {
        self.metrics.clone()
    }

    /// Apply events until `stop` turns true, then finish what is in flight. Answers how many messages were still in
    /// hand when the time for that was over: they come back by themselves.
    ///
    /// The database's login must be a member of `symphony_consumer`, and own or may write the handler's tables.
    pub async fn run(
        self,
        database: &Database,
        source: Arc<dyn Source>,
        settings: ConsumerSettings,
        stop: watch::Receiver<bool>,
    ) -> Result<usize, DbError> {
        settings
            .check()
            .map_err(|error| DbError::InvalidArgument { message: error.to_string() })?;
        // Ends with this future.
        let mut retention = JoinSet::new();
        retention.spawn(keep_retention(
            database.consumer(),
            self.name.clone(),
            settings.inbox_retention_days,
        ));
        let apply = InboxApply::new(
            self.name,
            self.handler,
            database.consumer(),
            ActsAs::Login,
            settings.handler_timeout,
        );
        Ok(run(source, Arc::new(apply), &settings, self.metrics, stop).await)
    }
}

impl std::fmt::Debug for ConsumerLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerLoop").field("name", &self.name).finish_non_exhaustive()
    }
}
