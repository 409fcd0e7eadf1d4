//! `[triggers]`: how apps are run and served.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use serde::Deserialize;
use symphony::db::Database;
use symphony::lanes::triggers::executor::Mailer;
use symphony::lanes::triggers::{Executors, TriggerSettings};
use symphony_connect::email::{Security, SmtpListenerSettings, SmtpSender, SmtpSenderSettings};
use symphony_connect::executors::{
    FetchSettings, Fetcher, HttpExecutor, ScriptExecutor, ScriptSettings,
};

use super::defects::Defects;
use crate::apps::adapters::{EntryStore, MailRates, MailRelay};
use crate::apps::secrets::{SecretKey, SecretKeys};
use crate::apps::{AppsSettings, WebhookSecrets};
use crate::bounds::APP_BODY_BYTES_MAX;
use crate::http_server::HttpServerSettings;
use crate::output::Failure;

/// `[triggers]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TriggersSection {
    /// Worked without being named.
    pub enabled: bool,
    concurrency_max: usize,
    timeout_max_seconds: u64,
    /// How long executions are kept where their app says nothing else.
    pub executions_days: u16,
    /// How long their logs.
    pub logs_days: u16,
    /// Where apps are served, or `off`.
    pub http_listen: String,
    /// A proxy in front of it speaks TLS, and nobody else reaches it.
    pub behind_proxy: bool,
    /// Who may ask for `/executions`: whoever has a token, or anybody.
    status_auth: ListenerAuth,
    /// Who may hand mail in at `/mail`.
    mail_auth: ListenerAuth,
    token_rate_per_second: u32,
    body_bytes_in_flight_max: usize,
    headers_not_stored: Vec<String>,
    /// By app and name, where the secrets of signed routes are.
    #[serde(default)]
    secrets: BTreeMap<String, BTreeMap<String, SecretSource>>,
    /// Where the key is that seals and opens the secrets of apps.
    secrets_key: Option<SecretSource>,
    /// Where the one before it is, which only opens.
    secrets_previous_key: Option<SecretSource>,
    #[serde(default)]
    scripts: ScriptSettings,
    #[serde(default)]
    fetch: FetchSettings,
    /// Mail in and out.
    pub email: EmailSection,
}

/// Whether an address of the listener needs a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListenerAuth {
    None,
    Token,
}

/// Where a secret is: an environment variable or a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretSource {
    env: Option<String>,
    file: Option<PathBuf>,
}

impl SecretSource {
    fn read(&self) -> Result<String, String> {
        let text = match (&self.env, &self.file) {
            (Some(name), None) => std::env::var(name)
                .map_err(|_| format!("the environment variable {name} is not set"))?,
            (None, Some(file)) => std::fs::read_to_string(file)
                .map_err(|error| format!("{}: {error}", file.display()))?,
            _ => return Err("must have either env or file".to_owned()),
        };
        if text.trim().is_empty() { Err("is empty".to_owned()) } else { Ok(text) }
    }
}

/// `[triggers.email]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmailSection {
    /// Where mail comes in, or `off`.
    pub listen: String,
    /// The listener's limits.
    #[serde(default)]
    pub listener: SmtpListenerSettings,
    /// Whose `Authentication-Results` about a sender are believed.
    pub authserv_id: Option<String>,
    /// Mail of one program to one address.
    pub automatic_per_hour_max: u32,
    /// Mail of anybody to one address.
    pub per_hour_max: u32,
    /// Mail of all together to one address.
    pub address_per_hour_max: u32,
    from: Option<String>,
    relay: Option<SmtpSenderSettings>,
}

impl EmailSection {
    /// How much one sender may send.
    pub fn rates(&self) -> MailRates {
        MailRates {
            automatic_per_hour_max: self.automatic_per_hour_max,
            per_hour_max: self.per_hour_max,
            address_per_hour_max: self.address_per_hour_max,
        }
    }

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
    /// The listener's limits.
    pub settings: TriggerSettings,
    scripts: ScriptSettings,
    fetcher: Arc<Fetcher>,
    http: Arc<HttpExecutor>,
    mailer: Option<Arc<dyn Mailer>>,
    secret_keys: SecretKeys,
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
        for (name, days) in
            [("executions_days", self.executions_days), ("logs_days", self.logs_days)]
        {
            if !(1..=36_500).contains(&days) {
                defects.add(&format!("triggers.{name}"), "must be 1 to 36500");
            }
        }
        if !(1..=100_000).contains(&self.token_rate_per_second) {
            defects.add("triggers.token_rate_per_second", "must be 1 to 100000");
        }
        if !(APP_BODY_BYTES_MAX..=1 << 40).contains(&self.body_bytes_in_flight_max) {
            defects.add("triggers.body_bytes_in_flight_max", "must be at least 1048576");
        }
        for name in &self.headers_not_stored {
            if HeaderName::try_from(name.as_str()).is_err() {
                defects.add("triggers.headers_not_stored", "must be names of headers");
            }
        }
        defects.note("triggers.scripts", self.scripts.check());
        defects.note("triggers.fetch", Fetcher::new(&self.fetch));
        defects.note("triggers.email.listener", self.email.listener.check());
        if self.email.automatic_per_hour_max == 0 {
            defects.add("triggers.email.automatic_per_hour_max", "must be at least 1");
        }
        if self.email.per_hour_max < self.email.automatic_per_hour_max {
            let problem = "must be at least automatic_per_hour_max: it bounds all mail";
            defects.add("triggers.email.per_hour_max", problem);
        }
        if self.email.address_per_hour_max < self.email.per_hour_max {
            let problem = "must be at least per_hour_max: it bounds all senders together";
            defects.add("triggers.email.address_per_hour_max", problem);
        }
        if self.email.relay.is_some() && self.email.from.is_none() {
            let problem =
                "is missing: say whom mail is from, such as \"Orders <orders@example.com>\"";
            defects.add("triggers.email.from", problem);
        }
    }

    /// The fields that make tokens travel to `http_listen`, whatever routes there are.
    pub(super) fn token_fields(&self) -> Vec<&'static str> {
        let fields =
            [("triggers.status_auth", self.status_auth), ("triggers.mail_auth", self.mail_auth)];
        let fields = fields.into_iter().filter(|(_, auth)| *auth == ListenerAuth::Token);
        fields.map(|(field, _)| field).collect()
    }

    /// How apps are served.
    pub fn serving(&self, http_server: HttpServerSettings) -> AppsSettings {
        let named = self.headers_not_stored.iter();
        let secrets = self.secrets.iter().flat_map(|(app, secrets)| {
            secrets.iter().filter_map(move |(name, source)| {
                Some(((app.clone(), name.clone()), source.read().ok()?))
            })
        });
        AppsSettings {
            http_server,
            authserv_id: self.email.authserv_id.clone(),
            mail_rates: self.email.rates(),
            behind_proxy: self.behind_proxy,
            status_needs_token: self.status_auth == ListenerAuth::Token,
            mail_needs_token: self.mail_auth == ListenerAuth::Token,
            token_rate_per_second: self.token_rate_per_second,
            headers_not_stored: named.filter_map(|name| name.parse().ok()).collect(),
            secrets: WebhookSecrets::new(secrets),
            secret_keys: self.secret_keys(&mut Defects::default()),
            body_bytes_in_flight_max: self.body_bytes_in_flight_max,
        }
    }

    /// What seals and opens the secrets of apps; notes what is wrong with it.
    pub fn secret_keys(&self, defects: &mut Defects) -> SecretKeys {
        let mut key = |field: &str, source: &Option<SecretSource>| match source
            .as_ref()?
            .read()
            .and_then(|text| SecretKey::parse(&text))
        {
            Ok(key) => Some(key),
            Err(problem) => {
                defects.add(field, &problem);
                None
            }
        };
        let current = key("triggers.secrets_key", &self.secrets_key);
        let previous = key("triggers.secrets_previous_key", &self.secrets_previous_key);
        if previous.is_some() && self.secrets_key.is_none() {
            let problem = "goes with triggers.secrets_key: that seals, this only opens";
            defects.add("triggers.secrets_previous_key", problem);
        }
        SecretKeys::new(current, previous)
    }

    /// Build what can be built without a database; notes what cannot be.
    pub fn plan(&self, defects: &mut Defects) -> Option<TriggerPlan> {
        let fetcher = defects.note("triggers.fetch", Fetcher::new(&self.fetch)).map(Arc::new);
        for (app, secrets) in &self.secrets {
            for (name, source) in secrets {
                if let Err(problem) = source.read() {
                    defects.add(&format!("triggers.secrets.{app}.{name}"), &problem);
                }
            }
        }
        let relay = self.email.relay.as_ref().map(|relay| {
            let environment = |name: &str| std::env::var(name).ok();
            defects.note("triggers.email.relay", SmtpSender::new(relay, environment))
        });
        let mailer = match (relay, &self.email.from) {
            (None, _) => None,
            (Some(sender), from) => {
                let (sender, from) = (sender?, from.clone()?);
                Some(Arc::new(MailRelay { sender, from }) as Arc<dyn Mailer>)
            }
        };
        let secret_keys = self.secret_keys(defects);
        let fetcher = fetcher?;
        let http = HttpExecutor::new(fetcher.clone(), self.scripts.output);
        Some(TriggerPlan {
            settings: TriggerSettings {
                concurrency_max: self.concurrency_max,
                scripts_max: self.scripts.concurrency_max,
                scripts_per_app_max: self.scripts.concurrency_max_per_app,
                timeout_max: Duration::from_secs(self.timeout_max_seconds),
            },
            scripts: self.scripts.clone(),
            http: Arc::new(defects.note("triggers.scripts.output", http)?),
            fetcher,
            mailer,
            secret_keys,
        })
    }
}

impl TriggerPlan {
    /// The executors, on a database; that of scripts by itself, too.
    pub fn executors(
        &self,
        database: &Database,
    ) -> Result<(Executors, Arc<ScriptExecutor>), Failure> {
        let store = Arc::new(EntryStore::new(database.worker(), self.secret_keys.clone()));
        let script = ScriptExecutor::new(self.scripts.clone(), store, self.fetcher.clone())
            .map_err(|error| Failure::new(format!("triggers.scripts.{error}")))?;
        let script = Arc::new(script);
        let executors = Executors {
            script: script.clone(),
            http: self.http.clone(),
            mailer: self.mailer.clone(),
        };
        Ok((executors, script))
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
            ("secrets_key = { env = 'HOME' }", "triggers.secrets_key"),
            ("secrets_key = { file = '/nowhere' }", "triggers.secrets_key"),
            ("secrets_previous_key = { env = 'NOBODYS' }", "triggers.secrets_previous_key"),
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
