//! One connection, made when it is needed and thrown away when it is in doubt.
//!
//! The client would reconnect by itself and then send what it still holds, however old. We had reported that as
//! failed, and another worker may have gone on meanwhile; so a connection in doubt is dropped with all it holds, and
//! the next publish makes a new one.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr, jetstream};
use tokio::sync::Mutex;

use super::NatsSettings;
use crate::buses::{SettingsError, in_short, limits};
use crate::http_client::{self, TlsFiles, variable};
use crate::settings::Defects;

/// How to connect, and the connection there is.
pub struct NatsConnector {
    servers: Vec<ServerAddr>,
    /// Host and port of each, for people.
    place: String,
    credentials_file: Option<String>,
    token: Option<String>,
    ca_file: Option<String>,
    client_files: Option<(String, String)>,
    require_tls: bool,
    connect_timeout: Duration,
    answer_timeout: Duration,
    current: Mutex<Option<Arc<Connection>>>,
}

// Neither the token nor a password in an address is for logs.
impl std::fmt::Debug for NatsConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsConnector")
            .field("require_tls", &self.require_tls)
            .finish_non_exhaustive()
    }
}

/// Connected, or lately so.
pub(crate) struct Connection {
    client: Client,
    pub(crate) jetstream: jetstream::Context,
}

/// Why there is no connection.
pub(crate) struct NoConnection {
    pub(crate) message: String,
    pub(crate) not_authorized: bool,
}

impl NatsConnector {
    /// Of these settings; connects when it is first asked.
    pub fn new(
        settings: &NatsSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let mut defects = Defects::default();
        let servers = defects.note(servers(&settings.url));
        let token = defects.note(match &settings.token_env {
            None => Ok(None),
            Some(name) => variable("token_env", name, &environment).map(Some),
        });
        let files =
            [("ca_file", &settings.ca_file), ("credentials_file", &settings.credentials_file)];
        for (field, file) in files {
            if let Some(file) = file {
                defects.note(readable(field, file));
            }
        }
        // The client reads them itself, at each connection; what is wrong with them is said now.
        defects.note(http_client::tls(TlsFiles {
            extra_roots: None,
            client_certificate: settings.client_certificate_file.as_deref().map(Path::new),
            client_key: settings.client_key_file.as_deref().map(Path::new),
        }));
        let limits = defects.note(limits(settings.connect_timeout_ms, settings.timeout_ms));
        let ((servers, token), (connect_timeout, answer_timeout)) =
            defects.finish(servers.zip(token).zip(limits))?;
        let client_files =
            settings.client_certificate_file.clone().zip(settings.client_key_file.clone());
        let here = |server: &ServerAddr| {
            server.host() == "localhost"
                || server
                    .host()
                    .trim_matches(['[', ']'])
                    .parse()
                    .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        };
        let wants_tls = servers.iter().any(ServerAddr::tls_required)
            || settings.ca_file.is_some()
            || client_files.is_some();
        let names = servers.iter().map(|server| format!("{}:{}", server.host(), server.port()));
        Ok(Self {
            require_tls: wants_tls || !(settings.allow_plain_text || servers.iter().all(here)),
            place: names.collect::<Vec<_>>().join(", "),
            servers,
            credentials_file: settings.credentials_file.clone(),
            token,
            ca_file: settings.ca_file.clone(),
            client_files,
            connect_timeout,
            answer_timeout,
            current: Mutex::new(None),
        })
    }

    /// The limit on one call, connecting included.
    pub(crate) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    /// The present one, or a new one; within the connect timeout, whoever else waits for it.
    pub(crate) async fn connection(&self) -> Result<Arc<Connection>, NoConnection> {
        let connection = async {
            let mut current = self.current.lock().await;
            if let Some(connection) = current.as_ref()
                && connection.client.connection_state() == State::Connected
            {
                return Ok(connection.clone());
            }
            *current = None;
            let connection = Arc::new(self.connect().await?);
            *current = Some(connection.clone());
            Ok(connection)
        };
        tokio::time::timeout(self.connect_timeout, connection).await.unwrap_or_else(|_| {
            Err(NoConnection {
                message: format!(
                    "no connection to NATS at {} within connect_timeout_ms",
                    self.place
                ),
                not_authorized: false,
            })
        })
    }

    /// A context of JetStream, for setting things up and for reading.
    pub async fn jetstream(&self) -> Result<jetstream::Context, String> {
        let connection = self.connection().await.map_err(|trouble| trouble.message)?;
        Ok(connection.jetstream.clone())
    }

    /// Not this one any more.
    pub(crate) async fn discard(&self, connection: &Arc<Connection>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|present| Arc::ptr_eq(present, connection)) {
            *current = None;
        }
    }

    async fn connect(&self) -> Result<Connection, NoConnection> {
        let mut options = ConnectOptions::new()
            .name("symphony")
            .require_tls(self.require_tls)
            .connection_timeout(self.connect_timeout)
            // Enough to try each server once, then it gives up: we make a new one.
            .max_reconnects(self.servers.len());
        if let Some(token) = &self.token {
            options = options.token(token.clone());
        }
        if let Some(file) = &self.ca_file {
            options = options.add_root_certificates(file.into());
        }
        if let Some((certificate, key)) = &self.client_files {
            options = options.add_client_certificate(certificate.into(), key.into());
        }
        if let Some(file) = &self.credentials_file {
            options = options.credentials_file(file).await.map_err(|error| NoConnection {
                message: format!("credentials_file {file} cannot be read: {error}"),
                not_authorized: true,
            })?;
        }
        let client = options.connect(self.servers.clone()).await.map_err(|error| {
            let not_authorized = matches!(
                error.kind(),
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation
            );
            NoConnection {
                message: format!(
                    "no connection to NATS at {}: {}",
                    self.place,
                    in_short(&reasons(&error))
                ),
                not_authorized,
            }
        })?;
        let jetstream = ContextBuilder::new().timeout(self.answer_timeout).build(client.clone());
        Ok(Connection { client, jetstream })
    }
}

fn servers(url: &str) -> Result<Vec<ServerAddr>, SettingsError> {
    let refuse = |problem: &str| SettingsError::new("url", problem);
    if url.trim().is_empty() {
        return Err(refuse("is missing: set it to such as \"nats://127.0.0.1:4222\""));
    }
    let servers: Vec<ServerAddr> = url
        .split(',')
        .map(|url| url.trim().parse())
        .collect::<Result<_, _>>()
        .map_err(|_| refuse("must be such as \"nats://127.0.0.1:4222\""))?;
    if servers.iter().any(ServerAddr::has_user_pass) {
        return Err(refuse("must not hold a password: use token_env or credentials_file"));
    }
    Ok(servers)
}

fn readable(field: &'static str, file: &str) -> Result<(), SettingsError> {
    match field {
        "ca_file" => http_client::certificates(field, Path::new(file)).map(drop),
        _ => std::fs::File::open(file).map(drop).map_err(|error| {
            let problem = format!("is {file}, which cannot be read: {error}");
            SettingsError::new(field, problem)
        }),
    }
}

/// The error with what is behind it: the client's own words are only its kind.
pub(crate) fn reasons(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        let more = behind.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = behind.source();
    }
    text
}
