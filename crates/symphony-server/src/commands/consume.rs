//! `symphony consume`: events from a queue to a program on this machine, until SIGTERM or Ctrl-C.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use symphony::consumer::{
    Apply, ConsumerMetrics, ConsumerSettings, InboxApply, Source, keep_retention,
};
use symphony::db::ActsAs;
#[cfg(feature = "aws")]
use symphony_connect::aws::{Aws, AwsSettings};
use symphony_connect::sources::forward::Forward;
use symphony_connect::sources::jetstream::{
    JetStreamSettings, JetStreamSource, NatsAddress, connect,
};
#[cfg(feature = "aws")]
use symphony_connect::sources::sqs::{SqsSettings, SqsSource};
use tokio::sync::watch;

use super::database::wait_for_signal;
use crate::api::Api;
use crate::cli::{Consume, Global, SourceName};
use crate::config::{Config, LogFormat};
use crate::output::Failure;
use crate::server::Server;
use crate::{metrics, telemetry};

/// How long one call waits for messages.
const WAIT: Duration = Duration::from_secs(10);
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
            let inbox = server.worker_database(&config.database).await?.inbox();
            // A login that may not is told so now, not for each event.
            inbox.begin(ActsAs::Role, settings.handler_timeout).await?.rollback().await?;
            retention = Some(tokio::spawn(keep_retention(
                inbox.clone(),
                options.consumer.clone(),
                settings.inbox_retention_days,
            )));
            Arc::new(InboxApply::new(
                options.consumer.clone(),
                Arc::new(forward),
                inbox,
                ActsAs::Role,
                // The program's own limit comes first: its reason is the better one.
                settings.handler_timeout + Duration::from_secs(5),
            ))
        }
    };
    let source = open(options, config.consumer.visibility()).await?;
    let figures = Arc::new(ConsumerMetrics::default());
    let api = match options.api.as_deref() {
        None | Some("off") => None,
        Some(listen) => {
            let (name, figures) = (options.consumer.clone(), figures.clone());
            let page = move || metrics::render_consumer(&name, &figures);
            Some(Api::start_with_page(listen, page, config.http_server).await?)
        }
    };
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
    wait_for_signal().await?;
    tracing::info!("stopping: what is in flight may end; a second signal stops at once");
    stop.send_replace(true);
    let left = tokio::select! {
        left = task => left.map_err(|_| Failure::new("the consumer died, as the log says: start another"))?,
        result = wait_for_signal() => {
            result?;
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

async fn open(options: &Consume, visibility: Duration) -> Result<Arc<dyn Source>, Failure> {
    let environment = |name: &str| std::env::var(name).ok();
    match &options.from {
        #[cfg(feature = "aws")]
        SourceName::Sqs(queue_url) => {
            let aws = AwsSettings {
                region: options.region.clone(),
                endpoint_url: options.endpoint_url.clone(),
                ..AwsSettings::default()
            };
            // The settings are flags here.
            let aws = Aws::new(&aws, environment).map_err(|error| {
                let flag = error.field.replace('_', "-");
                Failure::new(format!("--{flag} {}", error.problem))
            })?;
            let client = aws.sqs(Duration::from_secs(5), WAIT + Duration::from_secs(15));
            let settings = SqsSettings {
                dead_letter_url: options.dead_letter.clone(),
                visibility,
                wait: WAIT,
                ..SqsSettings::new(queue_url)
            };
            Ok(Arc::new(SqsSource::open(client, settings).await.map_err(failure)?))
        }
        #[cfg(not(feature = "aws"))]
        SourceName::Sqs(_) => Err(Failure::new(
            "this symphony was built without SQS: take one that cargo build --release has built",
        )),
        SourceName::Nats(stream) => {
            let dead_letter_subject = options.dead_letter.clone().ok_or_else(|| {
                Failure::new("--dead-letter is missing: JetStream has no place of its own for them")
            })?;
            let token = match &options.nats_token_env {
                None => None,
                Some(name) => {
                    Some(environment(name).filter(|token| !token.is_empty()).ok_or_else(|| {
                        Failure::new(format!("--nats-token-env: {name} is not set, or empty"))
                    })?)
                }
            };
            let address = NatsAddress {
                url: options.nats_url.clone(),
                credentials_file: options.nats_credentials.clone(),
                token,
            };
            let settings = JetStreamSettings {
                stream: stream.clone(),
                durable: options.consumer.clone(),
                filter_subject: options.subject.clone(),
                dead_letter_subject,
                visibility,
                wait: WAIT,
            };
            let client = connect(&address).await.map_err(failure)?;
            Ok(Arc::new(JetStreamSource::open(client, settings).await.map_err(failure)?))
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn failure(error: symphony_connect::sources::OpenError) -> Failure {
    Failure::new(error.to_string())
}
