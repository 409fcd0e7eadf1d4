//! A rail for any provider that takes JSON over HTTP. Everything about it is configuration.
//!
//! - [`settings`]: what one configures, and which contradictions are refused.
//! - `reading`: what an answer says about the money.
//!
//! A request is `POST url` with the payload's text, byte for byte, as its body. Who it is stands in headers, so
//! that the body can stay what the producer wrote: the key, `Symphony-Instruction-Id`,
//! `Symphony-Participant-Id`, `Symphony-Sequence-Id`, `traceparent`, and the signature.

mod reading;
pub mod settings;
mod setup;

#[cfg(test)]
pub(crate) mod tests;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Uri};
use symphony::FieldErrors;
use symphony::lanes::payments::rail::{Answer, Inquiry, Payment, Rail, SendCheck, Terms, Verdict};
use symphony::money::{Defect, DestinationRule};
use tokio::time::Instant;

use self::reading::Reader;
use crate::http_client::{Body, Endpoint, Failure, Reply, header_text, is_trace_context};
use crate::rails::signature::{SIGNATURE_HEADER, sign};

pub use self::reading::{MESSAGE_CHARACTERS_MAX, REFERENCE_CHARACTERS_MAX};
pub use self::settings::{HttpRailSettings, NotFound};
pub use crate::http_client::RETRY_AFTER_SECONDS_MAX;

const INSTRUCTION_HEADER: HeaderName = HeaderName::from_static("symphony-instruction-id");
const PARTICIPANT_HEADER: HeaderName = HeaderName::from_static("symphony-participant-id");
const SEQUENCE_HEADER: HeaderName = HeaderName::from_static("symphony-sequence-id");
const TRACE_HEADER: HeaderName = HeaderName::from_static("traceparent");

/// A rail to a provider that takes JSON over HTTP.
pub struct HttpRail {
    terms: Terms,
    destination: DestinationRule,
    payments: Endpoint,
    /// Its target contains [`setup::KEY_PLACEHOLDER`].
    inquiries: Option<Endpoint>,
    /// The same for every request, `Host` apart.
    headers: HeaderMap,
    key_header: HeaderName,
    signing_secret: Option<Vec<u8>>,
    reader: Reader,
}

impl HttpRail {
    /// A rail as configured. `environment` gives the value of a variable, normally
    /// `|name| std::env::var(name).ok()`; secrets are read from it once, here.
    pub fn new(
        settings: &HttpRailSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        setup::rail(settings, &environment)
    }

    async fn post(
        &self,
        payment: &Payment,
        check: Option<&dyn SendCheck>,
    ) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.terms.timeout;
        let body = Bytes::copy_from_slice(payment.payload.get().as_bytes());
        let mut request =
            self.request(Method::POST, &self.payments, &self.payments.target, payment, body);
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.payments.origin.exchange_when(request, deadline, check).await
    }

    fn answer(&self, payment: &Payment, reply: Result<Reply, Failure>) -> Answer {
        match reply {
            Ok(reply) => self.reader.dispatch(&payment.key.to_string(), &reply, Utc::now()),
            Err(Failure::NotSent { error_code, message }) => {
                Answer::trouble(Verdict::Retryable, error_code, message)
            }
            Err(Failure::Lost { error_code, message }) => {
                Answer::trouble(Verdict::Unknown, error_code, message)
            }
        }
    }

    async fn get(&self, endpoint: &Endpoint, payment: &Payment) -> Result<Reply, Failure> {
        let deadline = Instant::now() + self.terms.inquiry_timeout;
        let target = endpoint.target.replace(setup::KEY_PLACEHOLDER, &payment.key.to_string());
        let request = self.request(Method::GET, endpoint, &target, payment, Bytes::new());
        endpoint.origin.exchange(request, deadline).await
    }

    fn request(
        &self,
        method: Method,
        endpoint: &Endpoint,
        target: &str,
        payment: &Payment,
        body: Bytes,
    ) -> Request<Body> {
        let key = payment.key.to_string();
        let mut headers = self.headers.clone();
        let mut set = |name: &HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set(&self.key_header, &key);
        set(&INSTRUCTION_HEADER, &header_text(&payment.instruction_id));
        set(&PARTICIPANT_HEADER, &header_text(&payment.participant_id));
        set(&SEQUENCE_HEADER, &payment.sequence_id.to_string());
        if let Some(trace) = payment.traceparent.as_deref().filter(|trace| is_trace_context(trace))
        {
            set(&TRACE_HEADER, trace);
        }
        if let Some(secret) = &self.signing_secret {
            let signature = sign(secret, Utc::now().timestamp(), &key, &body);
            set(&HeaderName::from_static(SIGNATURE_HEADER), &signature);
        }
        headers.insert(hyper::header::HOST, endpoint.host.clone());
        let mut request = Request::new(Body::new(body));
        *request.method_mut() = method;
        // Parsed once already, at start; a key's digits cannot make it invalid.
        *request.uri_mut() = target.parse().unwrap_or_else(|_| Uri::from_static("/"));
        *request.headers_mut() = headers;
        request
    }
}

#[async_trait]
impl Rail for HttpRail {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn validate(&self, payment: &Payment) -> Result<(), Defect> {
        self.destination.check(&payment.payload)
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        self.answer(payment, self.post(payment, None).await)
    }

    async fn dispatch_when(&self, payment: &Payment, check: &dyn SendCheck) -> Answer {
        self.answer(payment, self.post(payment, Some(check)).await)
    }

    async fn inquire(&self, payment: &Payment) -> Inquiry {
        let Some(endpoint) = &self.inquiries else {
            let message = "this rail has no inquiry_url";
            return Inquiry::Unclear(Answer {
                error_code: Some("INQUIRY_IMPOSSIBLE".to_owned()),
                message: Some(message.to_owned()),
                ..Answer::new(Verdict::Unknown)
            });
        };
        match self.get(endpoint, payment).await {
            Ok(reply) => self.reader.inquiry(&payment.key.to_string(), &reply, Utc::now()),
            Err(
                Failure::NotSent { error_code, message } | Failure::Lost { error_code, message },
            ) => Inquiry::Unclear(Answer::trouble(Verdict::Unknown, error_code, message)),
        }
    }
}

/// Nothing of it may hold a secret.
impl fmt::Debug for HttpRail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRail")
            .field("host", &self.payments.host)
            .field("terms", &self.terms)
            .field("signs", &self.signing_secret.is_some())
            .finish_non_exhaustive()
    }
}

fn milliseconds(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
