//! NATS JetStream: the topic is the stream, the subject is the event's type.
//!
//! A publish waits until the stream says that it has stored the message. The message id is the event id, so the
//! stream swallows what it has seen within its duplicate window. A stream is one sequence, so what is published one
//! after another is read in that order.
//!
//! - `connection`: one connection, made when it is needed and thrown away when it is in doubt.

mod connection;

use std::error::Error;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{self, ErrorCode};
use async_trait::async_trait;
use futures_util::future::join_all;
use serde::Deserialize;
use symphony::event::envelope::Binding;
use symphony::lanes::events::bus::{Bus, Message, Publication, Terms};
use symphony::{FieldError, FieldErrors};
use tokio::time::Instant;

use super::{FailureKind, TIMEOUT_MARGIN, again, refused, short_line};
use crate::nats::NatsAddress;
use crate::settings::Defects;

use crate::bounds::nats::BATCH_MAX;
use connection::Connection;
pub use connection::NatsConnector;

/// `[buses.NAME]` with `kind = "nats"`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NatsSettings {
    /// Such as `nats://127.0.0.1:4222` or `tls://nats.example.com`; several of one cluster with commas between.
    pub url: String,
    /// Put before the type, with a dot: `payments` makes `payments.events.transfers.submitted`.
    pub subject_prefix: Option<String>,
    /// A `.creds` file: a user's JWT and seed.
    pub credentials_file: Option<String>,
    /// The environment variable that holds the token.
    pub token_env: Option<String>,
    /// PEM; without it, the system's.
    pub ca_file: Option<String>,
    /// PEM, to prove who we are; with `client_key_file`.
    pub client_certificate_file: Option<String>,
    /// PEM.
    pub client_key_file: Option<String>,
    /// Connect without TLS to a server that is not this machine.
    pub allow_plain_text: bool,
    /// The limit on one call, connecting included.
    pub timeout_ms: u64,
    /// The limit on making a connection.
    pub connect_timeout_ms: u64,
    /// The streams' duplicate window: `symphony bus setup` makes them so.
    pub duplicate_window_seconds: u64,
}

impl Default for NatsSettings {
    fn default() -> Self {
        Self {
            url: String::new(),
            subject_prefix: None,
            credentials_file: None,
            token_env: None,
            ca_file: None,
            client_certificate_file: None,
            client_key_file: None,
            allow_plain_text: false,
            timeout_ms: 5_000,
            connect_timeout_ms: 3_000,
            duplicate_window_seconds: 120,
        }
    }
}

impl NatsSettings {
    /// Where the server is.
    fn address(&self) -> NatsAddress {
        NatsAddress {
            url: self.url.clone(),
            credentials_file: self.credentials_file.clone(),
            token_env: self.token_env.clone(),
            ca_file: self.ca_file.clone(),
            client_certificate_file: self.client_certificate_file.clone(),
            client_key_file: self.client_key_file.clone(),
            allow_plain_text: self.allow_plain_text,
        }
    }
}

/// Publishes to JetStream streams.
#[derive(Debug)]
pub struct NatsBus {
    connector: NatsConnector,
    subjects: Subjects,
    timeout: Duration,
    terms: Terms,
}

impl NatsBus {
    /// Of these settings; connects at the first publish.
    pub fn new(
        settings: &NatsSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        let subjects = defects.note(Subjects::new(settings.subject_prefix.as_deref()));
        let connector = defects.note(NatsConnector::new(settings, environment));
        let (subjects, connector) = defects.finish(subjects.zip(connector))?;
        let timeout = connector.answer_timeout();
        let terms = Terms {
            binding: Binding::Nats,
            timeout: timeout + TIMEOUT_MARGIN,
            batch_max: BATCH_MAX,
            fill_within: Duration::ZERO,
            dedup_window: Duration::from_secs(settings.duplicate_window_seconds),
        };
        Ok(Self { connector, subjects, timeout, terms })
    }

    async fn publish_one(
        &self,
        connection: &Connection,
        stream: &str,
        message: &Message,
        until: Instant,
    ) -> Publication {
        let Some(subject) = self.subjects.of_type(&message.event_type) else {
            return refused("MALFORMED", "the event's type is not a subject of NATS");
        };
        let publish = PublishMessage::build()
            .payload(message.body.clone().into())
            .headers(headers(message))
            .message_id(message.event_id.to_string())
            .expected_stream(stream);
        let started = std::time::Instant::now();
        let stored =
            async { connection.jetstream.send_publish(subject.clone(), publish).await?.await };
        let stored = tokio::time::timeout_at(until, stored).await;
        if !matches!(stored, Ok(Ok(_))) && connection.denials.since(&subject, started) {
            let problem =
                format!("the server lets us publish nothing to {subject}: see docs/BUSES.md");
            return again("NOT_AUTHORIZED", problem, FailureKind::NotTakenUntilMended);
        }
        match stored {
            Ok(Ok(ack)) => {
                Publication::Accepted { reference: format!("{}:{}", ack.stream, ack.sequence) }
            }
            Ok(Err(error)) => failure(&error, stream),
            Err(_) => again("TIMEOUT", "the stream did not answer in time", FailureKind::Unknown),
        }
    }
}

#[async_trait]
impl Bus for NatsBus {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    async fn publish(&self, topic: &str, batch: &[&Message]) -> Vec<Publication> {
        let until = Instant::now() + self.timeout;
        if !is_stream_name(topic) {
            let problem = format!("{topic} cannot be a stream's name: correct the route's topic");
            let answer = again("NO_SUCH_TOPIC", problem, FailureKind::NotTakenUntilMended);
            return vec![answer; batch.len()];
        }
        let connection = match self.connector.connection().await {
            Ok(connection) => connection,
            Err(trouble) => {
                let (code, kind) = if trouble.not_authorized {
                    ("NOT_AUTHORIZED", FailureKind::NotTakenUntilMended)
                } else {
                    ("UNREACHABLE", FailureKind::NotTakenUnwell)
                };
                return vec![again(code, trouble.message, kind); batch.len()];
            }
        };
        let answers = join_all(
            batch.iter().map(|message| self.publish_one(&connection, topic, message, until)),
        )
        .await;
        if answers.iter().any(|answer| matches!(answer, Publication::Again { unknown: true, .. })) {
            // What the client still holds for sending must not go out after we have said that it failed.
            self.connector.discard(&connection).await;
        }
        answers
    }

    fn check_topic(&self, topic: &str) -> Result<(), String> {
        if is_stream_name(topic) {
            Ok(())
        } else {
            Err(format!("is {topic}, which cannot be a stream's name: letters, digits, - and _"))
        }
    }
}

fn headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &message.headers {
        headers.insert(*name, value.as_str());
    }
    headers
}

fn failure(error: &PublishError, stream: &str) -> Publication {
    let no_stream = || {
        let message =
            format!("no stream {stream} takes this subject: create it with `symphony bus setup`");
        again("NO_SUCH_TOPIC", message, FailureKind::NotTakenUntilMended)
    };
    match error.kind() {
        PublishErrorKind::StreamNotFound => no_stream(),
        PublishErrorKind::MaxPayloadExceeded => refused(
            "OVERSIZE",
            "the event is larger than the server's max_payload: publish a reference to the data instead",
        ),
        PublishErrorKind::TimedOut => {
            again("TIMEOUT", "the stream did not answer in time", FailureKind::Unknown)
        }
        PublishErrorKind::BrokenPipe => again(
            "CONNECTION_LOST",
            "the connection broke before the stream's answer",
            FailureKind::Unknown,
        ),
        PublishErrorKind::MaxAckPending => again(
            "THROTTLED",
            "too many publishes wait for their answer",
            FailureKind::NotTakenUnwell,
        ),
        _ => {
            let said = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
            let Some(said) = said else {
                return again("BUS_ERROR", "the publish failed half way", FailureKind::Unknown);
            };
            let words = format!("the stream says: {}", short_line(&said.to_string()));
            match said.error_code() {
                ErrorCode::STREAM_NOT_MATCH | ErrorCode::STREAM_NOT_FOUND => no_stream(),
                ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => refused("OVERSIZE", words),
                // Full, or sealed: an operator can mend it.
                ErrorCode::STREAM_STORE_FAILED => {
                    again("BUS_ERROR", words, FailureKind::NotTakenUntilMended)
                }
                _ => again("BUS_ERROR", words, FailureKind::NotTakenUnwell),
            }
        }
    }
}

/// JetStream allows no more in a stream's name.
pub(crate) fn is_stream_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 255
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// From types to subjects.
#[derive(Debug, Clone)]
pub(crate) struct Subjects {
    prefix: String,
}

impl Subjects {
    pub(crate) fn new(prefix: Option<&str>) -> Result<Self, FieldError> {
        let prefix = prefix.unwrap_or_default();
        if !prefix.is_empty() && !is_subject(prefix) {
            let problem = "must be words of letters, digits, - and _ with dots between";
            return Err(FieldError::new("subject_prefix", problem));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// `None`: it would not be one subject.
    fn of_type(&self, event_type: &str) -> Option<String> {
        is_subject(event_type).then(|| self.prefixed(event_type))
    }

    /// Of a pattern such as `events.transfers.*`: here `*` at the end stands for all that follows.
    pub(crate) fn of_pattern(&self, pattern: &str) -> Option<String> {
        if pattern == "*" {
            return Some(self.prefixed(">"));
        }
        match pattern.strip_suffix(".*") {
            Some(start) => is_subject(start).then(|| self.prefixed(&format!("{start}.>"))),
            None => self.of_type(pattern),
        }
    }

    fn prefixed(&self, subject: &str) -> String {
        if self.prefix.is_empty() {
            subject.to_owned()
        } else {
            format!("{}.{subject}", self.prefix)
        }
    }
}

fn is_subject(text: &str) -> bool {
    text.split('.').all(|word| {
        !word.is_empty()
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_a_subject_and_a_pattern_stands_for_all_that_follows() {
        let plain = Subjects::new(None).unwrap();
        assert_eq!(plain.of_type("events.a.b").unwrap(), "events.a.b");
        assert_eq!(plain.of_pattern("events.a.*").unwrap(), "events.a.>");
        assert_eq!(plain.of_pattern("*").unwrap(), ">");
        let prefixed = Subjects::new(Some("pay.eu")).unwrap();
        assert_eq!(prefixed.of_type("events.a").unwrap(), "pay.eu.events.a");
        assert_eq!(prefixed.of_pattern("*").unwrap(), "pay.eu.>");
        for wrong in ["", "a..b", "a b", "a.*.b", "a.>", ".a"] {
            assert!(plain.of_type(wrong).is_none() && plain.of_pattern(wrong).is_none(), "{wrong}");
        }
        assert!(Subjects::new(Some("a.")).is_err());
    }
}
