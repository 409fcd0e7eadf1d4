//! Which other sites' pages may call an app, as its manifest says: answered here, without a run.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::response::Response;
use serde::Deserialize;

/// The manifest's `cors`. The database has checked it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cors {
    origins: Vec<String>,
    /// None named: whatever the path has.
    #[serde(default)]
    methods: Vec<String>,
    #[serde(default = "content_type")]
    headers: Vec<String>,
    #[serde(default)]
    exposed_headers: Vec<String>,
    #[serde(default)]
    credentials: bool,
    max_age_seconds: Option<u32>,
}

fn content_type() -> Vec<String> {
    vec!["content-type".to_owned()]
}

/// A browser asks whether it may ask.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

impl Cors {
    /// Say in an answer whether a page of this origin may read it.
    pub(super) fn allow_origin(&self, origin: Option<&HeaderValue>, response: &mut Response) {
        let headers = response.headers_mut();
        headers.append(VARY, HeaderValue::from_static("origin"));
        let Some(origin) = origin.filter(|origin| self.allows(origin)) else { return };
        let anybody = self.origins.iter().any(|each| each == "*");
        let said = if anybody { HeaderValue::from_static("*") } else { origin.clone() };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, said);
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        set_list(headers, ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed_headers);
    }

    /// Say in the answer to a preflight what a page of this origin may ask with.
    pub(super) fn allow_asking(
        &self,
        origin: Option<&HeaderValue>,
        methods: &[String],
        response: &mut Response,
    ) {
        if !origin.is_some_and(|origin| self.allows(origin)) {
            return;
        }
        let headers = response.headers_mut();
        let methods = if self.methods.is_empty() { methods } else { &self.methods };
        set_list(headers, ACCESS_CONTROL_ALLOW_METHODS, methods);
        set_list(headers, ACCESS_CONTROL_ALLOW_HEADERS, &self.headers);
        if let Some(seconds) = self.max_age_seconds {
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
        }
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        self.origins.iter().any(|each| each == "*" || each.as_bytes() == origin.as_bytes())
    }
}

fn set_list(headers: &mut HeaderMap, name: HeaderName, values: &[String]) {
    if values.is_empty() {
        return;
    }
    if let Ok(value) = HeaderValue::from_str(&values.join(", ")) {
        headers.insert(name, value);
    }
}
