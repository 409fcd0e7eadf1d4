//! What headers can carry, in both directions.

use std::time::Duration;

pub use crate::bounds::http_client::RETRY_AFTER_SECONDS_MAX;
use chrono::{DateTime, Utc};
use hyper::HeaderMap;
use hyper::header::{HeaderName, RETRY_AFTER};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use symphony::FieldError;

/// Headers of a request that the connection decides. Whoever could set one could smuggle a second request.
const CONNECTION_HEADERS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a request's header is the connection's, and nobody else's to set.
pub(crate) fn is_connection_header(name: &HeaderName) -> bool {
    CONNECTION_HEADERS.contains(&name.as_str())
}

/// A header that configuration may name: not one that frames the message, and not one of ours.
pub(crate) fn header_name(field: &'static str, name: &str) -> Result<HeaderName, FieldError> {
    const OURS: [&str; 3] = ["content-encoding", "content-type", "traceparent"];
    let header = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| FieldError::new(field, "has a name that no header can have"))?;
    if is_connection_header(&header)
        || OURS.contains(&header.as_str())
        || header.as_str().starts_with("symphony-")
    {
        return Err(FieldError::new(field, format!("must not be {header}: Symphony sets it")));
    }
    Ok(header)
}

/// An id as a header can carry it: everything but visible ASCII, and the percent sign itself, percent-encoded.
/// A line break in an id would otherwise write headers of its own.
pub(crate) fn header_text(id: &str) -> String {
    const NOT_VISIBLE: &AsciiSet = &CONTROLS.add(b' ').add(b'%');
    utf8_percent_encode(id, NOT_VISIBLE).to_string()
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
        let date = DateTime::<Utc>::from(httpdate::parse_http_date(value).ok()?);
        u64::try_from(date.signed_duration_since(now).num_seconds()).unwrap_or(0)
    };
    Some(Duration::from_secs(seconds.min(RETRY_AFTER_SECONDS_MAX)))
}
