//! One message to a relay, with a clear line between "surely not taken" and "may have been".
//!
//! - `compose`: the message, from fields that cannot break out of their place.
//! - `dialogue`: what is said to the relay. The line is the final dot: whatever breaks before it was not taken,
//!   whatever breaks after it may have been.

mod compose;
mod dialogue;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use symphony::{FieldError, FieldErrors};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use self::dialogue::{Dialogue, Progress, Trouble};
use crate::address::ADDRESSES_TRIED_MAX;
pub use crate::bounds::mail::RECIPIENTS_MAX;
use crate::bounds::mail::{CONNECT_TIMEOUT_MS, TIMEOUT_MS_MAX};
use crate::http_client::{Environment, TlsFiles, tls, variable};
use crate::settings::Defects;

/// A relay, as configuration writes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmtpSenderSettings {
    /// Its name, which its certificate must have.
    pub host: String,
    /// Default 587.
    pub port: u16,
    /// Default `starttls`.
    pub security: Security,
    /// Who logs in. Default: nobody.
    pub user: Option<String>,
    /// The environment variable that holds the password.
    pub password_env: Option<String>,
    /// The name given to the relay. Default `localhost`.
    pub hello: String,
    /// For everything, from resolving the name to the relay's last word. Default 30,000.
    pub timeout_ms: u64,
    /// The limit on resolving, connecting and the TLS handshake. Default 5,000, or `timeout_ms` if that is shorter.
    pub connect_timeout_ms: Option<u64>,
    /// The largest message, as it is sent. Default 1 MiB.
    pub message_bytes_max: usize,
    /// Certificate authorities besides the public ones, as PEM.
    pub extra_root_certificates_file: Option<PathBuf>,
    /// The certificate that proves to the relay who we are, and those above it, as PEM. Default: none.
    pub client_certificate_file: Option<PathBuf>,
    /// The key to it as PEM, without a passphrase.
    pub client_key_file: Option<PathBuf>,
}

/// How the way to the relay is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Security {
    /// TLS after STARTTLS; without it nothing is sent. Usually port 587.
    #[default]
    StartTls,
    /// TLS from the first byte. Usually port 465.
    Tls,
    /// Not at all: only to this machine, and without a password.
    Plain,
}

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OutboundMail {
    /// `ann@example.com` or `Ann <ann@example.com>`.
    pub from: String,
    /// 1 to 50 of the same form; one may stand without a list.
    #[serde(deserialize_with = "one_or_many")]
    pub to: Vec<String>,
    /// Who gets it too, and is seen to; all recipients together are at most 50.
    #[serde(default)]
    pub cc: Vec<String>,
    /// Who gets it too, and is in no header.
    #[serde(default)]
    pub bcc: Vec<String>,
    /// Who answers are for, if not `from`.
    #[serde(default)]
    pub reply_to: Option<String>,
    /// One line.
    pub subject: String,
    /// Plain text.
    pub text: String,
    /// The same as HTML, if it is to be seen so.
    #[serde(default)]
    pub html: Option<String>,
    /// Files that come with it, at most 10.
    #[serde(default)]
    pub attachments: Vec<MailAttachment>,
    /// What makes it recognizable when it is sent again: the same id becomes the same `Message-ID`.
    pub message_id: String,
}

/// A file that comes with a message.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MailAttachment {
    /// The file's name, one line.
    pub name: String,
    /// Such as `application/pdf`. Default: `application/octet-stream`.
    #[serde(default)]
    pub content_type: Option<String>,
    /// Its bytes, in base64.
    pub content_base64: String,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// The relay has taken it, for all recipients.
    Accepted {
        /// What the relay said, such as its queue's id.
        reference: String,
    },
    /// It will not be taken: another attempt would end the same way.
    Refused {
        /// The relay's, from 500 to 599; 0 if we refused it ourselves.
        code: u16,
        /// One line.
        message: String,
    },
    /// Another attempt may end differently.
    Again {
        /// One line.
        message: String,
        /// It may have been taken: the answer to the final dot is missing.
        unknown: bool,
    },
}

/// Sends mail through one relay.
pub struct SmtpSender {
    host: String,
    port: u16,
    security: Security,
    login: Option<Login>,
    hello: String,
    timeout: Duration,
    connect_timeout: Duration,
    message_bytes_max: usize,
    tls: TlsConnector,
    server: ServerName<'static>,
}

struct Login {
    user: String,
    password: String,
}

impl Default for SmtpSenderSettings {
    fn default() -> Self {
        Self {
            host: String::new(),
            port: 587,
            security: Security::default(),
            user: None,
            password_env: None,
            hello: "localhost".to_owned(),
            timeout_ms: 30_000,
            connect_timeout_ms: None,
            message_bytes_max: 1 << 20,
            extra_root_certificates_file: None,
            client_certificate_file: None,
            client_key_file: None,
        }
    }
}

impl SmtpSenderSettings {
    /// `connect_timeout_ms`, or its default.
    fn connect_timeout(&self) -> u64 {
        self.connect_timeout_ms.unwrap_or_else(|| self.timeout_ms.min(CONNECT_TIMEOUT_MS))
    }
}

fn login(
    settings: &SmtpSenderSettings,
    environment: Environment<'_>,
) -> Result<Option<Login>, FieldError> {
    let refuse = |field, problem: &str| Err(FieldError::new(field, problem));
    match (&settings.user, &settings.password_env) {
        (None, None) => Ok(None),
        (Some(_), None) => refuse("password_env", "is missing: user needs a password"),
        (None, Some(_)) => refuse("user", "is missing: whose is the password?"),
        (Some(_), Some(_)) if settings.security == Security::Plain => {
            refuse("security", "must be starttls or tls: a password is sent")
        }
        (Some(user), Some(name)) => {
            let password = variable("password_env", name, environment)?;
            if user.contains('\0') || password.contains('\0') {
                return refuse("user", "and its password must not contain NUL");
            }
            Ok(Some(Login { user: user.clone(), password }))
        }
    }
}

impl fmt::Debug for SmtpSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SmtpSender")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("security", &self.security)
            .finish_non_exhaustive()
    }
}

impl SmtpSender {
    /// A sender, or what is wrong with its settings.
    pub fn new(
        settings: &SmtpSenderSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        let server = ServerName::try_from(settings.host.clone())
            .map_err(|_| FieldError::new("host", "must be a host name such as smtp.example.com"));
        let server = defects.note(server);
        if settings.port == 0 {
            defects.add("port", "must not be 0: 587 for starttls, 465 for tls");
        }
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b);
        if !(1..=253).contains(&settings.hello.len()) || !settings.hello.bytes().all(is_name) {
            defects.add("hello", "must be this machine's name, such as app.example.com");
        }
        defects.within("timeout_ms", settings.timeout_ms, 1, TIMEOUT_MS_MAX);
        if let Some(value) = settings.connect_timeout_ms {
            defects.within("connect_timeout_ms", value, 1, TIMEOUT_MS_MAX);
        }
        if settings.connect_timeout() > settings.timeout_ms {
            let problem = "must not be longer than timeout_ms, of which it is a part";
            defects.add("connect_timeout_ms", problem);
        }
        defects.within("message_bytes_max", settings.message_bytes_max, 1_024, 64 << 20);
        let login = defects.note(login(settings, &environment));
        if settings.security == Security::Plain && settings.client_certificate_file.is_some() {
            defects.add("security", "must be starttls or tls: a certificate is shown within TLS");
        }
        let tls = defects.note(tls(TlsFiles {
            extra_roots: settings.extra_root_certificates_file.as_deref(),
            client_certificate: settings.client_certificate_file.as_deref(),
            client_key: settings.client_key_file.as_deref(),
        }));
        let ((server, login), tls) = defects.finish(server.zip(login).zip(tls))?;
        Ok(Self {
            host: settings.host.clone(),
            port: settings.port,
            security: settings.security,
            login,
            hello: settings.hello.clone(),
            timeout: Duration::from_millis(settings.timeout_ms),
            connect_timeout: Duration::from_millis(settings.connect_timeout()),
            message_bytes_max: settings.message_bytes_max,
            tls,
            server,
        })
    }

    /// Send one message to all its recipients or to none. Ends within the time limit.
    pub async fn send(&self, mail: &OutboundMail) -> SendOutcome {
        let now = chrono::Utc::now();
        let composed = match compose::compose(mail, &self.hello, now, self.message_bytes_max) {
            Ok(composed) => composed,
            Err(problem) => return SendOutcome::Refused { code: 0, message: problem.to_string() },
        };
        let deadline = Instant::now() + self.timeout;
        let mut progress = Progress::default();
        let trouble =
            match timeout_at(deadline, self.hand_over(&composed, deadline, &mut progress)).await {
                Ok(Ok(reference)) => return SendOutcome::Accepted { reference },
                Ok(Err(trouble)) => trouble,
                Err(_elapsed) => Trouble::Broken("no answer within timeout_ms".to_owned()),
            };
        match trouble {
            Trouble::Refused { code, message } => SendOutcome::Refused { code, message },
            Trouble::NotNow(message) => SendOutcome::Again { message, unknown: false },
            Trouble::Broken(message) => {
                SendOutcome::Again { message, unknown: progress.is_dot_sent }
            }
        }
    }

    async fn hand_over(
        &self,
        composed: &compose::ComposedMail,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Result<String, Trouble> {
        let stream = self.connect(deadline).await?;
        match self.security {
            Security::Plain => {
                let mut dialogue = Dialogue::new(stream);
                dialogue.greet(&self.hello).await?;
                dialogue.give(composed, deadline, progress).await
            }
            Security::Tls => {
                let mut dialogue = Dialogue::new(self.encrypt(stream).await?);
                dialogue.greet(&self.hello).await?;
                self.finish(dialogue, composed, deadline, progress).await
            }
            Security::StartTls => {
                let mut dialogue = Dialogue::new(stream);
                dialogue.greet(&self.hello).await?;
                let stream = dialogue.start_tls().await?;
                let mut dialogue = Dialogue::new(self.encrypt(stream).await?);
                dialogue.hello(&self.hello).await?;
                self.finish(dialogue, composed, deadline, progress).await
            }
        }
    }

    async fn finish<S>(
        &self,
        mut dialogue: Dialogue<S>,
        composed: &compose::ComposedMail,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Result<String, Trouble>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    {
        if let Some(login) = &self.login {
            dialogue.log_in(&login.user, &login.password).await?;
        }
        dialogue.give(composed, deadline, progress).await
    }

    async fn encrypt(
        &self,
        stream: TcpStream,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Trouble> {
        let encrypting = self.tls.connect(self.server.clone(), stream);
        let place = self.place();
        match timeout(self.connect_timeout, encrypting).await {
            Ok(encrypted) => encrypted
                .map_err(|error| Trouble::Broken(format!("TLS handshake with {place}: {error}"))),
            Err(_elapsed) => Err(Trouble::Broken(format!(
                "the relay {place} did not finish the TLS handshake within connect_timeout_ms"
            ))),
        }
    }

    /// For people.
    fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    async fn connect(&self, deadline: Instant) -> Result<TcpStream, Trouble> {
        let place = self.place();
        let broken = |problem: &str| Trouble::Broken(format!("the relay {place} {problem}"));
        let deadline = deadline.min(Instant::now() + self.connect_timeout);
        let looking_up = tokio::net::lookup_host((self.host.as_str(), self.port));
        let found = match timeout_at(deadline, looking_up).await {
            Ok(found) => found.map_err(|_| broken("has a name that could not be resolved"))?,
            Err(_elapsed) => return Err(broken("was not resolved within connect_timeout_ms")),
        };
        let is_allowed =
            |address: &SocketAddr| self.security != Security::Plain || address.ip().is_loopback();
        let addresses: Vec<SocketAddr> = found.filter(is_allowed).collect();
        if addresses.is_empty() {
            return Err(broken("is another machine: security must be starttls or tls"));
        }
        let mut trouble = broken("has no address");
        for (tried, address) in addresses.iter().take(ADDRESSES_TRIED_MAX).enumerate() {
            // Each gets its share of the time, so that one that swallows packets does not hide the others.
            let left = u32::try_from(addresses.len().saturating_sub(tried)).unwrap_or(1).max(1);
            let until = Instant::now() + deadline.saturating_duration_since(Instant::now()) / left;
            match timeout_at(until, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // What is given up is given up: the kernel must not go on delivering it afterwards.
                    return match stream.set_nodelay(true).and_then(|()| stream.set_zero_linger()) {
                        Ok(()) => Ok(stream),
                        Err(error) => Err(broken(&format!("cannot be reached: {}", error.kind()))),
                    };
                }
                Ok(Err(error)) => {
                    trouble = broken(&format!("cannot be reached: {}", error.kind()));
                }
                Err(_elapsed) => trouble = broken("did not answer within connect_timeout_ms"),
            }
        }
        Err(trouble)
    }
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}
