//! A server for inbound mail: the part of RFC 5321 that taking mail needs, and nothing that relays it.
//!
//! - `wire`: lines that end with CRLF and with nothing else.
//! - `commands`: what a line asks for.
//! - `session`: one connection, from the greeting to its end.

mod commands;
mod session;
mod wire;

#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use symphony::FieldErrors;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::accept::accept;
use crate::bounds::smtp::ROOM_STEP_BYTES;
use crate::settings::Defects;

/// Takes the mail that arrives.
#[async_trait]
pub trait Mailbox: Send + Sync {
    /// Is there such a recipient? An error is temporary: the client is told to come again.
    async fn knows(&self, recipient: &str) -> Result<bool, String>;
    /// Keep a message. After `Ok` the client is told that it may forget it, so it must be committed by then. May be
    /// dropped in the middle when it takes longer than `deliver_timeout_ms`; the client then sends it again.
    async fn deliver(&self, mail: InboundMail) -> Result<(), DeliveryError>;
}

/// A message as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboundMail {
    /// Who it says it is from; `None` for `<>`, which bounces use.
    pub from: Option<String>,
    /// For whom, each once, in the order they were named. All of them are known.
    pub recipients: Vec<String>,
    /// The message, without the dots that SMTP added.
    pub raw: Vec<u8>,
    /// The name the client gave itself.
    pub helo: String,
    /// Where it came from.
    pub peer: SocketAddr,
}

/// Why a message was not kept. Clients never see the text, and nobody here logs
/// it: that is the mailbox's, who knows what may be written down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Another time it may work: 451.
    #[error("the message cannot be kept now: {0}")]
    Temporary(String),
    /// This recipient will not take it: 550.
    #[error("the recipient does not take the message: {0}")]
    Recipient(String),
    /// Nobody will take it: 554.
    #[error("the message is not acceptable: {0}")]
    Message(String),
}

/// How the server is run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmtpListenerSettings {
    /// The name it greets with. Default `localhost`.
    pub hostname: String,
    /// The largest message. Default 1 MiB.
    pub message_bytes_max: usize,
    /// The longest line of a message. Default 16 KiB: RFC 5321 says 1,000 bytes, and common senders do not care.
    pub message_line_bytes_max: usize,
    /// Recipients of one message. Default 100, which RFC 5321 asks for.
    pub recipients_max: usize,
    /// Connections at once. Default 256.
    pub connections_max: usize,
    /// Messages that are being read or kept, all together. Default 64 MiB.
    pub bytes_in_flight_max: usize,
    /// How long a message waits for room among them. Default 10,000.
    pub room_timeout_ms: u64,
    /// Commands of one connection. Default 1,000.
    pub commands_max: u32,
    /// Mistakes of one connection. Default 10.
    pub errors_max: u32,
    /// For a whole command, or for the client to read an answer. Default 60,000.
    pub idle_timeout_ms: u64,
    /// For a whole connection: after that it may end the message it is at, and no more. Default 1,800,000.
    pub session_timeout_ms: u64,
    /// For a whole message. Default 300,000.
    pub message_timeout_ms: u64,
    /// For [`Mailbox::knows`] and [`Mailbox::deliver`]. Default 60,000.
    pub deliver_timeout_ms: u64,
    /// How long messages under way may take when the server stops. Default 10,000.
    pub stop_timeout_ms: u64,
}

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// It cannot be run like this.
    #[error(transparent)]
    Settings(#[from] FieldErrors),
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Bind(SocketAddr, io::Error),
}

/// A running server. Dropping it ends it at once; [`stop`](Self::stop) lets messages under way be kept.
pub struct SmtpListener {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    stop_timeout: Duration,
    accepting: JoinHandle<()>,
}

/// What all sessions share.
struct Shared {
    settings: SmtpListenerSettings,
    mailbox: Arc<dyn Mailbox>,
    /// Room for messages, in steps.
    room: Arc<Semaphore>,
}

impl Default for SmtpListenerSettings {
    fn default() -> Self {
        Self {
            hostname: "localhost".to_owned(),
            message_bytes_max: 1 << 20,
            message_line_bytes_max: 16 << 10,
            recipients_max: 100,
            connections_max: 256,
            bytes_in_flight_max: 64 << 20,
            room_timeout_ms: 10_000,
            commands_max: 1_000,
            errors_max: 10,
            idle_timeout_ms: 60_000,
            session_timeout_ms: 1_800_000,
            message_timeout_ms: 300_000,
            deliver_timeout_ms: 60_000,
            stop_timeout_ms: 10_000,
        }
    }
}

impl SmtpListenerSettings {
    /// What is wrong with them, if anything.
    pub fn check(&self) -> Result<(), FieldErrors> {
        let mut defects = Defects::default();
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b);
        if self.hostname.is_empty()
            || self.hostname.len() > 253
            || !self.hostname.bytes().all(is_name)
        {
            defects.add("hostname", "must be a host name such as mail.example.com");
        }
        for (field, value, least, most) in [
            ("message_bytes_max", self.message_bytes_max as u64, 1 << 10, 64 << 20),
            ("message_line_bytes_max", self.message_line_bytes_max as u64, 1_000, 1 << 20),
            ("recipients_max", self.recipients_max as u64, 1, 1_000),
            ("connections_max", self.connections_max as u64, 1, 65_536),
            (
                "bytes_in_flight_max",
                self.bytes_in_flight_max as u64,
                ROOM_STEP_BYTES as u64,
                16 << 30,
            ),
            ("room_timeout_ms", self.room_timeout_ms, 0, 600_000),
            ("commands_max", self.commands_max.into(), 10, 1_000_000),
            ("errors_max", self.errors_max.into(), 1, 1_000),
            ("idle_timeout_ms", self.idle_timeout_ms, 1, 3_600_000),
            ("session_timeout_ms", self.session_timeout_ms, 1, 86_400_000),
            ("message_timeout_ms", self.message_timeout_ms, 1, 3_600_000),
            ("deliver_timeout_ms", self.deliver_timeout_ms, 1, 600_000),
            ("stop_timeout_ms", self.stop_timeout_ms, 0, 600_000),
        ] {
            defects.within(field, value, least, most);
        }
        if self.bytes_in_flight_max < self.message_bytes_max {
            let problem = "must be at least message_bytes_max: one message must find room";
            defects.add("bytes_in_flight_max", problem);
        }
        defects.into_result()
    }
}

impl SmtpListener {
    /// Listen and serve, on the current tokio runtime.
    pub async fn bind(
        address: SocketAddr,
        settings: SmtpListenerSettings,
        mailbox: Arc<dyn Mailbox>,
    ) -> Result<Self, ListenError> {
        settings.check()?;
        let bound = |error| ListenError::Bind(address, error);
        let listener = TcpListener::bind(address).await.map_err(bound)?;
        let address = listener.local_addr().map_err(bound)?;
        let stop = watch::Sender::new(false);
        let stop_timeout = Duration::from_millis(settings.stop_timeout_ms);
        // As many steps as its message's last one needs, too.
        let room = Semaphore::new(settings.bytes_in_flight_max.div_ceil(ROOM_STEP_BYTES));
        let shared = Arc::new(Shared { settings, mailbox, room: Arc::new(room) });
        let (connections_max, stopped) = (shared.settings.connections_max, stop.subscribe());
        let serve = {
            let stopped = stopped.clone();
            move |stream, peer| session::serve(stream, peer, Arc::clone(&shared), stopped.clone())
        };
        let accepting = tokio::spawn(accept(listener, connections_max, stopped, serve, refuse));
        Ok(Self { address, stop, stop_timeout, accepting })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Accept nothing more, let messages under way be kept and answered, and say goodbye to all others.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        if tokio::time::timeout(self.stop_timeout, &mut self.accepting).await.is_err() {
            self.accepting.abort();
        }
    }
}

impl Drop for SmtpListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn refuse(mut stream: TcpStream) {
    let line = b"421 4.7.0 too many connections, come again later\r\n";
    // Who does not get it sees the connection closed.
    let _closed_anyway = stream.write_all(line).await;
}
