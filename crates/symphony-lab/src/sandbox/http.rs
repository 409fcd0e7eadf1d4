//! As much of HTTP/1.1 as a provider needs, on raw sockets, because faults need the bytes.

use std::borrow::Cow;
use std::io;

use httparse::Status;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant, timeout_at};

/// Request line and headers together.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Headers of one request.
const HEADERS_MAX: usize = 64;
/// A body; Symphony's limit on a payload is half of it.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Read at a time.
const READ_BYTES: usize = 4 * 1024;
/// How long a refused sender may go on before the connection is cut.
const POLITE: Duration = Duration::from_secs(2);

/// A whole request.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) body: Vec<u8>,
    /// The client can and wants to use the connection again.
    pub(super) keep_alive: bool,
    pub(super) idempotency_key: Option<String>,
    pub(super) instruction_id: Option<String>,
    pub(super) participant_id: Option<String>,
    pub(super) sequence_id: Option<String>,
    pub(super) signature: Option<String>,
}

/// Why there is no request.
#[derive(Debug)]
pub(super) enum NoRequest {
    /// The client left, or fell silent.
    Gone,
    /// It is no request that can be served: answer and close.
    Bad { status: u16, problem: &'static str },
}

/// An answer.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    /// Which transfer it is about, so that a client can tell an answer that is not its own.
    pub(super) about_key: Option<String>,
}

struct Head {
    request: Request,
    bytes: usize,
    body_bytes: usize,
    expects_continue: bool,
}

/// Read the next request; `buffer` keeps what came too early.
pub(super) async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    deadline: Instant,
) -> Result<Request, NoRequest> {
    let mut head = loop {
        if let Some(head) = parse_head(buffer)? {
            break head;
        }
        if buffer.len() >= HEAD_BYTES_MAX {
            return Err(NoRequest::Bad { status: 431, problem: "the headers are too long" });
        }
        read_more(stream, buffer, READ_BYTES, deadline).await?;
    };
    let end = head.bytes + head.body_bytes;
    if head.expects_continue && buffer.len() < end {
        let go_on = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await;
        go_on.map_err(|_gone| NoRequest::Gone)?;
    }
    while buffer.len() < end {
        let missing = end - buffer.len();
        read_more(stream, buffer, missing.max(READ_BYTES), deadline).await?;
    }
    head.request.body = buffer.get(head.bytes..end).unwrap_or_default().to_vec();
    buffer.drain(..end);
    Ok(head.request)
}

impl Response {
    /// A JSON answer.
    pub(super) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into(), about_key: None }
    }

    /// An answer that is only a code.
    pub(super) fn code(status: u16, code: &str) -> Self {
        Self::json(status, format!(r#"{{"code":"{code}"}}"#))
    }

    /// Its bytes.
    pub(super) fn encode(&self, keep_alive: bool) -> Vec<u8> {
        let length = self.body.len();
        let mut bytes = head(self.status, "application/json", length, keep_alive);
        // Each key was checked to be visible ASCII.
        if let Some(key) = &self.about_key {
            bytes.extend_from_slice(b"Idempotency-Key: ");
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// The head of an answer without the empty line that ends it.
pub(super) fn head(status: u16, content_type: &str, length: usize, keep_alive: bool) -> Vec<u8> {
    let mut text = String::with_capacity(256 + length);
    text.push_str("HTTP/1.1 ");
    text.push_str(&status.to_string());
    text.push(' ');
    text.push_str(reason(status));
    text.push_str("\r\nContent-Type: ");
    text.push_str(content_type);
    text.push_str("\r\nContent-Length: ");
    text.push_str(&length.to_string());
    text.push_str(if keep_alive { "\r\n" } else { "\r\nConnection: close\r\n" });
    text.into_bytes()
}

/// Close so that the last answer arrives: closing with unread bytes would reset the connection and take the answer
/// along.
pub(super) async fn close_politely(mut stream: TcpStream) {
    let deadline = Instant::now() + POLITE;
    if stream.shutdown().await.is_ok() {
        let mut rest = vec![0; READ_BYTES];
        while let Ok(Ok(1..)) = timeout_at(deadline, stream.read(&mut rest)).await {}
    }
}

async fn read_more(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    room: usize,
    deadline: Instant,
) -> Result<(), NoRequest> {
    buffer.reserve(room);
    match timeout_at(deadline, stream.read_buf(buffer)).await {
        Ok(Ok(1..)) => Ok(()),
        Ok(Ok(0) | Err(_)) | Err(_) => Err(NoRequest::Gone),
    }
}

fn parse_head(buffer: &[u8]) -> Result<Option<Head>, NoRequest> {
    let bad = |problem| NoRequest::Bad { status: 400, problem };
    if buffer.is_empty() {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let head_bytes = match parsed.parse(buffer) {
        Ok(Status::Complete(bytes)) if bytes <= HEAD_BYTES_MAX => bytes,
        Ok(Status::Complete(_)) => {
            return Err(NoRequest::Bad { status: 431, problem: "the headers are too long" });
        }
        Ok(Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(NoRequest::Bad { status: 431, problem: "there are too many headers" });
        }
        Err(_) => return Err(bad("this is no HTTP request")),
    };

    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: parsed.path.unwrap_or_default().to_owned(),
        keep_alive: parsed.version == Some(1),
        ..Request::default()
    };
    let mut length: Option<usize> = None;
    let mut expects_continue = false;
    for header in &*parsed.headers {
        let name = header.name;
        let Ok(value) = std::str::from_utf8(header.value) else {
            return Err(bad("a header is no UTF-8"));
        };
        let place = if name.eq_ignore_ascii_case("Content-Length") {
            // Digits only: a length that two readers may read differently is how requests are smuggled.
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            match value.parse() {
                Ok(bytes) if digits && length.is_none() => length = Some(bytes),
                _ => return Err(bad("Content-Length must be one number")),
            }
            continue;
        } else if name.eq_ignore_ascii_case("Connection") {
            if value.split(',').any(|option| option.trim().eq_ignore_ascii_case("close")) {
                request.keep_alive = false;
            }
            continue;
        } else if name.eq_ignore_ascii_case("Transfer-Encoding") {
            return Err(NoRequest::Bad { status: 411, problem: "send a Content-Length" });
        } else if name.eq_ignore_ascii_case("Expect") {
            expects_continue = value.eq_ignore_ascii_case("100-continue");
            continue;
        } else if name.eq_ignore_ascii_case("Idempotency-Key") {
            &mut request.idempotency_key
        } else if name.eq_ignore_ascii_case("Symphony-Instruction-Id") {
            &mut request.instruction_id
        } else if name.eq_ignore_ascii_case("Symphony-Participant-Id") {
            &mut request.participant_id
        } else if name.eq_ignore_ascii_case("Symphony-Sequence-Id") {
            &mut request.sequence_id
        } else if name.eq_ignore_ascii_case("Symphony-Signature") {
            &mut request.signature
        } else {
            continue;
        };
        if place.replace(value.to_owned()).is_some() {
            return Err(bad("a header of ours came twice"));
        }
    }
    let body_bytes = length.unwrap_or(0);
    if body_bytes > BODY_BYTES_MAX {
        return Err(NoRequest::Bad { status: 413, problem: "the body is over 2 MiB" });
    }
    Ok(Some(Head { request, bytes: head_bytes, body_bytes, expects_continue }))
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Status",
    }
}

/// Undo percent-encoding; `None` if a percent sign begins none, or if it is no UTF-8.
pub(super) fn percent_decoded(text: &str) -> Option<String> {
    let digits = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count();
    // The decoder leaves such a sign as it is; a record must not hold what nobody wrote.
    if text.split('%').skip(1).any(|rest| digits(rest) < 2) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// Whether the client has gone; waits until it has.
pub(super) async fn gone(stream: &mut TcpStream) -> io::Result<()> {
    let mut ignored = [0; 512];
    while stream.read(&mut ignored).await? > 0 {}
    Ok(())
}
