//! Connecting to Kafka, for the bus, for `symphony bus setup` and for consumers.
//!
//! - `token`: OAUTHBEARER tokens, from a file or a command.

mod token;

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{ClientConfig, ClientContext, Statistics};
use serde::Deserialize;
use symphony::{FieldError, FieldErrors};

use crate::buses::short_line;
use crate::http_client::{self, TlsFiles, variable};
use crate::settings::Defects;
use token::TokenSource;

/// Where a cluster is, and how we prove who we are. Fields are named as `[buses.NAME]` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KafkaAddress {
    /// Such as `127.0.0.1:9092`; several of one cluster with commas between.
    pub bootstrap_servers: String,
    /// How we prove who we are, if not by a certificate.
    pub sasl_mechanism: Option<SaslMechanism>,
    /// With PLAIN and SCRAM.
    pub username: Option<String>,
    /// The environment variable that holds the password, with PLAIN and SCRAM.
    pub password_env: Option<String>,
    /// With OAUTHBEARER: a file that holds the token; read again before it expires.
    pub token_file: Option<String>,
    /// With OAUTHBEARER: a program and its arguments that prints the token; run again before it expires.
    pub token_command: Vec<String>,
    /// Speak TLS to this machine as well; to others it is spoken unless `allow_plain_text`.
    pub tls: bool,
    /// PEM; without it, the system's.
    pub ca_file: Option<String>,
    /// PEM, to prove who we are; with `client_key_file`.
    pub client_certificate_file: Option<String>,
    /// PEM.
    pub client_key_file: Option<String>,
    /// Connect without TLS to brokers that are not this machine.
    pub allow_plain_text: bool,
}

/// A way to prove who we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum SaslMechanism {
    /// A name and a password, as they are: over TLS only.
    #[serde(rename = "PLAIN")]
    Plain,
    /// A name and a password that is never sent.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same with a longer hash.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
    /// A token that somebody else gave us.
    #[serde(rename = "OAUTHBEARER")]
    OauthBearer,
}

impl SaslMechanism {
    /// As Kafka writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OauthBearer => "OAUTHBEARER",
        }
    }
}

impl std::str::FromStr for SaslMechanism {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Plain, Self::ScramSha256, Self::ScramSha512, Self::OauthBearer]
            .into_iter()
            .find(|mechanism| mechanism.as_str() == text)
            .ok_or_else(|| {
                "it must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER".to_owned()
            })
    }
}

/// An address that was checked.
pub(crate) struct KafkaCluster {
    bootstrap_servers: String,
    properties: Vec<(&'static str, String)>,
    tokens: Option<Arc<TokenSource>>,
}

impl KafkaCluster {
    /// Everything that can be seen wrong with the address is said now.
    pub(crate) fn new(
        address: &KafkaAddress,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        let hosts = defects.note(hosts(&address.bootstrap_servers));
        let mut properties = Vec::new();
        let tokens = sasl(address, &environment, &mut properties, &mut defects);
        if let Some(file) = &address.ca_file {
            defects.note(http_client::certificates("ca_file", Path::new(file)));
            properties.push(("ssl.ca.location", file.clone()));
        }
        defects.note(http_client::tls(TlsFiles {
            extra_roots: None,
            client_certificate: address.client_certificate_file.as_deref().map(Path::new),
            client_key: address.client_key_file.as_deref().map(Path::new),
        }));
        let client_files =
            address.client_certificate_file.clone().zip(address.client_key_file.clone());
        let with_files = client_files.is_some() || address.ca_file.is_some();
        if let Some((certificate, key)) = client_files {
            properties.push(("ssl.certificate.location", certificate));
            properties.push(("ssl.key.location", key));
        }
        let hosts = defects.finish(hosts)?;
        let tls = address.tls
            || with_files
            || !(address.allow_plain_text || hosts.iter().all(|host| is_this_machine(host)));
        let protocol = match (address.sasl_mechanism.is_some(), tls) {
            (false, false) => "PLAINTEXT",
            (false, true) => "SSL",
            (true, false) => "SASL_PLAINTEXT",
            (true, true) => "SASL_SSL",
        };
        properties.push(("security.protocol", protocol.to_owned()));
        let bootstrap_servers: String =
            address.bootstrap_servers.chars().filter(|c| !c.is_whitespace()).collect();
        Ok(Self { bootstrap_servers, properties, tokens })
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> &str {
        &self.bootstrap_servers
    }

    /// A client's configuration, with these limits on connecting and on one request.
    pub(crate) fn config(&self, connect: Duration, request: Duration) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.bootstrap_servers)
            .set("client.id", "symphony")
            // A topic that nobody set up has one partition and one replica: nothing for money.
            .set("allow.auto.create.topics", "false")
            .set("socket.connection.setup.timeout.ms", millis(connect.max(CONNECT_MIN)))
            .set("socket.timeout.ms", millis(request))
            .set("socket.keepalive.enable", "true")
            .set("socket.nagle.disable", "true")
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            .set_log_level(RDKafkaLogLevel::Error);
        for (name, value) in &self.properties {
            config.set(*name, value);
        }
        config
    }

    /// What a client tells us besides its answers.
    pub(crate) fn context(&self) -> KafkaContext {
        KafkaContext { tokens: self.tokens.clone(), faults: Arc::default() }
    }

    /// Nobody answers, in words.
    pub(crate) fn unreachable(&self, faults: &Faults, otherwise: &KafkaError) -> NoConnection {
        let last = faults.last();
        let not_authorized = last.as_ref().is_some_and(|(code, _)| {
            matches!(
                code,
                RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SaslAuthenticationFailed
            )
        });
        let why = last.map_or_else(|| otherwise.to_string(), |(_, reason)| reason);
        let message = format!("no connection to Kafka at {}: {}", self.place(), short_line(&why));
        NoConnection { message, not_authorized }
    }
}

// Neither a password nor a token is for logs.
impl std::fmt::Debug for KafkaCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaCluster")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .finish_non_exhaustive()
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) struct NoConnection {
    pub(crate) message: String,
    pub(crate) not_authorized: bool,
}

/// librdkafka takes no less.
const CONNECT_MIN: Duration = Duration::from_secs(1);

pub(crate) fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

/// What a client tells besides its answers: lost connections, refused credentials; and who asks for tokens.
#[derive(Debug, Clone)]
pub(crate) struct KafkaContext {
    tokens: Option<Arc<TokenSource>>,
    pub(crate) faults: Arc<Faults>,
}

/// Lost connections and refused credentials.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    count: AtomicU64,
    last: Mutex<Option<(RDKafkaErrorCode, String)>>,
}

impl Faults {
    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The last that says why.
    pub(crate) fn last(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, code: RDKafkaErrorCode, reason: &str) {
        // "All brokers are down" says less than the reason before it.
        if code != RDKafkaErrorCode::AllBrokersDown {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some((code, reason.to_owned()));
        }
        self.count.fetch_add(1, Ordering::AcqRel);
    }
}

impl ClientContext for KafkaContext {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    // What matters of it comes as an error; the rest names topics and partitions by the thousand.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn stats(&self, _: Statistics) {}

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(code) = error.rdkafka_error_code() {
            self.faults.note(code, reason);
        }
    }

    fn generate_oauth_token(
        &self,
        _: Option<&str>,
    ) -> Result<OAuthToken, Box<dyn std::error::Error>> {
        let token = match &self.tokens {
            Some(tokens) => tokens.token(),
            None => Err("no token_file and no token_command".to_owned()),
        };
        token.map_err(|problem| {
            self.faults.note(RDKafkaErrorCode::Authentication, &problem);
            problem.into()
        })
    }
}

fn hosts(bootstrap_servers: &str) -> Result<Vec<String>, FieldError> {
    let refuse = |problem: &str| FieldError::new("bootstrap_servers", problem);
    if bootstrap_servers.trim().is_empty() {
        return Err(refuse("is missing: set it to such as \"127.0.0.1:9092\""));
    }
    let host = |server: &str| {
        let (host, port) = server.trim().rsplit_once(':')?;
        let fine = !host.is_empty() && !host.contains(['/', '@']) && port.parse::<u16>().is_ok();
        fine.then(|| host.trim_matches(['[', ']']).to_owned())
    };
    let hosts: Option<Vec<_>> = bootstrap_servers.split(',').map(host).collect();
    hosts.ok_or_else(|| {
        refuse("must be hosts with ports, such as \"kafka-1.example.com:9092,kafka-2.example.com:9092\"")
    })
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

fn sasl(
    address: &KafkaAddress,
    environment: &impl Fn(&str) -> Option<String>,
    properties: &mut Vec<(&'static str, String)>,
    defects: &mut Defects,
) -> Option<Arc<TokenSource>> {
    let has_password = address.username.is_some() || address.password_env.is_some();
    let has_token = address.token_file.is_some() || !address.token_command.is_empty();
    let Some(mechanism) = address.sasl_mechanism else {
        if has_password || has_token {
            let problem = "is missing: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, as the brokers want it";
            defects.add("sasl_mechanism", problem);
        }
        return None;
    };
    properties.push(("sasl.mechanism", mechanism.as_str().to_owned()));
    if mechanism == SaslMechanism::OauthBearer {
        if has_password {
            defects.add("username", "is not for OAUTHBEARER: give token_file or token_command");
        }
        return defects
            .note(TokenSource::new(address.token_file.as_deref(), &address.token_command))
            .map(Arc::new);
    }
    if has_token {
        defects.add("token_file", "is for OAUTHBEARER only: give username and password_env");
    }
    match &address.username {
        Some(name) if !name.is_empty() => properties.push(("sasl.username", name.clone())),
        _ => defects.add("username", format!("is missing: {} needs it", mechanism.as_str())),
    }
    match &address.password_env {
        Some(name) => {
            if let Some(password) = defects.note(variable("password_env", name, environment)) {
                properties.push(("sasl.password", password));
            }
        }
        None => defects.add(
            "password_env",
            format!(
                "is missing: the environment variable with the password for {}",
                mechanism.as_str()
            ),
        ),
    }
    None
}

/// Kafka allows no more in a topic's name.
pub(crate) fn is_topic_name(name: &str) -> bool {
    (1..=249).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
