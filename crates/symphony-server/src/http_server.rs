//! Every HTTP listener of a process: one accept loop, so that all of them have the same bounds.
//!
//! - A request's head must be complete soon after its first byte, and its body soon after the head; a client must go on
//!   reading its answer; a connection at rest is closed after a while. Slow ones cannot be collected without end.
//! - There are at most so many connections. One more takes the place of the one that has been at rest, or has been at its head,
//!   for the longest: a crowd that says nothing cannot shut out `/readyz`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, Request, Response, StatusCode};
use axum::middleware::Next;
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use symphony::trace::TraceParent;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::TlsAcceptor;

use crate::bounds::{ACCEPT_PAUSE, REFUSAL_READ_TIME};
use crate::config::Defects;

/// `[http_server]`: the bounds of every HTTP listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpServerSettings {
    /// Connections of one listener.
    pub connections_max: usize,
    /// From the first byte of a request to the end of its head.
    pub head_timeout_ms: u64,
    /// From the head to the end of the body; and how long a client may stop reading its answer.
    pub body_timeout_ms: u64,
    /// How long a connection may be at rest, before its first request and between two.
    pub idle_timeout_ms: u64,
}

impl Default for HttpServerSettings {
    fn default() -> Self {
        Self {
            connections_max: 1_000,
            head_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            idle_timeout_ms: 75_000,
        }
    }
}

impl HttpServerSettings {
    /// Note what is wrong.
    pub fn check(&self, defects: &mut Defects) {
        if !(8..=100_000).contains(&self.connections_max) {
            defects.add("http_server.connections_max", "must be 8 to 100000");
        }
        for (field, value) in [
            ("head_timeout_ms", self.head_timeout_ms),
            ("body_timeout_ms", self.body_timeout_ms),
            ("idle_timeout_ms", self.idle_timeout_ms),
        ] {
            if !(10..=3_600_000).contains(&value) {
                defects.add(&format!("http_server.{field}"), "must be 10 to 3600000");
            }
        }
    }
}

/// Serve a router until the task is aborted. Answers under way may still leave then.
pub fn serve(
    listener: TcpListener,
    router: Router,
    settings: HttpServerSettings,
) -> JoinHandle<()> {
    serve_with(listener, router, settings, None)
}

/// The same, with TLS if there is a certificate.
pub fn serve_with(
    listener: TcpListener,
    router: Router,
    settings: HttpServerSettings,
    tls: Option<TlsAcceptor>,
) -> JoinHandle<()> {
    let server = Arc::new(Server { router, settings, tls, connections: Mutex::default() });
    tokio::spawn(async move {
        let mut number = 0_u64;
        loop {
            if let Ok((stream, from)) = listener.accept().await {
                number = number.wrapping_add(1);
                server.accept(number, stream, Peer::new(from.ip()));
            } else {
                server.close_oldest_at_rest();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    })
}

/// Where a request comes from: whoever has one IPv6 address has 2^64 of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Peer(IpAddr);

impl Peer {
    pub(crate) fn new(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
            }
            address @ IpAddr::V4(_) => address,
        })
    }

    /// Of a request that came through a listener of ours.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
    }
}

impl<S: Sync> FromRequestParts<S> for Peer {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

/// Behind a proxy all requests come from it: the last address of `X-Forwarded-For` is the one that it has seen itself.
pub(crate) async fn believe_the_proxy(mut request: Request<Body>, next: Next) -> Response<Body> {
    let lines = request.headers().get_all("x-forwarded-for");
    let last = lines.iter().next_back().and_then(|line| line.to_str().ok());
    let address = last.and_then(|line| line.rsplit(',').next()?.trim().parse().ok());
    if let Some(address) = address {
        request.extensions_mut().insert(Peer::new(address));
    }
    next.run(request).await
}

/// What all connections of a listener share.
struct Server {
    router: Router,
    settings: HttpServerSettings,
    tls: Option<TlsAcceptor>,
    /// By the order of their arrival.
    connections: Mutex<BTreeMap<u64, Connection>>,
}

struct Connection {
    /// A request is being answered.
    busy: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Server {
    fn accept(self: &Arc<Self>, number: u64, stream: TcpStream, peer: Peer) {
        let is_full = {
            let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.len() >= self.settings.connections_max
        };
        if is_full && !self.close_oldest_at_rest() {
            tokio::spawn(refuse_connection(stream));
            return;
        }
        let busy = Arc::new(AtomicBool::new(false));
        let (server, state) = (self.clone(), busy.clone());
        // Inserted before the task runs, because the task removes itself at its end.
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tokio::spawn(async move {
            let _slot = ConnectionSlot { server: server.clone(), number };
            // Answers are whole: waiting to fill a packet would only delay them.
            if stream.set_nodelay(true).is_err() {
                return;
            }
            let Some(tls) = &server.tls else {
                return serve_connection(&server, stream, peer, state).await;
            };
            let limit = Duration::from_millis(server.settings.head_timeout_ms);
            if let Ok(Ok(stream)) = tokio::time::timeout(limit, tls.accept(stream)).await {
                serve_connection(&server, stream, peer, state).await;
            }
        });
        connections.insert(number, Connection { busy, task: task.abort_handle() });
    }

    /// Close the oldest connection that is not being answered; `false` if all are.
    fn close_oldest_at_rest(&self) -> bool {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let at_rest = connections.iter().find(|(_, held)| !held.busy.load(Ordering::Acquire));
        let Some(number) = at_rest.map(|(number, _)| *number) else { return false };
        if let Some(held) = connections.remove(&number) {
            held.task.abort();
        }
        true
    }
}

/// A connection's place, given back however it ends.
struct ConnectionSlot {
    server: Arc<Server>,
    number: u64,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let connections = &self.server.connections;
        connections.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

async fn serve_connection<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    server: &Server,
    stream: S,
    peer: Peer,
    busy: Arc<AtomicBool>,
) {
    let settings = &server.settings;
    let stream = TimedStream {
        stream,
        busy: busy.clone(),
        head_timeout: Duration::from_millis(settings.head_timeout_ms),
        head: None,
        write_timeout: Duration::from_millis(settings.body_timeout_ms),
        writing: None,
    };
    let service = RequestService {
        router: TowerToHyperService::new(server.router.clone()),
        peer,
        busy,
        body_timeout: Duration::from_millis(settings.body_timeout_ms),
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The head's own limit is the stream's: this one also runs while nothing has come.
        .header_read_timeout(Duration::from_millis(settings.idle_timeout_ms))
        .serve_connection(TokioIo::new(stream), service);
    // An error here is the client's: it has left, or has been answered.
    let _ended = connection.await;
}

/// Answer 503 and close. Unread input is drained first, because closing with unread input resets the connection and
/// would destroy the answer.
async fn refuse_connection(mut stream: TcpStream) {
    let answer = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 21\r\n\r\ntoo many connections\n";
    let refusal = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        let mut unread = [0_u8; 1_024];
        while stream.read(&mut unread).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    let _closed_anyway = tokio::time::timeout(REFUSAL_READ_TIME, refusal).await;
}

/// The router with a time limit on every body; it marks the connection as busy while a request is answered.
struct RequestService {
    router: TowerToHyperService<Router>,
    peer: Peer,
    busy: Arc<AtomicBool>,
    body_timeout: Duration,
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl Service<Request<Incoming>> for RequestService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn call(&self, request: Request<Incoming>) -> Answer {
        self.busy.store(true, Ordering::Release);
        let until = Instant::now() + self.body_timeout;
        let mut request = request.map(|body| {
            Body::new(TimedBody { body, until: Box::pin(tokio::time::sleep_until(until)) })
        });
        request.extensions_mut().insert(self.peer);
        let (answer, busy) = (self.router.call(request), self.busy.clone());
        Box::pin(async move {
            let answer = answer.await;
            busy.store(false, Ordering::Release);
            answer
        })
    }
}

/// A body with a time limit.
struct TimedBody {
    body: Incoming,
    until: Pin<Box<Sleep>>,
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(self.until.as_mut().poll(context));
        Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

/// Why there is no whole body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyProblem {
    /// Larger than allowed.
    TooLarge,
    /// Not whole in time.
    TooSlow,
    /// The client left, or does not speak HTTP.
    Broken,
}

impl BodyProblem {
    /// The status and code it is answered with.
    pub fn answer(self) -> (StatusCode, &'static str) {
        match self {
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "BODY_TOO_SLOW"),
            Self::Broken => (StatusCode::BAD_REQUEST, "BODY_NOT_READABLE"),
        }
    }
}

/// What caused a request, as it says. What is no trace context is as good as none, as the standard has it.
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    Some(TraceParent::parse(text)?.to_string())
}

/// The whole body.
pub async fn read_body(body: Body, bytes_max: usize) -> Result<Bytes, BodyProblem> {
    axum::body::to_bytes(body, bytes_max).await.map_err(|error| {
        let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(error) = source {
            let io = error.downcast_ref::<io::Error>();
            if io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
                return BodyProblem::TooSlow;
            }
            if error.is::<hyper::Error>() {
                return BodyProblem::Broken;
            }
            source = error.source();
        }
        BodyProblem::TooLarge
    })
}

/// A stream with time limits on a request's head and on a client that does not read its answer.
struct TimedStream<S> {
    stream: S,
    busy: Arc<AtomicBool>,
    head_timeout: Duration,
    /// Until when the head that has begun must be there.
    head: Option<Pin<Box<Sleep>>>,
    write_timeout: Duration,
    writing: Option<Pin<Box<Sleep>>>,
}

fn timed_out() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // While a request is answered, what comes is its body, or the next request before its time.
        if self.busy.load(Ordering::Acquire) {
            self.head = None;
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before && self.head.is_none() {
            self.head = Some(Box::pin(sleep(self.head_timeout)));
        }
        if let Some(head) = &mut self.head
            && head.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(timed_out()));
        }
        read
    }
}

impl<S> TimedStream<S> {
    /// Count the time in which nothing could be written.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let limit = self.write_timeout;
        let writing = self.writing.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(writing.as_mut().poll(context));
        Poll::Ready(Err(timed_out()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, shut)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.watch(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// As many open files as the system lets this process have: each connection is one, and the usual limit is meant for
/// interactive programs.
pub fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err()
    {
        tracing::debug!("the limit of open files stays as it is");
    }
}
