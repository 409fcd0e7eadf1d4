//! The tree of a message's parts, walked with limits.

use std::borrow::Cow;

use mail_parser::{ContentType, HeaderName, Message, MessageParser, MimeHeaders as _, PartType};

use super::content_type;
use crate::bounds::mime::{DEPTH_MAX, PART_HEAD_BYTES_MAX, PARTS_MAX};

/// A part that has no parts.
pub(super) enum Leaf {
    Text(String),
    Html(String),
    Attached { name: Option<String>, content_type: String, content: Cow<'static, [u8]> },
}

struct Walk<'p> {
    parser: &'p MessageParser,
    leaves: Vec<Leaf>,
    is_complete: bool,
}

/// All leaves of a message, in their order, and whether these are all.
pub(super) fn leaves(parser: &MessageParser, raw: &[u8]) -> (Vec<Leaf>, bool) {
    let mut walk = Walk { parser, leaves: Vec::new(), is_complete: true };
    walk.part(raw, usize::MAX, false, 0);
    (walk.leaves, walk.is_complete)
}

/// A head and a body: the first empty line is between them, and belongs to neither.
pub(super) fn split_head(raw: &[u8]) -> (&[u8], &[u8]) {
    let mut at = 0_usize;
    while let Some(rest) = raw.get(at..) {
        let length = match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) => end.saturating_add(1),
            None => break,
        };
        let next = at.saturating_add(length);
        if matches!(rest.get(..length), Some(b"\n" | b"\r\n")) {
            return (raw.get(..at).unwrap_or_default(), raw.get(next..).unwrap_or_default());
        }
        at = next;
    }
    (raw, &[])
}

impl Walk<'_> {
    fn part(&mut self, raw: &[u8], head_bytes_max: usize, is_digest: bool, depth: usize) {
        if self.leaves.len() >= PARTS_MAX {
            self.is_complete = false;
            return;
        }
        let (head, body) = split_head(raw);
        let (head, body) = if head.len() > head_bytes_max { (&[][..], raw) } else { (head, body) };
        let message = self.parser.parse_headers(head).unwrap_or_default();
        let kind = content_type(&message, &HeaderName::ContentType);
        let (ctype, subtype) = match kind {
            Some(kind) => (kind.ctype(), kind.subtype().unwrap_or_default()),
            None if is_digest => ("message", "rfc822"),
            None => ("text", "plain"),
        };
        if ctype == "multipart"
            && depth < DEPTH_MAX
            && let Some(boundary) =
                kind.and_then(|kind| kind.attribute("boundary")).filter(|b| !b.is_empty())
            && let Some(parts) = split_parts(body, boundary)
        {
            for part in parts {
                self.part(part, PART_HEAD_BYTES_MAX, subtype == "digest", depth.saturating_add(1));
            }
            return;
        }
        let disposition = content_type(&message, &HeaderName::ContentDisposition);
        let name = disposition
            .and_then(|disposition| disposition.attribute("filename"))
            .or_else(|| kind.and_then(|kind| kind.attribute("name")));
        let is_attached = name.is_some() || disposition.is_some_and(ContentType::is_attachment);
        let encoding = encoding(&message);
        let charset = kind.and_then(|kind| kind.attribute("charset"));
        self.leaves.push(match (ctype, subtype) {
            ("text", "plain") if !is_attached => Leaf::Text(self.text(body, encoding, charset)),
            ("text", "html") if !is_attached => Leaf::Html(self.text(body, encoding, charset)),
            _ => Leaf::Attached {
                name: name.map(str::to_owned),
                content_type: format!("{ctype}/{subtype}").trim_end_matches('/').to_owned(),
                content: Cow::Owned(self.bytes(body, encoding)),
            },
        });
    }

    fn text(&self, body: &[u8], encoding: &str, charset: Option<&str>) -> String {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-_.:+".contains(&b);
        let charset = charset
            .filter(|charset| charset.len() <= 40 && charset.bytes().all(is_name))
            .unwrap_or("utf-8");
        let alone = alone(&format!("text/plain; charset=\"{charset}\""), encoding, body);
        match self.decode(&alone) {
            Some(PartType::Text(text) | PartType::Html(text)) => text.into_owned(),
            _ => String::from_utf8_lossy(body).into_owned(),
        }
    }

    fn bytes(&self, body: &[u8], encoding: &str) -> Vec<u8> {
        if encoding == "8bit" {
            return body.to_vec();
        }
        let alone = alone("application/octet-stream", encoding, body);
        match self.decode(&alone) {
            Some(PartType::Binary(bytes) | PartType::InlineBinary(bytes)) => bytes.into_owned(),
            // Not what it says it is: as it was written, then.
            _ => body.to_vec(),
        }
    }

    fn decode<'a>(&self, alone: &'a [u8]) -> Option<PartType<'a>> {
        self.parser.parse(alone)?.parts.into_iter().next().map(|part| part.body)
    }
}

/// A message with nothing but one body, so that the parser reads it and sees no tree.
fn alone(content_type: &str, encoding: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("Content-Type: {content_type}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn encoding(message: &Message<'_>) -> &'static str {
    let found = message.parts.first().and_then(|part| part.content_transfer_encoding());
    match found.map(str::trim) {
        Some(name) if name.eq_ignore_ascii_case("base64") => "base64",
        Some(name) if name.eq_ignore_ascii_case("quoted-printable") => "quoted-printable",
        _ => "8bit",
    }
}

/// What stands between the lines `--boundary`; `None` if there is no such line.
fn split_parts<'a>(body: &'a [u8], boundary: &str) -> Option<Vec<&'a [u8]>> {
    let mut parts = Vec::new();
    let mut begin = None;
    let mut at = 0_usize;
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let next = at.saturating_add(line.len());
        let after = line.strip_prefix(b"--").and_then(|l| l.strip_prefix(boundary.as_bytes()));
        if let Some(after) = after.map(<[u8]>::trim_ascii_end)
            && (after.is_empty() || after == b"--")
        {
            if let Some(begin) = begin {
                let part: &[u8] = body.get(begin..at).unwrap_or_default();
                // The line end before a boundary belongs to it.
                let part = part.strip_suffix(b"\n").unwrap_or(part);
                parts.push(part.strip_suffix(b"\r").unwrap_or(part));
            }
            if after == b"--" {
                return Some(parts);
            }
            begin = Some(next);
        }
        at = next;
    }
    // Cut off in the middle: the last one goes to the end.
    parts.push(body.get(begin?..).unwrap_or_default());
    Some(parts)
}
