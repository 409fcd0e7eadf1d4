//! Applying events once, whatever the bus repeats.
//!
//! A bus delivers at least once. A [`Consumer`] has a name and a handler; for each event it opens a transaction, records
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
mod held;
mod memory;
mod metrics;
mod received;
mod retention;
mod runner;
mod settings;
mod source;

pub use apply::{Applied, Apply, ApplyError, Handler, InboxApply};
pub use metrics::ConsumerMetrics;
pub use received::Received;
pub use retention::{INBOX_RETENTION_DAYS_MIN, keep_retention};
pub use runner::run;
pub use settings::ConsumerSettings;
pub use source::{
    DeadLetterReason, DeadLettered, Delivery, ReasonCode, Source, SourceError, SourceTerms,
};

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::db::{ActsAs, Database, DbError};

/// A name, under which the inbox remembers what was applied, and what is done with an event.
///
/// One name for one kind of effect: two programs with the same name share the work, two names each apply every event.
pub struct Consumer {
    name: String,
    handler: Arc<dyn Handler>,
    metrics: Arc<ConsumerMetrics>,
}

impl Consumer {
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
        settings.check().map_err(|message| DbError::InvalidArgument { message })?;
        // Ends with this future.
        let mut retention = JoinSet::new();
        retention.spawn(keep_retention(
            database.inbox(),
            self.name.clone(),
            settings.inbox_retention_days,
        ));
        let apply = InboxApply::new(
            self.name,
            self.handler,
            database.inbox(),
            ActsAs::Login,
            settings.handler_timeout,
        );
        Ok(run(source, Arc::new(apply), &settings, self.metrics, stop).await)
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("name", &self.name).finish_non_exhaustive()
    }
}
