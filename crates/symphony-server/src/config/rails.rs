//! `[rails.*]`: from configuration to rails that can be called.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use symphony::engine::gate::{Rate, RateScope};
use symphony::lanes::payments::RailSetup;
use symphony::lanes::payments::rail::Rail;
use symphony_connect::rails::http::{HttpRail, HttpRailSettings};
use toml::{Table, Value};

use super::BreakerFields;
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
    #[serde(flatten)]
    breaker: BreakerFields,
    /// The rest is the kind's own, checked when it is built.
    #[serde(flatten)]
    own: Table,
}

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
) -> Result<Vec<RailSetup>, Failure> {
    if let Some(missing) = named.iter().find(|name| !sections.contains_key(*name)) {
        return Err(Failure::new(format!(
            "no rail {missing} is configured: add a section [rails.{missing}] to symphony.toml"
        )));
    }
    let served = sections.iter().filter(|(name, _)| named.is_empty() || named.contains(name));
    let rails: Vec<_> =
        served.map(|(name, section)| build(name, section)).collect::<Result<_, _>>()?;
    if rails.is_empty() {
        return Err(Failure::new(
            "no rail is configured: add a section such as [rails.sepa] to symphony.toml (`symphony config` shows one)",
        ));
    }
    Ok(rails)
}

fn build(name: &str, section: &RailSection) -> Result<RailSetup, Failure> {
    let rail = build_rail(&format!("rails.{name}"), section.kind, section.own.clone())?;
    let previous = section.previous.iter().enumerate().map(|(index, earlier)| {
        let place = format!("rails.{name}.previous[{index}]");
        if earlier.contains_key("url")
            && !earlier.contains_key("inquiry_url")
            && section.own.contains_key("inquiry_url")
        {
            return Err(Failure::new(format!(
                "{place}: names another url, so it must say where that one is asked: add inquiry_url"
            )));
        }
        let mut own = section.own.clone();
        own.extend(earlier.clone());
        let kind = match own.remove("kind") {
            None => section.kind,
            Some(kind) => Kind::deserialize(kind)
                .map_err(|error| Failure::new(format!("{place}.kind: {}", error.message())))?,
        };
        build_rail(&place, kind, own)
    });
    let previous = previous.collect::<Result<Vec<_>, _>>()?;
    let mut endpoints = previous.iter().map(|earlier| &earlier.terms().endpoint);
    if endpoints.any(|earlier| *earlier == rail.terms().endpoint) {
        return Err(Failure::new(format!(
            "rails.{name}.previous: names the present endpoint: remove it, or say what differs (url, inquiry_url, account)"
        )));
    }
    Ok(RailSetup {
        name: name.to_owned(),
        rail,
        previous,
        concurrency_max: section.concurrency_max,
        rate: section.rate_per_second.map(|per_second| Rate {
            per_second,
            burst: section.rate_burst.unwrap_or(1),
            scope: section.rate_scope,
        }),
        breaker: section.breaker.settings(),
    })
}

fn build_rail(place: &str, kind: Kind, own: Table) -> Result<Arc<dyn Rail>, Failure> {
    let refuse = |problem: String| Failure::new(format!("{place}: {problem}"));
    let own = match kind {
        Kind::Http => own,
        Kind::Sandbox => sandbox(&own).map_err(refuse)?,
    };
    let settings = HttpRailSettings::deserialize(own)
        .map_err(|error| refuse(error.to_string().trim().replace('\n', ", ")))?;
    let rail = HttpRail::new(&settings, |name| std::env::var(name).ok())
        .map_err(|error| refuse(error.to_string()))?;
    Ok(Arc::new(rail))
}

/// The http rail's settings for the sandbox at `url`; whatever else is set wins.
fn sandbox(own: &Table) -> Result<Table, String> {
    let Some(Value::String(url)) = own.get("url") else {
        return Err(
            "url must be the sandbox's address, such as \"http://127.0.0.1:8089\"".to_owned()
        );
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
