#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use tokio::net::TcpListener;
use url::{Host, Url};

use super::{AddressGuard, AddressKind, Network, NetworkError, ResolveError, Transport};

pub(crate) const TABLE: &[(AddressKind, &[&str])] = &[
    (
        AddressKind::Public,
        &[
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.255",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "2001:200::1",
            "2a00:1450:4001::1",
            "3ffe:ffff::1",
            "3fff:1000::1",
            "2003::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "64:ff9b::101:101",
        ],
    ),
    (
        AddressKind::Loopback,
        &[
            "127.0.0.1",
            "127.0.0.0",
            "127.1.2.3",
            "127.255.255.255",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:7f00:1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::7f00:1",
        ],
    ),
    (
        AddressKind::Private,
        &[
            "10.0.0.0",
            "10.0.0.1",
            "10.255.255.255",
            "172.16.0.0",
            "172.20.1.1",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.1.1",
            "192.168.255.255",
            "100.64.0.0",
            "100.100.100.199",
            "100.127.255.255",
            "fc00::",
            "fc00::1",
            "fd00::1",
            "fd00:ec2::253",
            "fdff:ffff::1",
            "::ffff:10.0.0.1",
            "::ffff:192.168.0.1",
            "::ffff:100.64.0.1",
            "64:ff9b::10.1.2.3",
            "64:ff9b::a00:1",
        ],
    ),
    (
        AddressKind::LinkLocal,
        &[
            "169.254.0.0",
            "169.254.0.1",
            "169.254.169.253",
            "169.254.255.255",
            "fe80::1",
            "fe80::a9fe:a9fd",
            "febf:ffff::1",
            "::ffff:169.254.1.1",
        ],
    ),
    (
        AddressKind::Metadata,
        &[
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "100.100.100.200",
            "192.0.0.192",
            "168.63.129.16",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fe80::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::ffff:a9fe:a9fe",
            "64:ff9b::169.254.169.254",
        ],
    ),
    (
        AddressKind::Multicast,
        &[
            "224.0.0.0",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "ff00::",
            "ff02::1",
            "ff0e::1",
            "ffff::1",
            "::ffff:224.0.0.1",
            "::ffff:255.255.255.255",
        ],
    ),
    (
        AddressKind::Unspecified,
        &["0.0.0.0", "0.0.0.1", "0.255.255.255", "::", "::ffff:0.0.0.0", "64:ff9b::"],
    ),
    (
        AddressKind::Documentation,
        &[
            "192.0.2.0",
            "192.0.2.255",
            "198.51.100.1",
            "203.0.113.0",
            "203.0.113.255",
            "198.18.0.0",
            "198.19.255.255",
            "2001:db8::",
            "2001:db8:ffff::1",
            "3fff::1",
            "3fff:fff::1",
            "2001:2::1",
            "::ffff:203.0.113.1",
        ],
    ),
    (
        AddressKind::Tunnel,
        &[
            "192.88.99.0",
            "192.88.99.255",
            "::2",
            "::7f00:1",
            "::10.0.0.1",
            "::8.8.8.8",
            "::ffff:0:127.0.0.1",
            "::ffff:0:8.8.8.8",
            "64:ff9b:1::1",
            "64:ff9b:1:ffff::10.0.0.1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2002::",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:808:808::1",
            "fe80::5efe:10.0.0.1",
            "2a00::200:5efe:a00:1",
            "2a00::5efe:7f00:1",
        ],
    ),
    (
        AddressKind::Reserved,
        &[
            "192.0.0.0",
            "192.0.0.8",
            "192.0.0.255",
            "240.0.0.0",
            "240.0.0.1",
            "254.255.255.255",
            "255.255.255.254",
            "100::1",
            "100:0:0:1::1",
            "2001:1::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff:ffff::1",
            "5f00::1",
            "4000::1",
            "1::1",
            "fec0::1",
            "64:ff9b:2::1",
            "::1:0:0:0",
            "1fff::1",
            "8000::1",
            "e000::1",
        ],
    ),
];

/// Spellings of addresses that are not public, as an attacker would write them into a URL.
pub(crate) const SPELLINGS: &[&str] = &[
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "%31%32%37.0.0.1",
    "①②⑦.0.0.1",
    "[::ffff:127.0.0.1]",
    "[::FFFF:7F00:1]",
    "0",
    "[::]",
    "0xa9fea9fe",
    "2852039166",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[fd00:ec2::254]",
    "10.1",
    "192.168.257",
];

/// A listener that no connection may reach, on every address of this machine.
pub(crate) async fn trap() -> (TcpListener, u16) {
    let everywhere = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let listener = match TcpListener::bind(everywhere).await {
        Ok(listener) => listener,
        Err(_without_ipv6) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
    };
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Nobody has connected to the trap.
pub(crate) async fn assert_untouched(trap: TcpListener) {
    // A connection would have been queued by the kernel before its client went on.
    let accepted = futures_util::FutureExt::now_or_never(trap.accept());
    assert!(accepted.is_none(), "{accepted:?}");
    // And the trap works.
    let port = trap.local_addr().unwrap().port();
    let (accepted, connected) =
        tokio::join!(trap.accept(), tokio::net::TcpStream::connect(("127.0.0.1", port)));
    assert!(accepted.is_ok() && connected.is_ok());
}

#[test]
fn every_address_is_what_the_registries_say() {
    let mut addresses = 0;
    for (kind, texts) in TABLE {
        for text in *texts {
            assert_eq!(AddressKind::of(text.parse().unwrap()), *kind, "{text}");
            addresses += 1;
        }
    }
    assert!(addresses > 150, "{addresses}");
}

#[test]
fn by_default_only_public_addresses_pass_and_only_encrypted() {
    let guard = AddressGuard::default();
    for (kind, texts) in TABLE {
        for text in *texts {
            let address: IpAddr = text.parse().unwrap();
            let encrypted = guard.check(address, Transport::Encrypted);
            assert_eq!(encrypted.is_ok(), *kind == AddressKind::Public, "{text}");
            assert!(guard.check(address, Transport::Plain).is_err(), "{text} in plain text");
        }
    }
}

#[test]
fn allow_private_opens_loopback_and_private_networks_and_nothing_else() {
    let guard = AddressGuard::new(true, Vec::new());
    for (kind, texts) in TABLE {
        for text in *texts {
            let address: IpAddr = text.parse().unwrap();
            let open = matches!(kind, AddressKind::Loopback | AddressKind::Private);
            let public = *kind == AddressKind::Public;
            let encrypted = guard.check(address, Transport::Encrypted);
            assert_eq!(encrypted.is_ok(), open || public, "{text}");
            let plain = guard.check(address, Transport::Plain);
            assert_eq!(plain.is_ok(), open, "{text} in plain text");
        }
    }
}

#[test]
fn listed_networks_are_opened_but_never_metadata_groups_or_tunnels() {
    let everything = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
    let guard = AddressGuard::new(false, everything);
    for (kind, texts) in TABLE {
        for text in *texts {
            let passes = guard.check(text.parse().unwrap(), Transport::Encrypted).is_ok();
            assert_eq!(passes, !kind.is_never_called(), "{text}");
        }
    }
    let guard = AddressGuard::new(false, vec!["10.1.0.0/16".parse().unwrap()]);
    for (text, passes) in [
        ("10.1.0.0", true),
        ("10.1.255.255", true),
        ("::ffff:10.1.2.3", true),
        ("10.0.255.255", false),
        ("10.2.0.0", false),
        ("127.0.0.1", false),
        ("fd00::1", false),
    ] {
        let address = text.parse().unwrap();
        assert_eq!(guard.check(address, Transport::Plain).is_ok(), passes, "{text}");
    }
}

#[test]
fn networks_are_read_strictly() {
    for text in
        ["10.1.0.0/16", "0.0.0.0/0", "::/0", "fd12::/48", "10.1.2.3", "10.1.2.3/32", "::1/128"]
    {
        assert!(text.parse::<Network>().is_ok(), "{text}");
    }
    for (text, error) in [
        ("10.1.0.1/16", NetworkError::NotTheFirst),
        ("fd12::1/48", NetworkError::NotTheFirst),
        ("10.1.0.0/33", NetworkError::Malformed),
        ("::/129", NetworkError::Malformed),
        ("10.1.0.0/", NetworkError::Malformed),
        ("10.1.0.0/+8", NetworkError::Malformed),
        ("10.1/16", NetworkError::Malformed),
        ("localhost", NetworkError::Malformed),
        ("", NetworkError::Malformed),
    ] {
        assert_eq!(text.parse::<Network>(), Err(error), "{text}");
    }
}

#[tokio::test]
async fn odd_spellings_of_an_address_are_that_address() {
    let guard = AddressGuard::default();
    for url in [
        "http://127.0.0.1",
        "http://127.1",
        "http://127.0.1",
        "http://2130706433",
        "http://0x7f000001",
        "http://0x7f.1",
        "http://0X7F.0.0.1",
        "http://0177.0.0.1",
        "http://017700000001",
        "http://00000177.1",
        "http://127.0.0.1.",
        "http://%31%32%37.0.0.1",
        "http://①②⑦.0.0.1",
        "http://127。0。0。1",
        "http://[::1]",
        "http://[0:0:0:0:0:0:0:1]",
        "http://[::ffff:127.0.0.1]",
        "http://[::FFFF:7F00:1]",
        "http://[::127.0.0.1]",
        "http://0",
        "http://0x0",
        "http://[::]",
        "http://169.254.43518",
        "http://0xa9fea9fe",
        "http://2852039166",
        "http://0251.0376.0251.0376",
        "http://[::ffff:a9fe:a9fe]",
        "http://[64:ff9b::a9fe:a9fe]",
        "http://10.1",
        "http://012.1",
        "http://192.168.257",
        "http://user@127.0.0.1",
        "http://1.1.1.1@127.0.0.1",
        "http://[fd00:ec2::254]",
    ] {
        let host = Url::parse(url).unwrap().host().unwrap().to_owned();
        assert!(!matches!(host, Host::Domain(_)), "{url} is an address");
        for transport in [Transport::Encrypted, Transport::Plain] {
            let refused = guard.resolve(&host, 443, transport).await;
            assert!(matches!(refused, Err(ResolveError::Refused(_))), "{url}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn a_name_is_judged_by_the_address_it_resolves_to() {
    let host = Host::Domain("localhost".to_owned());
    let refused = AddressGuard::default().resolve(&host, 443, Transport::Encrypted).await;
    assert_eq!(refused, Err(ResolveError::Refused(AddressKind::Loopback)));
    let found = AddressGuard::new(true, Vec::new()).resolve(&host, 443, Transport::Plain).await;
    assert!(found.unwrap().iter().all(|address| address.ip().is_loopback()));
}

#[test]
fn of_a_name_with_good_and_bad_addresses_only_the_good_are_left() {
    let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
        texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 443)).collect()
    };
    let guard = AddressGuard::default();
    let mixed = addresses(&["10.0.0.1", "1.1.1.1", "127.0.0.1", "8.8.8.8"]);
    let good = addresses(&["1.1.1.1", "8.8.8.8"]);
    assert_eq!(guard.filter(mixed, Transport::Encrypted), Ok(good));
    let bad = addresses(&["10.0.0.1"]);
    let refused = guard.filter(bad, Transport::Encrypted);
    assert_eq!(refused, Err(ResolveError::Refused(AddressKind::Private)));
    let none = guard.filter(Vec::new(), Transport::Encrypted);
    assert_eq!(none, Err(ResolveError::Unresolved));
}
