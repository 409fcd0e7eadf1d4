//! How executors reach the network: one request, one whole answer, and never to an address that is not public unless
//! it is allowed. No redirects, no proxies, no cookies.

use std::path::PathBuf;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use serde::Deserialize;
use symphony::{FieldError, FieldErrors};
use tokio::time::Instant;

use crate::http_client::{self, Body, Conditions, Endpoint, Failure, Reply, TlsFiles};
use crate::settings::Defects;

/// What one configures about the network that scripts and `http` executors see.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FetchSettings {
    /// Also call loopback and private addresses. Default false.
    pub allow_private_addresses: bool,
    /// Networks to call besides the public ones: `10.1.0.0/16`. Default none.
    pub allowed_networks: Vec<String>,
    /// A PEM file with certificate authorities to trust besides the public ones.
    pub extra_root_certificates_file: Option<PathBuf>,
    /// The limit on resolving, connecting and the TLS handshake. Default 5,000.
    pub connect_timeout_ms: u64,
    /// The largest body that is sent. Default 1,048,576.
    pub request_bytes_max: usize,
    /// The largest answer that is read. Default 1,048,576.
    pub response_bytes_max: usize,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            allow_private_addresses: false,
            allowed_networks: Vec::new(),
            extra_root_certificates_file: None,
            connect_timeout_ms: 5_000,
            request_bytes_max: 1 << 20,
            response_bytes_max: 1 << 20,
        }
    }
}

/// Sends requests to where they may go.
pub struct Fetcher {
    conditions: Conditions,
    request_bytes_max: usize,
}

/// One request.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Fetcher {
    /// A fetcher as configured.
    pub fn new(settings: &FetchSettings) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        defects.within("request_bytes_max", settings.request_bytes_max, 1, 64 << 20);
        defects.within("response_bytes_max", settings.response_bytes_max, 1, 64 << 20);
        defects.within("connect_timeout_ms", settings.connect_timeout_ms, 1, 60_000);
        let guard = defects
            .note(http_client::guard(settings.allow_private_addresses, &settings.allowed_networks));
        let tls = defects.note(http_client::tls(TlsFiles {
            extra_roots: settings.extra_root_certificates_file.as_deref(),
            ..TlsFiles::default()
        }));
        let (guard, tls) = defects.finish(guard.zip(tls))?;
        let conditions = Conditions {
            guard,
            tls,
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
            response_bytes_max: settings.response_bytes_max,
            needs_body: true,
        };
        Ok(Self { conditions, request_bytes_max: settings.request_bytes_max })
    }

    /// Where a URL leads. What can be refused without resolving is refused now.
    pub(super) fn endpoint(&self, url: &str) -> Result<Endpoint, FieldError> {
        Endpoint::new("url", url, &self.conditions)
    }

    pub(super) fn request_bytes_max(&self) -> usize {
        self.request_bytes_max
    }
}

/// Say what caused the call, unless whoever calls has said so.
pub(super) fn trace_header(headers: &mut HeaderMap, traceparent: Option<&str>) {
    let value = traceparent.and_then(|text| HeaderValue::from_str(text).ok());
    if let Some(value) = value {
        headers.entry(HeaderName::from_static("traceparent")).or_insert(value);
    }
}

/// One exchange. The connection is kept with the endpoint.
pub(super) async fn send(
    endpoint: &Endpoint,
    call: Call,
    deadline: Instant,
) -> Result<Reply, Failure> {
    let mut request = Request::new(Body::new(call.body));
    *request.method_mut() = call.method;
    *request.headers_mut() = call.headers;
    // The URL was parsed once already.
    *request.uri_mut() = endpoint.target.parse().unwrap_or_else(|_| Uri::from_static("/"));
    let headers = request.headers_mut();
    headers.insert(HOST, endpoint.host.clone());
    let agent = concat!("symphony/", env!("CARGO_PKG_VERSION"));
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
    endpoint.origin.exchange(request, deadline).await
}
