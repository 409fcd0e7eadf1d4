//! The configuration: the documented default file *is* the default; a file, the environment and flags lie over it.

mod buses;
mod consumer;
mod database;
mod defects;
mod events;
mod listeners;
mod rails;
mod reading;
mod traces;
mod triggers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use symphony::engine::BreakerSettings;
use symphony::engine::EngineSettings;
use toml::{Table, Value};

use crate::http_server::HttpServerSettings;
use crate::output::Failure;
use defects::Sources;
use reading::Reading;

pub use buses::{BusSection, build_bus, set_up_bus};
pub use consumer::ConsumerSection;
pub use database::DatabaseSection;
pub use defects::{ConfigDefect, Defects};
pub use events::{EventPlan, EventsSection};
pub use listeners::listen_address;
pub use rails::{RailSection, build_rails};
pub use traces::TracesSection;
pub use triggers::{EmailSection, TriggerPlan, TriggersSection};

/// The documented defaults.
pub const DEFAULT: &str = include_str!("symphony.default.toml");
/// The same as values, for scripts.
pub fn defaults() -> Result<Table, Failure> {
    parse(DEFAULT, "the built-in defaults")
}

/// Where the file is looked for, unless `--config` says so.
const FILE: &str = "symphony.toml";
/// Settings from the environment start with this.
const ENVIRONMENT_PREFIX: &str = "SYMPHONY__";

/// Everything that can be set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the database is.
    pub database: DatabaseSection,
    /// How workers pace themselves.
    pub worker: WorkerSection,
    /// Where events go, and how.
    pub events: EventsSection,
    /// How apps are run and served.
    pub triggers: TriggersSection,
    /// How consumers of events pace themselves.
    pub consumer: ConsumerSection,
    /// What is served over HTTP.
    pub api: ApiSection,
    /// The bounds of every HTTP listener.
    pub http_server: HttpServerSettings,
    /// What is logged.
    pub log: LogSection,
    /// Where spans go.
    pub traces: TracesSection,
    /// The rails, by name.
    #[serde(default)]
    pub rails: std::collections::BTreeMap<String, RailSection>,
    /// The buses, by name.
    #[serde(default)]
    pub buses: std::collections::BTreeMap<String, BusSection>,
    /// What could not be read of it, and who set what.
    #[serde(skip)]
    pub defects: Defects,
}

/// `[worker]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerSection {
    lease_seconds: u64,
    lease_margin_ms: u64,
    batch_items_max: usize,
    held_items_max: usize,
    poll_ms: (u64, u64),
    repair_ms: (u64, u64),
    gather_ms: u64,
    shutdown_seconds: u64,
    refused_seconds_max: u64,
}

impl WorkerSection {
    /// As the engine takes them.
    pub fn engine(&self) -> EngineSettings {
        let span = |(from, to)| (Duration::from_millis(from), Duration::from_millis(to));
        EngineSettings {
            lease: Duration::from_secs(self.lease_seconds),
            lease_margin: Duration::from_millis(self.lease_margin_ms),
            batch_items_max: self.batch_items_max,
            held_items_max: self.held_items_max,
            poll: span(self.poll_ms),
            repair: span(self.repair_ms),
            gather: Duration::from_millis(self.gather_ms),
            shutdown: Duration::from_secs(self.shutdown_seconds),
            refused_max: Duration::from_secs(self.refused_seconds_max),
        }
    }
}

/// When a rail or a bus in trouble is left alone; part of its section.
#[derive(Debug, Clone, Copy)]
struct BreakerFields {
    failures: Option<u32>,
    open_ms: Option<u64>,
    open_max_ms: Option<u64>,
}

impl BreakerFields {
    fn settings(self) -> BreakerSettings {
        let usual = BreakerSettings::default();
        let open_for = self.open_ms.map_or(usual.open_for, Duration::from_millis);
        BreakerSettings {
            failures_to_open: self.failures.unwrap_or(usual.failures_to_open),
            open_for,
            // If only the shorter one is set, the longer one is at least as long.
            open_for_max: self
                .open_max_ms
                .map_or(usual.open_for_max.max(open_for), Duration::from_millis),
        }
    }
}

/// `[api]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiSection {
    /// Where to listen, or `off`.
    pub listen: String,
    /// The certificate of TLS, with those that lead to its authority, as PEM.
    #[serde(default)]
    pub tls_certificate_file: Option<PathBuf>,
    /// The key to it.
    #[serde(default)]
    pub tls_key_file: Option<PathBuf>,
    /// A proxy in front speaks TLS: beyond loopback we need not.
    pub behind_proxy: bool,
    /// Requests of one token.
    pub rate_per_second: u32,
    /// Connections to the database, apart from the workers'.
    pub database_connections_max: u32,
}

impl ApiSection {
    /// At an address, with the defaults.
    pub fn at(listen: &str) -> Self {
        Self {
            listen: listen.to_owned(),
            tls_certificate_file: None,
            tls_key_file: None,
            behind_proxy: false,
            rate_per_second: 100,
            database_connections_max: 4,
        }
    }
}

/// `[log]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSection {
    /// The least level that is written.
    pub level: LogLevel,
    /// Text or JSON.
    pub format: LogFormat,
}

/// The least level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the names say it
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// The format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}

impl Config {
    /// The defaults, with the file (named, or `symphony.toml` if there is one) and the environment over them; refused if
    /// anything cannot be read.
    pub fn load(named: Option<&Path>) -> Result<Self, Failure> {
        let config = Self::load_all(named)?;
        if config.defects.is_empty() { Ok(config) } else { Err(Failure::from(config.defects)) }
    }

    /// The same with all that can be read, for whoever checks the rest as well and then says everything at once:
    /// [`Plan::new`](crate::worker::Plan::new).
    pub fn load_all(named: Option<&Path>) -> Result<Self, Failure> {
        let mut table = defaults()?;
        let mut sources = Sources::default();
        let file = match named {
            Some(path) => Some(path.to_owned()),
            None => Some(PathBuf::from(FILE)).filter(|path| path.exists()),
        };
        if let Some(path) = file {
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(&path)
                .map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
            let file = parse(&text, &shown)?;
            sources.set_file(&shown, file.clone());
            merge(&mut table, file);
        }
        let mut misplaced = Vec::new();
        for (name, value) in std::env::vars() {
            if let Some(path) = name.strip_prefix(ENVIRONMENT_PREFIX) {
                let path: Vec<String> = path.split("__").map(str::to_lowercase).collect();
                sources.set_by(&path.join("."), &name);
                if let Err(problem) = set(&mut table, &path, environment_value(&value)) {
                    misplaced.push((path.join("."), problem));
                }
            }
        }
        let mut defects = Defects::new(sources);
        for (field, problem) in misplaced {
            defects.add(&field, problem);
        }
        Self::read(table, defects)
    }

    fn read(table: Table, mut defects: Defects) -> Result<Self, Failure> {
        let fallback = defaults()?;
        let reading = Reading { place: "", fallback: &fallback, siblings: &[] };
        match reading.read::<Self>(table, &mut defects) {
            Some(config) => Ok(Self { defects, ..config }),
            None => Err(Failure::from(defects)),
        }
    }

    /// Note what is wrong with the sections that every process reads.
    pub fn check(&self, defects: &mut Defects) {
        self.database.check(defects);
        self.check_listeners(defects);
        self.http_server.check(defects);
        self.events.check(defects);
        self.triggers.check(defects);
        self.consumer.check(defects);
        self.traces.check(defects);
        for (name, section) in &self.buses {
            section.check(name, defects);
        }
    }

    /// A flag lies over everything.
    pub fn set_api_listen(&mut self, listen: Option<&str>) {
        if let Some(listen) = listen {
            listen.clone_into(&mut self.api.listen);
            self.defects.sources_mut().set_by("api.listen", "--api");
        }
    }

    /// The same for the database.
    pub fn set_database_url(&mut self, url: Option<&str>) {
        if let Some(url) = url {
            self.database.url = Some(url.to_owned());
            self.defects.sources_mut().set_by("database.url", "--database-url or DATABASE_URL");
        }
    }
}

#[cfg(test)]
impl Config {
    /// The defaults with this laid over them.
    fn from_text(text: &str) -> Result<Self, Failure> {
        let mut table = parse(DEFAULT, "defaults")?;
        let file = parse(text, "symphony.toml")?;
        let mut sources = Sources::default();
        sources.set_file("symphony.toml", file.clone());
        merge(&mut table, file);
        let config = Self::read(table, Defects::new(sources))?;
        if config.defects.is_empty() { Ok(config) } else { Err(Failure::from(config.defects)) }
    }
}

fn parse(text: &str, shown: &str) -> Result<Table, Failure> {
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map_or(0, |span| {
            text.get(..span.start).map_or(0, |before| before.matches('\n').count()) + 1
        });
        Failure::new(format!("{shown}, line {line}: {}", error.message().replace('\n', " ")))
    })
}

/// Lay one table over another.
fn merge(base: &mut Table, over: Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn set(table: &mut Table, path: &[String], value: Value) -> Result<(), &'static str> {
    match path {
        [] => Err("names no setting"),
        [key] => {
            table.insert(key.clone(), value);
            Ok(())
        }
        [section, rest @ ..] => {
            let below = table.entry(section.clone()).or_insert_with(|| Value::Table(Table::new()));
            match below {
                Value::Table(below) => set(below, rest, value),
                _ => Err("names something inside a setting that is no section"),
            }
        }
    }
}

/// A TOML value if it reads as one, else the text itself.
fn environment_value(text: &str) -> Value {
    format!("value = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use symphony::engine;

    #[test]
    fn the_documented_defaults_are_the_engines_own() {
        let config = Config::from_text("").unwrap();
        assert_eq!(config.worker.engine(), EngineSettings::default());
        assert_eq!(engine::check(&config.worker.engine(), &[]), Ok(()));
        assert_eq!(config.http_server, HttpServerSettings::default());
        assert!(config.rails.is_empty());
    }

    #[test]
    fn the_commented_rail_of_the_defaults_is_a_valid_one() {
        let text: String = DEFAULT
            .lines()
            .skip_while(|line| !line.starts_with("# [rails.sepa]"))
            .take_while(|line| !line.contains("docs/RAILS.md"))
            .map(|line| line.trim_start_matches("# ").to_owned() + "\n")
            .filter(|line| {
                !line.trim().is_empty() && line.trim() != "#" && !line.starts_with("Bounds")
            })
            .collect();
        let mut table = parse(DEFAULT, "defaults").unwrap();
        merge(&mut table, parse(&text, "the example").unwrap());
        let config = Config::deserialize(table).unwrap();
        assert!(config.rails.contains_key("sepa"), "{text}");
    }

    #[test]
    fn the_commented_buses_of_the_defaults_are_valid_ones() {
        let text: String = DEFAULT
            .lines()
            .skip_while(|line| !line.starts_with("# [[events.routes]]"))
            .take_while(|line| !line.contains("docs/BUSES.md"))
            .filter(|line| !line.starts_with("# One section per bus."))
            .map(|line| line.strip_prefix("# ").unwrap_or(line).to_owned() + "\n")
            .collect();
        let mut table = parse(DEFAULT, "defaults").unwrap();
        merge(&mut table, parse(&text, "the example").unwrap());
        let config = Config::deserialize(table).unwrap();
        assert_eq!(
            config.buses.keys().collect::<Vec<_>>(),
            ["hooks", "log", "main", "stream"],
            "{text}"
        );
        for (name, section) in &config.buses {
            let mut defects = Defects::default();
            build_bus(name, section, &mut defects);
            // Its secrets and its file do not exist here, nor does Kafka in every build.
            for defect in defects.into_found().iter().map(ToString::to_string) {
                let not_here = [
                    "BILLING_WEBHOOK_SECRET",
                    "KAFKA_PASSWORD",
                    "/etc/symphony/nats.creds",
                    "without the feature kafka",
                ];
                assert!(not_here.iter().any(|name| defect.contains(name)), "{defect}");
            }
        }
        let mut defects = Defects::default();
        config.events.plan(&config.buses, &mut defects);
        assert!(defects.is_empty(), "{defects:?}");
    }

    #[test]
    fn later_layers_win_and_leave_the_rest() {
        let mut table = parse(DEFAULT, "defaults").unwrap();
        merge(&mut table, parse("[worker]\nlease_seconds = 90\n", "file").unwrap());
        for (name, value) in [
            ("worker__held_items_max", "77"),
            ("api__listen", "off"),
            ("worker__poll_ms", "[1, 2]"),
        ] {
            let path: Vec<String> = name.split("__").map(str::to_owned).collect();
            set(&mut table, &path, environment_value(value)).unwrap();
        }
        let config = Config::deserialize(table).unwrap();
        let engine = config.worker.engine();
        assert_eq!(engine.lease, Duration::from_secs(90));
        assert_eq!(engine.held_items_max, 77);
        assert_eq!(engine.poll, (Duration::from_millis(1), Duration::from_millis(2)));
        assert_eq!(engine.batch_items_max, 1_000);
        assert_eq!(config.api.listen, "off");
    }

    #[test]
    fn a_mistake_is_one_line_that_names_the_field() {
        for (text, expected) in [
            ("[worker]\nlease_second = 1\n", "lease_second"),
            ("[worker]\nlease_seconds = \"long\"\n", "lease_seconds"),
            ("[wrker]\n", "wrker"),
            ("[log]\nlevel = \"loud\"\n", "level"),
            ("[worker\n", "line 1"),
        ] {
            let failure = parse(text, "symphony.toml")
                .and_then(|_| Config::from_text(text))
                .unwrap_err()
                .to_string();
            assert!(failure.contains(expected) && failure.contains("symphony.toml"), "{failure}");
            assert!(!failure.contains('\n'), "{failure}");
        }
    }
}
