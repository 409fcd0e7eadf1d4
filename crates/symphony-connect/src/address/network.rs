//! A network, as configuration writes it: `10.1.0.0/16`, `fd12::/48`, or one address.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    prefix_bits: u32,
}

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
    /// Is the address in it? An IPv4 address in IPv6 clothes is looked for as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.first, address.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(self.prefix_bits);
                first.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(self.prefix_bits);
                first.to_bits().checked_shr(shift) == address.to_bits().checked_shr(shift)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| NetworkError::Malformed)?;
        let bits_max = if first.is_ipv4() { 32 } else { Ipv6Addr::BITS };
        let prefix_bits = match prefix {
            None => bits_max,
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().map_err(|_| NetworkError::Malformed)?
            }
            Some(_) => return Err(NetworkError::Malformed),
        };
        if prefix_bits > bits_max {
            return Err(NetworkError::Malformed);
        }
        let behind = match first {
            IpAddr::V4(first) => first.to_bits().checked_shl(prefix_bits).unwrap_or(0) != 0,
            IpAddr::V6(first) => first.to_bits().checked_shl(prefix_bits).unwrap_or(0) != 0,
        };
        if behind {
            return Err(NetworkError::NotTheFirst);
        }
        Ok(Self { first, prefix_bits })
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
