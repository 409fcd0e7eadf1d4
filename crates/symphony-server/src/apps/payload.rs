//! What a script gets of a request, and what of it is stored.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use symphony::db::RouteRow;
use symphony::json;
use symphony::lanes::triggers::executor::UnstoredHeaders;

use super::callers::Known;

/// Headers of one hop, and credentials: what is stored is read by people and outlives them.
pub(crate) const HEADERS_LEFT_OUT: [&str; 8] = [
    "authorization",
    "connection",
    "cookie",
    "keep-alive",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// What a script gets of a request.
#[derive(Serialize)]
pub(super) struct RoutePayload<'a, P> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) params: &'a P,
    pub(super) query: Map<String, Value>,
    /// As it was sent, because a name may be there more than once.
    #[serde(rename = "queryString", skip_serializing_if = "Option::is_none")]
    pub(super) query_string: Option<&'a str>,
    pub(super) headers: BTreeMap<String, String>,
    /// Which of them only the process that serves the client has.
    #[serde(rename = "headersNotStored", skip_serializing_if = "Vec::is_empty")]
    pub(super) headers_not_stored: Vec<String>,
    pub(super) body: Box<RawValue>,
    #[serde(rename = "bodyBase64", skip_serializing_if = "Option::is_none")]
    pub(super) body_base64: Option<String>,
    /// Whoever was authenticated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) caller: Option<&'a Known>,
}

/// JSON if the content type says so, else text; in base64 what is no text, and everything if the route wants it raw.
/// `None` if it should be JSON and is not.
pub(super) fn readable(
    headers: &HeaderMap,
    body: &[u8],
    is_raw: bool,
) -> Option<(Box<RawValue>, Option<String>)> {
    let null = || RawValue::NULL.to_owned();
    if is_raw {
        return Some((null(), Some(BASE64_STANDARD.encode(body))));
    }
    if body.is_empty() {
        return Some((null(), None));
    }
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
    let is_json = content_type.is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        kind == "application/json" || kind.ends_with("+json")
    });
    let text = std::str::from_utf8(body).ok();
    if is_json {
        let rules = json::Rules { names_may_repeat: true, ..json::Rules::default() };
        return json::check(text?, rules).ok().map(|body| (body.to_owned(), None));
    }
    // PostgreSQL's JSON has no NUL.
    match text.filter(|text| !text.contains('\0')) {
        Some(text) => Some((to_raw_value(text).ok()?, None)),
        None => Some((null(), Some(BASE64_STANDARD.encode(body)))),
    }
}

pub(super) fn query(text: &str) -> Map<String, Value> {
    url::form_urlencoded::parse(text.as_bytes())
        .map(|(name, value)| (name.replace('\0', ""), Value::String(value.replace('\0', ""))))
        .collect()
}

/// What of a request's headers is stored, and what only the process that serves the client has.
pub(super) fn headers(
    given: &HeaderMap,
    route: &RouteRow,
    signature: Option<&str>,
    is_configured: impl Fn(&HeaderName) -> bool,
) -> (BTreeMap<String, String>, UnstoredHeaders) {
    let is_left_out = |name: &HeaderName| HEADERS_LEFT_OUT.contains(&name.as_str());
    let is_signature = |name: &HeaderName| signature == Some(name.as_str());
    let stored =
        chosen(given, |name| !is_left_out(name) && !is_signature(name) && !is_configured(name));
    let unstored = chosen(given, |name| match name.as_str() {
        // A token is its holder's, and the script has been told who that is.
        "authorization" => route.auth != "token",
        "cookie" => true,
        _ => is_configured(name) && !is_left_out(name) && !is_signature(name),
    });
    (stored, UnstoredHeaders::new(unstored))
}

/// One that was sent several times has its values after one another.
fn chosen(
    headers: &HeaderMap,
    is_chosen: impl Fn(&HeaderName) -> bool,
) -> BTreeMap<String, String> {
    let names = headers.keys().filter(|name| is_chosen(name));
    names
        .filter_map(|name| {
            let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
            let values: Vec<&str> = values.collect();
            // HTTP/2 sends each cookie by itself.
            let between = if name == header::COOKIE { "; " } else { ", " };
            (!values.is_empty()).then(|| (name.to_string(), values.join(between)))
        })
        .collect()
}
