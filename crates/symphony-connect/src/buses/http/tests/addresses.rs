//! Where webhooks never go.

use std::net::IpAddr;
use std::sync::Arc;

use symphony::lanes::events::bus::Bus as _;
use url::Host;

use super::{environment, message, settings};
use crate::address::tests::{SPELLINGS, TABLE, assert_untouched, trap};
use crate::address::{AddressGuard, AddressKind};
use crate::buses::http::{HttpBus, HttpBusSettings};

fn strict(url: &str) -> HttpBusSettings {
    HttpBusSettings { allow_private_addresses: false, ..settings(url) }
}

#[tokio::test]
async fn no_address_that_is_not_public_is_called_in_whatever_spelling() {
    let (trap, port) = trap().await;
    let mut refused = 0;
    let addresses = TABLE
        .iter()
        .filter(|(kind, _)| *kind != AddressKind::Public)
        .flat_map(|(_, texts)| texts.iter())
        .map(|text| match text.parse().unwrap() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        });
    for host in addresses.chain(SPELLINGS.iter().map(|&host| host.to_owned())) {
        let error = HttpBus::new(&strict(&format!("https://{host}:{port}/")), environment)
            .expect_err(&host);
        assert!(error.to_string().starts_with("endpoints.billing.url cannot be called"), "{error}");
        refused += 1;
    }
    assert!(refused > 130, "{refused}");
    assert_untouched(trap).await;
}

#[tokio::test]
async fn a_name_that_resolves_to_such_an_address_is_refused_in_the_resolver_without_a_connection() {
    let (trap, port) = trap().await;
    let mut refused = 0;
    for (kind, texts) in TABLE.iter().filter(|(kind, _)| *kind != AddressKind::Public) {
        for text in *texts {
            // What a name that was public when it was configured resolves to now: the guard sees only the address.
            let mut bus =
                HttpBus::new(&strict(&format!("https://name.invalid:{port}/")), environment)
                    .unwrap();
            let receiver = bus.receivers.get_mut("billing").unwrap();
            let origin = Arc::get_mut(&mut receiver.endpoint.origin).unwrap();
            origin.host = match text.parse().unwrap() {
                IpAddr::V4(address) => Host::Ipv4(address),
                IpAddr::V6(address) => Host::Ipv6(address),
            };
            let answers = bus.publish("billing", &[&message(1)]).await;
            assert_eq!(
                super::wire::in_words(&answers[0]),
                "again ADDRESS_REFUSED until mended",
                "{kind:?} {text}: {answers:?}"
            );
            refused += 1;
        }
    }
    assert!(refused > 100, "{refused}");
    assert_untouched(trap).await;
}

#[tokio::test]
async fn a_real_name_of_this_machine_is_refused_unless_it_is_allowed() {
    let (trap, port) = trap().await;
    let bus = HttpBus::new(&strict(&format!("https://localhost:{port}/")), environment).unwrap();
    let answers = bus.publish("billing", &[&message(1), &message(2)]).await;
    for answer in &answers {
        assert_eq!(super::wire::in_words(answer), "again ADDRESS_REFUSED until mended");
    }
    assert_untouched(trap).await;
}

#[tokio::test]
async fn a_name_is_judged_anew_by_every_connection() {
    let (trap, port) = trap().await;
    // Allowed when it was configured, and not any more: as if the name's address had changed.
    let mut bus =
        HttpBus::new(&settings(&format!("http://localhost:{port}/")), environment).unwrap();
    let receiver = bus.receivers.get_mut("billing").unwrap();
    Arc::get_mut(&mut receiver.endpoint.origin).unwrap().guard = AddressGuard::default();
    let answers = bus.publish("billing", &[&message(1)]).await;
    assert_eq!(super::wire::in_words(&answers[0]), "again ADDRESS_REFUSED until mended");
    assert_untouched(trap).await;
}
