//! HTTP/1.1 clients that keep their connections. Written by hand: they share the machine with what they measure, and a
//! request is one write and mostly one read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::harness::per_second;
use crate::LabError;

/// No answer by then: the benchmark gives up on a request.
const ANSWER_WITHIN: Duration = Duration::from_mins(1);

/// What clients do.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) address: SocketAddr,
    pub(super) path: &'static str,
    /// As many requests at once.
    pub(super) clients: u32,
    /// Requests that are timed.
    pub(super) requests: u32,
    /// Requests before those.
    pub(super) warm_up: u32,
    /// End early.
    pub(super) stop: Arc<AtomicBool>,
}

/// What clients saw.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Measured {
    /// Requests.
    pub per_second: u64,
    /// Half of the answers came within this.
    pub p50_micros: u64,
    /// 95 of 100.
    pub p95_micros: u64,
    /// 99 of 100.
    pub p99_micros: u64,
    /// All of them.
    pub most_micros: u64,
    /// Answers that were not 200 with the request's own number.
    pub failures: u64,
}

impl Measured {
    /// A rate alone.
    pub(super) fn rate(per_second: u64) -> Self {
        Self {
            per_second,
            p50_micros: 0,
            p95_micros: 0,
            p99_micros: 0,
            most_micros: 0,
            failures: 0,
        }
    }
}

/// One request's number, when it was sent and when its answer came.
type Timed = (u32, Instant, Instant);

impl Load {
    /// Send the requests, from a thread of their own, so that a busy server does not delay the clocks.
    pub(super) async fn send(self) -> Result<Measured, LabError> {
        let sending = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(self.send_here())
        });
        sending.await.map_err(|error| LabError::new(error.to_string()))?
    }

    async fn send_here(self) -> Result<Measured, LabError> {
        let next = Arc::new(AtomicU32::new(0));
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..self.clients {
            clients.spawn(client(self.clone(), next.clone()));
        }
        let (mut timed, mut failures) = (Vec::new(), 0);
        while let Some(ended) = clients.join_next().await {
            let (some, failed) = ended.map_err(|error| LabError::new(error.to_string()))??;
            timed.extend(some);
            failures += failed;
        }
        timed.retain(|(number, _, _)| *number >= self.warm_up);
        Ok(measured(&timed, failures))
    }
}

fn measured(timed: &[Timed], failures: u64) -> Measured {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let mut latencies: Vec<u64> =
        timed.iter().map(|(_, from, to)| micros(to.saturating_duration_since(*from))).collect();
    latencies.sort_unstable();
    let at = |percent: usize| {
        let place = (latencies.len() * percent).div_ceil(100).saturating_sub(1);
        latencies.get(place).copied().unwrap_or(0)
    };
    let first = timed.iter().map(|(_, from, _)| *from).min();
    let last = timed.iter().map(|(_, _, to)| *to).max();
    let took = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
    Measured {
        per_second: per_second(u32::try_from(latencies.len()).unwrap_or(u32::MAX), took),
        p50_micros: at(50),
        p95_micros: at(95),
        p99_micros: at(99),
        most_micros: at(100),
        failures,
    }
}

async fn client(load: Load, next: Arc<AtomicU32>) -> Result<(Vec<Timed>, u64), LabError> {
    let mut stream = TcpStream::connect(load.address).await?;
    stream.set_nodelay(true)?;
    let (mut timed, mut failures) = (Vec::new(), 0);
    let mut buffer = Vec::with_capacity(1_024);
    while !load.stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= load.warm_up.saturating_add(load.requests) {
            break;
        }
        let body = number.to_string();
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            load.path,
            body.len()
        );
        let sent_at = Instant::now();
        stream.write_all(request.as_bytes()).await?;
        let answer = tokio::time::timeout(ANSWER_WITHIN, read(&mut stream, &mut buffer)).await;
        let answered = answer.map_err(|_| LabError::new("a request was not answered"))??;
        timed.push((number, sent_at, Instant::now()));
        failures += u64::from(answered != (200, body));
    }
    Ok((timed, failures))
}

/// Read one answer, all of it: its status and its body.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<(u16, String), LabError> {
    let broken = || LabError::new("an answer was no HTTP with a content-length");
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            return Err(LabError::new("a connection was closed before the answer"));
        }
        let text = std::str::from_utf8(buffer).map_err(|_| broken())?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let (status, length): (u16, usize) = status.zip(length).ok_or_else(broken)?;
        if body.len() >= length {
            return Ok((status, body.to_owned()));
        }
    }
}
