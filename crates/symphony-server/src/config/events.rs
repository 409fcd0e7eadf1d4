//! `[events]`: from configuration to a lane that can be worked.

use std::collections::BTreeMap;

use serde::Deserialize;
use symphony::lanes::events::{BusSetup, EventSettings, OnFailed, Retry, Route, TypePattern};

use super::buses::{BusSection, build_bus};
use crate::output::Failure;

/// The most events of one bucket under one lease.
const WINDOW_MAX: usize = 1_000;
/// A week: the database waits no longer.
const RETRY_SECONDS_MAX: u32 = 604_800;

/// `[events]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsSection {
    window_max: usize,
    buckets_max: usize,
    retry_seconds: Vec<u32>,
    attempts_max: u32,
    give_up_after_seconds: u32,
    #[serde(default)]
    routes: Vec<RouteSection>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteSection {
    #[serde(rename = "type")]
    event_type: String,
    bus: String,
    topic: String,
    #[serde(default)]
    on_failed: OnFailed,
}

/// Everything a worker needs to publish events.
#[derive(Clone)]
pub struct EventPlan {
    /// The buses that routes lead to.
    pub buses: Vec<BusSetup>,
    /// From types to topics.
    pub routes: Vec<Route>,
    /// How.
    pub settings: EventSettings,
}

impl EventsSection {
    /// Whether there is anything to publish to.
    pub fn has_routes(&self) -> bool {
        !self.routes.is_empty()
    }

    /// The same, everything going to one topic.
    #[must_use]
    pub fn with_route_for_all(mut self, bus: &str, topic: &str) -> Self {
        self.routes.push(RouteSection {
            event_type: "*".to_owned(),
            bus: bus.to_owned(),
            topic: topic.to_owned(),
            on_failed: OnFailed::Block,
        });
        self
    }

    /// The routes and the buses they lead to; refuses what cannot be.
    pub fn plan(&self, buses: &BTreeMap<String, BusSection>) -> Result<EventPlan, Failure> {
        let settings = self.settings()?;
        if self.routes.is_empty() {
            return Err(Failure::new(
                "no route is configured: add [[events.routes]] to symphony.toml (`symphony config` shows one)",
            ));
        }
        let mut used: BTreeMap<&str, BusSetup> = BTreeMap::new();
        let mut routes = Vec::with_capacity(self.routes.len());
        for (number, route) in self.routes.iter().enumerate() {
            let field = |name: &str| format!("events.routes[{number}].{name}");
            let pattern = TypePattern::parse(&route.event_type)
                .map_err(|problem| Failure::new(format!("{} {problem}", field("type"))))?;
            let Some(section) = buses.get(&route.bus) else {
                return Err(Failure::new(format!(
                    "{} is {}, but there is no section [buses.{}]",
                    field("bus"),
                    route.bus,
                    route.bus
                )));
            };
            if route.topic.trim().is_empty() {
                return Err(Failure::new(format!(
                    "{} is blank: name a topic of the bus",
                    field("topic")
                )));
            }
            if !used.contains_key(route.bus.as_str()) {
                let setup = BusSetup {
                    name: route.bus.clone(),
                    bus: build_bus(&route.bus, section)?,
                    concurrency_max: section.concurrency_max(),
                    breaker: section.breaker(),
                };
                used.insert(&route.bus, setup);
            }
            routes.push(Route {
                pattern,
                bus: route.bus.clone(),
                topic: route.topic.clone(),
                on_failed: route.on_failed,
            });
        }
        Ok(EventPlan { buses: used.into_values().collect(), routes, settings })
    }

    fn settings(&self) -> Result<EventSettings, Failure> {
        let within = |field: &str, value: usize, most: usize| {
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(Failure::new(format!("events.{field} must be 1 to {most}")))
            }
        };
        within("window_max", self.window_max, WINDOW_MAX)?;
        within("buckets_max", self.buckets_max, symphony::domain::limits::BUCKETS / 2)?;
        within("attempts_max", usize::try_from(self.attempts_max).unwrap_or(0), 1_000)?;
        if self.retry_seconds.is_empty()
            || self.retry_seconds.iter().any(|seconds| *seconds > RETRY_SECONDS_MAX)
        {
            return Err(Failure::new(format!(
                "events.retry_seconds must be a list of seconds, each at most {RETRY_SECONDS_MAX}"
            )));
        }
        Ok(EventSettings {
            window_max: self.window_max,
            buckets_max: self.buckets_max,
            retry: Retry {
                steps_seconds: self.retry_seconds.clone(),
                attempts_max: self.attempts_max,
                give_up_after_seconds: self.give_up_after_seconds,
            },
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Config;
    use super::*;

    fn plan(text: &str) -> Result<EventPlan, String> {
        let config: Config = Config::from_text(text).map_err(|failure| failure.to_string())?;
        config.events.plan(&config.buses).map_err(|failure| failure.to_string())
    }

    const BUS: &str = "[buses.main]\nkind = 'nats'\nurl = 'nats://127.0.0.1:4222'\n";

    #[test]
    fn routes_lead_to_the_buses_they_name_each_built_once() {
        let plan = plan(&format!(
            "{BUS}[[events.routes]]\ntype = 'a.*'\nbus = 'main'\ntopic = 'A'\n\
             [[events.routes]]\ntype = '*'\nbus = 'main'\ntopic = 'REST'\non_failed = 'continue'\n"
        ))
        .unwrap();
        assert_eq!((plan.buses.len(), plan.routes.len()), (1, 2));
        assert_eq!(plan.routes.get(1).unwrap().on_failed, OnFailed::Continue);
        assert_eq!(
            plan.settings,
            EventSettings::default(),
            "the file's defaults are the library's"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        let route = |what: &str| format!("{BUS}[[events.routes]]\n{what}\n");
        for (text, expected) in [
            (BUS.to_owned(), "no route is configured"),
            (route("type = 'A.*'\nbus = 'main'\ntopic = 't'"), "events.routes[0].type must be"),
            (route("type = '*'\nbus = 'other'\ntopic = 't'"), "no section [buses.other]"),
            (route("type = '*'\nbus = 'main'\ntopic = ' '"), "events.routes[0].topic is blank"),
            (
                route("type = '*'\nbus = 'main'\ntopic = 't'\n[events]\nwindow_max = 0"),
                "events.window_max",
            ),
            (
                route("type = '*'\nbus = 'main'\ntopic = 't'\n[events]\nretry_seconds = []"),
                "events.retry_seconds",
            ),
        ] {
            let problem = plan(&text).map(|_| ()).unwrap_err();
            assert!(problem.contains(expected), "{problem} lacks {expected}");
        }
    }
}
