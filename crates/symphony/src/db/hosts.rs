//! Several hosts of one database: which of them takes writes, found again when that changes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use super::witness::ServerNews;
use super::{Database, DbError, Link};

/// How long one host may take to say whether it takes writes.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// How often the present host is asked.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How soon again, while none takes writes.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// The host that takes writes, of those named. All are asked at the same time: one that is gone must not delay the
/// others.
pub async fn find_writable(hosts: &[PgConnectOptions]) -> Result<PgConnectOptions, DbError> {
    let mut asked: FuturesUnordered<_> = hosts.iter().map(probe).collect();
    let mut found = Vec::new();
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(writable) => return Ok(writable),
            Err(said) => found.push(said),
        }
    }
    found.sort();
    Err(DbError::Unreachable { message: format!("no host takes writes: {}", found.join("; ")) })
}

/// This host, if it takes writes; else what it said.
async fn probe(host: &PgConnectOptions) -> Result<PgConnectOptions, String> {
    let name = format!("{}:{}", host.get_host(), host.get_port());
    let asked = async {
        let mut connection = host.connect().await?;
        let writable = takes_writes(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(writable)
    };
    match tokio::time::timeout(PROBE_LIMIT, asked).await {
        Ok(Ok(true)) => Ok(host.clone()),
        Ok(Ok(false)) => Err(format!("{name} is a standby")),
        Ok(Err(error)) => Err(format!("{name}: {error}")),
        Err(_) => Err(format!("{name}: no answer within {} ms", PROBE_LIMIT.as_millis())),
    }
}

/// By the simple protocol, which names nothing: a pooler may stand in between.
async fn takes_writes(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    use sqlx::Row as _;
    let row = sqlx::raw_sql("SELECT NOT pg_is_in_recovery()").fetch_one(connection).await?;
    row.try_get(0)
}

/// Lead a pool's new connections to whichever host takes writes, as long as somebody uses the pool.
pub(super) fn follow(
    pool: PgPool,
    link: Link,
    hosts: Vec<PgConnectOptions>,
    news: &Arc<ServerNews>,
) {
    let news = Arc::downgrade(news);
    tokio::spawn(async move {
        while still_used(&news) {
            let present = (*pool.connect_options()).clone();
            stay(&present, &news).await;
            let found = loop {
                match find_writable(&hosts).await {
                    Ok(found) => break found,
                    Err(_) if !still_used(&news) => return,
                    Err(_) => tokio::time::sleep(SEARCH_EVERY).await,
                }
            };
            let Some(news) = news.upgrade() else { return };
            let before = pool.connect_options();
            if (before.get_host(), before.get_port()) != (found.get_host(), found.get_port()) {
                tracing::warn!(
                    address = format!("{}:{}", found.get_host(), found.get_port()),
                    "another host takes writes: it is followed"
                );
            }
            pool.set_connect_options(link.like(found));
            news.server_moved();
        }
    });
}

fn still_used(news: &Weak<ServerNews>) -> bool {
    news.strong_count() > 0
}

/// Until the host of this pool is gone, or takes no more writes.
async fn stay(options: &PgConnectOptions, news: &Weak<ServerNews>) {
    let Ok(Ok(mut connection)) = tokio::time::timeout(PROBE_LIMIT, options.connect()).await else {
        return;
    };
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        let asked = tokio::time::timeout(PROBE_LIMIT, takes_writes(&mut connection)).await;
        if !matches!(asked, Ok(Ok(true))) || !still_used(news) {
            return;
        }
    }
}

impl super::Executor {
    /// See [`Database::listen_options`].
    pub(crate) fn listen_options(&self, given: &PgConnectOptions) -> PgConnectOptions {
        self.database.listen_options(given)
    }
}

impl Database {
    /// Where to listen: at the host that takes writes, if `given` is one of those that are followed.
    pub fn listen_options(&self, given: &PgConnectOptions) -> PgConnectOptions {
        let is_given = |host: &&PgConnectOptions| {
            (host.get_host(), host.get_port()) == (given.get_host(), given.get_port())
        };
        match self.hosts.iter().find(is_given) {
            Some(_) => (*self.pool.connect_options()).clone().application_name("symphony listener"),
            None => given.clone(),
        }
    }
}
