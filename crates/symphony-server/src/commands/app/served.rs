//! A request as a case has it, made what the server makes of one: every field is there, names of headers are in lower
//! case, and those that are never stored are beside the payload.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::value::{RawValue, to_raw_value};
use symphony::json::{self, Kind, Members};
use symphony::lanes::triggers::executor::UnstoredHeaders;

use super::local::LocalRoute;
use crate::apps::payload::HEADERS_LEFT_OUT;
use crate::apps::sources::{Object, owned};
use crate::output::Failure;

/// What its script gets.
pub(super) struct Served {
    pub(super) payload: Box<RawValue>,
    pub(super) unstored_headers: UnstoredHeaders,
}

/// What the server would make of a request to one of these routes: the first with its method.
pub(super) fn as_served(given: &RawValue, routes: &[&LocalRoute]) -> Result<Served, Failure> {
    let Some(members) = Members::of(given).filter(|_| Kind::of(given) == Kind::Object) else {
        return Err(Failure::new("the request's payload must be an object"));
    };
    let mut payload = owned(&members);
    let method = payload.get("method").and_then(|method| json::text(method)).map(String::from);
    let is_asked =
        |route: &&&LocalRoute| method.as_ref().is_none_or(|method| *method == route.method);
    let route = routes.iter().find(is_asked).or(routes.first()).copied();
    let mut headers = headers(&payload)?;
    fill(&mut payload, "method", &route.map_or("GET", |route| &route.method))?;
    fill(&mut payload, "params", &Object::new())?;
    let path = path(route.map_or("/", |route| &route.path), &payload);
    fill(&mut payload, "path", &path)?;
    query(&mut payload)?;
    fill(&mut payload, "body", &())?;
    if let Some(body) = payload.get("body") {
        let is_text = Kind::of(body) == Kind::Text;
        if !is_text && Kind::of(body) != Kind::Null {
            let kind = || raw(&"application/json");
            if !headers.contains_key("content-type") {
                headers.insert("content-type".to_owned(), kind()?);
            }
        }
        let is_sent = Kind::of(body) != Kind::Null && !payload.contains_key("bodyBase64");
        if is_sent && route.is_some_and(|route| route.raw_body) {
            let sent = json::text(body).filter(|_| is_text);
            let base64 = BASE64_STANDARD.encode(sent.as_deref().unwrap_or(body.get()));
            payload.insert("bodyBase64".to_owned(), raw(&base64)?);
            payload.insert("body".to_owned(), raw(&())?);
        }
    }
    let has_token = route.is_some_and(|route| route.auth.as_deref() == Some("token"));
    let unstored = unstored(&mut headers, has_token);
    payload.insert("headers".to_owned(), raw(&headers)?);
    if !unstored.is_empty() {
        let names: Vec<&str> = unstored.keys().map(String::as_str).collect();
        payload.insert("headersNotStored".to_owned(), raw(&names)?);
    }
    Ok(Served { payload: raw(&payload)?, unstored_headers: UnstoredHeaders::new(unstored) })
}

fn raw<T: serde::Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Failure> {
    to_raw_value(value).map_err(|error| Failure::new(error.to_string()))
}

fn fill<T: serde::Serialize>(payload: &mut Object, field: &str, value: &T) -> Result<(), Failure> {
    if !payload.contains_key(field) {
        payload.insert(field.to_owned(), raw(value)?);
    }
    Ok(())
}

/// With names in lower case, as a server reads them.
fn headers(payload: &Object) -> Result<Object, Failure> {
    let Some(given) = payload.get("headers") else { return Ok(Object::new()) };
    let members = Members::of(given).filter(|_| Kind::of(given) == Kind::Object);
    let members = members.ok_or_else(|| Failure::new("payload.headers must be an object"))?;
    Ok(owned(&members)
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect())
}

/// Takes those out that no table has; answers those that the script is handed all the same.
fn unstored(headers: &mut Object, has_token: bool) -> BTreeMap<String, String> {
    let mut unstored = BTreeMap::new();
    for name in HEADERS_LEFT_OUT {
        let Some(value) = headers.remove(name) else { continue };
        let is_handed_over = name == "cookie" || name == "authorization" && !has_token;
        if let Some(value) = json::text(&value).filter(|_| is_handed_over) {
            unstored.insert(name.to_owned(), value.into_owned());
        }
    }
    unstored
}

/// The pattern with the parameters that were given.
fn path(pattern: &str, payload: &Object) -> String {
    let params = payload.get("params").and_then(|params| Members::of(params));
    let segments = pattern.split('/').map(|segment| {
        let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let name = name.map(|name| name.strip_prefix('*').unwrap_or(name));
        let value = name.and_then(|name| params.as_ref()?.get(name)).and_then(json::text);
        value.map_or_else(|| segment.to_owned(), String::from)
    });
    segments.collect::<Vec<_>>().join("/")
}

/// The query has the last value of each name, and its text all of them.
fn query(payload: &mut Object) -> Result<(), Failure> {
    let text = payload.get("queryString").and_then(|text| json::text(text)).map(String::from);
    if let Some(text) = &text {
        let pairs: BTreeMap<String, String> =
            url::form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        return fill(payload, "query", &pairs);
    }
    if let Some(members) = payload.get("query").and_then(|query| Members::of(query)) {
        let mut made = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in members.iter() {
            if let Some(value) = json::text(value) {
                made.append_pair(name, &value);
            }
        }
        let made = made.finish();
        if !made.is_empty() {
            fill(payload, "queryString", &made)?;
        }
    }
    fill(payload, "query", &Object::new())
}
