//! Connecting to NATS, for the bus, for `symphony bus setup` and for consumers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerAddr, ServerError};
use symphony::{FieldError, FieldErrors};

use crate::bounds::nats::DENIALS_MAX;
use crate::buses::short_line;
use crate::http_client::{self, TlsFiles, variable};
use crate::settings::Defects;

/// Where a server is, and how we prove who we are. Fields are named as `[buses.NAME]` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NatsAddress {
    /// Such as `nats://127.0.0.1:4222` or `tls://nats.example.com`; several of one cluster with commas between.
    pub url: String,
    /// A `.creds` file: a user's JWT and seed.
    pub credentials_file: Option<String>,
    /// The environment variable that holds the token.
    pub token_env: Option<String>,
    /// PEM; without it, the system's.
    pub ca_file: Option<String>,
    /// PEM, to prove who we are; with `client_key_file`.
    pub client_certificate_file: Option<String>,
    /// PEM.
    pub client_key_file: Option<String>,
    /// Connect without TLS to a server that is not this machine.
    pub allow_plain_text: bool,
}

/// An address that was checked.
pub(crate) struct NatsServers {
    servers: Vec<ServerAddr>,
    /// Host and port of each, for people.
    place: String,
    credentials_file: Option<String>,
    token: Option<String>,
    ca_file: Option<String>,
    client_files: Option<(String, String)>,
    require_tls: bool,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) struct NoConnection {
    pub(crate) message: String,
    pub(crate) not_authorized: bool,
}

/// Subjects the server said we may not publish to, and when. It says so beside the publish, which it never answers.
#[derive(Debug, Default)]
pub(crate) struct Denials(Mutex<HashMap<String, Instant>>);

impl Denials {
    fn note(&self, said: &str) {
        if let Some(subject) = denied_subject(said) {
            let mut denied = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if denied.len() >= DENIALS_MAX {
                denied.clear();
            }
            denied.insert(subject.to_owned(), Instant::now());
        }
    }

    /// Whether it said so of this subject since then.
    pub(crate) fn since(&self, subject: &str, then: Instant) -> bool {
        let denied = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        denied.get(subject).is_some_and(|at| *at >= then)
    }
}

/// As servers put it: `Permissions Violation for Publish to "events.a"`.
fn denied_subject(said: &str) -> Option<&str> {
    let (what, rest) = said.split_once('"')?;
    let publish = what.trim().eq_ignore_ascii_case("permissions violation for publish to");
    publish.then(|| rest.split('"').next()).flatten()
}

/// What the client does once a connection is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconnect {
    /// It tries each server once, then gives up.
    Once,
    /// It goes on for ever.
    Forever,
}

impl NatsServers {
    /// Everything that is wrong with the address is said now, though files are read at each connection.
    pub(crate) fn new(
        address: &NatsAddress,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, FieldErrors> {
        let mut defects = Defects::default();
        let servers = defects.note(servers(&address.url));
        let token = defects.note(match &address.token_env {
            None => Ok(None),
            Some(name) => variable("token_env", name, &environment).map(Some),
        });
        if let Some(file) = &address.ca_file {
            defects.note(http_client::certificates("ca_file", Path::new(file)));
        }
        if let Some(file) = &address.credentials_file {
            defects.note(std::fs::File::open(file).map_err(|error| {
                let problem = format!("is {file}, which cannot be read: {error}");
                FieldError::new("credentials_file", problem)
            }));
        }
        defects.note(http_client::tls(TlsFiles {
            extra_roots: None,
            client_certificate: address.client_certificate_file.as_deref().map(Path::new),
            client_key: address.client_key_file.as_deref().map(Path::new),
        }));
        let (servers, token) = defects.finish(servers.zip(token))?;
        let client_files =
            address.client_certificate_file.clone().zip(address.client_key_file.clone());
        let wants_tls = servers.iter().any(ServerAddr::tls_required)
            || address.ca_file.is_some()
            || client_files.is_some();
        let names = servers.iter().map(|server| format!("{}:{}", server.host(), server.port()));
        Ok(Self {
            require_tls: wants_tls
                || !(address.allow_plain_text || servers.iter().all(is_this_machine)),
            place: names.collect::<Vec<_>>().join(", "),
            servers,
            credentials_file: address.credentials_file.clone(),
            token,
            ca_file: address.ca_file.clone(),
            client_files,
        })
    }

    /// Connect under this name within this time.
    pub(crate) async fn connect(
        &self,
        name: &str,
        within: Duration,
        reconnect: Reconnect,
        denials: &Arc<Denials>,
    ) -> Result<Client, NoConnection> {
        let denials = denials.clone();
        let mut options = ConnectOptions::new()
            .name(name)
            .require_tls(self.require_tls)
            .connection_timeout(within)
            .event_callback(move |event| {
                if let Event::ServerError(ServerError::Other(said)) = event {
                    denials.note(&said);
                }
                std::future::ready(())
            });
        if reconnect == Reconnect::Once {
            options = options.max_reconnects(self.servers.len());
        }
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
        match tokio::time::timeout(within, options.connect(self.servers.clone())).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(NoConnection {
                not_authorized: matches!(
                    error.kind(),
                    ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation
                ),
                message: format!(
                    "no connection to NATS at {}: {}",
                    self.place,
                    short_line(&reasons(&error))
                ),
            }),
            Err(_elapsed) => Err(self.too_slow(within)),
        }
    }

    /// There was no connection in time.
    pub(crate) fn too_slow(&self, within: Duration) -> NoConnection {
        let message =
            format!("no connection to NATS at {} within {} ms", self.place, within.as_millis());
        NoConnection { message, not_authorized: false }
    }
}

// Neither the token nor a password in an address is for logs.
impl std::fmt::Debug for NatsServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsServers")
            .field("require_tls", &self.require_tls)
            .finish_non_exhaustive()
    }
}

fn servers(url: &str) -> Result<Vec<ServerAddr>, FieldError> {
    let refuse = |problem: &str| FieldError::new("url", problem);
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

fn is_this_machine(server: &ServerAddr) -> bool {
    let host = server.host();
    host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The error with what is behind it: the client's own words are only its kind.
fn reasons(error: &(dyn std::error::Error + 'static)) -> String {
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

/// Where the dead letters of a consumer go unless it says otherwise; setup makes a stream for it.
pub fn dead_letter_subject(consumer: &str) -> String {
    format!("dead.{consumer}")
}

/// Whether a filter, empty for everything, lets a subject through.
pub(crate) fn subject_matches(filter: &str, subject: &str) -> bool {
    if filter.is_empty() {
        return true;
    }
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_lets_through_what_nats_would() {
        for (filter, subject, expected) in [
            ("", "dead.x", true),
            ("events.>", "events.a.b", true),
            ("events.>", "events", false),
            ("events.>", "dead.a", false),
            ("*.a", "events.a", true),
            ("*.a", "events.a.b", false),
            ("events.a", "events.a", true),
        ] {
            assert_eq!(subject_matches(filter, subject), expected, "{filter} {subject}");
        }
    }
}
