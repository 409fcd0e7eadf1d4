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
use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use symphony::FieldErrors;
use symphony::consumer::{DeadLetterReason, Delivery, Source, SourceError, SourceTerms};
use symphony::event::envelope::{Binding, Restored, restore};

use super::OpenError;
use crate::nats::{NatsServers, Reconnect, subject_matches};

use crate::bounds::nats::{ANSWER_TIMEOUT, GATHER_TIMEOUT, HELD_MAX};
pub use crate::nats::{NatsAddress, dead_letter_subject};

/// At most this many messages in one call.
const BATCH_MAX: usize = 100;
/// The header that carries an event's place in the producer's log.
const POSITION: &str = "position";

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address cannot be used.
    #[error(transparent)]
    Address(#[from] FieldErrors),
    /// Nobody is there, or it does not let us in.
    #[error("{0}")]
    NoConnection(String),
}

/// Connect; the client then reconnects by itself, for ever.
pub async fn connect(
    address: &NatsAddress,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Client, ConnectError> {
    let servers = NatsServers::new(address, environment)?;
    servers
        .connect("symphony consumer", ANSWER_TIMEOUT, Reconnect::Forever, &Arc::default())
        .await
        .map_err(|trouble| ConnectError::NoConnection(trouble.message))
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
    dead_letter_stream: String,
    terms: SourceTerms,
}

/// Only asks for the consumer itself, so that whoever reads it needs no right to the stream; made if it is not there.
async fn find_or_make(
    context: &jetstream::Context,
    settings: &JetStreamSettings,
) -> Result<PullConsumer, OpenError> {
    let failed = |what: &str, error: String| OpenError::new(format!("{what}: {error}"));
    let (stream, durable) = (settings.stream.as_str(), settings.durable.as_str());
    if let Ok(found) = context.get_consumer_from_stream(durable, stream).await {
        return Ok(found);
    }
    let stream = context
        .get_stream(stream)
        .await
        .map_err(|error| failed("cannot find the stream", error.to_string()))?;
    let wanted = pull::Config {
        durable_name: Some(durable.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: settings.visibility,
        // We dead-letter; a server that gave up by itself would do so in silence.
        max_deliver: -1,
        filter_subject: settings.filter_subject.clone().unwrap_or_default(),
        ..pull::Config::default()
    };
    stream
        .get_or_create_consumer(durable, wanted)
        .await
        .map_err(|error| failed("cannot find or make the consumer", error.to_string()))
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
        let consumer = find_or_make(&context, &settings).await?;
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
        if letters == settings.stream && subject_matches(&filter, &settings.dead_letter_subject) {
            return Err(OpenError::new(
                "the consumer would receive its own dead letters: use a stream of their own, or a filter",
            ));
        }
        // More than it hands out at a time would be waited for in vain.
        let held_max = usize::try_from(config.max_ack_pending)
            .map_or(HELD_MAX, |most| most.clamp(1, HELD_MAX));
        let terms = SourceTerms {
            visibility,
            batch_max: held_max.min(BATCH_MAX),
            held_max,
            held_time_max: None,
            keeps_group_order: false,
            broker_receives_max: None,
        };
        Ok(Self { client, context, consumer, settings, dead_letter_stream: letters, terms })
    }

    /// Tell the server, and wait for its word that it has heard.
    async fn answer(&self, delivery: &Delivery, kind: AckKind) -> Result<(), SourceError> {
        let request = self.client.request(delivery.receipt.clone(), kind.into());
        match tokio::time::timeout(ANSWER_TIMEOUT, request).await {
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
        match tokio::time::timeout(ANSWER_TIMEOUT, self.client.flush()).await {
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
            let there =
                self.consumer.fetch().max_messages(max).expires(GATHER_TIMEOUT).messages().await;
            let found = collect(there.map_err(|error| failed(&error))?).await?;
            if !found.is_empty() {
                return Ok(found);
            }
            let next =
                self.consumer.batch().max_messages(1).expires(self.settings.wait).messages().await;
            collect(next.map_err(|error| failed(&error))?).await
        };
        match tokio::time::timeout(self.settings.wait + ANSWER_TIMEOUT * 2, calls).await {
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
    ) -> Result<(), SourceError> {
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
        match tokio::time::timeout(ANSWER_TIMEOUT, publish).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(SourceError::new(format!("NATS, dead letter: {error}"))),
            Err(_elapsed) => {
                return Err(SourceError::new("NATS did not take the dead letter in time"));
            }
        }
        self.answer(delivery, AckKind::Term).await
    }

    async fn unacknowledged(&self) -> Result<Option<u64>, SourceError> {
        let (stream, durable) = (&self.settings.stream, &self.settings.durable);
        // Not from memory: each answer is a new one.
        let asked = self.context.get_consumer_from_stream::<pull::Config, _, _>(durable, stream);
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            Ok(Ok(found)) => {
                let info = found.cached_info();
                let given_out = u64::try_from(info.num_ack_pending).unwrap_or(u64::MAX);
                Ok(Some(info.num_pending.saturating_add(given_out)))
            }
            Ok(Err(error)) => Err(SourceError::new(format!("NATS: {error}"))),
            Err(_elapsed) => Err(SourceError::new("NATS did not answer in time")),
        }
    }

    async fn dead_letters_waiting(&self) -> Result<Option<u64>, SourceError> {
        let failed = |error: &dyn std::fmt::Display| SourceError::new(format!("NATS: {error}"));
        let subject = self.settings.dead_letter_subject.as_str();
        let count = async {
            let stream = self.context.get_stream_no_info(&self.dead_letter_stream).await;
            let stream = stream.map_err(|error| failed(&error))?;
            let mut subjects =
                stream.info_with_subjects(subject).await.map_err(|error| failed(&error))?;
            let mut waiting = 0_u64;
            while let Some(found) = subjects.next().await {
                let (_, messages) = found.map_err(|error| failed(&error))?;
                waiting = waiting.saturating_add(u64::try_from(messages).unwrap_or(u64::MAX));
            }
            Ok(Some(waiting))
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, count).await {
            Ok(counted) => counted,
            Err(_elapsed) => Err(SourceError::new("NATS did not answer in time")),
        }
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
    let headers =
        message.headers.iter().flat_map(HeaderMap::iter).filter_map(|(name, values)| {
            Some((name.to_string(), values.first()?.as_str().to_owned()))
        });
    let Restored { body, position, defect } =
        restore(Binding::Nats, headers, message.payload.to_vec());
    Some(Delivery {
        receipt: message.reply.as_ref()?.to_string(),
        message_id: format!("{}:{}", info.stream, info.stream_sequence),
        // The event's own key: subjects are types.
        group: None,
        order: info.stream_sequence.into(),
        receives: u32::try_from(info.delivered).unwrap_or(u32::MAX),
        position,
        body,
        defect,
    })
}

/// A header is one line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
