//! One connection, made when it is needed and thrown away when it is in doubt.
//!
//! The client would reconnect by itself and then send what it still holds, however old. We had reported that as
//! failed, and another worker may have gone on meanwhile; so a connection in doubt is dropped with all it holds, and
//! the next publish makes a new one.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr, jetstream};
use tokio::sync::Mutex;

use super::NatsSettings;
use crate::buses::{BusSettingsError, limits};

/// How to connect, and the connection there is.
pub struct NatsConnector {
    servers: Vec<ServerAddr>,
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
    ) -> Result<Self, BusSettingsError> {
        let refuse = |problem: &str| BusSettingsError(problem.to_owned());
        let servers: Vec<ServerAddr> = settings
            .url
            .split(',')
            .map(|url| url.trim().parse())
            .collect::<Result<_, _>>()
            .map_err(|_| refuse("url must be such as \"nats://127.0.0.1:4222\""))?;
        if settings.url.trim().is_empty() {
            return Err(refuse("url is missing: set it to such as \"nats://127.0.0.1:4222\""));
        }
        if servers.iter().any(ServerAddr::has_user_pass) {
            return Err(refuse("url must not hold a password: use token_env or credentials_file"));
        }
        let token = match &settings.token_env {
            None => None,
            Some(name) => {
                Some(environment(name).filter(|token| !token.is_empty()).ok_or_else(|| {
                    BusSettingsError(format!("token_env: {name} is not set in the environment"))
                })?)
            }
        };
        let client_files = match (&settings.client_certificate_file, &settings.client_key_file) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            _ => return Err(refuse("client_certificate_file and client_key_file go together")),
        };
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
        let (connect_timeout, answer_timeout) =
            limits(settings.connect_timeout_ms, settings.timeout_ms)?;
        Ok(Self {
            require_tls: wants_tls || !(settings.allow_plain_text || servers.iter().all(here)),
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
                message: "no connection to NATS could be made in time".to_owned(),
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
                message: format!("no connection to NATS: {}", error.kind()),
                not_authorized,
            }
        })?;
        let jetstream = ContextBuilder::new().timeout(self.answer_timeout).build(client.clone());
        Ok(Connection { client, jetstream })
    }
}
