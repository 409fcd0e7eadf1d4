//! Which network addresses may be called: the guard against requests that somebody talked us into sending to
//! our own network (SSRF).
//!
//! What is judged is the address that is then connected to, never a name: a name can answer differently the
//! second time (rebinding). Callers resolve through [`AddressGuard::resolve`] and connect to what it returns.

mod kinds;
mod network;

#[cfg(test)]
pub(crate) mod tests;

use std::net::{IpAddr, SocketAddr};

use url::Host;

pub use crate::bounds::address::ADDRESSES_TRIED_MAX;
pub use kinds::AddressKind;
pub use network::{Network, NetworkError};

/// Says which addresses may be called. By default: public ones.
#[derive(Debug, Clone, Default)]
pub struct AddressGuard {
    allow_private: bool,
    allowed: Vec<Network>,
}

/// Whether what is sent can be read on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TLS.
    Encrypted,
    /// Plain text: to public addresses never.
    Plain,
}

/// Why no address came out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The name has no address, or nobody could be asked.
    #[error("the host name could not be resolved")]
    Unresolved,
    /// It has addresses, and none may be called.
    #[error("the host's address is {0}; {advice}", advice = advice(*.0))]
    Refused(AddressKind),
    /// It may be called, but only encrypted.
    #[error("the host's address is public, so its URL must begin with https://")]
    PlainToPublic,
}

/// What helps against a refusal.
fn advice(kind: AddressKind) -> &'static str {
    if kind.is_never_called() {
        "no setting allows that, because no provider can be there: use the provider's own address"
    } else if kind.is_private() {
        "if that is meant, set allow_private_addresses = true, or list its network under allowed_networks"
    } else {
        "list its network under allowed_networks if that is meant"
    }
}

impl AddressGuard {
    /// Public addresses; with `allow_private` also loopback and private ones; and those in `allowed`, whatever
    /// they are, except where calling makes no sense for anybody (see [`AddressKind::is_never_called`]).
    pub fn new(allow_private: bool, allowed: Vec<Network>) -> Self {
        Self { allow_private, allowed }
    }

    /// Whether anything but a public address can pass.
    pub fn allows_some_private(&self) -> bool {
        self.allow_private || !self.allowed.is_empty()
    }

    /// May this address be called?
    pub fn check(&self, address: IpAddr, transport: Transport) -> Result<(), ResolveError> {
        let kind = AddressKind::of(address);
        if kind == AddressKind::Public {
            return match transport {
                Transport::Encrypted => Ok(()),
                Transport::Plain => Err(ResolveError::PlainToPublic),
            };
        }
        let private = self.allow_private && kind.is_private();
        let listed =
            !kind.is_never_called() && self.allowed.iter().any(|network| network.contains(address));
        if private || listed { Ok(()) } else { Err(ResolveError::Refused(kind)) }
    }

    /// The addresses of `host` that may be called, in the resolver's order.
    pub async fn resolve(
        &self,
        host: &Host<String>,
        port: u16,
        transport: Transport,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let found = match host {
            Host::Ipv4(address) => vec![SocketAddr::new(IpAddr::V4(*address), port)],
            Host::Ipv6(address) => vec![SocketAddr::new(IpAddr::V6(*address), port)],
            Host::Domain(name) => tokio::net::lookup_host((name.as_str(), port))
                .await
                .map_err(|_| ResolveError::Unresolved)?
                .collect(),
        };
        self.filter(found, transport)
    }

    fn filter(
        &self,
        found: Vec<SocketAddr>,
        transport: Transport,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let mut refusal = ResolveError::Unresolved;
        let mut allowed = Vec::new();
        for address in found {
            match self.check(address.ip(), transport) {
                Ok(()) if allowed.len() < ADDRESSES_TRIED_MAX => allowed.push(address),
                Ok(()) => {}
                Err(error) => refusal = error,
            }
        }
        if allowed.is_empty() { Err(refusal) } else { Ok(allowed) }
    }
}
