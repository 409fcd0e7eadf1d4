//! Options of `consume`.

use clap::Args;

/// Options of `consume`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Each event is one POST of its JSON with the headers symphony-event-id, symphony-event-type, symphony-key, \
                  symphony-position, symphony-delivery-count and traceparent.\n\n\
                  2xx: applied, and acknowledged. 503 or 429, or nobody listens: the program is away. Everything rests, \
                  one event in hand is tried every 2 seconds at most (Retry-After is kept to), and nothing is counted. \
                  Anything else, or no answer in time: a failed try. The event waits in hand, hidden from others, later \
                  events of its key behind it; after receives_max tries it is dead-lettered.\n\n\
                  An event can arrive more than once: the program must be idempotent by symphony-event-id. With --inbox (and \
                  --database-url) what was answered with 2xx is remembered and not posted again; a crash between the answer and \
                  its record still repeats it. Effects exactly once need the inbox in the program's own transaction: \
                  docs/CONSUMERS.md.\n\n\
                  Pace, time limits and inbox retention: [consumer] in symphony.toml."
)]
pub struct Consume {
    /// Its name: in the inbox, in the figures; JetStream's durable consumer, Kafka's group
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub consumer: String,
    /// Where events come from: sqs:QUEUE_URL, nats:STREAM or kafka:TOPIC
    #[arg(long, value_name = "SOURCE", value_parser = source)]
    pub from: SourceName,
    /// The program: a URL on this machine, such as http://127.0.0.1:8080/events
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// Where dead letters go: a FIFO queue's URL, a subject or a topic [default: the queue of the redrive policy, dead.NAME
    /// or NAME-dead]
    #[arg(long, value_name = "QUEUE_URL|SUBJECT|TOPIC")]
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
    pub nats_credentials: Option<String>,
    /// NATS: the environment variable that holds the token
    #[arg(long, value_name = "NAME")]
    pub nats_token_env: Option<String>,
    /// NATS: no TLS, though the server is not this machine
    #[arg(long)]
    pub nats_allow_plain_text: bool,
    /// NATS, Kafka: certificates of the authorities to trust, as PEM [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<String>,
    /// NATS, Kafka: the certificate that proves who we are, as PEM
    #[arg(long, value_name = "FILE", requires = "client_key")]
    pub client_certificate: Option<String>,
    /// NATS, Kafka: the key to it, as PEM
    #[arg(long, value_name = "FILE", requires = "client_certificate")]
    pub client_key: Option<String>,
    /// NATS: only these subjects, where the durable consumer is not there yet
    #[arg(long)]
    pub subject: Option<String>,
    /// Of Kafka alone.
    #[command(flatten)]
    pub kafka: KafkaOptions,
}

/// Options of `consume` for Kafka, named as `[buses.NAME]` names them.
#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_field_names, reason = "clap names the flags after the fields")]
pub struct KafkaOptions {
    /// Kafka: the brokers, with commas between
    #[arg(
        long,
        value_name = "SERVERS",
        env = "KAFKA_BOOTSTRAP_SERVERS",
        default_value = "127.0.0.1:9092",
        hide_env_values = true
    )]
    pub kafka_servers: String,
    /// Kafka: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
    #[arg(long, value_name = "MECHANISM")]
    pub kafka_sasl: Option<String>,
    /// Kafka: the name, with PLAIN and SCRAM
    #[arg(long, value_name = "NAME")]
    pub kafka_username: Option<String>,
    /// Kafka: the environment variable that holds the password
    #[arg(long, value_name = "NAME")]
    pub kafka_password_env: Option<String>,
    /// Kafka: a file that holds the token, with OAUTHBEARER
    #[arg(long, value_name = "FILE")]
    pub kafka_token_file: Option<String>,
    /// Kafka: a program that prints the token, with OAUTHBEARER; once more for each of its arguments
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub kafka_token_command: Vec<String>,
    /// Kafka: TLS, though the brokers are this machine
    #[arg(long, conflicts_with = "kafka_allow_plain_text")]
    pub kafka_tls: bool,
    /// Kafka: no TLS, though the brokers are not this machine
    #[arg(long)]
    pub kafka_allow_plain_text: bool,
}

/// Where events come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceName {
    /// The URL of a queue.
    Sqs(String),
    /// The name of a stream.
    Nats(String),
    /// The name of a topic.
    Kafka(String),
}

fn source(text: &str) -> Result<SourceName, String> {
    match text.split_once(':') {
        Some(("sqs", url)) if !url.is_empty() => Ok(SourceName::Sqs(url.to_owned())),
        Some(("nats", stream)) if !stream.is_empty() => Ok(SourceName::Nats(stream.to_owned())),
        Some(("kafka", topic)) if !topic.is_empty() => Ok(SourceName::Kafka(topic.to_owned())),
        _ => Err("it must be sqs:QUEUE_URL, nats:STREAM or kafka:TOPIC".to_owned()),
    }
}

fn name(text: &str) -> Result<String, String> {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if text.is_empty() || text.len() > 100 || !text.chars().all(valid) {
        return Err("it must be 1 to 100 letters, digits, - and _".to_owned());
    }
    Ok(text.to_owned())
}
