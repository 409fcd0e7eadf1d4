//! Where requests go: from a URL to a server that may be called.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::header::HeaderValue;
use symphony::FieldError;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use url::{Host, Url};

use super::exchange::Origin;
use crate::address::{AddressGuard, Network, ResolveError, Transport};

/// Gives the value of an environment variable.
pub(crate) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Where requests go.
pub(crate) struct Endpoint {
    pub(crate) origin: Arc<Origin>,
    pub(crate) host: HeaderValue,
    /// Path and query.
    pub(crate) target: String,
}

/// What holds for every endpoint of one rail or bus.
pub(crate) struct Conditions {
    pub(crate) guard: AddressGuard,
    pub(crate) tls: TlsConnector,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_bytes_max: usize,
    /// See [`Origin::needs_body`].
    pub(crate) needs_body: bool,
}

impl Endpoint {
    /// The endpoint at a URL. What can be refused without resolving is refused now.
    pub(crate) fn new(
        field: &'static str,
        text: &str,
        conditions: &Conditions,
    ) -> Result<Self, FieldError> {
        let Conditions { guard, tls, .. } = conditions;
        let refuse = |problem: String| FieldError::new(field, problem);
        if text.is_empty() {
            return Err(refuse("is missing: where should requests go?".to_owned()));
        }
        // The parser's words do not repeat the URL, which may hold a token.
        let url = Url::parse(text).map_err(|error| refuse(format!("is not a URL: {error}")))?;
        let transport = match url.scheme() {
            "https" => Transport::Encrypted,
            "http" if guard.allows_some_private() => Transport::Plain,
            "http" => {
                let problem = "must begin with https:// (http:// only for private addresses, with \
                               allow_private_addresses or allowed_networks)";
                return Err(refuse(problem.to_owned()));
            }
            _ => return Err(refuse("must begin with https://".to_owned())),
        };
        if !url.username().is_empty() || url.password().is_some() {
            let problem = "must not contain a user or password: put them into header_env";
            return Err(refuse(problem.to_owned()));
        }
        if url.fragment().is_some() {
            return Err(refuse("must not have a # part: servers never see it".to_owned()));
        }
        let host = url.host().ok_or_else(|| refuse("has no host".to_owned()))?.to_owned();
        // A name is judged when it is resolved; an address can be refused now, in every spelling.
        let literal = match &host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        };
        if let Some(address) = literal {
            guard.check(address, transport).map_err(|error| match error {
                ResolveError::PlainToPublic => {
                    refuse("must begin with https://, since its address is public".to_owned())
                }
                other => refuse(format!("cannot be called: {other}")),
            })?;
        }
        let port = url.port_or_known_default().filter(|port| *port != 0);
        let port = port.ok_or_else(|| refuse("has no port that can be called".to_owned()))?;
        let authority = match url.port() {
            None => host.to_string(),
            Some(port) => format!("{host}:{port}"),
        };
        let server = match literal {
            Some(address) => ServerName::from(address),
            None => ServerName::try_from(host.to_string())
                .map_err(|_| refuse("has a host that no certificate can name".to_owned()))?,
        };
        Ok(Self {
            host: HeaderValue::from_str(&authority)
                .map_err(|_| refuse("has a host that cannot be written as a header".to_owned()))?,
            target: match url.query() {
                None => url.path().to_owned(),
                Some(query) => format!("{}?{query}", url.path()),
            },
            origin: Arc::new(Origin {
                host,
                port,
                tls: (transport == Transport::Encrypted).then(|| (tls.clone(), server)),
                guard: guard.clone(),
                connect_timeout: conditions.connect_timeout,
                response_bytes_max: conditions.response_bytes_max,
                needs_body: conditions.needs_body,
                idle: Mutex::new(Vec::new()),
            }),
        })
    }
}

/// The guard that settings ask for.
pub(crate) fn guard(
    allow_private_addresses: bool,
    allowed_networks: &[String],
) -> Result<AddressGuard, FieldError> {
    let networks: Result<Vec<Network>, _> =
        allowed_networks.iter().map(|network| network.parse()).collect();
    let networks =
        networks.map_err(|error| FieldError::new("allowed_networks", error.to_string()))?;
    Ok(AddressGuard::new(allow_private_addresses, networks))
}

/// The value of an environment variable that settings name.
pub(crate) fn variable(
    field: &'static str,
    name: &str,
    environment: Environment<'_>,
) -> Result<String, FieldError> {
    // Whoever puts the secret itself here must not read it in a log: only what looks like a name is repeated.
    let is_name = name.len() <= 64
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
    environment(name).filter(|value| !value.is_empty()).ok_or_else(|| {
        let which = if is_name { name } else { "the one it names" };
        FieldError::new(field, format!("needs an environment variable: {which} is not set"))
    })
}
