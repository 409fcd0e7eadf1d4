//! `[triggers]`: how apps are run and served.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use symphony::db::Database;
use symphony::lanes::triggers::executor::Mailer;
use symphony::lanes::triggers::{Executors, TriggerSettings};
use symphony_connect::email::{Security, SmtpListenerSettings, SmtpSender, SmtpSenderSettings};
use symphony_connect::executors::{
    FetchSettings, Fetcher, HttpExecutor, ScriptExecutor, ScriptSettings,
};

use super::defects::Defects;
use crate::apps::adapters::{Relay, Store};
use crate::output::Failure;

/// `[triggers]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggersSection {
    /// Worked without being named.
    pub enabled: bool,
    concurrency_max: usize,
    timeout_max_seconds: u64,
    /// Where apps are served, or `off`.
    pub http_listen: String,
    #[serde(default)]
    scripts: ScriptSettings,
    #[serde(default)]
    fetch: FetchSettings,
    /// Mail in and out.
    pub email: EmailSection,
}

/// `[triggers.email]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailSection {
    /// Where mail comes in, or `off`.
    pub listen: String,
    /// How.
    #[serde(default)]
    pub listener: SmtpListenerSettings,
    from: Option<String>,
    relay: Option<SmtpSenderSettings>,
}

impl EmailSection {
    /// Mail can go out.
    pub fn has_relay(&self) -> bool {
        self.relay.is_some()
    }

    /// A relay on this machine; whom mail is from stays as it is written.
    pub fn relay_to(&mut self, address: SocketAddr) {
        self.from.get_or_insert_with(|| "Symphony <apps@localhost>".to_owned());
        self.relay = Some(SmtpSenderSettings {
            host: address.ip().to_string(),
            port: address.port(),
            security: Security::Plain,
            ..SmtpSenderSettings::default()
        });
    }
}

/// What a process needs to run scripts; everything that can be wrong with it has been said.
pub struct TriggerPlan {
    /// How.
    pub settings: TriggerSettings,
    scripts: ScriptSettings,
    fetcher: Arc<Fetcher>,
    http: Arc<HttpExecutor>,
    mailer: Option<Arc<dyn Mailer>>,
}

impl TriggersSection {
    /// Note what is wrong, whether or not triggers are worked; what needs secrets is left to [`plan`](Self::plan).
    pub(super) fn check(&self, defects: &mut Defects) {
        if !(1..=10_000).contains(&self.concurrency_max) {
            defects.add("triggers.concurrency_max", "must be 1 to 10000");
        }
        if !(1..=300).contains(&self.timeout_max_seconds) {
            defects.add("triggers.timeout_max_seconds", "must be 1 to 300");
        }
        defects.note("triggers.scripts", self.scripts.check());
        defects.note("triggers.fetch", Fetcher::new(&self.fetch));
        defects.note("triggers.email.listener", self.email.listener.check());
        if self.email.relay.is_some() && self.email.from.is_none() {
            let problem =
                "is missing: say whom mail is from, such as \"Orders <orders@example.com>\"";
            defects.add("triggers.email.from", problem);
        }
    }

    /// Build what can be built without a database; notes what cannot be.
    pub fn plan(&self, defects: &mut Defects) -> Option<TriggerPlan> {
        let fetcher = defects.note("triggers.fetch", Fetcher::new(&self.fetch)).map(Arc::new);
        let relay = self.email.relay.as_ref().map(|relay| {
            let environment = |name: &str| std::env::var(name).ok();
            defects.note("triggers.email.relay", SmtpSender::new(relay, environment))
        });
        let mailer = match (relay, &self.email.from) {
            (None, _) => None,
            (Some(sender), from) => {
                let (sender, from) = (sender?, from.clone()?);
                Some(Arc::new(Relay { sender, from }) as Arc<dyn Mailer>)
            }
        };
        let fetcher = fetcher?;
        let http = HttpExecutor::new(fetcher.clone(), self.scripts.output);
        Some(TriggerPlan {
            settings: TriggerSettings {
                concurrency_max: self.concurrency_max,
                timeout_max: Duration::from_secs(self.timeout_max_seconds),
            },
            scripts: self.scripts.clone(),
            http: Arc::new(defects.note("triggers.scripts.output", http)?),
            fetcher,
            mailer,
        })
    }
}

impl TriggerPlan {
    /// The executors, on a database.
    pub fn executors(&self, database: &Database) -> Result<Executors, Failure> {
        let store = Arc::new(Store(database.executor()));
        let script = ScriptExecutor::new(self.scripts.clone(), store, self.fetcher.clone())
            .map_err(|error| Failure::new(format!("triggers.scripts.{error}")))?;
        Ok(Executors {
            script: Arc::new(script),
            http: self.http.clone(),
            mailer: self.mailer.clone(),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn the_files_defaults_are_the_librarys() {
        let plan = Config::from_text("").unwrap().triggers.plan(&mut Defects::default()).unwrap();
        assert_eq!(plan.settings, TriggerSettings::default());
        assert_eq!(plan.scripts, ScriptSettings::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, field) in [
            ("concurrency_max = 0", "triggers.concurrency_max"),
            ("timeout_max_seconds = 0", "triggers.timeout_max_seconds"),
            ("[triggers.email]\nrelay = { host = 'mail.example' }", "triggers.email.from"),
            (
                "[triggers.email]\nfrom = 'a@b.c'\nrelay = { host = '' }",
                "triggers.email.relay.host",
            ),
        ] {
            let config = Config::from_text(&format!("[triggers]\n{text}\n")).unwrap();
            let mut defects = Defects::default();
            config.triggers.check(&mut defects);
            config.triggers.plan(&mut defects);
            let said = Failure::from(defects).to_string();
            assert!(said.starts_with(field), "{text}: {said}");
        }
    }
}
