//! Hints that work was committed: LISTEN on a connection of its own, a probe that proves hints really arrive,
//! and the lease that says who follows them. All of it may fail without anything being lost: polling decides.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};

use super::{Database, DbError, Link, Pooler, Worker, calls};

/// One connection that listens.
#[derive(Debug)]
pub struct Hints {
    listener: PgListener,
    probe_channel: String,
}

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// Somebody committed work.
    Work,
    /// Our own probe came back.
    Probe,
    /// The connection was lost and made anew: hints may have been missed.
    Gap,
}

impl Hints {
    /// Listen on a lane's channel, and on one of our own for probes. `None` where a transaction pooler lends the
    /// session: nothing can be heard there, and a LISTEN would stay behind in somebody else's.
    pub async fn connect(
        options: PgConnectOptions,
        channel: &str,
        probe_channel: &str,
    ) -> Result<Option<Self>, DbError> {
        let listener = listen(options, &[channel, probe_channel]).await?;
        Ok(listener.map(|listener| Self { listener, probe_channel: probe_channel.to_owned() }))
    }

    /// Wait for the next hint. Safe to drop half way.
    pub async fn next(&mut self) -> Result<Heard, DbError> {
        Ok(match self.listener.try_recv().await? {
            None => Heard::Gap,
            Some(notification) if notification.channel() == self.probe_channel => Heard::Probe,
            Some(_) => Heard::Work,
        })
    }
}

/// LISTEN on a connection of its own; `None` where a transaction pooler lends the session.
pub(in crate::db) async fn listen(
    options: PgConnectOptions,
    channels: &[&str],
) -> Result<Option<PgListener>, DbError> {
    let link = Link::find(options, Pooler::Detect).await?;
    if link.pooled {
        return Ok(None);
    }
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .acquire_timeout(Duration::from_secs(10))
        .connect_with(link.options)
        .await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.listen_all(channels.iter().copied()).await?;
    Ok(Some(listener))
}

impl Database {
    /// Send a probe, over another connection than the one that listens.
    pub async fn send_probe(&self, probe_channel: &str) -> Result<(), DbError> {
        let notify = AssertSqlSafe(format!("NOTIFY \"{}\"", probe_channel.replace('"', "\"\"")));
        // The simple protocol: one step, so that it needs no transaction behind a pooler.
        sqlx::raw_sql(notify).execute(self.pool()).await?;
        Ok(())
    }
}

impl Worker {
    /// Become, or stay, the worker that follows a group's hints at once; no seconds give it up.
    pub async fn lead_hints(
        &self,
        group: &str,
        worker_id: &str,
        lease_seconds: i32,
    ) -> Result<bool, DbError> {
        let query = sqlx::query_scalar(calls::LEAD_HINTS.sql)
            .bind(group)
            .bind(worker_id)
            .bind(lease_seconds);
        self.call_repeatable(async |session| query.fetch_one(session).await).await
    }
}
