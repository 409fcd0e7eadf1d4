//! Limits and patterns of the event contract.
//!
//! Each pattern means the same, unchanged, in PostgreSQL (ARE), in ECMAScript (JSON Schema's `pattern`) and in
//! `regex-lite`; so none uses look-ahead, `\s`, `\d` or anything that depends on a locale. A corpus is run through all
//! three (`tests/fixtures/events.json`).

use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::value::RawValue;

use super::FieldError;
use crate::json;

/// An event as text, in bytes: with its attributes, in whichever envelope, it fits into the 256 KiB of SNS.
pub const EVENT_BYTES_MAX: usize = 256_000;
/// Tenant, type, key name and key value, in characters (code points).
pub const CHARACTERS_MAX: usize = 255;

/// A UUID, 8-4-4-4-12 hexadecimal digits of either case.
pub const EVENT_ID_PATTERN: &str =
    "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$";

/// RFC 3339 with `T` and `Z` or a numeric offset, of a date that exists in a year from 0001: months of 31 days, of 30,
/// February to the 28th, and the 29th in leap years (by 4 and not by 100, or by 400). No leap second.
pub const OCCURRED_AT_PATTERN: &str = concat!(
    "^(?:",
    "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-",
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29",
    ")T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?",
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$",
);

/// A dotted lowercase name of at least two parts.
pub const EVENT_TYPE_PATTERN: &str = "^[a-z0-9_-]+(?:\\.[a-z0-9_-]+)+$";

/// W3C trace context, version 00 …
pub const TRACEPARENT_PATTERN: &str = "^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$";

/// … and this must not match: an id of nothing but zeros.
pub const TRACEPARENT_ZERO_PATTERN: &str = "^00-(?:0{32}-|[0-9a-f]{32}-0{16}-)";

/// At least one character that is not white space. Listed one by one, because every language has its own idea of it.
pub const NOT_BLANK_PATTERN: &str = "[^\\t\\n\\v\\f\\r \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff]";

/// What a field of text must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    EventId,
    OccurredAt,
    TenantId,
    EventType,
    Traceparent,
    Key,
}

impl Rule {
    pub(super) fn wanted(self) -> &'static str {
        match self {
            Self::EventId => "a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057",
            Self::OccurredAt => {
                "an RFC 3339 time of a real date, such as 2027-01-31T12:00:00Z, with at most 9 decimals"
            }
            Self::TenantId | Self::Key => {
                "a string of at most 255 characters that is not empty or blank"
            }
            Self::EventType => {
                "a dotted lowercase name such as events.invoices.paid, at most 255 characters"
            }
            Self::Traceparent => {
                "a W3C traceparent of version 00 whose ids are not all zero, or be left out"
            }
        }
    }

    /// The text, if it keeps the rule.
    pub(super) fn read(self, field: &'static str, value: &RawValue) -> Result<String, FieldError> {
        let text = json::text_of(field, value, self.wanted())?;
        if self.is_kept_by(&text) {
            return Ok(text.into_owned());
        }
        Err(FieldError::new(field, format!("must be {}", self.wanted())))
    }

    fn is_kept_by(self, text: &str) -> bool {
        let is_short = || text.chars().count() <= CHARACTERS_MAX;
        match self {
            Self::EventId => matches(&EVENT_ID, text),
            Self::OccurredAt => matches(&OCCURRED_AT, text),
            Self::TenantId | Self::Key => is_short() && matches(&NOT_BLANK, text),
            Self::EventType => is_short() && matches(&EVENT_TYPE, text),
            Self::Traceparent => matches(&TRACEPARENT, text) && !matches(&TRACEPARENT_ZERO, text),
        }
    }
}

/// A pattern that does not compile would match nothing, and every test would fail.
type Pattern = LazyLock<Option<Regex>>;

static EVENT_ID: Pattern = LazyLock::new(|| Regex::new(EVENT_ID_PATTERN).ok());
static OCCURRED_AT: Pattern = LazyLock::new(|| Regex::new(OCCURRED_AT_PATTERN).ok());
static EVENT_TYPE: Pattern = LazyLock::new(|| Regex::new(EVENT_TYPE_PATTERN).ok());
static TRACEPARENT: Pattern = LazyLock::new(|| Regex::new(TRACEPARENT_PATTERN).ok());
static TRACEPARENT_ZERO: Pattern = LazyLock::new(|| Regex::new(TRACEPARENT_ZERO_PATTERN).ok());
static NOT_BLANK: Pattern = LazyLock::new(|| Regex::new(NOT_BLANK_PATTERN).ok());

fn matches(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// Is this JSON text a number equal to 1, however it is written (`1`, `1.0`, `10e-1`)? Decided on its digits, because
/// a float would say so of 1.00000000000000001 too.
pub(super) fn is_one(number: &str) -> bool {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digit = |byte: u8| byte.is_ascii_digit();
    if !whole.bytes().all(is_digit) || !fraction.bytes().all(is_digit) {
        return false;
    }
    let digits = || whole.bytes().chain(fraction.bytes());
    let only_a_one = digits().filter(|digit| *digit != b'0').eq([b'1']);
    // How many places the 1 stands left of the point, less one.
    let place = digits().position(|digit| digit == b'1').and_then(|at| {
        i64::try_from(whole.len()).ok()?.checked_sub(i64::try_from(at).ok()?)?.checked_sub(1)
    });
    let exponent: Option<i64> = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok();
    let one = place.zip(exponent).and_then(|(place, exponent)| place.checked_add(exponent));
    only_a_one && one == Some(0)
}
