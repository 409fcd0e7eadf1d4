//! From a raw message to what scripts read: bounded whatever it contains, and without a panic.
//!
//! The parser is `mail-parser`, for headers and for one part at a time. It is never shown a whole tree: it keeps a
//! message in a message in a message as nested values without a limit, and dropping 30,000 of them, which fit into
//! one MiB, overflows the stack and ends the process (0.11.9, `parsers/message.rs`; tried). The tree is walked in `parts`, with limits.

mod parts;

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use mail_parser::{Address, DateTime, HeaderName, HeaderValue, Message, MessageParser};
use serde::Serialize;

use self::parts::{Leaf, split_head};
use super::sha256_hex;
pub use crate::bounds::mime::ATTACHMENTS_BYTES_MAX;
use crate::bounds::mime::{
    ADDRESSES_MAX, ALLOWANCE_BYTES, HEAD_BYTES_MAX, HEADER_BYTES_MAX, HEADERS_BYTES_MAX,
    HEADERS_MAX, MESSAGE_BYTES_MAX, SHORT_BYTES_MAX,
};

/// A message as scripts see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParsedMail {
    /// Without its angle brackets.
    pub message_id: Option<String>,
    /// The first of its senders.
    pub from: Option<MailAddress>,
    /// There is no other one.
    #[serde(skip)]
    pub has_one_sender: bool,
    /// For whom, as the head says; the envelope may say otherwise.
    pub to: Vec<MailAddress>,
    /// Who gets a copy.
    pub cc: Vec<MailAddress>,
    /// Decoded.
    pub subject: Option<String>,
    /// RFC 3339; `None` if it has none that can be.
    pub date: Option<String>,
    /// All its plain text that is not attached.
    pub text: Option<String>,
    /// All its HTML that is not attached. Not cleaned: whoever shows it must.
    pub html: Option<String>,
    /// Its headers as they were written, unfolded.
    pub headers: Vec<(String, String)>,
    /// Everything else.
    pub attachments: Vec<Attachment>,
    /// Something was longer or more than the limits allow, and is not here.
    pub truncated: bool,
}

/// Somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MailAddress {
    /// What they are called, if it says.
    pub name: Option<String>,
    /// Where they get mail; empty if it does not say.
    pub address: String,
}

/// A part that is not text to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// A file's name, as the sender gave it: not a path to be trusted.
    pub name: Option<String>,
    /// Such as `image/png`.
    pub content_type: String,
    /// Its size, decoded.
    pub bytes: usize,
    /// Of its decoded contents, in hexadecimal digits.
    pub sha256: String,
    /// Its contents; `None` if all attachments together are larger than [`ATTACHMENTS_BYTES_MAX`].
    pub content_base64: Option<String>,
}

/// Why a message cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not one header.
    #[error("the message has no header: it must begin with lines such as From: and Subject:")]
    NoHeaders,
    /// Its head is longer than any program writes.
    #[error("the message's headers are larger than 256 KiB: send fewer or shorter ones")]
    HeadTooLarge,
    /// Longer than anything that can be stored.
    #[error("the message is larger than 64 MiB: send a smaller one")]
    TooLarge,
    /// The parser gave up on it.
    #[error("the message cannot be parsed: send it as well-formed MIME")]
    Unreadable,
}

/// Read a message. What is malformed is read as well as it can be.
pub fn parse_mail(raw: &[u8]) -> Result<ParsedMail, ParseError> {
    // Foreign code on hostile input: should it ever panic, one message is refused and nothing else happens.
    catch_unwind(AssertUnwindSafe(|| read(raw))).unwrap_or(Err(ParseError::Unreadable))
}

fn read(raw: &[u8]) -> Result<ParsedMail, ParseError> {
    if raw.len() > MESSAGE_BYTES_MAX {
        return Err(ParseError::TooLarge);
    }
    let (head, _body) = split_head(raw);
    if head.len() > HEAD_BYTES_MAX {
        return Err(ParseError::HeadTooLarge);
    }
    let parser = MessageParser::default();
    let message = parser.parse_headers(head).ok_or(ParseError::NoHeaders)?;
    let mut room = Room::new(raw.len().saturating_mul(2).saturating_add(ALLOWANCE_BYTES));
    let mut short = |text: &str| room.take(text, SHORT_BYTES_MAX);

    let message_id = message.message_id().map(&mut short);
    let subject = message.subject().map(&mut short);
    let mut from = addresses(message.from(), &mut short);
    let has_one_sender = from.len() == 1;
    let from = if from.is_empty() { None } else { Some(from.swap_remove(0)) };
    let to = addresses(message.to(), &mut short);
    let cc = addresses(message.cc(), &mut short);
    let date = message.date().and_then(rfc3339);
    let headers = headers(&message, head, &mut room);

    let (leaves, is_complete) = parts::leaves(&parser, raw);
    let (mut text, mut html) = (None, None);
    let mut attached = Vec::new();
    for leaf in leaves {
        match leaf {
            Leaf::Text(part) => append(&mut text, &part, &mut room),
            Leaf::Html(part) => append(&mut html, &part, &mut room),
            Leaf::Attached { name, content_type, content } => {
                attached.push((name, content_type, content));
            }
        }
    }
    let attachments = attachments(attached, &mut room);
    let truncated = room.is_short || !is_complete;
    Ok(ParsedMail {
        message_id,
        from,
        has_one_sender,
        to,
        cc,
        subject,
        date,
        text,
        html,
        headers,
        attachments,
        truncated,
    })
}

fn append(body: &mut Option<String>, part: &str, room: &mut Room) {
    let body = body.get_or_insert_default();
    if !body.is_empty() && !body.ends_with('\n') {
        body.push('\n');
    }
    body.push_str(&room.take(part, usize::MAX));
}

fn addresses(
    found: Option<&Address<'_>>,
    short: &mut impl FnMut(&str) -> String,
) -> Vec<MailAddress> {
    let Some(found) = found else { return Vec::new() };
    found
        .iter()
        .take(ADDRESSES_MAX)
        .map(|one| MailAddress {
            name: one.name().map(&mut *short),
            address: short(one.address().unwrap_or_default()),
        })
        .collect()
}

/// A day that does not exist has no date.
fn rfc3339(date: &DateTime) -> Option<String> {
    let text = date.is_valid().then(|| date.to_rfc3339())?;
    chrono::DateTime::parse_from_rfc3339(&text).is_ok().then_some(text)
}

fn headers(message: &Message<'_>, head: &[u8], room: &mut Room) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    let mut bytes_left = HEADERS_BYTES_MAX;
    let found = message.parts.first().map(|part| part.headers.as_slice()).unwrap_or_default();
    room.is_short |= found.len() > HEADERS_MAX;
    for header in found.iter().take(HEADERS_MAX) {
        let at = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX);
        let value = head.get(at(header.offset_start)..at(header.offset_end)).unwrap_or_default();
        let value = String::from_utf8_lossy(value);
        let unfolded = value.replace(['\r', '\n'], "");
        let name = room.take(header.name.as_str(), HEADER_BYTES_MAX.min(bytes_left));
        bytes_left = bytes_left.saturating_sub(name.len());
        let value = room.take(unfolded.trim(), HEADER_BYTES_MAX.min(bytes_left));
        bytes_left = bytes_left.saturating_sub(value.len());
        headers.push((name, value));
    }
    headers
}

type Attached<'a> = (Option<String>, String, std::borrow::Cow<'a, [u8]>);

fn attachments(attached: Vec<Attached<'_>>, room: &mut Room) -> Vec<Attachment> {
    let bytes: usize = attached.iter().map(|(_, _, content)| content.len()).sum();
    let encoded = bytes.saturating_add(attached.len().saturating_mul(3)) / 3 * 4;
    let has_contents = bytes <= ATTACHMENTS_BYTES_MAX && room.reserve(encoded);
    attached
        .into_iter()
        .map(|(name, content_type, content)| Attachment {
            name: name.map(|name| room.take(&name, 255)),
            content_type: room.take(&content_type, 127),
            bytes: content.len(),
            sha256: sha256_hex(&content),
            content_base64: has_contents.then(|| BASE64_STANDARD.encode(&content)),
        })
        .collect()
}

/// How much may still come out, counted as JSON writes it.
struct Room {
    bytes_left: usize,
    is_short: bool,
}

impl Room {
    fn new(bytes_left: usize) -> Self {
        Self { bytes_left, is_short: false }
    }

    /// As much of a text as there is room for. Control characters are replaced: PostgreSQL stores no NUL in JSON, and
    /// JSON writes the others six times as long.
    fn take(&mut self, text: &str, bytes_max: usize) -> String {
        let mut taken = String::with_capacity(text.len().min(bytes_max).min(self.bytes_left));
        for character in text.chars() {
            let is_control = character.is_control() && !matches!(character, '\t' | '\n' | '\r');
            let character = if is_control { char::REPLACEMENT_CHARACTER } else { character };
            let cost = match character {
                '"' | '\\' | '\t' | '\n' | '\r' => 2,
                other => other.len_utf8(),
            };
            let is_too_long = taken.len().saturating_add(character.len_utf8()) > bytes_max;
            if is_too_long || !self.reserve(cost) {
                self.is_short = true;
                break;
            }
            taken.push(character);
        }
        taken
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                true
            }
            None => false,
        }
    }
}

/// The value of a header that names a type, with its parameters.
fn content_type<'a>(
    message: &'a Message<'_>,
    name: &HeaderName<'_>,
) -> Option<&'a mail_parser::ContentType<'a>> {
    message.parts.first()?.headers.iter().rev().find(|header| header.name == *name).and_then(
        |header| match &header.value {
            HeaderValue::ContentType(found) => Some(found),
            _ => None,
        },
    )
}
