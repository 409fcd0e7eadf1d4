//! A network, as configuration writes it: `10.1.0.0/16`, `fd12::/48`, or one address.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer};

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Neither an address nor a range.
    #[error("must be a network such as 10.1.0.0/16 or fd12::/48, or one address")]
    Malformed,
    /// Bits behind the prefix: it is unclear what was meant.
    #[error("has bits set behind its prefix: write its first address")]
    NotTheFirst,
}

impl Network {
    /// Is the address in it? An IPv4 address mapped into IPv6 is looked for as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let network = match text.parse::<IpAddr>() {
            Ok(address) => IpNet::from(address),
            Err(_) => text.parse().map_err(|_| NetworkError::Malformed)?,
        };
        if network.addr() == network.network() {
            Ok(Self(network))
        } else {
            Err(NetworkError::NotTheFirst)
        }
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
