//! `[events]`: from configuration to a lane that can be worked.

use std::collections::BTreeMap;

use serde::Deserialize;
use symphony::lanes::events::{BusSetup, EventSettings, OnFailed, Retry, Route, TypePattern};

use super::buses::{BusSection, build_bus};
use super::defects::Defects;

use crate::bounds::{RETRY_SECONDS_MAX, WINDOW_EVENTS_MAX};

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
    /// The lane's settings.
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

    /// Note what is wrong with everything but the routes.
    pub(super) fn check(&self, defects: &mut Defects) {
        let attempts_max = usize::try_from(self.attempts_max).unwrap_or(usize::MAX);
        for (field, value, most) in [
            ("window_max", self.window_max, WINDOW_EVENTS_MAX),
            ("buckets_max", self.buckets_max, symphony::domain::limits::BUCKETS / 2),
            ("attempts_max", attempts_max, 1_000),
        ] {
            if !(1..=most).contains(&value) {
                defects.add(&format!("events.{field}"), format!("must be 1 to {most}"));
            }
        }
        if self.retry_seconds.is_empty()
            || self.retry_seconds.iter().any(|seconds| *seconds > RETRY_SECONDS_MAX)
        {
            let problem = format!("must be a list of seconds, each at most {RETRY_SECONDS_MAX}");
            defects.add("events.retry_seconds", problem);
        }
    }

    /// The routes and the buses they lead to; notes what cannot be.
    pub fn plan(&self, buses: &BTreeMap<String, BusSection>, defects: &mut Defects) -> EventPlan {
        if self.routes.is_empty() && !defects.has_left_out("events.routes") {
            let problem = "is empty, so no route is configured: add [[events.routes]] to symphony.toml \
                           (`symphony config` shows one)";
            defects.add("events.routes", problem);
        }
        let mut used: BTreeMap<&str, Option<BusSetup>> = BTreeMap::new();
        let mut routes: Vec<Route> = Vec::with_capacity(self.routes.len());
        for (number, route) in self.routes.iter().enumerate() {
            let field = |name: &str| format!("events.routes[{number}].{name}");
            let section = buses.get(&route.bus);
            if section.is_none() && !defects.has_left_out(&format!("buses.{}", route.bus)) {
                let problem =
                    format!("is {}, but there is no section [buses.{}]", route.bus, route.bus);
                defects.add(&field("bus"), problem);
            }
            if let Some(section) = section
                && !used.contains_key(route.bus.as_str())
            {
                let bus = build_bus(&route.bus, section, defects);
                let setup = bus.map(|bus| BusSetup {
                    name: route.bus.clone(),
                    bus,
                    look: section.look(),
                    concurrency_max: section.concurrency_max(),
                    breaker: section.breaker(),
                });
                used.insert(&route.bus, setup);
            }
            if route.topic.trim().is_empty() {
                defects.add(&field("topic"), "is blank: name a topic of the bus");
            } else if let Some(Some(setup)) = used.get(route.bus.as_str())
                && let Err(problem) = setup.bus.check_topic(&route.topic)
            {
                defects.add(&field("topic"), problem);
            }
            let pattern = match TypePattern::parse(&route.event_type) {
                Ok(pattern) => pattern,
                Err(problem) => {
                    defects.add(&field("type"), problem);
                    continue;
                }
            };
            if let Some(earlier) =
                routes.iter().position(|earlier| earlier.pattern.covers(&pattern))
            {
                let problem = format!(
                    "is {}, which route [{earlier}] takes already: the first that matches wins, so put this one before it",
                    route.event_type
                );
                defects.add(&field("type"), problem);
            }
            routes.push(Route {
                pattern,
                bus: route.bus.clone(),
                topic: route.topic.clone(),
                on_failed: route.on_failed,
            });
        }
        EventPlan {
            buses: used.into_values().flatten().collect(),
            routes,
            settings: EventSettings {
                window_max: self.window_max,
                buckets_max: self.buckets_max,
                retry: Retry {
                    steps_seconds: self.retry_seconds.clone(),
                    attempts_max: self.attempts_max,
                    give_up_after_seconds: self.give_up_after_seconds,
                },
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::output::Failure;

    fn plan(text: &str) -> Result<EventPlan, String> {
        let config: Config = Config::from_text(text).map_err(|failure| failure.to_string())?;
        let mut defects = Defects::default();
        config.events.check(&mut defects);
        let plan = config.events.plan(&config.buses, &mut defects);
        if defects.is_empty() { Ok(plan) } else { Err(Failure::from(defects).to_string()) }
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
                route("type = '*'\nbus = 'main'\ntopic = 'a.b'"),
                "events.routes[0].topic is a.b, which cannot",
            ),
            (
                route("type = '*'\nbus = 'main'\ntopic = 't'")
                    + "[[events.routes]]\ntype = 'a.b'\nbus = 'main'\ntopic = 't'\n",
                "events.routes[1].type is a.b, which route [0] takes already",
            ),
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
