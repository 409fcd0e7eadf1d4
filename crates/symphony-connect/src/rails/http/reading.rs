//! What an answer says about the money. Pure: no I/O, and no clock but the one passed in.
//!
//! Where the answer's code and its status disagree, the reading that claims less is taken:
//!
//! | status | code in the body | read as |
//! |---|---|---|
//! | 2xx | mapped | the code: many providers refuse with 200 |
//! | 2xx | none | `http:<status>`; unknown if the body is not a JSON object although one is expected |
//! | 3xx | any | unknown: it was not followed |
//! | 4xx | accepted | unknown: they contradict |
//! | 4xx | refused, retryable | the code, but retryable if the status is |
//! | 5xx | mapped | unknown, unless `http:<status>` is mapped to the same |
//! | any but 2xx | none | `http:<status>` |
//! | any | not mapped, repeated, or no text or integer | unknown |

use chrono::{DateTime, Utc};
use hyper::header::HeaderName;
use serde_json::value::RawValue;
use symphony::json::{Found, Kind, Pointer};
use symphony::lanes::payments::rail::{Answer, Inquiry, Verdict};

pub use crate::bounds::rails::MESSAGE_CHARACTERS_MAX;
pub use crate::bounds::rails::REFERENCE_CHARACTERS_MAX;
use crate::http_client::{Reply, retry_after};
use crate::rails::taxonomy::{CODE_BYTES_MAX, CodeTable, status_code};

/// How to read one provider's answers.
pub(super) struct Reader {
    pub(super) table: CodeTable,
    pub(super) code: Option<Pointer>,
    pub(super) reason: Option<Pointer>,
    pub(super) reference: Option<Pointer>,
    pub(super) message: Option<Pointer>,
    pub(super) key: Option<Pointer>,
    /// If an answer repeats this header, it must be with our key.
    pub(super) key_header: HeaderName,
    pub(super) not_found_code: String,
}

/// An answer that cannot be believed, and why. Never contains any of it.
struct Unbelievable(&'static str);

/// The body's own words.
#[derive(Default)]
struct Said {
    code: Option<String>,
    reason: Option<String>,
    reference: Option<String>,
    message: Option<String>,
}

impl Reader {
    /// What the answer to a dispatch says.
    pub(super) fn dispatch(&self, key: &str, reply: &Reply, now: DateTime<Utc>) -> Answer {
        match self.said(key, reply) {
            Ok(said) => self.answer(said, reply, now),
            Err(Unbelievable(problem)) => bad_response(reply, problem),
        }
    }

    /// What the answer to an inquiry says.
    pub(super) fn inquiry(&self, key: &str, reply: &Reply, now: DateTime<Utc>) -> Inquiry {
        let said = match self.said(key, reply) {
            Ok(said) => said,
            Err(Unbelievable(problem)) => return Inquiry::Unclear(bad_response(reply, problem)),
        };
        match (reply.status, &said.code) {
            // A code that says what became of the payment, and a status that says there is none.
            (404, Some(code)) if self.mapped(code).is_some() => {
                Inquiry::Unclear(bad_response(reply, "404, but with a code that has a meaning"))
            }
            (404, code)
                if self.not_found_code.is_empty()
                    || code.as_ref().is_some_and(|code| *code == self.not_found_code) =>
            {
                Inquiry::NotFound
            }
            (200..=299, Some(_)) => Inquiry::Found(self.answer(said, reply, now)),
            // The key is known, but not what became of it.
            (200..=299, None) => {
                Inquiry::Unclear(bad_response(reply, "the inquiry's answer has no code"))
            }
            (status, _) => Inquiry::Unclear(Answer {
                code: Some(status_code(status)),
                error_code: Some("INQUIRY_FAILED".to_owned()),
                message: Some("the inquiry was answered with neither a code nor a 404".to_owned()),
                retry_after: retry_after(&reply.headers, now),
                trouble: is_trouble(status),
                ..Answer::new(Verdict::Unknown)
            }),
        }
    }

    fn said(&self, key: &str, reply: &Reply) -> Result<Said, Unbelievable> {
        if reply.headers.get(&self.key_header).is_some_and(|echo| echo.as_bytes() != key.as_bytes())
        {
            return Err(Unbelievable("the answer's key header names another key"));
        }
        let success = (200..300).contains(&reply.status);
        let object = serde_json::from_slice::<&RawValue>(&reply.body)
            .ok()
            .filter(|body| Kind::of(body) == Kind::Object);
        let expects_object = self.code.is_some() || self.reference.is_some() || self.key.is_some();
        let Some(object) = object else {
            return if success && expects_object {
                Err(Unbelievable("the answer is not a JSON object"))
            } else {
                Ok(Said::default())
            };
        };
        let find = |pointer: &Option<Pointer>| {
            pointer.as_ref().map_or(Found::Absent, |pointer| pointer.find(object))
        };
        match find(&self.key) {
            Found::Text(echo) if echo == key => {}
            // An error may come from somebody who never saw the key.
            Found::Absent if self.key.is_none() || !success => {}
            _ => return Err(Unbelievable("the answer does not repeat our key at key_pointer")),
        }
        let text = |found| if let Found::Text(text) = found { Some(text) } else { None };
        Ok(Said {
            code: code(find(&self.code))?,
            reason: code(find(&self.reason))?,
            reference: text(find(&self.reference))
                .and_then(|text| printable(&text, REFERENCE_CHARACTERS_MAX)),
            message: text(find(&self.message))
                .and_then(|text| printable(&text, MESSAGE_CHARACTERS_MAX)),
        })
    }

    fn answer(&self, said: Said, reply: &Reply, now: DateTime<Utc>) -> Answer {
        let by_status = status_code(reply.status);
        let success = (200..300).contains(&reply.status);
        let (verdict, code) = match &said.code {
            // "200 {"status": "rejected"}" read at the wrong place must not become a payment.
            None if success && self.code.is_some() => {
                return bad_response(
                    reply,
                    "the answer has no code at code_pointer; if the provider sends none, set code_pointer = \"\"",
                );
            }
            None => (self.table.verdict(&by_status), by_status),
            Some(code) => {
                let verdict = self.verdict(code);
                let reason = said.reason.as_deref();
                let verdict = with_reason(verdict, reason.map(|reason| self.verdict(reason)));
                let verdict = with_status(verdict, reply.status, self.table.mapped(&by_status));
                let code = reason.map_or_else(|| code.clone(), |reason| format!("{code}/{reason}"));
                (verdict, code)
            }
        };
        let (error_code, words) = match verdict {
            Verdict::Accepted => (None, None),
            Verdict::Refused => (Some("RAIL_REFUSED"), None),
            Verdict::Retryable => (Some("RAIL_RETRYABLE"), None),
            Verdict::Unknown => (
                Some("UNCLEAR_CODE"),
                Some(format!(
                    "{code} with HTTP {} has no certain meaning: if it has one, map it under codes",
                    reply.status
                )),
            ),
        };
        let retry_after = match verdict {
            Verdict::Retryable | Verdict::Unknown => retry_after(&reply.headers, now),
            Verdict::Accepted | Verdict::Refused => None,
        };
        Answer {
            verdict,
            reference: said.reference,
            code: Some(code),
            error_code: error_code.map(str::to_owned),
            message: said.message.or(words),
            retry_after,
            trouble: is_trouble(reply.status),
        }
    }

    fn verdict(&self, code: &str) -> Verdict {
        self.mapped(code).unwrap_or(Verdict::Unknown)
    }

    /// A body cannot speak for HTTP: `http:200` written into it means nothing.
    fn mapped(&self, code: &str) -> Option<Verdict> {
        if code.starts_with("http:") { None } else { self.table.mapped(code) }
    }
}

/// A bank may reject the second copy of a payment and say so only in the reason: a refusal needs a reason that
/// refuses too, if it has one at all.
fn with_reason(code: Verdict, reason: Option<Verdict>) -> Verdict {
    use Verdict::{Accepted, Refused, Retryable, Unknown};
    match (code, reason) {
        (code, None) => code,
        // Reasons of what was done are information, mapped or not; one that refuses contradicts.
        (Accepted, Some(Accepted | Unknown)) => Accepted,
        (Refused, Some(Refused)) => Refused,
        (Refused, Some(Retryable)) | (Retryable, Some(Refused | Retryable)) => Retryable,
        (Accepted, Some(Refused | Retryable))
        | (Refused | Retryable, Some(Accepted | Unknown))
        | (Unknown, Some(_)) => Unknown,
    }
}

/// The table at the top of this file.
fn with_status(code: Verdict, status: u16, by_status: Option<Verdict>) -> Verdict {
    use Verdict::{Accepted, Refused, Retryable, Unknown};
    match (status, code) {
        (200..=299, code) => code,
        (400..=499, Refused | Retryable) if by_status == Some(Retryable) => Retryable,
        (400..=499, Refused) => Refused,
        (400..=499, Retryable) => Retryable,
        (500..=599, code @ (Accepted | Refused | Retryable)) if by_status == Some(code) => code,
        _ => Unknown,
    }
}

/// What concerns the rail and not this one payment: it fails, is overrun, or does not know us any more.
fn is_trouble(status: u16) -> bool {
    status >= 500 || matches!(status, 401 | 408 | 429)
}

fn bad_response(reply: &Reply, problem: &'static str) -> Answer {
    Answer {
        code: Some(status_code(reply.status)),
        ..Answer::trouble(Verdict::Unknown, "BAD_RESPONSE", problem)
    }
}

fn code(found: Found) -> Result<Option<String>, Unbelievable> {
    match found {
        Found::Absent => Ok(None),
        Found::Text(code)
            if !code.is_empty()
                && code.len() <= CODE_BYTES_MAX
                && code.chars().all(|c| !c.is_control() && !c.is_whitespace()) =>
        {
            Ok(Some(code))
        }
        Found::Text(_) => {
            Err(Unbelievable("the answer's code is empty, too long or has blanks in it"))
        }
        Found::Confusing => {
            Err(Unbelievable("the answer's code is repeated, or neither text nor integer"))
        }
    }
}

/// One line of bounded length for ledger and logs: a provider must not be able to draw on a terminal.
fn printable(text: &str, characters_max: usize) -> Option<String> {
    // Bidirectional and other invisible format characters reorder what people read.
    let invisible = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    let line: String = text
        .chars()
        .take(characters_max)
        .map(|c| if c.is_control() || invisible(c) { ' ' } else { c })
        .collect();
    let line = line.trim();
    if line.is_empty() { None } else { Some(line.to_owned()) }
}
