//! Where spans of traces are posted to. One request, one answer, nothing repeated: whoever collects decides what is lost.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use symphony::{FieldError, FieldErrors};
use tokio::time::Instant;

use crate::bounds::collector::{RESPONSE_BYTES_MAX, TIMEOUT_MS_MAX};
use crate::http_client::{
    self, Body, Conditions, Endpoint, Environment, Failure, TlsFiles, header_name, variable,
};
use crate::settings::Defects;

/// What one configures about it.
#[derive(Debug, Clone)]
pub struct CollectorSettings {
    /// Where to. Must be https, except for private addresses.
    pub endpoint: String,
    /// Headers by the environment variables that hold their values.
    pub header_env: BTreeMap<String, String>,
    /// The limit on one post, connecting included.
    pub timeout_ms: u64,
    /// A PEM file with certificate authorities to trust besides the public ones.
    pub extra_root_certificates_file: Option<PathBuf>,
}

/// A collector that can be posted to.
pub struct Collector {
    endpoint: Endpoint,
    headers: HeaderMap,
    timeout: Duration,
}

impl Collector {
    /// As configured. `environment` gives the value of a variable, normally `|name| std::env::var(name).ok()`.
    pub fn new(
        settings: &CollectorSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        defects.within("timeout_ms", settings.timeout_ms, 1, TIMEOUT_MS_MAX);
        let timeout = Duration::from_millis(settings.timeout_ms);
        // It is the operator's own, and mostly on the same host.
        let guard = defects.note(http_client::guard(true, &[]));
        let tls = defects.note(http_client::tls(TlsFiles {
            extra_roots: settings.extra_root_certificates_file.as_deref(),
            ..TlsFiles::default()
        }));
        let endpoint = guard.zip(tls).and_then(|(guard, tls)| {
            let conditions = Conditions {
                guard,
                tls,
                connect_timeout: timeout,
                response_bytes_max: RESPONSE_BYTES_MAX,
                needs_body: false,
            };
            defects.note(Endpoint::new("endpoint", &settings.endpoint, &conditions))
        });
        let headers = defects.note(headers(settings, &environment));
        let (endpoint, headers) = defects.finish(endpoint.zip(headers))?;
        Ok(Self { endpoint, headers, timeout })
    }

    /// Post once; answers the status. An error is one line, without anything of the request.
    pub async fn post(&self, content_type: &HeaderValue, body: Bytes) -> Result<u16, String> {
        let mut request = Request::new(Body::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.target.parse().unwrap_or_else(|_| Uri::from_static("/"));
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().insert(HOST, self.endpoint.host.clone());
        request.headers_mut().insert(CONTENT_TYPE, content_type.clone());
        let deadline = Instant::now() + self.timeout;
        match self.endpoint.origin.exchange(request, deadline).await {
            Ok(reply) => Ok(reply.status),
            Err(
                Failure::NotSent { error_code, message } | Failure::Lost { error_code, message },
            ) => Err(format!("{error_code}: {message}")),
        }
    }
}

fn headers(
    settings: &CollectorSettings,
    environment: Environment<'_>,
) -> Result<HeaderMap, FieldError> {
    const FIELD: &str = "header_env";
    let mut headers = HeaderMap::new();
    let agent = concat!("symphony/", env!("CARGO_PKG_VERSION"));
    headers.insert(USER_AGENT, HeaderValue::from_static(agent));
    for (name, names) in &settings.header_env {
        let header = header_name(FIELD, name)?;
        let text = variable(FIELD, names, environment)?;
        let mut value = HeaderValue::from_str(&text).map_err(|_| {
            let problem =
                format!("has a value for {header} with line breaks or control characters");
            FieldError::new(FIELD, problem)
        })?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

/// Nothing of it may hold a secret.
impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
