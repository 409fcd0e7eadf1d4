//! `[buses.*]`: from configuration to buses that can be published to.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use symphony::engine::BreakerSettings;
use symphony::event::envelope::{DEFAULT_SOURCE, Envelope, SOURCE_BYTES_MAX};
use symphony::lanes::events::MessageLook;
use symphony::lanes::events::bus::Bus;
use symphony_connect::buses::http::{HttpBus, HttpBusSettings};
use symphony_connect::buses::nats::{NatsBus, NatsSettings};
use symphony_connect::buses::setup::{Setup, SetupSettings, set_up_nats};
#[cfg(feature = "kafka")]
use symphony_connect::buses::{
    kafka::{KafkaBus, KafkaSettings},
    setup::set_up_kafka,
};
#[cfg(feature = "sns")]
use symphony_connect::buses::{
    setup::set_up_sns,
    sns::{SnsBus, SnsSettings},
};
use toml::Table;

use super::BreakerFields;
use super::defects::Defects;
use super::reading::Reading;
use crate::output::Failure;

/// One bus: its kind, what `symphony bus setup` creates for it, and what its kind takes.
#[derive(Clone, Deserialize)]
pub struct BusSection {
    kind: Kind,
    /// What `symphony bus setup` creates.
    #[serde(default)]
    setup: SetupSettings,
    /// How messages look.
    #[serde(default)]
    envelope: Envelope,
    /// The `source` of CloudEvents.
    cloudevents_source: Option<String>,
    #[serde(default = "defaults::concurrency_max")]
    concurrency_max: usize,
    breaker_failures: Option<u32>,
    breaker_open_ms: Option<u64>,
    breaker_open_max_ms: Option<u64>,
    /// A secret of this process alone, instead of the environment's.
    #[serde(skip)]
    secret: Option<String>,
    /// The rest is the kind's own, checked when it is built.
    #[serde(flatten)]
    own: Table,
}

/// The keys of [`BusSection`] itself, to be offered to whoever has mistyped one.
const KEYS: [&str; 8] = [
    "kind",
    "setup",
    "envelope",
    "cloudevents_source",
    "concurrency_max",
    "breaker_failures",
    "breaker_open_ms",
    "breaker_open_max_ms",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// SNS FIFO topics.
    Sns,
    /// NATS JetStream streams.
    Nats,
    /// Kafka topics.
    Kafka,
    /// Signed webhooks.
    Http,
}

// Without the secret.
impl std::fmt::Debug for BusSection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BusSection").field("kind", &self.kind).finish_non_exhaustive()
    }
}

mod defaults {
    pub(super) fn concurrency_max() -> usize {
        10
    }
}

impl BusSection {
    /// Webhooks to a receiver in this process, signed with a secret nobody else has; the topic is `local`.
    pub fn local_receiver(url: &str, secret: String) -> Result<Self, Failure> {
        let section: Self = toml::from_str(&format!(
            "kind = \"http\"\nallow_private_addresses = true\n[endpoints.local]\nurl = \"{url}\"\n\
             secret_env = \"LOCAL_RECEIVER\"\ntimeout_ms = 5_000\n"
        ))
        .map_err(|error| Failure::new(error.to_string()))?;
        Ok(Self { secret: Some(secret), ..section })
    }

    pub(super) fn look(&self) -> MessageLook {
        let source = self.cloudevents_source.clone().unwrap_or_else(|| DEFAULT_SOURCE.to_owned());
        MessageLook { envelope: self.envelope, source }
    }

    pub(super) fn concurrency_max(&self) -> usize {
        self.concurrency_max
    }

    pub(super) fn breaker(&self) -> BreakerSettings {
        let fields = BreakerFields {
            failures: self.breaker_failures,
            open_ms: self.breaker_open_ms,
            open_max_ms: self.breaker_open_max_ms,
        };
        fields.settings()
    }

    /// Note what is wrong, whether or not a route leads to it; what needs secrets is left to [`build_bus`].
    pub(super) fn check(&self, name: &str, defects: &mut Defects) {
        let place = format!("buses.{name}");
        if self.concurrency_max == 0 {
            defects.add(&format!("{place}.concurrency_max"), "must be at least 1");
        }
        if let Some(source) = &self.cloudevents_source
            && !is_source(source)
        {
            let problem = format!(
                "must be a URI or a path such as \"https://payments.example.com\", at most {SOURCE_BYTES_MAX} bytes"
            );
            defects.add(&format!("{place}.cloudevents_source"), problem);
        }
        defects.note_all(&place, self.breaker().defects());
        defects.note(&place, self.setup.check());
        match self.kind {
            #[cfg(feature = "sns")]
            Kind::Sns => drop(self.settings::<SnsSettings>(name, defects)),
            #[cfg(not(feature = "sns"))]
            Kind::Sns => defects.add(&format!("{place}.kind"), WITHOUT_SNS),
            Kind::Nats => drop(self.settings::<NatsSettings>(name, defects)),
            #[cfg(feature = "kafka")]
            Kind::Kafka => drop(self.settings::<KafkaSettings>(name, defects)),
            #[cfg(not(feature = "kafka"))]
            Kind::Kafka => defects.add(&format!("{place}.kind"), WITHOUT_KAFKA),
            Kind::Http => drop(self.settings::<HttpBusSettings>(name, defects)),
        }
    }

    /// As the kind takes them.
    fn settings<S: DeserializeOwned>(&self, name: &str, defects: &mut Defects) -> Option<S> {
        let place = format!("buses.{name}");
        let reading = Reading { place: &place, fallback: &Table::new(), siblings: &KEYS };
        reading.read(self.own.clone(), defects)
    }
}

/// Nothing that a URI cannot have.
fn is_source(text: &str) -> bool {
    (1..=SOURCE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&b))
}

/// What a build for the tour says.
#[cfg(not(feature = "sns"))]
const WITHOUT_SNS: &str =
    "is sns, and this symphony was built without it: take one that cargo build --release has built";

/// What a build without the feature says.
#[cfg(not(feature = "kafka"))]
const WITHOUT_KAFKA: &str = "is kafka, and this symphony was built without the feature kafka: build it with \
                             cargo build --release --features kafka (docs/BUSES.md says what that needs)";

/// A bus that can be published to. It connects to nothing yet.
pub fn build_bus(name: &str, section: &BusSection, defects: &mut Defects) -> Option<Arc<dyn Bus>> {
    let place = format!("buses.{name}");
    match section.kind {
        #[cfg(feature = "sns")]
        Kind::Sns => {
            let bus = SnsBus::new(&section.settings::<SnsSettings>(name, defects)?, environment);
            defects.note(&place, bus).map(|bus| Arc::new(bus) as _)
        }
        #[cfg(not(feature = "sns"))]
        Kind::Sns => None,
        Kind::Nats => {
            let bus = NatsBus::new(&section.settings::<NatsSettings>(name, defects)?, environment);
            defects.note(&place, bus).map(|bus| Arc::new(bus) as _)
        }
        #[cfg(feature = "kafka")]
        Kind::Kafka => {
            let bus =
                KafkaBus::new(&section.settings::<KafkaSettings>(name, defects)?, environment);
            defects.note(&place, bus).map(|bus| Arc::new(bus) as _)
        }
        #[cfg(not(feature = "kafka"))]
        Kind::Kafka => None,
        Kind::Http => {
            let secret = |name: &str| section.secret.clone().or_else(|| environment(name));
            let bus = HttpBus::new(&section.settings::<HttpBusSettings>(name, defects)?, secret);
            defects.note(&place, bus).map(|bus| Arc::new(bus) as _)
        }
    }
}

/// Create what the bus publishes to and its consumers read from, or say what would be created.
pub async fn set_up_bus(name: &str, section: &BusSection, dry_run: bool) -> Result<Setup, Failure> {
    let mut defects = Defects::default();
    section.check(name, &mut defects);
    let setup = &section.setup;
    let done = match section.kind {
        #[cfg(feature = "sns")]
        Kind::Sns => match section.settings::<SnsSettings>(name, &mut defects) {
            Some(settings) if defects.is_empty() => {
                set_up_sns(&settings, setup, environment, dry_run).await
            }
            _ => return Err(Failure::from(defects)),
        },
        #[cfg(not(feature = "sns"))]
        Kind::Sns => return Err(Failure::from(defects)),
        Kind::Nats => match section.settings::<NatsSettings>(name, &mut defects) {
            Some(settings) if defects.is_empty() => {
                set_up_nats(&settings, setup, environment, dry_run).await
            }
            _ => return Err(Failure::from(defects)),
        },
        #[cfg(feature = "kafka")]
        Kind::Kafka => match section.settings::<KafkaSettings>(name, &mut defects) {
            Some(settings) if defects.is_empty() => {
                set_up_kafka(&settings, setup, environment, dry_run).await
            }
            _ => return Err(Failure::from(defects)),
        },
        #[cfg(not(feature = "kafka"))]
        Kind::Kafka => return Err(Failure::from(defects)),
        Kind::Http if !defects.is_empty() => return Err(Failure::from(defects)),
        // Endpoints are other people's: there is nothing to create.
        Kind::Http => Ok(Setup::default()),
    };
    done.map_err(|error| Failure::new(format!("buses.{name}: {error}")))
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn build(text: &str) -> Result<(), String> {
        let section: BusSection = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut defects = Defects::default();
        section.check("main", &mut defects);
        build_bus("main", &section, &mut defects);
        if defects.is_empty() { Ok(()) } else { Err(Failure::from(defects).to_string()) }
    }

    #[cfg(not(feature = "kafka"))]
    #[test]
    fn a_build_without_kafka_says_so_and_names_the_feature() {
        let said = build("kind = 'kafka'\nbootstrap_servers = '127.0.0.1:9092'").unwrap_err();
        assert!(said.starts_with("buses.main.kind is kafka") && said.contains("--features kafka"));
        assert_eq!(said.lines().count(), 1, "{said}");
    }

    #[cfg(feature = "kafka")]
    #[test]
    fn a_wrong_setting_of_kafka_is_named_with_its_bus() {
        assert_eq!(build("kind = 'kafka'\nbootstrap_servers = '127.0.0.1:9092'"), Ok(()));
        assert!(build("kind = 'kafka'").unwrap_err().contains("bootstrap_servers is missing"));
        let typo = build("kind = 'kafka'\nbootstrap_server = 'a:1'").unwrap_err();
        assert!(typo.contains("did you mean bootstrap_servers?"), "{typo}");
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_bus() {
        assert_eq!(build("kind = 'sns'\nregion = 'eu-central-1'"), Ok(()));
        assert_eq!(build("kind = 'nats'\nurl = 'nats://127.0.0.1:4222'"), Ok(()));
        let unknown = build("kind = 'sns'\nregoin = 'eu-central-1'").unwrap_err();
        assert_eq!(
            unknown.lines().next(),
            Some("buses.main.regoin is no setting: did you mean region?")
        );
        assert_eq!(
            build("kind = 'nats'\nurl = 'nats://127.0.0.1'\nenvelope = 'cloudevents-binary'"),
            Ok(())
        );
        let envelope = build("kind = 'sns'\nenvelope = 'cloudevents'").unwrap_err();
        assert!(envelope.contains("cloudevents-structured"), "{envelope}");
        let source = build("kind = 'nats'\nurl = 'nats://127.0.0.1'\ncloudevents_source = 'a b'");
        assert!(source.unwrap_err().contains("buses.main.cloudevents_source must be a URI"));
        let account = build("kind = 'sns'\nregion = 'eu-central-1'\naccount_id = '7'").unwrap_err();
        assert_eq!(account, "buses.main.account_id must be 12 digits");
        assert!(build("kind = 'nats'").unwrap_err().contains("url is missing"));
        let password = build("kind = 'nats'\nurl = 'nats://me:secret@127.0.0.1'").unwrap_err();
        assert!(password.contains("token_env") && !password.contains("secret"), "{password}");
    }
}
