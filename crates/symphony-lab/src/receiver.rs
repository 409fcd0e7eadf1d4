//! A local receiver of webhooks: a real HTTP server on loopback that believes only what is signed, keeps what arrived,
//! counts what arrived again, and fails on request. For `symphony up`, `demo` and tests.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::Utc;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::value::RawValue;
use symphony::event::{Event, rules::EVENT_BYTES_MAX};
use symphony_connect::accept::accept;
use symphony_connect::buses::http::POSITION_HEADER;
use symphony_connect::buses::webhook_signature::{
    ID_HEADER, SIGNATURE_HEADER, Secret, SignatureError, TIMESTAMP_HEADER, verify,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Event ids remembered, to tell a repeated arrival.
const IDS_MAX: usize = 1_000_000;
/// Of the bodies kept, together.
const BODIES_BYTES_MAX: usize = 64 << 20;
/// Connections at once.
const CONNECTIONS_MAX: usize = 1_024;
/// For a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long requests under way may take when it stops.
const DRAIN: Duration = Duration::from_secs(2);

/// How a receiver is run.
#[derive(Debug, Clone)]
pub struct ReceiverSettings {
    /// Where to listen. Default: any free loopback port.
    pub listen: SocketAddr,
    /// The secret that senders use, `whsec_…`; or several, separated by spaces.
    pub secret: String,
    /// Arrivals kept, the newest. Default 10,000.
    pub arrivals_max: usize,
    /// What goes wrong. Default nothing.
    pub faults: ReceiverFaults,
}

/// What goes wrong, and how often, in thousandths of all requests. The seed, the event's id and how often it came
/// decide, so that a run can be repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiverFaults {
    /// Another seed, other victims.
    pub seed: u64,
    /// Answered 503 and not taken.
    pub fail_per_mille: u16,
    /// Taken, and never answered.
    pub hang_per_mille: u16,
    /// Taken, and the connection cut.
    pub drop_per_mille: u16,
}

/// An event that was taken.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// Its id, which is `webhook-id` and stands in the envelope.
    pub event_id: Uuid,
    /// The value of its key.
    pub key: String,
    /// Its place in the log.
    pub position: Option<i64>,
    /// The whole event.
    pub body: Box<RawValue>,
    /// It had arrived before.
    pub is_repeated: bool,
}

/// What has arrived so far.
#[derive(Debug, Clone, Default)]
pub struct Arrivals {
    /// Events that arrived for the first time.
    pub first: u64,
    /// Events that had arrived before.
    pub repeated: u64,
    /// Requests that were not believed or are no events.
    pub refused: u64,
    /// Faults played, whether the event was taken or not.
    pub faults: u64,
    /// The newest arrivals, in their order.
    pub kept: Vec<Arrival>,
}

/// A running receiver. Dropping it ends it at once; [`stop`](Self::stop) lets answers under way leave.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

struct Shared {
    secrets: Vec<Secret>,
    arrivals_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    faults: ReceiverFaults,
    counts: Arrivals,
    kept: VecDeque<Arrival>,
    kept_bytes: usize,
    seen: HashMap<Uuid, Seen>,
    /// The oldest is forgotten first.
    seen_in_order: VecDeque<Uuid>,
}

/// What is known of an event id.
#[derive(Default)]
struct Seen {
    tries: u64,
    is_taken: bool,
}

enum Fault {
    Fail,
    Hang,
    Drop,
}

/// The connection is cut instead of an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is cut on purpose")]
struct Cut;

impl ReceiverSettings {
    /// On any free loopback port, without faults.
    pub fn new(secret: impl Into<String>) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            secret: secret.into(),
            arrivals_max: 10_000,
            faults: ReceiverFaults::default(),
        }
    }
}

impl Receiver {
    /// Listen and serve, on the current tokio runtime.
    pub async fn start(settings: ReceiverSettings) -> io::Result<Self> {
        let secrets = Secret::parse_list(&settings.secret)
            .map_err(|error| io::Error::other(format!("the secret {error}")))?;
        let listener = TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            secrets,
            arrivals_max: settings.arrivals_max,
            state: Mutex::new(State { faults: settings.faults, ..State::default() }),
        });
        let stop = watch::Sender::new(false);
        let (of_all, stopped) = (Arc::clone(&shared), stop.subscribe());
        let serve = move |stream, _| serve(stream, Arc::clone(&of_all), stopped.clone());
        // Who is too much is cut off, and tries again.
        let refuse = |stream: TcpStream| async move { drop(stream) };
        let stopped = stop.subscribe();
        let accepting = tokio::spawn(accept(listener, CONNECTIONS_MAX, stopped, serve, refuse));
        Ok(Self { address, shared, stop, accepting })
    }

    /// Where events can be posted.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// What has arrived so far.
    pub fn arrivals(&self) -> Arrivals {
        self.shared.state().arrivals()
    }

    /// How many events have arrived so far, repeated ones not counted.
    pub fn arrivals_so_far(&self) -> u64 {
        self.shared.state().counts.first
    }

    /// Fail in another way from now on.
    pub fn set_faults(&self, faults: ReceiverFaults) {
        self.shared.state().faults = faults;
    }

    /// Accept nothing more, let answers under way leave, and say what arrived.
    pub async fn stop(mut self) -> Arrivals {
        self.stop.send_replace(true);
        if tokio::time::timeout(DRAIN, &mut self.accepting).await.is_err() {
            self.accepting.abort();
        }
        self.arrivals()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let answer = service_fn(move |request| respond(Arc::clone(&shared), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = std::pin::pin!(connection);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            // Its client left, or was cut off on purpose.
            _ended = &mut connection => return,
            _ = stop.wait_for(|stop| *stop), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Cut> {
    if request.method() != Method::POST {
        return Ok(answer(405));
    }
    let (head, body) = request.into_parts();
    let body = match Limited::new(body, EVENT_BYTES_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Ok(answer(413)),
        Err(_gone) => return Err(Cut),
    };
    let event = match shared.read(&head.headers, &body) {
        Ok(event) => event,
        Err(status) => {
            shared.state().counts.refused += 1;
            return Ok(answer(status));
        }
    };
    // Nothing may be awaited while the state is locked.
    let fault = shared.state().take(event, shared.arrivals_max);
    match fault {
        None => Ok(answer(200)),
        Some(Fault::Fail) => Ok(answer(503)),
        Some(Fault::Drop) => Err(Cut),
        Some(Fault::Hang) => match std::future::pending::<Infallible>().await {},
    }
}

fn answer(status: u16) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    if let Ok(status) = hyper::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    response
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The event, or the status that says why it is none.
    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Arrival, u16> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let (id, timestamp, signatures) = text(ID_HEADER)
            .zip(text(TIMESTAMP_HEADER))
            .zip(text(SIGNATURE_HEADER))
            .map(|((id, timestamp), signatures)| (id, timestamp, signatures))
            .ok_or(400_u16)?;
        let now = Utc::now().timestamp();
        verify(&self.secrets, id, timestamp, signatures, body, now).map_err(
            |error| match error {
                SignatureError::Malformed => 400_u16,
                _ => 401,
            },
        )?;
        let event = std::str::from_utf8(body).ok().and_then(|text| Event::parse(text).ok());
        let event = event.filter(|event| event.event_id().to_string() == id).ok_or(400_u16)?;
        Ok(Arrival {
            event_id: event.event_id(),
            key: event.key().to_owned(),
            position: text(POSITION_HEADER).and_then(|text| text.parse().ok()),
            body: event.body().to_owned(),
            is_repeated: false,
        })
    }
}

impl State {
    fn arrivals(&self) -> Arrivals {
        Arrivals { kept: self.kept.iter().cloned().collect(), ..self.counts.clone() }
    }

    /// Keep it, unless it is to fail; and what is to go wrong.
    fn take(&mut self, mut arrival: Arrival, arrivals_max: usize) -> Option<Fault> {
        let seen = self.seen.entry(arrival.event_id).or_insert_with(|| {
            self.seen_in_order.push_back(arrival.event_id);
            Seen::default()
        });
        seen.tries += 1;
        let fault = self.faults.draw(arrival.event_id, seen.tries);
        self.counts.faults += u64::from(fault.is_some());
        if matches!(fault, Some(Fault::Fail)) {
            return fault;
        }
        arrival.is_repeated = std::mem::replace(&mut seen.is_taken, true);
        if arrival.is_repeated {
            self.counts.repeated += 1;
        } else {
            self.counts.first += 1;
        }
        while self.seen_in_order.len() > IDS_MAX
            && let Some(oldest) = self.seen_in_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        self.kept_bytes += arrival.body.get().len();
        self.kept.push_back(arrival);
        while self.kept.len() > arrivals_max || self.kept_bytes > BODIES_BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.kept_bytes -= oldest.body.get().len();
        }
        fault
    }
}

impl ReceiverFaults {
    fn draw(&self, event_id: Uuid, tries: u64) -> Option<Fault> {
        let (high, low) = event_id.as_u64_pair();
        let drawn = mixed(mixed(mixed(self.seed ^ high) ^ low) ^ tries) % 1_000;
        let mut below = 0;
        for (share, fault) in [
            (self.fail_per_mille, Fault::Fail),
            (self.hang_per_mille, Fault::Hang),
            (self.drop_per_mille, Fault::Drop),
        ] {
            below += u64::from(share);
            if drawn < below {
                return Some(fault);
            }
        }
        None
    }
}

/// One step of SplitMix64: every bit of the input decides about every bit of the output.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
