//! What headers can carry, in both directions.

use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use hyper::HeaderMap;
use hyper::header::RETRY_AFTER;

/// Nobody may ask to be left alone for longer than this.
pub const RETRY_AFTER_SECONDS_MAX: u64 = 86_400;

/// An id as a header can carry it: everything but visible ASCII, and the percent sign itself, percent-encoded.
/// A line break in an id would otherwise write headers of its own.
pub(crate) fn header_text(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            text.push('%');
            for half in [byte >> 4, byte & 0x0f] {
                text.extend(char::from_digit(u32::from(half), 16).map(|c| c.to_ascii_uppercase()));
            }
        }
    }
    text
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, and whatever later versions append.
pub(crate) fn is_trace_context(text: &str) -> bool {
    text.len() >= 55
        && text.len() <= 512
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Seconds, or a date in any of the three forms of HTTP (RFC 9110, 5.6.7).
pub(crate) fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let seconds = if !value.is_empty() && value.bytes().all(|digit| digit.is_ascii_digit()) {
        // More digits than fit is just very long.
        value.parse::<u64>().unwrap_or(u64::MAX)
    } else {
        let date =
            ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
                .iter()
                .find_map(|form| NaiveDateTime::parse_from_str(value, form).ok())?
                .and_utc();
        u64::try_from(date.signed_duration_since(now).num_seconds()).unwrap_or(0)
    };
    Some(Duration::from_secs(seconds.min(RETRY_AFTER_SECONDS_MAX)))
}
