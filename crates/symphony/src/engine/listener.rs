//! Listens for hints on a connection of its own and proves with a probe that they arrive. One worker per group, the hint
//! leader, follows them at once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;

use super::pacer::between;
use super::puller::GroupState;
use super::{Lane, Shared, Stage, jitter};
use crate::db::{DbError, Heard, Hints};

/// How often to prove that hints arrive.
const PROBE_EVERY: Duration = Duration::from_secs(20);
/// How long a probe may take before the connection is made anew.
const PROBE_LIMIT: Duration = Duration::from_secs(5);
/// How long anything else may take on the listening connection.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How often to try to become the hint leader, or to say that one still is.
const ELECTION_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3));
/// A hint leader that has not renewed for this long is replaced.
const LEADER_LEASE_SECONDS: i32 = 10;
/// The pause before connecting again.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));

/// Listen until the engine stops. Polling goes on, so nothing depends on this.
pub(super) async fn listen<L: Lane>(shared: Arc<Shared<L>>, options: PgConnectOptions) {
    let mut stage = shared.stage.clone();
    loop {
        let ended = tokio::select! {
            ended = listen_once(&shared, &options) => Some(ended),
            _ = stage.wait_for(|stage| *stage > Stage::Running) => None,
        };
        shared.metrics.listener_up.set(0);
        resign(&shared).await;
        let Some(ended) = ended else {
            // This worker claims nothing more: another may lead at once.
            return std::future::pending().await;
        };
        if let Err(error) = ended {
            shared.metrics.database_errors.add(1);
            tracing::warn!(lane = shared.lane.name(), code = error.code(), %error,
                "hints do not arrive; polling goes on, and listening is tried again");
        }
        tokio::time::sleep(between(RECONNECT, jitter())).await;
    }
}

async fn listen_once<L: Lane>(
    shared: &Arc<Shared<L>>,
    options: &PgConnectOptions,
) -> Result<(), DbError> {
    let probe_channel = format!("symphony_probe_{:016x}", jitter());
    let channel = shared.database.schema().channel(shared.lane.channel());
    let options = shared.database.listen_options(options);
    let connecting = Hints::connect(options, &channel, &probe_channel);
    let Some(mut hints) = in_time(connecting).await? else {
        // Logged once: it does not change while the address is the same.
        tracing::warn!(
            lane = shared.lane.name(),
            "a transaction pooler lends the sessions, where no hints are heard: polling finds the work; for hints, set \
             database.listen_url to a direct connection"
        );
        return std::future::pending().await;
    };
    // Hints sent before the LISTEN were missed, so claim once.
    wake_all(shared);
    let mut probe = Probe { sent: None, next: Instant::now() };
    let mut next_election = Instant::now();
    loop {
        tokio::select! {
            heard = hints.next() => match heard? {
                Heard::Work => wake_all(shared),
                Heard::Probe => {
                    probe = Probe { sent: None, next: Instant::now() + PROBE_EVERY };
                    if shared.metrics.listener_up.get() == 0 {
                        shared.metrics.listener_up.set(1);
                        tracing::info!(lane = shared.lane.name(), "hints arrive");
                    }
                }
                Heard::Gap => return Ok(()),
            },
            () = tokio::time::sleep_until(probe.wakes_at().min(next_election).into()) => {}
        }
        let now = Instant::now();
        if probe.wakes_at() <= now {
            if probe.sent.is_some() {
                tracing::warn!(
                    lane = shared.lane.name(),
                    "a probe was not heard: does database.listen_url lead to the same database, and directly?"
                );
                return Ok(());
            }
            in_time(shared.database.send_probe(&probe_channel)).await?;
            probe.sent = Some(now);
        }
        if next_election <= now {
            Box::pin(in_time(stand_for_election(shared))).await?;
            next_election = now + between(ELECTION_EVERY, jitter());
        }
    }
}

/// A dead connection may never report an error, and a hint leader on it would miss every hint. So calls have a limit.
async fn in_time<T>(call: impl Future<Output = Result<T, DbError>>) -> Result<T, DbError> {
    tokio::time::timeout(CALL_LIMIT, call).await.unwrap_or_else(|_elapsed| {
        Err(DbError::Unreachable { message: "no answer in time".to_owned() })
    })
}

/// Proves that hints arrive: a message to this worker itself, sent over another connection.
struct Probe {
    sent: Option<Instant>,
    next: Instant,
}

impl Probe {
    fn wakes_at(&self) -> Instant {
        self.sent.map_or(self.next, |sent| sent + PROBE_LIMIT)
    }
}

/// Become hint leader of every group that has none, and stay leader where this worker is.
async fn stand_for_election<L: Lane>(shared: &Shared<L>) -> Result<(), DbError> {
    let worker = shared.database.worker();
    let mut leads = false;
    for group in &shared.groups {
        let led = worker
            .lead_hints(&group_key(shared, group), shared.lane.worker_id(), LEADER_LEASE_SECONDS)
            .await?;
        group.is_hint_leader.store(led, Ordering::Release);
        leads |= led;
    }
    shared.metrics.hint_leader.set(u64::from(leads));
    Ok(())
}

/// Give up leading, because hints do not arrive here. Others need not wait for the lease to expire.
async fn resign<L: Lane>(shared: &Shared<L>) {
    shared.metrics.hint_leader.set(0);
    for group in &shared.groups {
        if group.is_hint_leader.swap(false, Ordering::AcqRel) {
            let key = group_key(shared, group);
            let worker = shared.database.worker();
            // If this fails too, the lease expires by itself.
            drop(worker.lead_hints(&key, shared.lane.worker_id(), 0).await);
        }
    }
}

fn group_key<L: Lane>(shared: &Shared<L>, group: &GroupState) -> String {
    format!("{}/{}", shared.lane.name(), group.settings.name)
}

fn wake_all<L: Lane>(shared: &Shared<L>) {
    for group in &shared.groups {
        group.hint.notify_one();
    }
}
