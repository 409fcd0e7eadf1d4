//! The message, from fields that cannot break out of their place.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, Utc};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use symphony::FieldError;

use super::{MailAttachment, OutboundMail, RECIPIENTS_MAX};
use crate::bounds::mail::{
    ADDRESS_BYTES_MAX, ATTACHMENT_NAME_CHARACTERS_MAX, ATTACHMENTS_MAX, LINE_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX, NAME_BYTES_MAX, SUBJECT_BYTES_MAX, VALUE_BYTES_MAX, WORD_BYTES_MAX,
};
use crate::email::sha256_hex;

/// What the relay is given.
pub(super) struct ComposedMail {
    pub(super) from: String,
    pub(super) recipients: Vec<String>,
    pub(super) needs_utf8: bool,
    /// Lines that end with CRLF, the last one too.
    pub(super) body: String,
}

struct NamedAddress {
    name: String,
    address: String,
}

pub(super) fn compose(
    mail: &OutboundMail,
    hello: &str,
    now: DateTime<Utc>,
    bytes_max: usize,
) -> Result<ComposedMail, FieldError> {
    let refuse = |field: &str, problem: &str| Err(FieldError::new(field, problem));
    let recipients = mail.to.len().saturating_add(mail.cc.len()).saturating_add(mail.bcc.len());
    if mail.to.is_empty() || recipients > RECIPIENTS_MAX {
        return refuse("to", "must have 1 to 50 addresses, with those of cc and bcc");
    }
    let too_large = "is too large together with html and attachments: see message_bytes_max";
    let attached: usize = mail.attachments.iter().map(|one| one.content_base64.len()).sum();
    let text_bytes = mail.text.len().saturating_add(mail.html.as_ref().map_or(0, String::len));
    if text_bytes.saturating_add(attached) > bytes_max {
        return refuse("text", too_large);
    }
    if mail.attachments.len() > ATTACHMENTS_MAX {
        return refuse("attachments", "must be at most 10");
    }
    let from = named_address("from", &mail.from)?;
    let all = |field: &str, list: &[String]| -> Result<Vec<NamedAddress>, FieldError> {
        list.iter().map(|one| named_address(field, one)).collect()
    };
    let (to, cc, bcc) = (all("to", &mail.to)?, all("cc", &mail.cc)?, all("bcc", &mail.bcc)?);
    let reply_to = mail.reply_to.as_ref().map(|one| named_address("replyTo", one)).transpose()?;
    let subject = one_line("subject", &mail.subject, SUBJECT_BYTES_MAX)?;
    let id = one_line("messageId", &mail.message_id, MESSAGE_ID_BYTES_MAX)?;
    if id.is_empty() {
        return refuse("messageId", "is missing: give what identifies the message");
    }
    let digest = sha256_hex(id.as_bytes());

    let mut body = String::new();
    let mut header = |name: &str, value: &str| body.push_str(&format!("{name}: {value}\r\n"));
    header("From", &address_header(&from));
    header("To", &address_list(&to));
    if !cc.is_empty() {
        header("Cc", &address_list(&cc));
    }
    if let Some(reply_to) = &reply_to {
        header("Reply-To", &address_header(reply_to));
    }
    header("Subject", &unstructured(subject));
    header("Date", &now.format("%a, %d %b %Y %H:%M:%S +0000").to_string());
    header("Message-ID", &message_id(id, &digest, &from.address, hello));
    // So that no out-of-office note answers a program (RFC 3834).
    header("Auto-Submitted", "auto-generated");
    header("MIME-Version", "1.0");
    // `=_` cannot stand in quoted-printable text or in base64, so no part can contain a boundary.
    let boundary = digest.get(..32).unwrap_or_default();
    let texts = texts(mail, &format!("=_{boundary}"));
    if mail.attachments.is_empty() {
        body.push_str(&texts);
    } else {
        let boundary = format!("=_mixed_{boundary}");
        body.push_str(&multipart("mixed", &boundary));
        body.push_str(&format!("--{boundary}\r\n{texts}"));
        for (place, attachment) in mail.attachments.iter().enumerate() {
            body.push_str(&format!("--{boundary}\r\n{}", attached_part(place, attachment)?));
        }
        body.push_str(&format!("--{boundary}--\r\n"));
    }
    if body.len() > bytes_max {
        return refuse("text", too_large);
    }
    let mut recipients: Vec<String> = Vec::new();
    for NamedAddress { address, .. } in to.into_iter().chain(cc).chain(bcc) {
        if !recipients.contains(&address) {
            recipients.push(address);
        }
    }
    let needs_utf8 = !from.address.is_ascii() || recipients.iter().any(|to| !to.is_ascii());
    Ok(ComposedMail { from: from.address, recipients, needs_utf8, body })
}

fn address_list(all: &[NamedAddress]) -> String {
    all.iter().map(address_header).collect::<Vec<_>>().join(",\r\n ")
}

fn multipart(kind: &str, boundary: &str) -> String {
    format!("Content-Type: multipart/{kind};\r\n boundary=\"{boundary}\"\r\n\r\n")
}

/// The text, and the same as HTML if there is one.
fn texts(mail: &OutboundMail, boundary: &str) -> String {
    let plain = part("plain", &mail.text);
    match &mail.html {
        None => plain,
        Some(html) => format!(
            "{}--{boundary}\r\n{plain}--{boundary}\r\n{}--{boundary}--\r\n",
            multipart("alternative", boundary),
            part("html", html),
        ),
    }
}

fn attached_part(place: usize, attachment: &MailAttachment) -> Result<String, FieldError> {
    let at = |field: &str| format!("attachments[{place}].{field}");
    let name = one_line(&at("name"), &attachment.name, ATTACHMENT_NAME_CHARACTERS_MAX * 4)?;
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\\') || c == ' ';
    // RFC 2231 where a quoted text does not do.
    let file_name = if name.len() <= VALUE_BYTES_MAX - 10 && name.chars().all(is_plain) {
        format!("filename=\"{name}\"")
    } else {
        format!("filename*=UTF-8''{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
    };
    let kind = attachment.content_type.as_deref().unwrap_or("application/octet-stream");
    let is_kind = |b: u8| b.is_ascii_alphanumeric() || b"!#$&^_.+-/".contains(&b);
    if !kind.contains('/') || kind.len() > 100 || !kind.bytes().all(is_kind) {
        return Err(FieldError::new(at("contentType"), "must be a type such as application/pdf"));
    }
    let bytes = BASE64_STANDARD
        .decode(&attachment.content_base64)
        .map_err(|_| FieldError::new(at("contentBase64"), "must be base64 with padding"))?;
    let mut part = format!(
        "Content-Type: {kind}\r\nContent-Transfer-Encoding: base64\r\n\
         Content-Disposition: attachment;\r\n {file_name}\r\n\r\n"
    );
    // 57 bytes become 76 characters.
    for line in bytes.chunks(57) {
        part.push_str(&BASE64_STANDARD.encode(line));
        part.push_str("\r\n");
    }
    Ok(part)
}

fn one_line<'a>(field: &str, text: &'a str, bytes_max: usize) -> Result<&'a str, FieldError> {
    // NEL and the two separators too: some programs break lines at them.
    if text.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Err(FieldError::new(field, "must be one line without control characters"));
    }
    if text.len() > bytes_max {
        return Err(FieldError::new(field, "is too long"));
    }
    Ok(text.trim())
}

/// `ann@example.com` or `Ann <ann@example.com>`.
fn named_address(field: &str, text: &str) -> Result<NamedAddress, FieldError> {
    let text = one_line(field, text, NAME_BYTES_MAX + ADDRESS_BYTES_MAX + 3)?;
    let (name, address) = match text.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((name, address)) => (name.trim(), address),
        None => ("", text),
    };
    let bare = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(name);
    let problem = "must be an address such as ann@example.com or Ann <ann@example.com>";
    let refused = FieldError::new(field, problem);
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
        Ok(NamedAddress { name: bare.to_owned(), address: address.to_owned() })
    } else {
        Err(refused)
    }
}

/// A name in a header: quoted, or in encoded words.
fn address_header(NamedAddress { name, address }: &NamedAddress) -> String {
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
