//! Options of `consume`.

use std::path::PathBuf;

use clap::Args;

/// Options of `consume`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each event is one POST of its JSON with the headers symphony-event-id, symphony-event-type, symphony-key, \
                  symphony-position, symphony-delivery-count and traceparent. 2xx: applied, and acknowledged. Anything else, or no \
                  answer in time: left to redelivery, later events of the same key behind it; after receives_max tries it is \
                  dead-lettered. While the program does not listen, nothing is counted.\n\n\
                  An event can arrive more than once: the program must be idempotent by symphony-event-id. With --inbox (and \
                  --database-url) what was answered with 2xx is remembered and not posted again; a crash between the answer and \
                  its record still repeats it. Effects exactly once need the inbox in the program's own transaction: \
                  docs/CONSUMERS.md.\n\n\
                  Pace, time limits and inbox retention: [consumer] in symphony.toml."
)]
pub struct Consume {
    /// Its name: in the inbox, in the figures, and JetStream's durable consumer
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub consumer: String,
    /// Where events come from: sqs:QUEUE_URL or nats:STREAM
    #[arg(long, value_name = "SOURCE", value_parser = source)]
    pub from: SourceName,
    /// The program: a URL on this machine, such as http://127.0.0.1:8080/events
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// Where dead letters go: a FIFO queue's URL (without it, the queue's redrive policy), or a subject (needed)
    #[arg(long, value_name = "QUEUE_URL|SUBJECT")]
    pub dead_letter: Option<String>,
    /// Remember in the database what was answered with 2xx, and do not post it again
    #[arg(long)]
    pub inbox: bool,
    /// Where to serve /metrics and /healthz [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    pub api: Option<String>,
    /// AWS: the region [default: AWS_REGION]
    #[arg(long)]
    pub region: Option<String>,
    /// AWS: another endpoint than its own
    #[arg(long, value_name = "URL")]
    pub endpoint_url: Option<String>,
    /// NATS: the server
    #[arg(
        long,
        value_name = "URL",
        env = "NATS_URL",
        default_value = "nats://127.0.0.1:4222",
        hide_env_values = true
    )]
    pub nats_url: String,
    /// NATS: a .creds file
    #[arg(long, value_name = "FILE")]
    pub nats_credentials: Option<PathBuf>,
    /// NATS: the environment variable that holds the token
    #[arg(long, value_name = "NAME")]
    pub nats_token_env: Option<String>,
    /// NATS: only these subjects, where the durable consumer is not there yet
    #[arg(long)]
    pub subject: Option<String>,
}

/// Where events come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceName {
    /// The URL of a queue.
    Sqs(String),
    /// The name of a stream.
    Nats(String),
}

fn source(text: &str) -> Result<SourceName, String> {
    match text.split_once(':') {
        Some(("sqs", url)) if !url.is_empty() => Ok(SourceName::Sqs(url.to_owned())),
        Some(("nats", stream)) if !stream.is_empty() => Ok(SourceName::Nats(stream.to_owned())),
        _ => Err("it must be sqs:QUEUE_URL or nats:STREAM".to_owned()),
    }
}

fn name(text: &str) -> Result<String, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 100 || !text.chars().all(valid) {
        return Err("it must be 1 to 100 letters, digits, - and _".to_owned());
    }
    Ok(text.to_owned())
}
