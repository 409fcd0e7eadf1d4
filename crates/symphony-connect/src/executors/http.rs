//! Scripts that run elsewhere: the request is posted to the script's URL, and its answer is the outcome.
//!
//! A 2xx answer with JSON is a value: an object whose keys are `value`, and possibly `logs` and `effects`, is taken
//! apart; any other JSON is the value itself. Effects are written as the host API of scripts writes them
//! (`{"kind":"kv_set","key":…,"value":…}`) and are applied with the completion. 408, 429, 5xx, and everything that may be
//! different the next time, can be tried again.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hyper::Method;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use symphony::json::Members;
use symphony::lanes::triggers::executor::{
    Effect, Execution, Executor, LogLine, Request, RunOutcome,
};
use symphony::{FieldError, FieldErrors};
use tokio::time::{Instant, timeout_at};

use super::fetcher::{Call, send, trace_header};
use super::output::{Effects, Logs, storable};
use super::{Fetcher, OutputLimits, failed, posted_text};
use crate::bounds::executors::ENDPOINTS_KEPT_MAX;
use crate::http_client::{Endpoint, Failure, Reply};

/// Posts requests to URLs.
pub struct HttpExecutor {
    fetcher: Arc<Fetcher>,
    limits: OutputLimits,
    endpoints: Mutex<HashMap<String, Arc<Endpoint>>>,
}

/// The answer, taken apart.
type Parts = (Box<RawValue>, Vec<LogLine>, Vec<Effect>);

impl HttpExecutor {
    /// An executor that reaches what `fetcher` may reach, and takes answers within these limits.
    pub fn new(fetcher: Arc<Fetcher>, limits: OutputLimits) -> Result<Self, FieldErrors> {
        limits.check()?;
        Ok(Self { fetcher, limits, endpoints: Mutex::new(HashMap::new()) })
    }

    fn endpoint(&self, url: &str) -> Result<Arc<Endpoint>, FieldError> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(endpoint) = endpoints.get(url) {
            return Ok(Arc::clone(endpoint));
        }
        let endpoint = Arc::new(self.fetcher.endpoint(url)?);
        if endpoints.len() >= ENDPOINTS_KEPT_MAX {
            endpoints.clear();
        }
        endpoints.insert(url.to_owned(), Arc::clone(&endpoint));
        Ok(endpoint)
    }

    async fn post(&self, request: &Request) -> Result<Parts, RunOutcome> {
        let deadline = Instant::now() + request.timeout;
        let url = request.url.as_deref().unwrap_or_default();
        let endpoint = self
            .endpoint(url)
            .map_err(|error| failed("SCRIPT_INVALID", &error.to_string(), false))?;
        let text = posted_text(request);
        if text.len() > self.fetcher.request_bytes_max() {
            let most = self.fetcher.request_bytes_max();
            let problem = format!("the request is larger than {most} bytes (request_bytes_max)");
            return Err(failed("REQUEST_TOO_LARGE", &problem, false));
        }
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        trace_header(&mut headers, request.traceparent.as_deref());
        let call = Call { method: Method::POST, headers, body: Bytes::from(text) };
        let Ok(reply) = timeout_at(deadline, send(&endpoint, call, deadline)).await else {
            return Err(RunOutcome::TimedOut);
        };
        self.read(&reply.map_err(in_words)?)
    }

    fn read(&self, reply: &Reply) -> Result<Parts, RunOutcome> {
        if !(200..300).contains(&reply.status) {
            let retryable = matches!(reply.status, 408 | 500..600);
            let problem = format!("the URL answered with status {}", reply.status);
            if matches!(reply.status, 429 | 503) {
                return Err(RunOutcome::Away { code: "HTTP_STATUS", message: problem });
            }
            return Err(failed("HTTP_STATUS", &problem, retryable));
        }
        let bad = |problem: &str| failed("BAD_RESPONSE", problem, false);
        let text = std::str::from_utf8(&reply.body).map_err(|_| bad("the answer is not UTF-8"))?;
        let text = if text.trim().is_empty() { "null" } else { text };
        let answer = if is_envelope(text) {
            serde_json::from_str(text)
                .map_err(|_| bad("logs and effects must be lists, each in its own words"))?
        } else {
            let value = RawValue::from_string(text.to_owned());
            let value = value.map_err(|_| bad("the answer is not JSON"))?;
            Envelope { value, logs: Vec::new(), effects: Vec::new() }
        };
        if answer.value.get().len() > self.limits.result_bytes_max {
            let most = self.limits.result_bytes_max;
            let problem = format!("the value is larger than {most} bytes");
            return Err(failed("OUTPUT_LIMIT", &problem, false));
        }
        let value =
            storable(answer.value.get()).map_err(|problem| bad(&format!("the value {problem}")))?;
        let mut logs = Logs::new(&self.limits);
        for line in &answer.logs {
            let known = ["debug", "info", "warn", "error"].contains(&line.level.as_str());
            logs.push(if known { &line.level } else { "info" }, line.at_ms, &line.message);
        }
        let mut effects = Effects::new(self.limits);
        for (at, effect) in answer.effects.into_iter().enumerate() {
            let effect =
                effect.into_effect().map_err(|problem| bad(&format!("effects[{at}] {problem}")))?;
            effects.push(effect).map_err(|limit| failed("OUTPUT_LIMIT", &limit, false))?;
        }
        Ok((value, logs.take(), effects.take()))
    }
}

#[async_trait]
impl Executor for HttpExecutor {
    async fn run(&self, request: &Request) -> Execution {
        match self.post(request).await {
            Ok((value, logs, effects)) => {
                let outcome = RunOutcome::Value(value);
                Execution { logs, effects, has_left: true, ..Execution::new(outcome) }
            }
            Err(outcome) => Execution { has_left: true, ..Execution::new(outcome) },
        }
    }
}

impl fmt::Debug for HttpExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpExecutor").field("limits", &self.limits).finish_non_exhaustive()
    }
}

fn in_words(failure: Failure) -> RunOutcome {
    match failure {
        Failure::NotSent { error_code, .. } | Failure::Lost { error_code, .. }
            if error_code == "TIMEOUT" =>
        {
            RunOutcome::TimedOut
        }
        Failure::NotSent { error_code, message } if error_code != "ADDRESS_REFUSED" => {
            RunOutcome::Away { code: error_code, message }
        }
        Failure::NotSent { error_code, message } | Failure::Lost { error_code, message } => {
            // The other side is wrong, and will be the next time.
            let retryable = !matches!(error_code, "ADDRESS_REFUSED" | "BAD_RESPONSE");
            failed(error_code, &message, retryable)
        }
    }
}

/// An object with `value`, and nothing but what belongs to it.
fn is_envelope(text: &str) -> bool {
    let members = serde_json::from_str(text).ok().and_then(Members::of);
    members.is_some_and(|members| {
        members.get("value").is_some()
            && members.names().all(|name| ["value", "logs", "effects"].contains(&name))
    })
}

#[derive(Deserialize)]
struct Envelope {
    value: Box<RawValue>,
    #[serde(default)]
    logs: Vec<LogLine>,
    #[serde(default)]
    effects: Vec<EffectText>,
}

/// An effect as [`Effect`] serializes. Taken apart by hand, since serde cannot read raw JSON behind a tag.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EffectText {
    kind: String,
    key: Option<String>,
    queue: Option<String>,
    topic: Option<String>,
    by: Option<i64>,
    #[serde(rename = "ttlSeconds")]
    ttl_seconds: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    expected: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    value: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    message: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "present")]
    event: Option<Box<RawValue>>,
}

/// `null` is a value too.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

impl EffectText {
    fn into_effect(self) -> Result<Effect, String> {
        let given = [
            ("key", self.key.is_some()),
            ("queue", self.queue.is_some()),
            ("topic", self.topic.is_some()),
            ("by", self.by.is_some()),
            ("ttlSeconds", self.ttl_seconds.is_some()),
            ("expected", self.expected.is_some()),
            ("value", self.value.is_some()),
            ("message", self.message.is_some()),
            ("event", self.event.is_some()),
        ];
        let wanted: &[&str] = match self.kind.as_str() {
            "kv_set" | "kv_set_if_absent" => &["key", "value", "ttlSeconds"],
            "kv_delete" => &["key"],
            "kv_increment" => &["key", "by", "ttlSeconds"],
            "kv_compare_and_set" => &["key", "expected", "value", "ttlSeconds"],
            "queue_send" => &["queue", "message", "key"],
            "pubsub_publish" => &["topic", "message"],
            "event_publish" => &["event"],
            "email_send" => &["message"],
            _ => return Err("has a kind that there is not".to_owned()),
        };
        if let Some((extra, _)) = given.iter().find(|(field, is)| *is && !wanted.contains(field)) {
            return Err(format!("must not have {extra}"));
        }
        let json = |field: &str, value: Option<Box<RawValue>>| {
            let value = value.ok_or_else(|| format!("lacks {field}"))?;
            storable(value.get()).map_err(|problem| format!("{field} {problem}"))
        };
        let name = |field: &str, value: Option<String>| {
            let value = value.ok_or_else(|| format!("lacks {field}"))?;
            if value.contains('\0') {
                return Err(format!("{field} must not have a NUL"));
            }
            Ok(value)
        };
        let ttl_seconds = self.ttl_seconds;
        Ok(match self.kind.as_str() {
            "kv_set" => Effect::KvSet {
                key: name("key", self.key)?,
                value: json("value", self.value)?,
                ttl_seconds,
            },
            "kv_set_if_absent" => Effect::KvSetIfAbsent {
                key: name("key", self.key)?,
                value: json("value", self.value)?,
                ttl_seconds,
            },
            "kv_compare_and_set" => Effect::KvCompareAndSet {
                key: name("key", self.key)?,
                expected: json("expected", self.expected)?,
                value: json("value", self.value)?,
                ttl_seconds,
            },
            "kv_increment" => Effect::KvIncrement {
                key: name("key", self.key)?,
                by: self.by.ok_or("lacks by: a whole number")?,
                ttl_seconds,
            },
            "kv_delete" => Effect::KvDelete { key: name("key", self.key)? },
            "queue_send" => Effect::QueueSend {
                queue: name("queue", self.queue)?,
                message: json("message", self.message)?,
                // Without its key it would lose its order.
                key: self.key.map(|key| name("key", Some(key))).transpose()?,
            },
            "pubsub_publish" => Effect::PubsubPublish {
                topic: name("topic", self.topic)?,
                message: json("message", self.message)?,
            },
            "event_publish" => Effect::EventPublish { event: json("event", self.event)? },
            _ => Effect::EmailSend { message: json("message", self.message)? },
        })
    }
}
