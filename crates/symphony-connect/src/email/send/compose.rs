//! The message, from fields that cannot break out of their place.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, Utc};

use super::{OutboundMail, RECIPIENTS_MAX};
use crate::email::sha256_hex;

const SUBJECT_BYTES_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 200;
const ADDRESS_BYTES_MAX: usize = 254;
const MESSAGE_ID_BYTES_MAX: usize = 200;
/// Of a line of quoted-printable text, and of one with encoded words (RFC 2045 and 2047).
const LINE_BYTES_MAX: usize = 76;
/// Of a header's value that is written as it is: `Subject: ` stands before it.
const VALUE_BYTES_MAX: usize = 66;
/// Of an encoded word, before it is encoded: 39 bytes become 52, `=?UTF-8?B?` and `?=` are 12, `Subject: ` is 9.
const WORD_BYTES_MAX: usize = 39;

/// What the relay is given.
pub(super) struct Letter {
    pub(super) from: String,
    pub(super) recipients: Vec<String>,
    pub(super) needs_utf8: bool,
    /// Lines that end with CRLF, the last one too.
    pub(super) body: String,
}

/// Why a message cannot be written. Never repeats it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub(super) struct Problem {
    pub(super) field: &'static str,
    pub(super) problem: &'static str,
}

struct Party {
    name: String,
    address: String,
}

pub(super) fn compose(
    mail: &OutboundMail,
    hello: &str,
    now: DateTime<Utc>,
    bytes_max: usize,
) -> Result<Letter, Problem> {
    let refuse = |field, problem| Err(Problem { field, problem });
    if mail.to.is_empty() || mail.to.len() > RECIPIENTS_MAX {
        return refuse("to", "must have 1 to 50 addresses");
    }
    if mail.text.len().saturating_add(mail.html.as_ref().map_or(0, String::len)) > bytes_max {
        return refuse("text", "and html are too large together: see message_bytes_max");
    }
    let from = party("from", &mail.from)?;
    let to = mail.to.iter().map(|one| party("to", one)).collect::<Result<Vec<_>, _>>()?;
    let subject = one_line("subject", &mail.subject, SUBJECT_BYTES_MAX)?;
    let id = one_line("messageId", &mail.message_id, MESSAGE_ID_BYTES_MAX)?;
    if id.is_empty() {
        return refuse("messageId", "is missing: give what identifies the message");
    }
    let digest = sha256_hex(id.as_bytes());

    let mut body = String::new();
    let mut header = |name: &str, value: &str| body.push_str(&format!("{name}: {value}\r\n"));
    header("From", &written(&from));
    header("To", &to.iter().map(written).collect::<Vec<_>>().join(",\r\n "));
    header("Subject", &unstructured(subject));
    header("Date", &now.format("%a, %d %b %Y %H:%M:%S +0000").to_string());
    header("Message-ID", &message_id(id, &digest, &from.address, hello));
    // So that no out-of-office note answers a program (RFC 3834).
    header("Auto-Submitted", "auto-generated");
    header("MIME-Version", "1.0");
    match &mail.html {
        None => body.push_str(&part("plain", &mail.text)),
        Some(html) => {
            // `=_` cannot stand in quoted-printable text, so no text can contain the boundary.
            let boundary = format!("=_{}", digest.get(..32).unwrap_or_default());
            header("Content-Type", &format!("multipart/alternative;\r\n boundary=\"{boundary}\""));
            body.push_str(&format!("\r\n--{boundary}\r\n{}", part("plain", &mail.text)));
            body.push_str(&format!("--{boundary}\r\n{}", part("html", html)));
            body.push_str(&format!("--{boundary}--\r\n"));
        }
    }
    if body.len() > bytes_max {
        return refuse("text", "and html are too large together: see message_bytes_max");
    }
    let mut recipients: Vec<String> = Vec::new();
    for party in to {
        if !recipients.contains(&party.address) {
            recipients.push(party.address);
        }
    }
    let needs_utf8 = !from.address.is_ascii() || recipients.iter().any(|to| !to.is_ascii());
    Ok(Letter { from: from.address, recipients, needs_utf8, body })
}

fn one_line<'a>(field: &'static str, text: &'a str, bytes_max: usize) -> Result<&'a str, Problem> {
    // NEL and the two separators too: some programs break lines at them.
    if text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err(Problem { field, problem: "must be one line without control characters" });
    }
    if text.len() > bytes_max {
        return Err(Problem { field, problem: "is too long" });
    }
    Ok(text.trim())
}

/// `ann@example.com` or `Ann <ann@example.com>`.
fn party(field: &'static str, text: &str) -> Result<Party, Problem> {
    let text = one_line(field, text, NAME_BYTES_MAX + ADDRESS_BYTES_MAX + 3)?;
    let (name, address) = match text.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((name, address)) => (name.trim(), address),
        None => ("", text),
    };
    let bare = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(name);
    let problem = "must be an address such as ann@example.com or Ann <ann@example.com>";
    let refused = Problem { field, problem };
    let Some((local, domain)) = address.rsplit_once('@') else { return Err(refused) };
    // Nothing that would end the address, or begin a parameter, in `MAIL FROM:<…>` or in a header.
    let is_atom =
        |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b) || !b.is_ascii();
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || !b.is_ascii();
    let is_good = address.len() <= ADDRESS_BYTES_MAX
        && local.len() <= 64
        && !address.contains(char::is_whitespace)
        && local.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom))
        && domain.split('.').all(|label| !label.is_empty() && label.bytes().all(is_letter));
    if is_good {
        Ok(Party { name: bare.to_owned(), address: address.to_owned() })
    } else {
        Err(refused)
    }
}

/// A name in a header: quoted, or in encoded words.
fn written(party: &Party) -> String {
    let Party { name, address } = party;
    if name.is_empty() {
        return format!("<{address}>");
    }
    if name.is_ascii() && name.len() <= VALUE_BYTES_MAX && !name.contains("=?") {
        let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
        return format!("\"{escaped}\"\r\n <{address}>");
    }
    format!("{}\r\n <{address}>", encoded_words(name))
}

fn unstructured(text: &str) -> String {
    if text.is_ascii() && text.len() <= VALUE_BYTES_MAX && !text.contains("=?") {
        text.to_owned()
    } else {
        encoded_words(text)
    }
}

/// RFC 2047: words of whole characters, one a line.
fn encoded_words(text: &str) -> String {
    let mut words = Vec::new();
    let mut word = String::new();
    for character in text.chars() {
        if word.len().saturating_add(character.len_utf8()) > WORD_BYTES_MAX {
            words.push(std::mem::take(&mut word));
        }
        word.push(character);
    }
    words.push(word);
    let encoded = words.iter().map(|word| format!("=?UTF-8?B?{}?=", BASE64_STANDARD.encode(word)));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

/// The same for the same id: who got the message twice can tell.
fn message_id(id: &str, digest: &str, from: &str, hello: &str) -> String {
    let domain = from.rsplit_once('@').map(|(_, domain)| domain).filter(|d| d.is_ascii());
    let is_plain =
        id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    format!("<{}@{}>", if is_plain { id } else { digest }, domain.unwrap_or(hello))
}

fn part(kind: &str, text: &str) -> String {
    format!(
        "Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n{}",
        quoted_printable(text)
    )
}

/// RFC 2045, section 6.7: lines of at most 76 characters, all of them ASCII, each ended by CRLF.
fn quoted_printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len().saturating_add(text.len() / 8));
    let unified = text.replace("\r\n", "\n").replace('\r', "\n");
    let unified = unified.strip_suffix('\n').unwrap_or(&unified);
    for line in unified.split('\n') {
        let mut column = 0_usize;
        let mut bytes = line.bytes().peekable();
        while let Some(byte) = bytes.next() {
            let is_last = bytes.peek().is_none();
            let is_literal = match byte {
                b'=' => false,
                // A dot alone on its line would end the message for a server that reads it carelessly.
                b'.' => column > 0,
                b' ' | b'\t' => !is_last,
                other => other.is_ascii_graphic(),
            };
            let width = if is_literal { 1 } else { 3 };
            // One column is kept for the `=` that breaks the line.
            if column.saturating_add(width) >= LINE_BYTES_MAX {
                out.push_str("=\r\n");
                column = 0;
            }
            if is_literal && !(byte == b'.' && column == 0) {
                out.push(char::from(byte));
                column = column.saturating_add(1);
            } else {
                out.push_str(&format!("={byte:02X}"));
                column = column.saturating_add(3);
            }
        }
        out.push_str("\r\n");
    }
    out
}
