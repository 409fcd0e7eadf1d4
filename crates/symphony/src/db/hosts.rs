//! Several hosts of one database: which of them takes writes, found again when that changes.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use super::server_signals::ServerSignals;
use super::{Database, DbError, Link};

/// How long one host may take to say whether it takes writes.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// How often the present host is asked.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// Once in so many times the other hosts are asked, too: a primary that was replaced and not stopped goes on taking
/// writes.
const LOOK_AROUND: u32 = 8;
/// How long the other hosts may still say that they take writes after one has.
const GRACE: Duration = Duration::from_millis(200);
/// How soon to ask again while none takes writes.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// The host that takes writes, of those named. All are asked at the same time: one that is gone must not delay the
/// others. Of two that take writes the one promoted last is meant: the other is an old primary nobody has stopped.
pub async fn find_writable(hosts: &[PgConnectOptions]) -> Result<PgConnectOptions, DbError> {
    let mut asked: FuturesUnordered<_> = hosts.iter().map(probe).collect();
    let mut said = Vec::new();
    let mut found: Option<Writable> = None;
    let mut until = Instant::now() + 2 * PROBE_LIMIT;
    while let Ok(Some(answer)) = tokio::time::timeout_at(until.into(), asked.next()).await {
        match answer {
            Ok(writable) => {
                until = until.min(Instant::now() + GRACE);
                if found.as_ref().is_none_or(|best| best.timeline < writable.timeline) {
                    found = Some(writable);
                }
            }
            Err(words) => said.push(words),
        }
    }
    said.sort();
    found.map(|found| found.host).ok_or_else(|| DbError::Unreachable {
        message: format!("no host takes writes: {}", said.join("; ")),
    })
}

/// A host that takes writes. Every promotion begins a timeline of its own, with a higher number.
struct Writable {
    host: PgConnectOptions,
    timeline: i32,
}

/// This host, if it takes writes; else what it said.
async fn probe(host: &PgConnectOptions) -> Result<Writable, String> {
    let name = format!("{}:{}", host.get_host(), host.get_port());
    let asked = async {
        let mut connection = host.connect().await?;
        let timeline = writable_timeline(&mut connection).await?;
        connection.close().await?;
        Ok::<_, sqlx::Error>(timeline)
    };
    match tokio::time::timeout(PROBE_LIMIT, asked).await {
        Ok(Ok(Some(timeline))) => Ok(Writable { host: host.clone(), timeline }),
        Ok(Ok(None)) => Err(format!("{name} is a standby")),
        Ok(Err(error)) => Err(format!("{name}: {error}")),
        Err(_) => Err(format!("{name}: no answer within {} ms", PROBE_LIMIT.as_millis())),
    }
}

/// The timeline of a server that takes writes. By the simple protocol, which names nothing: a pooler may stand in
/// between. From the name of the present WAL file: the control file keeps the old one until a checkpoint.
async fn writable_timeline(connection: &mut PgConnection) -> Result<Option<i32>, sqlx::Error> {
    use sqlx::Row as _;
    let ask = "SELECT CASE WHEN NOT pg_is_in_recovery() \
               THEN ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END";
    sqlx::raw_sql(ask).fetch_one(connection).await?.try_get(0)
}

/// Lead the pools' new connections to whichever host takes writes, as long as somebody uses them.
pub(super) fn follow(
    pools: Arc<Mutex<Vec<PgPool>>>,
    link: Link,
    hosts: Vec<PgConnectOptions>,
    signals: &Arc<ServerSignals>,
) {
    let signals = Arc::downgrade(signals);
    tokio::spawn(async move {
        let led = || pools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        while still_used(&signals) {
            let Some(present) = led().first().map(PgPool::connect_options) else { return };
            stay(&present, &hosts, &signals).await;
            let found = loop {
                match find_writable(&hosts).await {
                    Ok(found) => break found,
                    Err(_) if !still_used(&signals) => return,
                    Err(_) => tokio::time::sleep(SEARCH_EVERY).await,
                }
            };
            let Some(signals) = signals.upgrade() else { return };
            if (present.get_host(), present.get_port()) != (found.get_host(), found.get_port()) {
                tracing::warn!(
                    address = format!("{}:{}", found.get_host(), found.get_port()),
                    "another host takes writes: it is followed"
                );
            }
            for pool in led() {
                pool.set_connect_options(link.like(found.clone()));
            }
            signals.server_moved();
        }
    });
}

fn still_used(signals: &Weak<ServerSignals>) -> bool {
    signals.strong_count() > 0
}

/// Until the host of this pool is gone or takes no more writes, or another one was promoted since.
async fn stay(
    present: &PgConnectOptions,
    hosts: &[PgConnectOptions],
    signals: &Weak<ServerSignals>,
) {
    let Ok(Ok(mut connection)) = tokio::time::timeout(PROBE_LIMIT, present.connect()).await else {
        return;
    };
    for round in 1_u32.. {
        tokio::time::sleep(ASK_EVERY).await;
        let asked = tokio::time::timeout(PROBE_LIMIT, writable_timeline(&mut connection)).await;
        let Ok(Ok(Some(timeline))) = asked else { return };
        let look_around = round.is_multiple_of(LOOK_AROUND);
        if !still_used(signals) || look_around && is_succeeded(timeline, present, hosts).await {
            return;
        }
    }
}

/// Whether another host takes writes that was promoted later.
async fn is_succeeded(
    timeline: i32,
    present: &PgConnectOptions,
    hosts: &[PgConnectOptions],
) -> bool {
    let others = hosts.iter().filter(|host| {
        (host.get_host(), host.get_port()) != (present.get_host(), present.get_port())
    });
    let asked: Vec<_> = others.map(probe).collect();
    let answers = futures_util::future::join_all(asked).await;
    answers.into_iter().flatten().any(|other| other.timeline > timeline)
}

#[cfg(feature = "worker")]
impl super::Worker {
    /// The schema of the installation.
    pub(crate) fn schema(&self) -> &super::Schema {
        self.database.schema()
    }

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
