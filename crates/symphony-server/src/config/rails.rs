//! `[rails.*]`: from configuration to rails that can be called.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use symphony::engine::{Rate, RateScope};
use symphony::lanes::payments::RailSetup;
use symphony::lanes::payments::rail::Rail;
use symphony_connect::rails::http::{HttpRail, HttpRailSettings};
use toml::{Table, Value};

use super::BreakerFields;
use super::defects::Defects;
use super::reading::Reading;
use crate::output::Failure;

/// One rail: its bounds, and what its kind takes.
#[derive(Debug, Clone, Deserialize)]
pub struct RailSection {
    kind: Kind,
    #[serde(default = "defaults::concurrency_max")]
    concurrency_max: usize,
    rate_per_second: Option<u32>,
    rate_burst: Option<u32>,
    /// What the name stood for before: only what differs from the present section.
    #[serde(default)]
    previous: Vec<Table>,
    #[serde(default)]
    rate_scope: RateScope,
    breaker_failures: Option<u32>,
    breaker_open_ms: Option<u64>,
    breaker_open_max_ms: Option<u64>,
    /// The rest is the kind's own, checked when it is built.
    #[serde(flatten)]
    own: Table,
}

/// The keys of [`RailSection`] itself, to be offered to whoever has mistyped one.
const KEYS: [&str; 9] = [
    "kind",
    "concurrency_max",
    "rate_per_second",
    "rate_burst",
    "rate_scope",
    "previous",
    "breaker_failures",
    "breaker_open_ms",
    "breaker_open_max_ms",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// Any provider that speaks HTTP.
    Http,
    /// The simulated provider of `symphony sandbox`: `url` is its address.
    Sandbox,
}

impl RailSection {
    /// A rail to the simulated provider at this address, with the defaults of everything.
    pub fn sandbox(url: &str) -> Result<Self, Failure> {
        let table = Table::from_iter(
            [("kind", "sandbox"), ("url", url)]
                .map(|(name, value)| (name.to_owned(), Value::String(value.to_owned()))),
        );
        Self::deserialize(table).map_err(|error| Failure::new(error.to_string()))
    }

    fn breaker(&self) -> BreakerFields {
        BreakerFields {
            failures: self.breaker_failures,
            open_ms: self.breaker_open_ms,
            open_max_ms: self.breaker_open_max_ms,
        }
    }
}

mod defaults {
    pub(super) fn concurrency_max() -> usize {
        64
    }
}

/// The rails a worker shall serve, all that are configured or those named.
pub fn build_rails(
    sections: &BTreeMap<String, RailSection>,
    named: &[String],
    defects: &mut Defects,
) -> Vec<RailSetup> {
    let left_out = |defects: &Defects, name: &str| defects.has_left_out(&format!("rails.{name}"));
    for name in named {
        if !sections.contains_key(name) && !left_out(defects, name) {
            let problem = format!(
                "names {name}, but no rail {name} is configured: add a section [rails.{name}] to symphony.toml"
            );
            defects.add("--rails", problem);
        }
    }
    if sections.is_empty() && named.is_empty() && !defects.has_left_out("rails") {
        let problem = "is empty, so no rail is configured: add a section such as [rails.sepa] to symphony.toml \
                       (`symphony config` shows one)";
        defects.add("rails", problem);
    }
    let served = sections.iter().filter(|(name, _)| named.is_empty() || named.contains(name));
    served.filter_map(|(name, section)| build(name, section, defects)).collect()
}

fn build(name: &str, section: &RailSection, defects: &mut Defects) -> Option<RailSetup> {
    let place = format!("rails.{name}");
    if section.rate_per_second.is_none() && section.rate_burst.is_some() {
        let problem = "is only used with rate_per_second: remove it or set that";
        defects.add(&format!("{place}.rate_burst"), problem);
    }
    let rail = build_rail(&place, section.kind, section.own.clone(), defects);
    let mut previous = Vec::with_capacity(section.previous.len());
    for (index, earlier) in section.previous.iter().enumerate() {
        previous.push(build_previous(&place, index, section, earlier, defects));
    }
    let (rail, previous) = (rail?, previous.into_iter().collect::<Option<Vec<_>>>()?);
    let mut endpoints = previous.iter().map(|earlier| &earlier.terms().endpoint);
    if endpoints.any(|earlier| *earlier == rail.terms().endpoint) {
        let problem = "names the present endpoint: remove it, or say what differs (url, inquiry_url, account)";
        defects.add(&format!("{place}.previous"), problem);
    }
    Some(RailSetup {
        name: name.to_owned(),
        rail,
        previous,
        concurrency_max: section.concurrency_max,
        rate: section.rate_per_second.map(|per_second| Rate {
            per_second,
            burst: section.rate_burst.unwrap_or(1),
            scope: section.rate_scope,
        }),
        breaker: section.breaker().settings(),
    })
}

/// What the name stood for before.
fn build_previous(
    place: &str,
    index: usize,
    section: &RailSection,
    earlier: &Table,
    defects: &mut Defects,
) -> Option<Arc<dyn Rail>> {
    let place = format!("{place}.previous[{index}]");
    if earlier.contains_key("url")
        && !earlier.contains_key("inquiry_url")
        && section.own.contains_key("inquiry_url")
    {
        let problem =
            "is missing: the section names another url, so it must say where that one is asked";
        defects.add(&format!("{place}.inquiry_url"), problem);
        return None;
    }
    let mut own = section.own.clone();
    own.extend(earlier.clone());
    let kind = match own.remove("kind") {
        None => section.kind,
        Some(kind) => match Kind::deserialize(kind) {
            Ok(kind) => kind,
            Err(error) => {
                defects.add(&format!("{place}.kind"), error.message());
                return None;
            }
        },
    };
    build_rail(&place, kind, own, defects)
}

fn build_rail(place: &str, kind: Kind, own: Table, defects: &mut Defects) -> Option<Arc<dyn Rail>> {
    let own = match kind {
        Kind::Http => own,
        Kind::Sandbox => match sandbox(&own) {
            Ok(own) => own,
            Err(problem) => {
                defects.add(&format!("{place}.url"), problem);
                return None;
            }
        },
    };
    let reading = Reading { place, fallback: &Table::new(), siblings: &KEYS };
    let settings: HttpRailSettings = reading.read(own, defects)?;
    let rail = HttpRail::new(&settings, |name| std::env::var(name).ok());
    defects.note(place, rail).map(|rail| Arc::new(rail) as Arc<dyn Rail>)
}

/// The http rail's settings for the sandbox at `url`; whatever else is set wins.
fn sandbox(own: &Table) -> Result<Table, String> {
    let Some(Value::String(url)) = own.get("url") else {
        return Err("must be the sandbox's address, such as \"http://127.0.0.1:8089\"".to_owned());
    };
    let base = url.trim_end_matches('/');
    let mut settings = Table::from_iter([
        ("inquiry_url".to_owned(), Value::String(format!("{base}/transfers/{{key}}"))),
        ("not_found_code".to_owned(), Value::String("NOT_FOUND".to_owned())),
        ("key_lifetime_seconds".to_owned(), Value::Integer(86_400)),
        ("destination".to_owned(), Value::String("any".to_owned())),
        ("allow_private_addresses".to_owned(), Value::Boolean(true)),
    ]);
    settings.extend(own.clone());
    settings.insert("url".to_owned(), Value::String(format!("{base}/transfers")));
    Ok(settings)
}
