//! One connection, from the greeting to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, timeout};

use super::commands::{self, Command};
use super::wire::{Wire, WireError};
use super::{DeliveryError, InboundMail, Shared};
use crate::bounds::smtp::{COMMAND_BYTES_MAX, HOPS_MAX, OVERSIZE_FACTOR, ROOM_STEP_BYTES};

const CLOSING: &str = "421 4.3.2 closing down, come again later";
const TOO_LARGE: &str = "552 5.3.4 the message is too large";
const TRY_LATER: &str = "451 4.3.0 not possible now, come again later";
const NO_ROOM: &str = "452 4.3.1 too many messages at once, come again later";

struct Session {
    shared: Arc<Shared>,
    peer: SocketAddr,
    helo: Option<String>,
    envelope: Option<Envelope>,
    errors: u32,
}

#[derive(Default)]
struct Envelope {
    from: Option<String>,
    is_utf8: bool,
    recipients: Vec<String>,
}

/// What happens after a command.
enum Next {
    Answer(String),
    /// The same, and it counts as a mistake.
    Refuse(&'static str),
    ReadMessage,
    Close(&'static str),
}

/// A message that was read.
enum Message {
    /// With the room it takes, until it is kept.
    Whole(Vec<u8>, Room),
    TooLarge,
    /// Too many others are being read or kept.
    NoRoom,
}

/// What one message takes of the budget that all share. It grows with the message, so that a client that says little
/// keeps nobody waiting.
#[derive(Default)]
struct Room {
    steps: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Room {
    /// Room for so many bytes in all; whether it was found in time.
    async fn grow(&mut self, shared: &Shared, bytes: usize) -> bool {
        while self.bytes < bytes {
            let limit = Duration::from_millis(shared.settings.room_timeout_ms);
            let step = timeout(limit, Arc::clone(&shared.room).acquire_owned()).await;
            let Ok(Ok(step)) = step else { return false };
            match &mut self.steps {
                None => self.steps = Some(step),
                Some(steps) => steps.merge(step),
            }
            self.bytes = self.bytes.saturating_add(ROOM_STEP_BYTES);
        }
        true
    }
}

/// Talk to a client until one of both has had enough.
pub(super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    shared: Arc<Shared>,
    mut stop: watch::Receiver<bool>,
) {
    // Answers are short, and clients wait for each: nothing is gained by collecting them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let idle = Duration::from_millis(shared.settings.idle_timeout_ms);
    let mut wire = Wire::new(stream);
    wire.answer(&format!("220 {} ESMTP Symphony", shared.settings.hostname));
    let mut session = Session { shared, peer, helo: None, envelope: None, errors: 0 };
    let last_words = session.talk(&mut wire, &mut stop, idle).await;
    if let Some(last_words) = last_words {
        wire.answer(last_words);
    }
    wire.close(Instant::now() + idle).await;
}

impl Session {
    /// Until the end, and what is said then.
    async fn talk(
        &mut self,
        wire: &mut Wire,
        stop: &mut watch::Receiver<bool>,
        idle: Duration,
    ) -> Option<&'static str> {
        let mut commands = 0_u32;
        let session = Duration::from_millis(self.shared.settings.session_timeout_ms);
        let session_end = Instant::now() + session;
        loop {
            let until = session_end.min(Instant::now() + idle);
            let line = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return Some(CLOSING),
                line = wire.line(COMMAND_BYTES_MAX, until) => line,
            };
            let parsed = match line {
                Ok(line) => {
                    let is_utf8 = self.envelope.as_ref().is_some_and(|envelope| envelope.is_utf8);
                    commands::parse(line, is_utf8)
                }
                Err(error) => return last_words(&error),
            };
            commands = commands.saturating_add(1);
            if commands > self.shared.settings.commands_max {
                return Some("421 4.7.0 too many commands, connect again");
            }
            let next = match parsed {
                Ok(command) => self.follow(command).await,
                Err(refusal) => Next::Refuse(refusal),
            };
            let answer = match next {
                Next::Answer(answer) => answer,
                Next::Refuse(refusal) => {
                    if let Some(last_words) = self.count_error() {
                        wire.answer(refusal);
                        return Some(last_words);
                    }
                    refusal.to_owned()
                }
                Next::Close(last_words) => return Some(last_words),
                Next::ReadMessage => {
                    wire.answer("354 end with <CRLF>.<CRLF>");
                    match self.read_message(wire).await {
                        Ok(message) => self.deliver(message).await.to_owned(),
                        Err(error) => return last_words(&error),
                    }
                }
            };
            wire.answer(&answer);
        }
    }

    fn count_error(&mut self) -> Option<&'static str> {
        self.errors = self.errors.saturating_add(1);
        (self.errors >= self.shared.settings.errors_max).then_some("421 4.7.0 too many errors")
    }

    async fn follow(&mut self, command: Command) -> Next {
        match command {
            Command::Hello { name, is_extended } => {
                self.helo = Some(name);
                self.envelope = None;
                let hostname = &self.shared.settings.hostname;
                Next::Answer(if is_extended {
                    let bytes_max = self.shared.settings.message_bytes_max;
                    format!(
                        "250-{hostname}\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SIZE {bytes_max}\r\n\
                         250-SMTPUTF8\r\n250 ENHANCEDSTATUSCODES"
                    )
                } else {
                    format!("250 {hostname}")
                })
            }
            Command::Mail { from, size, is_utf8 } => self.mail(from, size, is_utf8),
            Command::Recipient { path } => self.recipient(path).await,
            Command::Data => match &self.envelope {
                None => Next::Refuse("503 5.5.1 MAIL first"),
                Some(envelope) if envelope.recipients.is_empty() => {
                    Next::Refuse("554 5.5.1 no valid recipients")
                }
                Some(_) => Next::ReadMessage,
            },
            Command::Reset => {
                self.envelope = None;
                Next::Answer("250 2.0.0 forgotten".to_owned())
            }
            Command::Nothing => Next::Answer("250 2.0.0 fine".to_owned()),
            Command::Verify => Next::Answer("252 2.5.2 send it and see".to_owned()),
            Command::Help => Next::Answer("214 2.0.0 see RFC 5321".to_owned()),
            Command::Quit => Next::Close("221 2.0.0 goodbye"),
            Command::NotOffered => Next::Refuse("502 5.5.1 not offered"),
            Command::Foreign => Next::Close("521 5.5.1 this is SMTP"),
        }
    }

    fn mail(&mut self, from: Option<String>, size: Option<u64>, is_utf8: bool) -> Next {
        if self.helo.is_none() {
            return Next::Refuse("503 5.5.1 EHLO first");
        }
        if self.envelope.is_some() {
            return Next::Refuse("503 5.5.1 one MAIL at a time");
        }
        if size.is_some_and(|size| size > self.shared.settings.message_bytes_max as u64) {
            return Next::Refuse(TOO_LARGE);
        }
        self.envelope = Some(Envelope { from, is_utf8, recipients: Vec::new() });
        Next::Answer("250 2.1.0 sender noted".to_owned())
    }

    async fn recipient(&mut self, path: String) -> Next {
        let Some(envelope) = &mut self.envelope else {
            return Next::Refuse("503 5.5.1 MAIL first");
        };
        let noted = || Next::Answer("250 2.1.5 recipient noted".to_owned());
        if envelope.recipients.contains(&path) {
            return noted();
        }
        if envelope.recipients.len() >= self.shared.settings.recipients_max {
            // Not a mistake: the client sends to the rest with another message (RFC 5321, section 4.5.3.1.10).
            return Next::Answer("452 4.5.3 too many recipients".to_owned());
        }
        let limit = Duration::from_millis(self.shared.settings.deliver_timeout_ms);
        match timeout(limit, self.shared.mailbox.knows(&path)).await {
            Ok(Ok(true)) => {
                envelope.recipients.push(path);
                noted()
            }
            Ok(Ok(false)) => Next::Refuse("550 5.1.1 no such recipient here"),
            Ok(Err(_)) | Err(_) => Next::Answer(TRY_LATER.to_owned()),
        }
    }

    /// Up to the line that is one dot. Dots that SMTP added are taken off again.
    async fn read_message(&mut self, wire: &mut Wire) -> Result<Message, WireError> {
        let settings = &self.shared.settings;
        let deadline = Instant::now() + Duration::from_millis(settings.message_timeout_ms);
        let mut raw = Vec::new();
        let mut bytes = 0_usize;
        // Nothing, once there was no room for more of it.
        let mut room = Some(Room::default());
        loop {
            let line = wire.line(settings.message_line_bytes_max, deadline).await?;
            if line == b"." {
                return Ok(match room {
                    _ if bytes > settings.message_bytes_max => Message::TooLarge,
                    Some(room) => Message::Whole(raw, room),
                    None => Message::NoRoom,
                });
            }
            let line = line.strip_prefix(b".").unwrap_or(line);
            bytes = bytes.saturating_add(line.len()).saturating_add(2);
            if let Some(taken) = &mut room
                && (bytes > settings.message_bytes_max || !taken.grow(&self.shared, bytes).await)
            {
                room = None;
            }
            if room.is_some() {
                raw.extend_from_slice(line);
                raw.extend_from_slice(b"\r\n");
            } else {
                raw = Vec::new();
                if bytes > settings.message_bytes_max.saturating_mul(OVERSIZE_FACTOR) {
                    return Err(WireError::MessageTooLarge);
                }
            }
        }
    }

    /// 250 only after it is kept.
    async fn deliver(&mut self, message: Message) -> &'static str {
        let Some(envelope) = self.envelope.take() else { return TRY_LATER };
        let (raw, _room) = match message {
            Message::Whole(raw, room) => (raw, room),
            Message::TooLarge => return TOO_LARGE,
            Message::NoRoom => return NO_ROOM,
        };
        if hops(&raw) > HOPS_MAX {
            return "554 5.4.6 the message goes round in circles";
        }
        let mail = InboundMail {
            from: envelope.from,
            recipients: envelope.recipients,
            raw,
            helo: self.helo.clone().unwrap_or_default(),
            peer: self.peer,
        };
        let limit = Duration::from_millis(self.shared.settings.deliver_timeout_ms);
        match timeout(limit, self.shared.mailbox.deliver(mail)).await {
            Ok(Ok(())) => "250 2.0.0 kept",
            Ok(Err(DeliveryError::Temporary(_))) | Err(_) => TRY_LATER,
            Ok(Err(DeliveryError::Recipient(_))) => "550 5.7.1 the recipient does not take it",
            Ok(Err(DeliveryError::Message(_))) => "554 5.6.0 the message is not acceptable",
        }
    }
}

/// How many servers wrote themselves into the head.
fn hops(raw: &[u8]) -> usize {
    raw.split(|byte| *byte == b'\n')
        .take_while(|line| !line.trim_ascii().is_empty())
        .filter(|line| line.get(..9).is_some_and(|name| name.eq_ignore_ascii_case(b"received:")))
        .count()
}

fn last_words(error: &WireError) -> Option<&'static str> {
    match error {
        WireError::Closed => None,
        WireError::TimedOut => Some("421 4.4.2 too slow, goodbye"),
        WireError::BareLineEnd => Some("521 5.5.2 lines end with CRLF, and nothing else does"),
        WireError::LineTooLong => Some("500 5.5.6 line too long"),
        WireError::MessageTooLarge => Some(TOO_LARGE),
    }
}
