//! NATS JetStream: a durable pull consumer. Acknowledgements wait for the server's word; progress is told while a handler
//! runs; dead letters go to a subject of their own.
//!
//! JetStream hands out what is next, whatever its key: it does not hold back later messages of a key whose earlier one
//! failed. The loop does that within one process. So for strict order run one process per consumer; a second one
//! may apply a key's later event while the first one waits for its earlier one to come back.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, ConnectOptions, HeaderMap, ServerAddr};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use symphony::consumer::{
    DeadLetterReason, DeadLettered, Delivery, Source, SourceError, SourceTerms,
};

use super::OpenError;
use crate::buses::in_short;
use crate::buses::nats::reasons;

/// At most this many messages in one call.
const BATCH_MAX: usize = 100;
/// How long the server may take for one answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the server gathers what is there: an acknowledgement may free more, but what it has is waited for.
const GATHER: Duration = Duration::from_millis(100);
/// The header that carries an event's place in the producer's log.
const POSITION: &str = "position";

/// Where the server is.
#[derive(Clone, Default)]
pub struct NatsAddress {
    /// Such as `nats://127.0.0.1:4222` or `tls://nats.example.com`.
    pub url: String,
    /// A `.creds` file: a user's JWT and seed.
    pub credentials_file: Option<std::path::PathBuf>,
    /// A token.
    pub token: Option<String>,
}

// The token is not for logs.
impl std::fmt::Debug for NatsAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsAddress").finish_non_exhaustive()
    }
}

/// Connect; the client then reconnects by itself, for ever. Without TLS to this machine only.
pub async fn connect(address: &NatsAddress) -> Result<Client, OpenError> {
    let server: ServerAddr = address
        .url
        .parse()
        .map_err(|_| OpenError::new("the NATS URL must be such as nats://127.0.0.1:4222"))?;
    if server.has_user_pass() {
        return Err(OpenError::new(
            "the NATS URL must not hold a password: use a token or a credentials file",
        ));
    }
    let host = server.host().trim_matches(['[', ']']).to_owned();
    let here = host == "localhost"
        || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    let mut options = ConnectOptions::new()
        .name("symphony consumer")
        .require_tls(!here || server.tls_required())
        .connection_timeout(ANSWER);
    if let Some(token) = &address.token {
        options = options.token(token.clone());
    }
    if let Some(file) = &address.credentials_file {
        options = options.credentials_file(file).await.map_err(|error| {
            OpenError::new(format!("the NATS credentials file cannot be read: {error}"))
        })?;
    }
    let place = format!("{host}:{}", server.port());
    match tokio::time::timeout(ANSWER, options.connect(server)).await {
        Ok(client) => client.map_err(|error| {
            let why = in_short(&reasons(&error));
            OpenError::new(format!("no connection to NATS at {place}: {why}"))
        }),
        Err(_elapsed) => Err(OpenError::new(format!(
            "no connection to NATS at {place} within {} s",
            ANSWER.as_secs()
        ))),
    }
}

/// Which stream, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JetStreamSettings {
    /// The stream.
    pub stream: String,
    /// The durable consumer; made if it is not there.
    pub durable: String,
    /// Only these subjects, `*` and `>` as NATS has them. Only where the consumer is made.
    pub filter_subject: Option<String>,
    /// Where dead letters are published. A stream must keep it, and this consumer must not receive it.
    pub dead_letter_subject: String,
    /// How long a message stays hidden between two signs of progress. Only where the consumer is made: an existing one
    /// keeps its own.
    pub visibility: Duration,
    /// How long one call waits for messages.
    pub wait: Duration,
}

/// A stream to consume from.
#[derive(Debug)]
pub struct JetStreamSource {
    client: Client,
    context: jetstream::Context,
    consumer: PullConsumer,
    settings: JetStreamSettings,
    terms: SourceTerms,
}

impl JetStreamSource {
    /// Find or make the consumer, and refuse one that would lose messages or order.
    pub async fn open(client: Client, settings: JetStreamSettings) -> Result<Self, OpenError> {
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if settings.durable.is_empty() || !settings.durable.chars().all(valid) {
            return Err(OpenError::new(
                "the consumer's name must be letters, digits, - and _: JetStream allows no more",
            ));
        }
        let context = jetstream::new(client.clone());
        let failed = |what: &str, error: String| OpenError::new(format!("{what}: {error}"));
        let stream = context
            .get_stream(&settings.stream)
            .await
            .map_err(|error| failed("cannot find the stream", error.to_string()))?;
        let wanted = pull::Config {
            durable_name: Some(settings.durable.clone()),
            ack_policy: AckPolicy::Explicit,
            ack_wait: settings.visibility,
            // We dead-letter; a server that gave up by itself would do so in silence.
            max_deliver: -1,
            filter_subject: settings.filter_subject.clone().unwrap_or_default(),
            ..pull::Config::default()
        };
        let consumer = stream
            .get_or_create_consumer(&settings.durable, wanted)
            .await
            .map_err(|error| failed("cannot find or make the consumer", error.to_string()))?;
        let config = &consumer.cached_info().config;
        if config.ack_policy != AckPolicy::Explicit {
            return Err(OpenError::new("the consumer's ack policy must be explicit"));
        }
        if config.max_deliver > 0 || !config.backoff.is_empty() {
            return Err(OpenError::new(
                "the consumer has max_deliver or backoff: take them off, because the server would drop messages in silence",
            ));
        }
        let visibility = config.ack_wait;
        let filter = config.filter_subject.clone();
        let letters = context
            .stream_by_subject(settings.dead_letter_subject.as_str())
            .await
            .map_err(|_| {
                OpenError::new(
                    "no stream keeps the dead-letter subject: make one, or dead letters would be lost",
                )
            })?;
        if letters == settings.stream && matches(&filter, &settings.dead_letter_subject) {
            return Err(OpenError::new(
                "the consumer would receive its own dead letters: use a stream of their own, or a filter",
            ));
        }
        let terms = SourceTerms {
            visibility,
            // More than it hands out at a time would be waited for in vain.
            batch_max: usize::try_from(config.max_ack_pending)
                .map_or(BATCH_MAX, |most| most.clamp(1, BATCH_MAX)),
            keeps_group_order: false,
            broker_receives_max: None,
        };
        Ok(Self { client, context, consumer, settings, terms })
    }

    /// Tell the server, and wait for its word that it has heard.
    async fn answer(&self, delivery: &Delivery, kind: AckKind) -> Result<(), SourceError> {
        let request = self.client.request(delivery.receipt.clone(), kind.into());
        match tokio::time::timeout(ANSWER, request).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(SourceError::new(format!("NATS: {error}"))),
            Err(_elapsed) => Err(SourceError::new("NATS did not answer in time")),
        }
    }

    async fn tell(&self, delivery: &Delivery, kind: AckKind) -> Result<(), SourceError> {
        self.client
            .publish(delivery.receipt.clone(), kind.into())
            .await
            .map_err(|error| SourceError::new(format!("NATS: {error}")))
    }

    async fn flush(&self) -> Result<(), SourceError> {
        match tokio::time::timeout(ANSWER, self.client.flush()).await {
            Ok(flushed) => flushed.map_err(|error| SourceError::new(format!("NATS: {error}"))),
            Err(_elapsed) => Err(SourceError::new("NATS did not answer in time")),
        }
    }
}

#[async_trait]
impl Source for JetStreamSource {
    fn terms(&self) -> &SourceTerms {
        &self.terms
    }

    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let failed = |error: &dyn std::fmt::Display| SourceError::new(format!("NATS: {error}"));
        let max = max.clamp(1, self.terms.batch_max);
        let calls = async {
            // What is there now; if nothing is, the first that comes. A server that may not hand out as many as it is
            // asked for waits for acknowledgements until the request expires, and so would what it has handed out.
            let there = self.consumer.fetch().max_messages(max).expires(GATHER).messages().await;
            let found = collect(there.map_err(|error| failed(&error))?).await?;
            if !found.is_empty() {
                return Ok(found);
            }
            let next =
                self.consumer.batch().max_messages(1).expires(self.settings.wait).messages().await;
            collect(next.map_err(|error| failed(&error))?).await
        };
        match tokio::time::timeout(self.settings.wait + ANSWER * 2, calls).await {
            Ok(received) => received,
            Err(_elapsed) => Err(SourceError::new("NATS did not answer in time")),
        }
    }

    async fn acknowledge(&self, delivery: &Delivery) -> Result<(), SourceError> {
        self.answer(delivery, AckKind::Ack).await
    }

    async fn extend(&self, deliveries: &[Arc<Delivery>]) -> Result<(), SourceError> {
        for delivery in deliveries {
            self.tell(delivery, AckKind::Progress).await?;
        }
        self.flush().await
    }

    async fn leave(&self, delivery: &Delivery, delay: Duration) -> Result<(), SourceError> {
        let delay = Some(delay).filter(|delay| !delay.is_zero());
        self.answer(delivery, AckKind::Nak(delay)).await
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery,
        reason: &DeadLetterReason,
    ) -> Result<DeadLettered, SourceError> {
        let mut headers = HeaderMap::new();
        // Published twice, if we are killed before the next line: the stream keeps one.
        headers.insert("Nats-Msg-Id", format!("{}:{}", self.settings.durable, delivery.message_id));
        headers.insert("Symphony-Dead-Letter-Reason", reason.code.as_str());
        headers.insert("Symphony-Dead-Letter-Message", one_line(&reason.message));
        headers.insert("Symphony-Consumer", self.settings.durable.as_str());
        if let Some(position) = delivery.position {
            headers.insert(POSITION, position.to_string());
        }
        let subject = self.settings.dead_letter_subject.clone();
        let publish = async {
            let kept =
                self.context.publish_with_headers(subject, headers, delivery.body.clone().into());
            kept.await.map_err(|error| error.to_string())?.await.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(ANSWER, publish).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(SourceError::new(format!("NATS, dead letter: {error}"))),
            Err(_elapsed) => {
                return Err(SourceError::new("NATS did not take the dead letter in time"));
            }
        }
        self.answer(delivery, AckKind::Term).await?;
        Ok(DeadLettered::Moved)
    }
}

async fn collect(mut messages: pull::Batch) -> Result<Vec<Delivery>, SourceError> {
    let mut found = Vec::new();
    while let Some(message) = messages.next().await {
        match message {
            Ok(message) => found.extend(delivery(&message)),
            // What came before it is in hand, and must not be lost sight of.
            Err(_) if !found.is_empty() => break,
            Err(error) => return Err(SourceError::new(format!("NATS: {error}"))),
        }
    }
    Ok(found)
}

/// None for what is no delivery of a stream, which a server never sends.
fn delivery(message: &jetstream::Message) -> Option<Delivery> {
    let info = message.info().ok()?;
    let position = message
        .headers
        .as_ref()
        .and_then(|headers| headers.get(POSITION))
        .and_then(|value| value.as_str().parse().ok());
    Some(Delivery {
        receipt: message.reply.as_ref()?.to_string(),
        message_id: format!("{}:{}", info.stream, info.stream_sequence),
        // The event's own key: subjects are types.
        group: None,
        order: info.stream_sequence.into(),
        receives: u32::try_from(info.delivered).unwrap_or(u32::MAX),
        position,
        body: message.payload.to_vec(),
    })
}

/// A header is one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Whether a filter, empty for everything, lets a subject through.
fn matches(filter: &str, subject: &str) -> bool {
    if filter.is_empty() {
        return true;
    }
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_lets_through_what_nats_would() {
        for (filter, subject, expected) in [
            ("", "dead.x", true),
            ("events.>", "events.a.b", true),
            ("events.>", "events", false),
            ("events.>", "dead.a", false),
            ("*.a", "events.a", true),
            ("*.a", "events.a.b", false),
            ("events.a", "events.a", true),
        ] {
            assert_eq!(matches(filter, subject), expected, "{filter} {subject}");
        }
    }
}
