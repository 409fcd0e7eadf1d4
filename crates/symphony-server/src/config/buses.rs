//! `[buses.*]`: from configuration to buses that can be published to.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use symphony::lanes::events::bus::Bus;
use symphony_connect::buses::nats::{NatsBus, NatsSettings};
use symphony_connect::buses::setup::{Setup, SetupSettings, set_up_nats, set_up_sns};
use symphony_connect::buses::sns::{SnsBus, SnsSettings};
use toml::Table;

use crate::output::Failure;

/// One bus: its kind, what `symphony bus setup` creates for it, and what its kind takes.
#[derive(Debug, Clone, Deserialize)]
pub struct BusSection {
    kind: Kind,
    /// What `symphony bus setup` creates.
    #[serde(default)]
    setup: SetupSettings,
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

impl BusSection {
    /// As the kind takes them.
    fn settings<S: DeserializeOwned>(&self, name: &str) -> Result<S, Failure> {
        S::deserialize(self.own.clone())
            .map_err(|error| refuse(name, &error.to_string().trim().replace('\n', ", ")))
    }
}

/// A bus that can be published to. It connects to nothing yet.
pub fn build_bus(name: &str, section: &BusSection) -> Result<Arc<dyn Bus>, Failure> {
    let bus: Arc<dyn Bus> = match section.kind {
        Kind::Sns => {
            let bus = SnsBus::new(&section.settings::<SnsSettings>(name)?, environment);
            Arc::new(bus.map_err(|error| refuse(name, &error.to_string()))?)
        }
        Kind::Nats => {
            let bus = NatsBus::new(&section.settings::<NatsSettings>(name)?, environment);
            Arc::new(bus.map_err(|error| refuse(name, &error.to_string()))?)
        }
        Kind::Http => return Err(refuse(name, "kind http is not built in: use sns or nats")),
    };
    Ok(bus)
}

/// Create what the bus publishes to and its consumers read from, or say what would be created.
pub async fn set_up_bus(name: &str, section: &BusSection, dry_run: bool) -> Result<Setup, Failure> {
    let setup = &section.setup;
    let done = match section.kind {
        Kind::Sns => {
            set_up_sns(&section.settings::<SnsSettings>(name)?, setup, environment, dry_run).await
        }
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
