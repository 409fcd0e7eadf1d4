//! `[buses.*]`: from configuration to buses that can be published to.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use symphony::engine::gate::BreakerSettings;
use symphony::lanes::events::bus::Bus;
use symphony_connect::buses::http::{HttpBus, HttpBusSettings};
use symphony_connect::buses::nats::{NatsBus, NatsSettings};
use symphony_connect::buses::setup::{Setup, SetupSettings, set_up_nats};
#[cfg(feature = "aws")]
use symphony_connect::buses::{
    setup::set_up_sns,
    sns::{SnsBus, SnsSettings},
};
use toml::Table;

use super::BreakerFields;
use crate::output::Failure;

/// One bus: its kind, what `symphony bus setup` creates for it, and what its kind takes.
#[derive(Clone, Deserialize)]
pub struct BusSection {
    kind: Kind,
    /// What `symphony bus setup` creates.
    #[serde(default)]
    setup: SetupSettings,
    #[serde(default = "defaults::concurrency_max")]
    concurrency_max: usize,
    #[serde(flatten)]
    breaker: BreakerFields,
    /// A secret of this process alone, instead of the environment's.
    #[serde(skip)]
    secret: Option<String>,
    /// The rest is the kind's own, checked when it is built.
    #[serde(flatten)]
    own: Table,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// SNS FIFO topics.
    Sns,
    /// NATS JetStream streams.
    Nats,
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

    pub(super) fn concurrency_max(&self) -> usize {
        self.concurrency_max.max(1)
    }

    pub(super) fn breaker(&self) -> BreakerSettings {
        self.breaker.settings()
    }

    /// As the kind takes them.
    fn settings<S: DeserializeOwned>(&self, name: &str) -> Result<S, Failure> {
        S::deserialize(self.own.clone())
            .map_err(|error| refuse(name, &error.to_string().trim().replace('\n', ", ")))
    }
}

/// What a build for the tour says.
#[cfg(not(feature = "aws"))]
const WITHOUT_AWS: &str =
    "this symphony was built without SNS: take one that cargo build --release has built";

/// A bus that can be published to. It connects to nothing yet.
pub fn build_bus(name: &str, section: &BusSection) -> Result<Arc<dyn Bus>, Failure> {
    let bus: Arc<dyn Bus> = match section.kind {
        #[cfg(feature = "aws")]
        Kind::Sns => {
            let bus = SnsBus::new(&section.settings::<SnsSettings>(name)?, environment);
            Arc::new(bus.map_err(|error| refuse(name, &error.to_string()))?)
        }
        #[cfg(not(feature = "aws"))]
        Kind::Sns => return Err(refuse(name, WITHOUT_AWS)),
        Kind::Nats => {
            let bus = NatsBus::new(&section.settings::<NatsSettings>(name)?, environment);
            Arc::new(bus.map_err(|error| refuse(name, &error.to_string()))?)
        }
        Kind::Http => {
            let secret = |name: &str| section.secret.clone().or_else(|| environment(name));
            let bus = HttpBus::new(&section.settings::<HttpBusSettings>(name)?, secret);
            Arc::new(bus.map_err(|error| refuse(name, &error.to_string()))?)
        }
    };
    Ok(bus)
}

/// Create what the bus publishes to and its consumers read from, or say what would be created.
pub async fn set_up_bus(name: &str, section: &BusSection, dry_run: bool) -> Result<Setup, Failure> {
    let setup = &section.setup;
    let done = match section.kind {
        #[cfg(feature = "aws")]
        Kind::Sns => {
            set_up_sns(&section.settings::<SnsSettings>(name)?, setup, environment, dry_run).await
        }
        #[cfg(not(feature = "aws"))]
        Kind::Sns => return Err(refuse(name, WITHOUT_AWS)),
        Kind::Nats => {
            set_up_nats(&section.settings::<NatsSettings>(name)?, setup, environment, dry_run).await
        }
        // Endpoints are other people's: there is nothing to create.
        Kind::Http => Ok(Setup::default()),
    };
    done.map_err(|error| refuse(name, &error.to_string()))
}

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn refuse(name: &str, problem: &str) -> Failure {
    Failure::new(format!("buses.{name}: {problem}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn build(text: &str) -> Result<(), String> {
        let section: BusSection = toml::from_str(text).map_err(|error| error.to_string())?;
        build_bus("main", &section).map(|_| ()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_bus() {
        assert_eq!(build("kind = 'sns'\nregion = 'eu-central-1'"), Ok(()));
        assert_eq!(build("kind = 'nats'\nurl = 'nats://127.0.0.1:4222'"), Ok(()));
        let unknown = build("kind = 'sns'\nregoin = 'eu-central-1'").unwrap_err();
        assert!(unknown.starts_with("buses.main: ") && unknown.contains("regoin"), "{unknown}");
        let account = build("kind = 'sns'\nregion = 'eu-central-1'\naccount_id = '7'").unwrap_err();
        assert_eq!(account, "buses.main: account_id must be 12 digits");
        assert!(build("kind = 'nats'").unwrap_err().contains("url is missing"));
        let password = build("kind = 'nats'\nurl = 'nats://me:secret@127.0.0.1'").unwrap_err();
        assert!(password.contains("token_env") && !password.contains("secret"), "{password}");
    }
}
