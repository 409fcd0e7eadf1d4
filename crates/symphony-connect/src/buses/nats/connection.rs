//! One connection, made when it is needed and thrown away when it is in doubt.
//!
//! The client would reconnect by itself and then send what it still holds, however old. We had reported that as
//! failed, and another worker may have gone on meanwhile; so a connection in doubt is dropped with all it holds, and
//! the next publish makes a new one.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{Client, jetstream};
use symphony::FieldErrors;
use tokio::sync::Mutex;

use super::NatsSettings;
use crate::buses::limits;
use crate::nats::{Denials, NatsServers, NoConnection, Reconnect};
use crate::settings::Defects;

/// How to connect, and the connection there is.
pub struct NatsConnector {
    servers: NatsServers,
    connect_timeout: Duration,
    answer_timeout: Duration,
    current: Mutex<Option<Arc<Connection>>>,
}

impl std::fmt::Debug for NatsConnector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsConnector").field("servers", &self.servers).finish_non_exhaustive()
    }
}

/// Connected, or lately so.
pub(crate) struct Connection {
    client: Client,
    pub(crate) jetstream: jetstream::Context,
    pub(crate) denials: Arc<Denials>,
}

impl NatsConnector {
    /// Of these settings; connects when it is first asked.
    pub fn new(
        settings: &NatsSettings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        let servers = defects.note(NatsServers::new(&settings.address(), environment));
        let limits = defects.note(limits(settings.connect_timeout_ms, settings.timeout_ms));
        let (servers, (connect_timeout, answer_timeout)) = defects.finish(servers.zip(limits))?;
        Ok(Self { servers, connect_timeout, answer_timeout, current: Mutex::new(None) })
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
            let denials = Arc::default();
            let within = self.connect_timeout;
            let client =
                self.servers.connect("symphony", within, Reconnect::Once, &denials).await?;
            let jetstream =
                ContextBuilder::new().timeout(self.answer_timeout).build(client.clone());
            let connection = Arc::new(Connection { client, jetstream, denials });
            *current = Some(connection.clone());
            Ok(connection)
        };
        tokio::time::timeout(self.connect_timeout, connection)
            .await
            .unwrap_or_else(|_elapsed| Err(self.servers.too_slow(self.connect_timeout)))
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
}
