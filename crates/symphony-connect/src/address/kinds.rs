//! What an address is for: the IANA special-purpose registries, seen from a caller that must not be fooled.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressKind {
    /// Reachable for everybody.
    Public,
    /// This machine.
    Loopback,
    /// A private network: RFC 1918, unique local IPv6, and what carriers share (100.64.0.0/10).
    Private,
    /// This link only.
    LinkLocal,
    /// Where clouds hand out credentials to whoever asks from inside.
    Metadata,
    /// A group, or everybody.
    Multicast,
    /// No address at all; most systems take it for this machine.
    Unspecified,
    /// For examples and measurements.
    Documentation,
    /// An IPv4 address in IPv6 clothes, by a mechanism that is obsolete (6to4, Teredo, …) or only local.
    Tunnel,
    /// Not for anything yet, or not any more.
    Reserved,
}

impl AddressKind {
    /// What `address` is for. An IPv4 address inside an IPv6 one that really leads to it is judged itself.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// What `allow_private` opens.
    pub fn is_private(self) -> bool {
        matches!(self, Self::Loopback | Self::Private)
    }

    /// What no configuration opens: no provider can be there, and what is there is worth attacking.
    pub fn is_never_called(self) -> bool {
        matches!(self, Self::Metadata | Self::Multicast | Self::Unspecified | Self::Tunnel)
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Loopback => "a loopback address",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "a cloud's metadata service",
            Self::Multicast => "multicast or broadcast",
            Self::Unspecified => "unspecified",
            Self::Documentation => "reserved for documentation or benchmarks",
            Self::Tunnel => "an IPv4 address tunnelled in IPv6",
            Self::Reserved => "reserved",
        })
    }
}

fn of_v4(address: Ipv4Addr) -> AddressKind {
    match address.octets() {
        // The clouds', Alibaba's, Azure's (a public range, answered inside), Oracle's.
        [169, 254, 169, 254]
        | [169, 254, 170, 2 | 23]
        | [100, 100, 100, 200]
        | [168, 63, 129, 16]
        | [192, 0, 0, 192] => AddressKind::Metadata,
        [0, ..] => AddressKind::Unspecified,
        [127, ..] => AddressKind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => {
            AddressKind::Private
        }
        [169, 254, ..] => AddressKind::LinkLocal,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18 | 19, ..] => {
            AddressKind::Documentation
        }
        [224..=239, ..] | [255, 255, 255, 255] => AddressKind::Multicast,
        // The old 6to4 relays.
        [192, 88, 99, _] => AddressKind::Tunnel,
        [192, 0, 0, _] | [240..=255, ..] => AddressKind::Reserved,
        _ => AddressKind::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressKind {
    let segments = address.segments();
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressKind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressKind::Loopback,
        // ::ffff:a.b.c.d is the IPv4 address; 64:ff9b::a.b.c.d leads to it through NAT64 (RFC 6052).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            of_v4(Ipv4Addr::new(a, b, c, d))
        }
        // Compatible (::a.b.c.d) and translated (::ffff:0:a.b.c.d) addresses, NAT64 of one's own, Teredo, 6to4,
        // ISATAP: whatever is inside, nobody has a provider there.
        [0, 0, 0, 0, 0 | 0xffff, 0, _, _]
        | [0x64, 0xff9b, 1, ..]
        | [0x2001, 0, ..]
        | [0x2002, ..]
        | [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => AddressKind::Tunnel,
        // Amazon's, Google's; the link-local ones some clouds copy from IPv4.
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254 | 0x23]
        | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
        | [0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe] => AddressKind::Metadata,
        [0xfc00..=0xfdff, ..] => AddressKind::Private,
        [0xfe80..=0xfebf, ..] => AddressKind::LinkLocal,
        [0xff00..=0xffff, ..] => AddressKind::Multicast,
        // Documentation, old and new, and benchmarks.
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2001, 2, 0, ..] => {
            AddressKind::Documentation
        }
        // The rest of what the IETF keeps for protocols, ORCHIDs among them.
        [0x2001, 0..=0x1ff, ..] => AddressKind::Reserved,
        // All there is of public IPv6.
        [0x2000..=0x3fff, ..] => AddressKind::Public,
        _ => AddressKind::Reserved,
    }
}
