//! A simulated payment provider: a real HTTP server that moves no money but writes down, durably, every transfer it
//! would have moved. It can be made to fail in every way a provider fails.
//!
//! Its [record](Record) is the judge of chaos tests, so it shares nothing with what it judges: no database, no
//! ledger, no code of the rails.
//!
//! | request | answer |
//! |---|---|
//! | `POST /transfers` with `Idempotency-Key` | 201 `{"code":"ACSC","reference":"SBX-1","replayed":false}`; the same key and body again: 200, the same reference, `"replayed":true`, nothing executed; another body: 422 `KEY_REUSED`; refused: 422 with the code, again on every replay; bad signature: 401 `SIGNATURE` |
//! | `GET /transfers/{key}` | 200 `{"code":"ACSC","reference":"SBX-1"}`, or the refusal's code; 404 `{"code":"NOT_FOUND"}` |
//! | `GET /record`, `GET /record/summary` | the record's lines; its [`Summary`] |
//! | `GET /faults`, `PUT /faults` | the [`FaultReport`]; replaces the [`Plan`] |
//! | `GET /healthz` | 200 while it can record |
//!
//! Of several requests under one key at once, the first executes and the others wait for it: they answer as replays.
//! Answers about a transfer repeat its key in the header `Idempotency-Key`. A body without `amount.value` (a
//! positive decimal text) and `amount.currency` is refused as `AM12`.
//!
//! No answer leaves before its line is on the disk (see [`Settings::durable`]).
//!
//! - [`record`]: lines, reading, judging; `journal`: writing them
//! - `transfers`: keys, once each
//! - [`faults`], [`plan`]: what goes wrong
//! - `http`, `connection`, `signature`: the wire

mod connection;
pub mod faults;
mod http;
mod journal;
pub mod plan;
pub mod record;
mod signature;
#[cfg(test)]
mod tests;
mod transfers;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use symphony::FieldError;
use symphony_connect::accept::accept;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::faults::{Fault, FaultReport, InquiryFault};
pub use self::plan::{Matches, Plan, ScriptItem};
pub use self::record::{Execution, Line, Record, RecordError, Refusal, Summary};
pub use self::signature::Secret;

use self::connection::Connection;
use self::faults::Faults;
use self::http::Response;
use self::journal::Journal;
use self::transfers::Transfers;

/// How long a stop waits for answers under way.
const DRAIN: Duration = Duration::from_secs(5);

/// How a sandbox behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// The record's file; continued if it exists.
    pub record: PathBuf,
    /// What goes wrong.
    pub faults: Plan,
    /// If set, transfers must be signed with it.
    pub secret: Option<Secret>,
    /// Inquiries find a transfer only this long after it was recorded (eventual consistency).
    pub settle_ms: u64,
    /// Keys are forgotten after this long, so that sending again executes again; the record shows it. Inquiries still
    /// find the transfer. `None`: never.
    pub key_lifetime_seconds: Option<u64>,
    /// Sync the record to the disk before answering. `false` is for benchmarks: the record survives a killed process
    /// but not a crashed machine.
    pub durable: bool,
    /// Connections at once; one more is answered 503 and closed.
    pub connections_max: usize,
    /// A request must be complete this long after the last answer.
    pub idle_timeout_ms: u64,
}

/// Why a sandbox cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The fault plan.
    #[error("the fault plan: {0}")]
    Plan(#[from] FieldError),
    /// The address.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The disk refused a line; what was answered with 500 may or may not be in the record.
    #[error("the record can no longer be written: {0}")]
    RecordFailed(Arc<str>),
}

/// A running sandbox. Dropping it ends it at once; [`stop`](Self::stop) ends it in order.
pub struct Sandbox {
    provider: Arc<Provider>,
    address: SocketAddr,
    torn_bytes: u64,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

/// What every connection shares.
struct Provider {
    transfers: Transfers,
    faults: Faults,
    secret: Option<Secret>,
    idle_timeout: Duration,
}

impl Settings {
    /// On any free loopback port, without faults, with this record.
    pub fn new(record: impl Into<PathBuf>) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            record: record.into(),
            faults: Plan::default(),
            secret: None,
            settle_ms: 0,
            key_lifetime_seconds: None,
            durable: true,
            connections_max: 1024,
            idle_timeout_ms: 60_000,
        }
    }
}

impl Sandbox {
    /// Reload the record, listen and serve, on the current tokio runtime.
    pub async fn start(settings: Settings) -> Result<Self, SandboxError> {
        let faults = Faults::new(settings.faults)?;
        let (journal, record) = Journal::open(&settings.record, settings.durable)?;
        let torn_bytes = record.torn_bytes;
        let key_lifetime_ms = settings.key_lifetime_seconds.map(|s| s.saturating_mul(1000));
        let transfers = Transfers::new(journal, record, settings.settle_ms, key_lifetime_ms);
        let idle_timeout = Duration::from_millis(settings.idle_timeout_ms);
        let provider =
            Arc::new(Provider { transfers, faults, secret: settings.secret, idle_timeout });

        let failed = |source| SandboxError::Listen { address: settings.listen, source };
        let listener = TcpListener::bind(settings.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let stop = watch::Sender::new(false);
        let (shared, stopped) = (Arc::clone(&provider), stop.subscribe());
        let serve = move |stream, _| {
            let connection = Connection::new(Arc::clone(&shared), stream, stopped.clone());
            // An error is a client that left early.
            async move { drop(connection.serve().await) }
        };
        let connections_max = settings.connections_max;
        let stopped = stop.subscribe();
        let accepting = tokio::spawn(accept(listener, connections_max, stopped, serve, refuse));
        Ok(Self { provider, address, torn_bytes, stop, accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The record's file.
    pub fn record_path(&self) -> &Path {
        self.provider.transfers.journal.path()
    }

    /// Bytes of an unfinished last line that were cut off at the start: a crash came before its answer.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// The record so far, read from the file; blocks on the disk.
    pub fn record(&self) -> Result<Record, RecordError> {
        let journal = &self.provider.transfers.journal;
        let path = journal.path();
        let length = usize::try_from(journal.file_bytes()).unwrap_or(usize::MAX);
        Record::parse(path, &journal.read_at(0, length).map_err(RecordError::io(path))?)
    }

    /// The record in numbers.
    pub async fn summary(&self) -> Result<Summary, SandboxError> {
        let summary = self.provider.transfers.summary().await;
        summary.map_err(|_failed| self.record_failed())
    }

    /// The fault plan, and what it has done so far.
    pub fn faults(&self) -> FaultReport {
        self.provider.faults.report()
    }

    /// Follow another fault plan from now on.
    pub fn set_faults(&self, plan: Plan) -> Result<(), FieldError> {
        self.provider.faults.replace(plan)
    }

    /// Move the provider's clock on, so that `settle_ms` and key lifetimes pass without waiting.
    pub fn advance_clock(&self, by: Duration) {
        self.provider.transfers.clock.advance(u64::try_from(by.as_millis()).unwrap_or(u64::MAX));
    }

    /// Accept nothing more, let answers under way leave, close the record, and say what it holds.
    pub async fn stop(mut self) -> Result<Summary, SandboxError> {
        self.stop.send_replace(true);
        if tokio::time::timeout(DRAIN, &mut self.accepting).await.is_err() {
            self.accepting.abort();
        }
        let summary = self.summary().await;
        let provider = Arc::clone(&self.provider);
        let closed = tokio::task::spawn_blocking(move || provider.transfers.journal.close()).await;
        match closed {
            Ok(()) => summary,
            Err(_) => Err(self.record_failed()),
        }
    }

    fn record_failed(&self) -> SandboxError {
        let failure = self.provider.transfers.journal.failure();
        SandboxError::RecordFailed(failure.unwrap_or_else(|| "it is closed".into()))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn refuse(mut stream: TcpStream) {
    let answer = Response::code(503, "TOO_MANY_CONNECTIONS").encode(false);
    if stream.write_all(&answer).await.is_ok() {
        http::close_politely(stream).await;
    }
}
