//! Spans as OTLP has them, and one post of them. The encoding is opentelemetry-otlp's, the connection is ours: its own
//! repetitions would block a thread of the runtime.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    Protocol, RetryPolicy, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use symphony::trace::{Span, Step};
use symphony_connect::collector::Collector;

/// Why the collector did not take a batch.
pub(super) struct Refused {
    pub(super) problem: String,
    /// It may take it in a moment.
    pub(super) may_pass: bool,
}

/// A collector that speaks OTLP.
pub(super) struct Otlp {
    exporter: SpanExporter,
    scope: InstrumentationScope,
    refused: Arc<Mutex<Option<Refused>>>,
}

impl Otlp {
    pub(super) fn new(endpoint: &str, collector: Collector) -> Result<Self, String> {
        let refused = Arc::default();
        let client = Client { collector, refused: Arc::clone(&refused) };
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(endpoint)
            .with_protocol(Protocol::HttpBinary)
            .with_retry_policy(RetryPolicy::disabled())
            .build()
            .map_err(|error| error.to_string())?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let instance = format!("{host}:{}", std::process::id());
        let resource = Resource::builder_empty()
            .with_service_name("symphony")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(KeyValue::new("service.instance.id", instance))
            .build();
        exporter.set_resource(&resource);
        let scope = InstrumentationScope::builder("symphony")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Ok(Self { exporter, scope, refused })
    }

    /// Post once.
    pub(super) async fn post(&self, spans: &[Span]) -> Result<(), Refused> {
        let batch = spans.iter().map(|span| data(span, &self.scope)).collect();
        match self.exporter.export(batch).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let said = self.refused.lock().unwrap_or_else(PoisonError::into_inner).take();
                let unsaid = || Refused { problem: error.to_string(), may_pass: false };
                Err(said.unwrap_or_else(unsaid))
            }
        }
    }
}

/// Our connection for their exporter, which does not pass on why a post failed.
#[derive(Debug)]
struct Client {
    collector: Collector,
    refused: Arc<Mutex<Option<Refused>>>,
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        let content_type = head.headers.get(CONTENT_TYPE).unwrap_or(&protobuf);
        let answer = self.collector.post(content_type, body).await;
        let refused = match &answer {
            Ok(status) if (200..300).contains(status) => None,
            Ok(status) => Some(Refused {
                problem: format!("it answered with status {status}"),
                may_pass: matches!(status, 429 | 502..=504),
            }),
            Err(problem) => Some(Refused { problem: problem.clone(), may_pass: true }),
        };
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        let mut response = Response::new(Bytes::new());
        *response.status_mut() = answer?.try_into()?;
        Ok(response)
    }
}

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.problem)
    }
}

fn data(span: &Span, scope: &InstrumentationScope) -> SpanData {
    let mut attributes = vec![
        KeyValue::new("symphony.lane", span.lane),
        KeyValue::new("symphony.item", span.item.to_string()),
        KeyValue::new("symphony.attempt", i64::from(span.attempt)),
    ];
    if let Some(destination) = &span.destination {
        let name = match span.lane {
            "payments" => "symphony.rail",
            "events" => "symphony.topic",
            _ => "symphony.app",
        };
        attributes.push(KeyValue::new(name, destination.clone()));
    }
    attributes.extend(span.outcome.map(|outcome| KeyValue::new("symphony.outcome", outcome)));
    let code = span.error_code.as_ref();
    attributes.extend(code.map(|code| KeyValue::new("error.type", code.clone())));
    let id = |id: symphony::trace::SpanId| SpanId::from_bytes(id.to_bytes());
    SpanData {
        span_context: SpanContext::new(
            TraceId::from_bytes(span.trace_id.to_bytes()),
            id(span.span_id),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        ),
        parent_span_id: span.parent.map_or(SpanId::INVALID, id),
        parent_span_is_remote: span.parent.is_some(),
        span_kind: match (span.step, span.lane) {
            (Step::Enqueue, _) | (Step::Dispatch, "events") => SpanKind::Producer,
            (Step::Dispatch, "payments") => SpanKind::Client,
            (Step::Dispatch, _) => SpanKind::Consumer,
            (Step::Wait | Step::Claim | Step::Complete, _) => SpanKind::Internal,
        },
        name: format!("{} {}", span.lane, span.step.name()).into(),
        start_time: span.started_at,
        end_time: span.ended_at,
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: match span.outcome {
            None => Status::Unset,
            Some("DISPATCHED") => Status::Ok,
            Some(outcome) => Status::error(code.cloned().unwrap_or_else(|| outcome.to_owned())),
        },
        instrumentation_scope: scope.clone(),
    }
}
