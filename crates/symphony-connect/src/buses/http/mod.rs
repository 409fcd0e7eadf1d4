//! Webhooks: one signed POST per event and endpoint, as Standard Webhooks has it.
//!
//! - [`settings`]: what one configures, and what is refused at start.
//! - `answers`: what an answer means for the event.
//!
//! The body is the event in the bus's envelope; unless another is chosen its text, byte for byte, as
//! `application/json`. The headers:
//!
//! | header | what |
//! |---|---|
//! | `webhook-id` | the event's id, the same on every try: what a receiver deduplicates by |
//! | `webhook-timestamp` | when this try was signed, unix seconds |
//! | `webhook-signature` | `v1,<base64>` for each secret, see [`webhook_signature`](super::webhook_signature) |
//! | `symphony-position` | its place in the log: rises within a key, so that an old one can be told |
//! | `symphony-event-type`, `symphony-tenant-id` | as in the envelope, percent-encoded where needed |
//! | `traceparent` | W3C trace context, where the event has one |
//!
//! The `symphony-…` headers are not signed: they are for routing and ordering, the signed body is what counts.

mod answers;
pub mod settings;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use futures_util::future::join_all;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Uri};
use symphony::event::envelope::Binding;
use symphony::lanes::events::bus::{Bus, Message, Publication, Terms};
use symphony::{FieldError, FieldErrors};
use tokio::time::Instant;

use super::webhook_signature::{ID_HEADER, SIGNATURE_HEADER, Secret, TIMESTAMP_HEADER, sign};
use super::{FailureKind, TIMEOUT_MARGIN, again};
use crate::address::AddressGuard;
use crate::http_client::{self, Body, Conditions, Endpoint, TlsFiles, variable};
use crate::settings::Defects;

pub use self::settings::{EndpointSettings, HttpBusSettings};

/// The header with the event's place in the log.
pub const POSITION_HEADER: &str = "symphony-position";
/// The header with the event's type.
pub const TYPE_HEADER: &str = "symphony-event-type";
/// The header with whose event it is.
pub const TENANT_HEADER: &str = "symphony-tenant-id";

/// A bus of webhooks. A topic is the name of an endpoint.
pub struct HttpBus {
    terms: Terms,
    receivers: BTreeMap<String, Receiver>,
}

struct Receiver {
    endpoint: Endpoint,
    secrets: Vec<Secret>,
    timeout: Duration,
}

impl HttpBus {
    /// A bus as configured. `environment` gives the value of a variable, normally
    /// `|name| std::env::var(name).ok()`; secrets are read from it once, here.
    pub fn new(
        settings: &HttpBusSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        settings.check_consistency(&mut defects);
        let guard =
            http_client::guard(settings.allow_private_addresses, &settings.allowed_networks);
        let guard = defects.note(guard);
        let mut receivers = BTreeMap::new();
        for (name, endpoint) in &settings.endpoints {
            let Some(guard) = &guard else { continue };
            let receiver = Receiver::new(settings, endpoint, guard, &environment)
                .map_err(|error| error.within(&format!("endpoints.{name}")));
            if let Some(receiver) = defects.note(receiver) {
                receivers.insert(name.clone(), receiver);
            }
        }
        defects.into_result()?;
        let slowest = receivers.values().map(|receiver| receiver.timeout).max();
        let terms = Terms {
            binding: Binding::Http,
            timeout: slowest.unwrap_or_default() + TIMEOUT_MARGIN,
            batch_max: settings.batch_max,
            fill_within: Duration::ZERO,
            dedup_window: Duration::ZERO,
        };
        Ok(Self { terms, receivers })
    }
}

#[async_trait]
impl Bus for HttpBus {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    async fn publish(&self, topic: &str, batch: &[&Message]) -> Vec<Publication> {
        let Some(receiver) = self.receivers.get(topic) else {
            let problem = "no endpoint of this name is configured: add it, or change the route";
            let answer = again("NO_SUCH_TOPIC", problem, FailureKind::NotTakenUntilMended);
            return vec![answer; batch.len()];
        };
        join_all(batch.iter().map(|message| receiver.tell(message))).await
    }

    fn check_topic(&self, topic: &str) -> Result<(), String> {
        if self.receivers.contains_key(topic) {
            return Ok(());
        }
        let known: Vec<&str> = self.receivers.keys().map(String::as_str).collect();
        Err(format!("is {topic}, which is no endpoint of the bus: it has {}", known.join(", ")))
    }
}

impl Receiver {
    fn new(
        bus: &HttpBusSettings,
        settings: &EndpointSettings,
        guard: &AddressGuard,
        environment: http_client::Environment<'_>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        let tls = defects.note(http_client::tls(TlsFiles {
            extra_roots: bus.extra_root_certificates_file.as_deref(),
            client_certificate: settings.client_certificate_file.as_deref(),
            client_key: settings.client_key_file.as_deref(),
        }));
        let endpoint = tls.and_then(|tls| {
            let conditions = Conditions {
                guard: guard.clone(),
                tls,
                connect_timeout: Duration::from_millis(settings.connect_timeout()),
                response_bytes_max: bus.response_bytes_max,
                needs_body: false,
            };
            defects.note(Endpoint::new("url", &settings.url, &conditions))
        });
        let secrets = defects.note(secrets(settings, environment));
        let (endpoint, secrets) = defects.finish(endpoint.zip(secrets))?;
        Ok(Self { endpoint, secrets, timeout: Duration::from_millis(settings.timeout_ms) })
    }

    async fn tell(&self, message: &Message) -> Publication {
        let deadline = Instant::now() + self.timeout;
        let request = self.request(message, Utc::now().timestamp());
        match self.endpoint.origin.exchange(request, deadline).await {
            Ok(reply) => answers::read(&reply, Utc::now()),
            Err(failure) => answers::failed(failure),
        }
    }

    fn request(&self, message: &Message, unix_seconds: i64) -> Request<Body> {
        let body = Bytes::copy_from_slice(message.body.as_bytes());
        let id = message.event_id.to_string();
        let signature = sign(&self.secrets, &id, unix_seconds, &body);
        let timestamp = unix_seconds.to_string();
        let mut request = Request::new(Body::new(body));
        *request.method_mut() = Method::POST;
        // Parsed once already, at start.
        *request.uri_mut() = self.endpoint.target.parse().unwrap_or_else(|_| Uri::from_static("/"));
        let headers = request.headers_mut();
        headers.insert(HOST, self.endpoint.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(message.content_type));
        let agent = concat!("symphony/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let signed = [
            (ID_HEADER, id.as_str()),
            (TIMESTAMP_HEADER, timestamp.as_str()),
            (SIGNATURE_HEADER, signature.as_str()),
        ];
        let beside = message.headers.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in signed.into_iter().chain(beside) {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        request
    }
}

fn secrets(
    settings: &EndpointSettings,
    environment: http_client::Environment<'_>,
) -> Result<Vec<Secret>, FieldError> {
    if settings.secret_env.is_empty() {
        let problem = "is missing: name the environment variable that holds the secret";
        return Err(FieldError::new("secret_env", problem));
    }
    let secrets = variable("secret_env", &settings.secret_env, environment)?;
    Secret::parse_list(&secrets).map_err(|error| {
        FieldError::new("secret_env", format!("names a variable whose value {error}"))
    })
}

/// Nothing of it may hold a secret.
impl fmt::Debug for HttpBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpBus")
            .field("terms", &self.terms)
            .field("endpoints", &self.receivers.keys())
            .finish_non_exhaustive()
    }
}
