//! One HTTP/1.1 exchange, with a clear line between "surely not sent" and "may have left".
//!
//! Straight on hyper's connections, because that line is the whole point: everything up to a finished TLS
//! handshake is [`Failure::NotSent`], everything after the request was handed over is [`Failure::Lost`]. No
//! redirects, no proxies from the environment, no cookies, and no resending: hyper's connections never repeat
//! a request (only its pooled client and what is built on it do). The one repetition here is of a request that
//! `try_send_request` hands back, which it does only if it never began to write it (`TrySendError::take_message`;
//! hyper 1.x, `proto/h1/dispatch.rs`, where a request once taken from the queue is never returned).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use symphony::lanes::payments::rail::SendCheck;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, AlertDescription};
use url::Host;

use crate::address::{AddressGuard, ResolveError, Transport};
use crate::bounds::http_client::{HEAD_BYTES_MAX, IDLE_CONNECTIONS_MAX, IDLE_MS_MAX, READY_MS_MAX};

pub(crate) type Body = Full<Bytes>;

/// A server, and the connections to it.
pub(crate) struct Origin {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// `None`: plain text.
    pub(crate) tls: Option<(TlsConnector, ServerName<'static>)>,
    pub(crate) guard: AddressGuard,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_bytes_max: usize,
    /// Whether an answer counts only with its whole body, or its status is all that is asked for.
    pub(crate) needs_body: bool,
    pub(crate) idle: Mutex<Vec<Idle>>,
}

pub(crate) struct Idle {
    sender: SendRequest<Body>,
    since: Instant,
}

/// A whole answer.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// No whole answer. The texts contain nothing of request or answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Not one byte of the request left.
    NotSent { error_code: &'static str, message: String },
    /// It may have arrived.
    Lost { error_code: &'static str, message: String },
}

impl Failure {
    fn not_sent(error_code: &'static str, message: impl Into<String>) -> Self {
        Self::NotSent { error_code, message: message.into() }
    }

    fn lost(error_code: &'static str, message: impl Into<String>) -> Self {
        Self::Lost { error_code, message: message.into() }
    }

    fn timeout() -> Self {
        Self::lost("TIMEOUT", "no whole answer in time")
    }
}

impl Origin {
    /// Host and port, for people.
    fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Connections to one can be used for the other.
    pub(crate) fn is_same_server(&self, other: &Self) -> bool {
        self.host == other.host
            && self.port == other.port
            && self.tls.is_some() == other.tls.is_some()
    }

    /// Send once, and read the whole answer.
    pub(crate) async fn exchange(
        &self,
        request: Request<Body>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        self.exchange_when(request, deadline, None).await
    }

    /// The same, if `check` says so once there is a connection.
    pub(crate) async fn exchange_when(
        &self,
        mut request: Request<Body>,
        deadline: Instant,
        check: Option<&dyn SendCheck>,
    ) -> Result<Reply, Failure> {
        while let Some(mut sender) = self.take_idle(deadline).await {
            may_send(check).await?;
            match send(&mut sender, request, deadline).await? {
                Sent::Answered(response) => return self.read(response, sender, deadline).await,
                // The server had hung up meanwhile; nothing was written.
                Sent::HandedBack(unsent) => request = unsent,
            }
        }
        let mut sender = self.connect(deadline).await?;
        may_send(check).await?;
        let sent = send(&mut sender, request, deadline).await;
        match sent.map_err(|failure| self.refused_as_stranger(failure))? {
            Sent::Answered(response) => self.read(response, sender, deadline).await,
            Sent::HandedBack(_) => Err(Failure::not_sent(
                "CONNECT_FAILED",
                "the connection closed before anything was sent",
            )),
        }
    }

    /// In TLS 1.3 a server says only after our first words that it does not know us: its handshake has failed then, and
    /// nothing of the request was taken.
    fn refused_as_stranger(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Lost { error_code: "CERTIFICATE_REFUSED", message } => Failure::not_sent(
                "TLS_FAILED",
                format!("TLS handshake with {}: {message}", self.place()),
            ),
            other => other,
        }
    }

    async fn read(
        &self,
        response: Response<Incoming>,
        sender: SendRequest<Body>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let (head, body) = response.into_parts();
        let body = match self.read_body(body, deadline).await {
            Ok(body) => {
                self.keep(sender);
                body
            }
            Err(failure) if self.needs_body => return Err(failure),
            // The status is the answer. The connection is not used again.
            Err(_beside_the_point) => Bytes::new(),
        };
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, body })
    }

    async fn read_body(&self, mut body: Incoming, deadline: Instant) -> Result<Bytes, Failure> {
        let mut bytes = Vec::new();
        loop {
            let Ok(frame) = timeout_at(deadline, body.frame()).await else {
                return Err(Failure::timeout());
            };
            match frame {
                None => return Ok(bytes.into()),
                Some(Err(error)) => return Err(lost(&error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        if bytes.len().saturating_add(data.len()) > self.response_bytes_max {
                            let problem = "the answer is larger than response_bytes_max";
                            return Err(Failure::lost("BAD_RESPONSE", problem));
                        }
                        bytes.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    /// A connection at rest. The last used first, so that a quiet time lets the others go.
    async fn take_idle(&self, deadline: Instant) -> Option<SendRequest<Body>> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            if idle.since.elapsed() > Duration::from_millis(IDLE_MS_MAX) || idle.sender.is_closed()
            {
                continue;
            }
            let mut sender = idle.sender;
            // Ready means that its last exchange is over. A server that went on talking is not ready but closed:
            // what it said may not be taken for the answer to the next request.
            let at_most = deadline.min(Instant::now() + Duration::from_millis(READY_MS_MAX));
            if let Ok(Ok(())) = timeout_at(at_most, sender.ready()).await {
                return Some(sender);
            }
        }
    }

    fn keep(&self, sender: SendRequest<Body>) {
        if sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= IDLE_CONNECTIONS_MAX {
            idle.retain(|one| !one.sender.is_closed());
        }
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(Idle { sender, since: Instant::now() });
        }
    }

    async fn connect(&self, deadline: Instant) -> Result<SendRequest<Body>, Failure> {
        let deadline = deadline.min(Instant::now() + self.connect_timeout);
        let in_time = timeout_at(deadline, async {
            let transport =
                if self.tls.is_some() { Transport::Encrypted } else { Transport::Plain };
            let addresses = self
                .guard
                .resolve(&self.host, self.port, transport)
                .await
                .map_err(|error| unresolved(&error))?;
            let stream = open(&addresses, deadline, &self.place()).await?;
            match &self.tls {
                None => handshake(stream).await,
                Some((connector, name)) => {
                    let stream =
                        connector.connect(name.clone(), stream).await.map_err(|error| {
                            let message = format!("TLS handshake with {}: {error}", self.place());
                            Failure::not_sent("TLS_FAILED", message)
                        })?;
                    handshake(stream).await
                }
            }
        });
        in_time.await.unwrap_or_else(|_elapsed| Err(no_connection_in_time(&self.place())))
    }
}

/// The first of the checked addresses that answers. Each gets its share of the time, so that one that swallows
/// packets does not hide the others.
async fn open(
    addresses: &[std::net::SocketAddr],
    deadline: Instant,
    place: &str,
) -> Result<TcpStream, Failure> {
    let failed = |error: &std::io::Error| {
        Failure::not_sent("CONNECT_FAILED", format!("connecting to {place}: {}", error.kind()))
    };
    let mut failure = Failure::not_sent("CONNECT_FAILED", "the host has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len().saturating_sub(tried)).unwrap_or(u32::MAX).max(1);
        let until = Instant::now() + deadline.saturating_duration_since(Instant::now()) / left;
        match timeout_at(until, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A request is one write: waiting to fill a packet would only delay it. And what is given up is
                // given up: without the second, the kernel would go on delivering a request for minutes after its
                // outcome was written down as unknown.
                let prepared = stream.set_nodelay(true).and_then(|()| stream.set_zero_linger());
                prepared.map_err(|error| failed(&error))?;
                return Ok(stream);
            }
            Ok(Err(error)) => failure = failed(&error),
            Err(_elapsed) => failure = no_connection_in_time(place),
        }
    }
    Err(failure)
}

fn no_connection_in_time(place: &str) -> Failure {
    let message = format!("no connection to {place} within connect_timeout_ms");
    Failure::not_sent("CONNECT_TIMEOUT", message)
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Body>, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Failure::not_sent("CONNECT_FAILED", "the connection could not be set up"))?;
    tokio::spawn(async move {
        // Whoever waits for an answer sees the same error at the sender.
        let _seen_by_the_sender = connection.await;
    });
    Ok(sender)
}

async fn may_send(check: Option<&dyn SendCheck>) -> Result<(), Failure> {
    match check {
        Some(check) if !check.may_send().await => {
            Err(Failure::not_sent("NOT_SENT", "it was not to be sent any more"))
        }
        _ => Ok(()),
    }
}

enum Sent {
    Answered(Response<Incoming>),
    HandedBack(Request<Body>),
}

async fn send(
    sender: &mut SendRequest<Body>,
    request: Request<Body>,
    deadline: Instant,
) -> Result<Sent, Failure> {
    // A process that was stopped meanwhile must not send after its time: its lease may have passed to another, who
    // was told that nothing is on its way. (A time limit alone polls the request once more before it looks.)
    if Instant::now() >= deadline {
        return Err(Failure::not_sent("TIMEOUT", "the time was up before anything was sent"));
    }
    match timeout_at(deadline, sender.try_send_request(request)).await {
        Err(_elapsed) => Err(Failure::timeout()),
        Ok(Ok(response)) => Ok(Sent::Answered(response)),
        Ok(Err(mut error)) => match error.take_message() {
            Some(unsent) => Ok(Sent::HandedBack(unsent)),
            None => Err(lost(error.error())),
        },
    }
}

fn lost(error: &hyper::Error) -> Failure {
    if let Some(alert) = certificate_alert(error) {
        let problem = format!(
            "the server does not accept who we are ({alert:?}): client_certificate_file must name a certificate it knows"
        );
        Failure::lost("CERTIFICATE_REFUSED", problem)
    } else if error.is_parse() {
        Failure::lost("BAD_RESPONSE", "the answer is not HTTP")
    } else {
        Failure::lost("CONNECTION_LOST", "the connection broke before the answer was whole")
    }
}

/// What the server said about our certificate, if that is why the connection ended.
fn certificate_alert(error: &hyper::Error) -> Option<AlertDescription> {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let tls = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if let Some(rustls::Error::AlertReceived(alert)) =
            tls.and_then(|inner| inner.downcast_ref::<rustls::Error>())
        {
            let about_us = matches!(
                alert,
                AlertDescription::CertificateRequired
                    | AlertDescription::BadCertificate
                    | AlertDescription::UnsupportedCertificate
                    | AlertDescription::CertificateRevoked
                    | AlertDescription::CertificateExpired
                    | AlertDescription::CertificateUnknown
                    | AlertDescription::UnknownCA
                    | AlertDescription::AccessDenied
            );
            return about_us.then_some(*alert);
        }
        source = error.source();
    }
    None
}

fn unresolved(error: &ResolveError) -> Failure {
    let error_code = match error {
        ResolveError::Unresolved => "DNS_FAILED",
        ResolveError::Refused(_) | ResolveError::PlainToPublic => "ADDRESS_REFUSED",
    };
    Failure::not_sent(error_code, error.to_string())
}
