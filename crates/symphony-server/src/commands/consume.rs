//! `symphony consume`: events from a queue to a program on this machine, until SIGTERM or Ctrl-C.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use symphony::consumer::{
    Apply, ConsumerMetrics, ConsumerSettings, InboxApply, Source, keep_retention,
};
use symphony::db::ActsAs;
use symphony::{FieldError, FieldErrors};
#[cfg(feature = "sns")]
use symphony_connect::aws::{Aws, AwsSettings};
use symphony_connect::sources::forward::Forward;
use symphony_connect::sources::jetstream::{
    ConnectError, JetStreamSettings, JetStreamSource, NatsAddress, connect, dead_letter_subject,
};
#[cfg(feature = "sns")]
use symphony_connect::sources::sqs::{SqsSettings, SqsSource};
#[cfg(feature = "kafka")]
use symphony_connect::{
    buses::setup::dead_letter_topic,
    sources::kafka::{KafkaAddress, KafkaOpenError, KafkaSource, KafkaSourceSettings},
};
use tokio::sync::watch;

use super::database::StopSignals;
use crate::api::Api;
use crate::cli::{Consume, Global, SourceName};
use crate::config::{Config, LogFormat};
use crate::output::Failure;
use crate::server::Server;
use crate::{metrics, telemetry};

/// How long one call waits for messages.
const WAIT: Duration = Duration::from_secs(10);
/// How long a process may be silent before its partitions go to others.
#[cfg(feature = "kafka")]
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections beside those of the events at work: retention, and one to spare.
const SPARE_CONNECTIONS: u32 = 2;

pub(super) async fn run(global: &Global, options: Consume) -> Result<ExitCode, Failure> {
    let mut config = Config::load(global.config.as_deref())?;
    if global.json {
        config.log.format = LogFormat::Json;
    }
    telemetry::start(&config.log);
    // Everything that can be wrong with the settings is said before anything is started.
    let settings = config.consumer.settings()?;
    let forward = Forward::new(&options.to, settings.handler_timeout).map_err(failure)?;
    let server = if options.inbox { Some(Server::open(global).await?) } else { None };
    let result = work(&options, &mut config, settings, forward, server.as_ref()).await;
    if let Some(server) = server {
        server.close().await?;
    }
    result
}

async fn work(
    options: &Consume,
    config: &mut Config,
    settings: ConsumerSettings,
    forward: Forward,
    server: Option<&Server>,
) -> Result<ExitCode, Failure> {
    let mut retention = None;
    let apply: Arc<dyn Apply> = match server {
        None => Arc::new(forward),
        Some(server) => {
            let at_work = u32::try_from(settings.concurrency).unwrap_or(u32::MAX);
            let needed = at_work.saturating_add(SPARE_CONNECTIONS);
            config.database.connections_max = config.database.connections_max.max(needed);
            let consumer = server.worker_database(&config.database).await?.consumer();
            // A login that may not is told so now, not for each event.
            consumer.begin(ActsAs::Role, settings.handler_timeout).await?.rollback().await?;
            retention = Some(tokio::spawn(keep_retention(
                consumer.clone(),
                options.consumer.clone(),
                settings.inbox_retention_days,
            )));
            Arc::new(InboxApply::new(
                options.consumer.clone(),
                Arc::new(forward),
                consumer,
                ActsAs::Role,
                // The program's own limit comes first: its reason is the better one.
                settings.handler_timeout + Duration::from_secs(5),
            ))
        }
    };
    let source = open(options, config.consumer.visibility(), settings.handler_timeout).await?;
    let figures = Arc::new(ConsumerMetrics::default());
    let api = match options.api.as_deref() {
        None | Some("off") => None,
        Some(listen) => {
            let (name, figures) = (options.consumer.clone(), figures.clone());
            let page = move || metrics::render_consumer(&name, &figures);
            Some(Api::start_with_page(listen, page, config.http_server).await?)
        }
    };
    let mut signals = StopSignals::new()?;
    tracing::info!(
        consumer = options.consumer,
        address = api.as_ref().map(|api| api.address().to_string()),
        version = env!("CARGO_PKG_VERSION"),
        "consuming"
    );
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(async move {
        symphony::consumer::run(source, apply, &settings, figures, stopped).await
    });
    signals.received().await;
    tracing::info!("stopping: what is in flight may end; a second signal stops at once");
    stop.send_replace(true);
    let left = tokio::select! {
        left = task => left.map_err(|_| Failure::new("the consumer died, as the log says: start another"))?,
        () = signals.received() => {
            return Err(Failure::new("stopped at once: what was in hand is delivered again"));
        }
    };
    if let Some(retention) = retention {
        retention.abort();
    }
    if let Some(api) = api {
        api.stop();
    }
    if left > 0 {
        return Err(Failure::new(format!(
            "{left} messages were still in hand: they are delivered again"
        )));
    }
    tracing::info!("stopped");
    Ok(ExitCode::SUCCESS)
}

async fn open(
    options: &Consume,
    visibility: Duration,
    handler_timeout: Duration,
) -> Result<Arc<dyn Source>, Failure> {
    match &options.from {
        #[cfg(feature = "sns")]
        SourceName::Sqs(queue_url) => {
            let aws = AwsSettings {
                region: options.region.clone(),
                endpoint_url: options.endpoint_url.clone(),
                ..AwsSettings::default()
            };
            let aws = Aws::new(&aws, environment).map_err(|error| flag_error(&error.into()))?;
            let client = aws.sqs(Duration::from_secs(5), WAIT + Duration::from_secs(15));
            let settings = SqsSettings {
                dead_letter_url: options.dead_letter.clone(),
                visibility,
                wait: WAIT,
                ..SqsSettings::new(queue_url)
            };
            Ok(Arc::new(SqsSource::open(client, settings).await.map_err(failure)?))
        }
        #[cfg(not(feature = "sns"))]
        SourceName::Sqs(_) => Err(Failure::new(
            "this symphony was built without SQS: take one that cargo build --release has built",
        )),
        SourceName::Nats(stream) => {
            let dead_letter_subject = options
                .dead_letter
                .clone()
                .unwrap_or_else(|| dead_letter_subject(&options.consumer));
            let address = NatsAddress {
                url: options.nats_url.clone(),
                credentials_file: options.nats_credentials.clone(),
                token_env: options.nats_token_env.clone(),
                ca_file: options.ca_file.clone(),
                client_certificate_file: options.client_certificate.clone(),
                client_key_file: options.client_key.clone(),
                allow_plain_text: options.nats_allow_plain_text,
            };
            let settings = JetStreamSettings {
                stream: stream.clone(),
                durable: options.consumer.clone(),
                filter_subject: options.subject.clone(),
                dead_letter_subject,
                visibility,
                wait: WAIT,
            };
            let client = connect(&address, environment).await.map_err(|error| match error {
                ConnectError::Address(error) => flag_error(&error),
                error @ ConnectError::NoConnection(_) => Failure::new(error.to_string()),
            })?;
            Ok(Arc::new(JetStreamSource::open(client, settings).await.map_err(failure)?))
        }
        SourceName::Kafka(topic) => open_kafka(options, topic, handler_timeout).await,
    }
}

#[cfg(feature = "kafka")]
async fn open_kafka(
    options: &Consume,
    topic: &str,
    handler_timeout: Duration,
) -> Result<Arc<dyn Source>, Failure> {
    let kafka = &options.kafka;
    let mechanism = kafka.kafka_sasl.as_deref().map(str::parse).transpose();
    let address = KafkaAddress {
        bootstrap_servers: kafka.kafka_servers.clone(),
        sasl_mechanism: mechanism
            .map_err(|error| Failure::new(format!("--kafka-sasl: {error}")))?,
        username: kafka.kafka_username.clone(),
        password_env: kafka.kafka_password_env.clone(),
        token_file: kafka.kafka_token_file.clone(),
        token_command: kafka.kafka_token_command.clone(),
        tls: kafka.kafka_tls,
        ca_file: options.ca_file.clone(),
        client_certificate_file: options.client_certificate.clone(),
        client_key_file: options.client_key.clone(),
        allow_plain_text: kafka.kafka_allow_plain_text,
    };
    let dead_letters = options.dead_letter.clone();
    let settings = KafkaSourceSettings {
        topic: topic.to_owned(),
        group: options.consumer.clone(),
        dead_letter_topic: dead_letters.unwrap_or_else(|| dead_letter_topic(&options.consumer)),
        // A handler at work may end before its partition goes to another.
        revoke_wait: handler_timeout + Duration::from_secs(5),
        session_timeout: SESSION_TIMEOUT,
        wait: WAIT,
    };
    let source = KafkaSource::open(&address, environment, settings).await;
    source.map(|source| Arc::new(source) as _).map_err(|error| match error {
        KafkaOpenError::Address(errors) => flag_error(&errors),
        KafkaOpenError::Open(error) => failure(error),
    })
}

#[cfg(not(feature = "kafka"))]
#[allow(clippy::unused_async)] // as its other self is
async fn open_kafka(_: &Consume, _: &str, _: Duration) -> Result<Arc<dyn Source>, Failure> {
    Err(Failure::new(
        "this symphony was built without the feature kafka: build it with cargo build --release --features kafka \
         (docs/BUSES.md says what that needs)",
    ))
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What is a setting elsewhere is a flag here.
fn flag_error(errors: &FieldErrors) -> Failure {
    let problems = errors.iter().map(|FieldError { field, problem }| {
        let flag = match field.as_str() {
            "url" => "nats-url".to_owned(),
            "credentials_file" => "nats-credentials".to_owned(),
            "token_env" => "nats-token-env".to_owned(),
            "ca_file" => "ca-file".to_owned(),
            "bootstrap_servers" => "kafka-servers".to_owned(),
            "sasl_mechanism" => "kafka-sasl".to_owned(),
            own @ ("username" | "password_env" | "token_file" | "token_command") => {
                format!("kafka-{}", own.replace('_', "-"))
            }
            other => other.trim_end_matches("_file").replace('_', "-"),
        };
        format!("--{flag} {problem}")
    });
    Failure::new(problems.collect::<Vec<_>>().join("; "))
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn failure(error: symphony_connect::sources::OpenError) -> Failure {
    Failure::new(error.to_string())
}
