//! One connection: requests in, answers out, and what faults do to the wire between.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::Provider;
use super::faults::{Fault, InquiryFault};
use super::http::{self, NoRequest, Request, Response};
use super::journal::JournalFailed;
use super::plan::Plan;
use super::record::{BodyHash, as_count, reference};
use super::transfers::{Order, TransferAnswer, true_now_ms};

/// Of an idempotency key.
const KEY_BYTES_MAX: usize = 255;
/// Between two bytes of a slow drip: an answer takes minutes.
const DRIP: Duration = Duration::from_secs(2);
/// The longest that a hanging request is held.
const HOLD_MAX: Duration = Duration::from_mins(10);
/// Of the record, read at a time.
const RECORD_BYTES: u64 = 256 * 1024;
/// What a fault sends instead of HTTP.
const GARBAGE: &[u8] = b"\x00\xff\x13garbage\r\n\r\n{\"code\":\xfe\x00";

/// One client, from its first request to its last.
pub(super) struct Connection {
    provider: Arc<Provider>,
    stream: TcpStream,
    stop: watch::Receiver<bool>,
}

/// What to do with the wire.
enum WireAction {
    Answer(Response),
    AnswerTwice(Response),
    Drip(Response),
    Garbage,
    Hang,
    Reset,
    Record,
}

/// How the connection goes on.
enum AfterAction {
    Next,
    Close,
    /// The socket is to be reset, not closed.
    Reset,
}

impl Connection {
    pub(super) fn new(
        provider: Arc<Provider>,
        stream: TcpStream,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self { provider, stream, stop }
    }

    /// Serve until the client leaves, falls silent or the sandbox stops. An error is a client that left early.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let mut buffer = Vec::new();
        loop {
            let deadline = Instant::now() + self.provider.idle_timeout;
            let next = tokio::select! {
                biased;
                next = http::read_request(&mut self.stream, &mut buffer, deadline) => next,
                _ = self.stop.wait_for(|stop| *stop) => return Ok(()),
            };
            let request = match next {
                Ok(request) => request,
                Err(NoRequest::Gone) => return Ok(()),
                Err(NoRequest::Bad { status, problem }) => {
                    let answer = bad_request(status, problem).encode(false);
                    self.stream.write_all(&answer).await?;
                    http::close_politely(self.stream).await;
                    return Ok(());
                }
            };
            let keep_alive = request.keep_alive && !*self.stop.borrow();
            let act = self.respond(request).await;
            match self.perform(act, keep_alive).await? {
                AfterAction::Next => {}
                // A stop does not wait for clients to take note of it.
                AfterAction::Close if *self.stop.borrow() => return Ok(()),
                AfterAction::Close => {
                    http::close_politely(self.stream).await;
                    return Ok(());
                }
                AfterAction::Reset => return self.stream.set_zero_linger(),
            }
        }
    }

    async fn respond(&mut self, request: Request) -> WireAction {
        let path = request.path.as_str();
        let answer = match (request.method.as_str(), path) {
            ("POST", "/transfers") => return self.transfer(request).await,
            ("GET", "/record") => return WireAction::Record,
            ("GET", "/record/summary") => match self.provider.transfers.summary().await {
                Ok(summary) => json(&summary),
                Err(JournalFailed) => record_failed(),
            },
            ("GET", "/faults") => json(&self.provider.faults.report()),
            ("PUT", "/faults") => match Plan::from_json(&request.body)
                .and_then(|plan| self.provider.faults.replace(plan))
            {
                Ok(()) => json(&self.provider.faults.report()),
                Err(error) => bad_request(400, &error.to_string()),
            },
            ("GET", "/healthz") => match self.provider.transfers.journal.failure() {
                None => Response::json(200, r#"{"status":"ok"}"#),
                Some(_) => record_failed(),
            },
            ("GET", _) if path.starts_with("/transfers/") => return self.inquiry(&request).await,
            (_, "/transfers" | "/record" | "/record/summary" | "/faults" | "/healthz") => {
                Response::code(405, "METHOD_NOT_ALLOWED")
            }
            // Not NOT_FOUND: a mistyped address says nothing about a transfer.
            _ => Response::code(404, "NO_SUCH_PATH"),
        };
        WireAction::Answer(answer)
    }

    async fn transfer(&mut self, request: Request) -> WireAction {
        let order = match order(&request) {
            Ok(order) => order,
            Err(problem) => return WireAction::Answer(bad_request(400, problem)),
        };
        if let Some(secret) = &self.provider.secret {
            let header = request.signature.as_deref().unwrap_or_default();
            // The machine's own clock: tests move only the provider's.
            if !secret.signed(header, &order.key, &request.body, true_now_ms() / 1000) {
                return WireAction::Answer(Response::code(401, "SIGNATURE"));
            }
        }
        let fault = self.provider.faults.for_transfer(&order.key, order.instruction.as_deref());
        match fault {
            Fault::Nothing => WireAction::Answer(self.execute(order, None).await),
            Fault::Delay { ms } => {
                self.pause(Duration::from_millis(ms)).await;
                WireAction::Answer(self.execute(order, None).await)
            }
            Fault::Refuse { code } => WireAction::Answer(self.execute(order, Some(&code)).await),
            Fault::AnswerTwice => WireAction::AnswerTwice(self.execute(order, None).await),
            Fault::ErrorBefore { status } => WireAction::Answer(injected(status)),
            Fault::ErrorAfter { status } => {
                self.execute(order, None).await;
                WireAction::Answer(injected(status))
            }
            Fault::ResetBefore => WireAction::Reset,
            Fault::ResetAfter => {
                self.execute(order, None).await;
                WireAction::Reset
            }
            Fault::Hang { executes } => {
                if executes {
                    self.execute(order, None).await;
                }
                WireAction::Hang
            }
            Fault::Garbage { executes } => {
                if executes {
                    self.execute(order, None).await;
                }
                WireAction::Garbage
            }
            Fault::SlowDrip { executes: true } => WireAction::Drip(self.execute(order, None).await),
            Fault::SlowDrip { executes: false } => WireAction::Drip(injected(503)),
        }
    }

    async fn execute(&self, order: Order, refusal: Option<&str>) -> Response {
        let key = order.key.clone();
        let mut answer = match self.provider.transfers.order(order, refusal).await {
            Ok(TransferAnswer::Executed { number, replayed }) => {
                let (status, reference) = (if replayed { 200 } else { 201 }, reference(number));
                let body =
                    format!(r#"{{"code":"ACSC","reference":"{reference}","replayed":{replayed}}}"#);
                Response::json(status, body)
            }
            Ok(TransferAnswer::Refused { code }) => Response::code(422, &code),
            Ok(TransferAnswer::KeyReused) => Response::code(422, "KEY_REUSED"),
            Err(JournalFailed) => record_failed(),
        };
        answer.about_key = Some(key);
        answer
    }

    async fn inquiry(&mut self, request: &Request) -> WireAction {
        let key = request.path.strip_prefix("/transfers/").and_then(http::percent_decoded);
        let Some(key) = key.filter(|key| is_key(key)) else {
            return WireAction::Answer(bad_request(400, "the path must be /transfers/KEY"));
        };
        let instruction = request.instruction_id.as_deref().and_then(http::percent_decoded);
        match self.provider.faults.for_inquiry(&key, instruction.as_deref()) {
            InquiryFault::Nothing => {}
            InquiryFault::Delay { ms } => self.pause(Duration::from_millis(ms)).await,
            InquiryFault::Error { status } => return WireAction::Answer(injected(status)),
            InquiryFault::Hang => return WireAction::Hang,
            InquiryFault::Garbage => return WireAction::Garbage,
            InquiryFault::Reset => return WireAction::Reset,
        }
        let mut answer = match self.provider.transfers.inquire(&key).await {
            Ok(Some(TransferAnswer::Executed { number, .. })) => {
                let reference = reference(number);
                Response::json(200, format!(r#"{{"code":"ACSC","reference":"{reference}"}}"#))
            }
            Ok(Some(TransferAnswer::Refused { code })) => Response::code(200, &code),
            Ok(Some(TransferAnswer::KeyReused) | None) => Response::code(404, "NOT_FOUND"),
            Err(JournalFailed) => record_failed(),
        };
        answer.about_key = Some(key);
        WireAction::Answer(answer)
    }

    async fn perform(&mut self, act: WireAction, keep_alive: bool) -> io::Result<AfterAction> {
        let next = if keep_alive { AfterAction::Next } else { AfterAction::Close };
        match act {
            WireAction::Answer(answer) => {
                self.stream.write_all(&answer.encode(keep_alive)).await?;
                Ok(next)
            }
            WireAction::AnswerTwice(answer) => {
                let bytes = answer.encode(keep_alive);
                self.stream.write_all(&[bytes.as_slice(), bytes.as_slice()].concat()).await?;
                Ok(next)
            }
            WireAction::Record => {
                self.write_record(keep_alive).await?;
                Ok(next)
            }
            WireAction::Garbage => {
                self.stream.write_all(GARBAGE).await?;
                Ok(AfterAction::Close)
            }
            WireAction::Drip(answer) => {
                for byte in answer.encode(false) {
                    self.stream.write_all(&[byte]).await?;
                    if !self.hold(DRIP).await? {
                        break;
                    }
                }
                Ok(AfterAction::Close)
            }
            WireAction::Hang => {
                self.hold(HOLD_MAX).await?;
                Ok(AfterAction::Close)
            }
            WireAction::Reset => Ok(AfterAction::Reset),
        }
    }

    /// The file up to the last synced line, as it is.
    async fn write_record(&mut self, keep_alive: bool) -> io::Result<()> {
        let transfers = &self.provider.transfers;
        if transfers.journal.on_disk(transfers.journal.last()).await.is_err() {
            return self.stream.write_all(&record_failed().encode(keep_alive)).await;
        }
        let length = transfers.journal.file_bytes();
        let body_bytes = usize::try_from(length).map_err(io::Error::other)?;
        let mut head = http::head(200, "application/x-ndjson", body_bytes, keep_alive);
        head.extend_from_slice(b"\r\n");
        self.stream.write_all(&head).await?;
        let mut offset = 0;
        while offset < length {
            let size = RECORD_BYTES.min(length - offset);
            let provider = Arc::clone(&self.provider);
            let read = tokio::task::spawn_blocking(move || {
                let size = usize::try_from(size).map_err(io::Error::other)?;
                provider.transfers.journal.read_at(offset, size)
            });
            let bytes = read.await.map_err(io::Error::other)??;
            self.stream.write_all(&bytes).await?;
            offset += as_count(bytes.len());
        }
        Ok(())
    }

    /// Let time pass, unless the sandbox stops.
    async fn pause(&mut self, time: Duration) {
        tokio::select! {
            () = sleep(time) => {}
            _ = self.stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Let time pass while the client waits; `false` if it left or the sandbox stops.
    async fn hold(&mut self, time: Duration) -> io::Result<bool> {
        tokio::select! {
            () = sleep(time) => Ok(true),
            gone = http::gone(&mut self.stream) => gone.map(|()| false),
            _ = self.stop.wait_for(|stop| *stop) => Ok(false),
        }
    }
}

/// Read a transfer from a request, or say what is wrong with it, without its contents.
fn order(request: &Request) -> Result<Order, &'static str> {
    let key = request.idempotency_key.clone().filter(|key| is_key(key));
    let key = key.ok_or("Idempotency-Key must be 1 to 255 visible ASCII characters")?;
    let decoded = |header: &Option<String>, problem| match header {
        None => Ok(None),
        Some(text) => http::percent_decoded(text).map(Some).ok_or(problem),
    };
    let sequence = decoded(&request.sequence_id, "Symphony-Sequence-Id must be a number")?;
    Ok(Order {
        instruction: decoded(
            &request.instruction_id,
            "Symphony-Instruction-Id must be percent-encoded UTF-8",
        )?,
        participant: decoded(
            &request.participant_id,
            "Symphony-Participant-Id must be percent-encoded UTF-8",
        )?,
        sequence: sequence
            .map(|text| text.parse().map_err(|_| "Symphony-Sequence-Id must be a number"))
            .transpose()?,
        body_sha256: BodyHash::of(&request.body),
        amount: amount(&request.body)?,
        key,
    })
}

fn is_key(key: &str) -> bool {
    (1..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The amount as text; `None` if the body is an object without a positive decimal text and a currency.
fn amount(body: &[u8]) -> Result<Option<String>, &'static str> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        amount: Amount<'a>,
    }
    #[derive(Deserialize)]
    struct Amount<'a> {
        #[serde(borrow)]
        value: Cow<'a, str>,
        #[serde(borrow)]
        currency: Cow<'a, str>,
    }
    let object = body.trim_ascii_start().starts_with(b"{");
    let Ok(Body { amount }) = serde_json::from_slice(body) else {
        let json = serde_json::from_slice::<IgnoredAny>(body).is_ok();
        return if object && json { Ok(None) } else { Err("the body must be a JSON object") };
    };
    if !object {
        return Err("the body must be a JSON object");
    }
    let Amount { value, currency } = amount;
    let (whole, fraction) = value.split_once('.').unwrap_or((&value, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let positive = value.bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    let proper = digits(whole) && digits(fraction) && positive;
    let known = currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase());
    Ok((proper && known).then(|| format!("{value} {currency}")))
}

fn json<T: serde::Serialize>(value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => Response::json(200, body),
        Err(_) => Response::code(500, "INTERNAL"),
    }
}

fn bad_request(status: u16, problem: &str) -> Response {
    let body = serde_json::json!({ "code": "BAD_REQUEST", "message": problem });
    Response::json(status, body.to_string())
}

/// Without a code: a failing provider does not explain itself.
fn injected(status: u16) -> Response {
    Response::json(status, r#"{"error":"injected"}"#)
}

fn record_failed() -> Response {
    Response::code(500, "RECORD_FAILED")
}
