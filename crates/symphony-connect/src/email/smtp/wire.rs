//! Lines that end with CRLF and with nothing else. Who takes a bare LF or CR for a line's end can be made to see
//! two messages where another server saw one (SMTP smuggling), so such a connection is not read any further.

use std::io;

use crate::bounds::smtp::{LINGER, LINGER_BYTES_MAX, READ_BYTES};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

/// A connection, in lines.
pub(super) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// No LF is before this.
    scanned: usize,
    answers: Vec<u8>,
}

/// Why there is no next line.
#[derive(Debug)]
pub(super) enum WireError {
    /// The client left, or the connection broke.
    Closed,
    /// Not in time.
    TimedOut,
    /// An LF without CR, or a CR without LF.
    BareLineEnd,
    /// Longer than allowed.
    LineTooLong,
    /// So much longer than allowed that its end is not waited for.
    MessageTooLarge,
}

impl From<io::Error> for WireError {
    fn from(_error: io::Error) -> Self {
        Self::Closed
    }
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new(), start: 0, scanned: 0, answers: Vec::new() }
    }

    /// The next line without its CRLF. Answers that wait are sent before the client is waited for.
    pub(super) async fn line(
        &mut self,
        bytes_max: usize,
        deadline: Instant,
    ) -> Result<&[u8], WireError> {
        let end = loop {
            if let Some(end) = self.line_end(bytes_max)? {
                break end;
            }
            self.flush(deadline).await?;
            self.fill(deadline).await?;
        };
        let begin = self.start;
        self.start = end.saturating_add(2);
        self.scanned = self.start;
        Ok(self.buffer.get(begin..end).unwrap_or_default())
    }

    /// Where the next line's CRLF is, if all of it has arrived.
    fn line_end(&mut self, bytes_max: usize) -> Result<Option<usize>, WireError> {
        let fresh = self.buffer.get(self.scanned..).unwrap_or_default();
        for (at, byte) in fresh.iter().enumerate() {
            let before = match at.checked_sub(1) {
                Some(before) => fresh.get(before),
                None if self.scanned > self.start => self.buffer.get(self.scanned - 1),
                None => None,
            };
            match (before == Some(&b'\r'), *byte) {
                (true, b'\n') => {
                    let end = self.scanned.saturating_add(at).saturating_sub(1);
                    let is_short = end.saturating_sub(self.start) <= bytes_max;
                    return if is_short { Ok(Some(end)) } else { Err(WireError::LineTooLong) };
                }
                (false, b'\n') | (true, _) => return Err(WireError::BareLineEnd),
                (false, _) => {}
            }
        }
        self.scanned = self.buffer.len();
        // Its CR may be there already.
        if self.scanned.saturating_sub(self.start) > bytes_max.saturating_add(1) {
            return Err(WireError::LineTooLong);
        }
        Ok(None)
    }

    async fn fill(&mut self, deadline: Instant) -> Result<(), WireError> {
        self.buffer.drain(..self.start.min(self.buffer.len()));
        self.scanned = self.scanned.saturating_sub(self.start);
        self.start = 0;
        self.buffer.reserve(READ_BYTES);
        match timeout_at(deadline, self.stream.read_buf(&mut self.buffer)).await {
            Err(_elapsed) => Err(WireError::TimedOut),
            Ok(Ok(0)) => Err(WireError::Closed),
            Ok(read) => Ok(read.map(drop)?),
        }
    }

    /// An answer, sent with the next [`flush`](Self::flush): pipelined commands get theirs together.
    pub(super) fn answer(&mut self, line: &str) {
        self.answers.extend_from_slice(line.as_bytes());
        self.answers.extend_from_slice(b"\r\n");
    }

    pub(super) async fn flush(&mut self, deadline: Instant) -> Result<(), WireError> {
        if self.answers.is_empty() {
            return Ok(());
        }
        let written = timeout_at(deadline, self.stream.write_all(&self.answers)).await;
        self.answers.clear();
        written.map_err(|_elapsed| WireError::TimedOut)?.map_err(WireError::from)
    }

    /// Say the last words, and wait a little for the client to read them: closing at once on a client that still
    /// talks would destroy them on their way.
    pub(super) async fn close(mut self, deadline: Instant) {
        if self.flush(deadline).await.is_err() || self.stream.shutdown().await.is_err() {
            return;
        }
        let drained = async {
            let mut sink = vec![0_u8; READ_BYTES];
            let mut bytes = 0_usize;
            while let Ok(read) = self.stream.read(&mut sink).await {
                bytes = bytes.saturating_add(read);
                if read == 0 || bytes > LINGER_BYTES_MAX {
                    break;
                }
            }
        };
        let _gone_or_not = timeout(LINGER, drained).await;
    }
}
