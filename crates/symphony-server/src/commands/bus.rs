//! `symphony bus`: how the topics of buses are; and `bus setup`: topics, queues, streams and consumers, and who must be allowed what.

use std::process::ExitCode;

use chrono::Utc;
use serde_json::{Map, Value};
use symphony::db::Operator;
use symphony_connect::buses::setup::{Action, Setup};

use super::acts;
use super::destination::{self, Kind};
use crate::cli::{Bus, BusSetup, Global};
use crate::config::{Config, set_up_bus};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, what: Option<&Bus>) -> Result<ExitCode, Failure> {
    match what {
        Some(Bus::Setup(options)) => set_up(global, options).await,
        Some(Bus::Reset(options)) => destination::reset(global, Kind::Bus, options).await,
        Some(Bus::List) | None => {
            acts::as_operator(global, async |operator| show(global, None, &operator).await).await
        }
        Some(Bus::Show { name }) => {
            acts::as_operator(global, async |operator| show(global, Some(name), &operator).await)
                .await
        }
    }
}

async fn show(
    global: &Global,
    name: Option<&String>,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let mut buses = operator.reader().destinations(Some(Kind::Bus.lane())).await?;
    // A bus is its topics.
    let is_named = |bus: &str, name: &str| {
        bus.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    buses.retain(|bus| name.is_none_or(|name| is_named(&bus.name, name)));
    let now = Utc::now();
    if let (Some(name), true) = (name, buses.is_empty()) {
        return Err(destination::not_served(operator, Kind::Bus, name).await?);
    }
    if global.json {
        output::json(&buses)?;
    } else if let (Some(_), [bus]) = (name, buses.as_slice()) {
        let title = format!("bus {}", output::plain(&bus.name));
        output::print(&destination::listed(&title, &destination::lines(bus, now)))?;
    } else if buses.is_empty() {
        output::print("no live worker serves a bus\n")?;
    } else {
        output::print(&output::table(
            [
                output::whole("bus"),
                output::states("state"),
                output::number("workers"),
                output::number("calls/min"),
                output::number("latency"),
            ],
            buses.iter().map(|bus| {
                let (per_minute, latency) = destination::calls(bus);
                [
                    output::plain(&bus.name),
                    destination::in_short(bus, now),
                    bus.workers.to_string(),
                    per_minute,
                    latency,
                ]
            }),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn set_up(global: &Global, options: &BusSetup) -> Result<ExitCode, Failure> {
    let config = Config::load(global.config.as_deref())?;
    if let Some(name) = options.name.as_ref().filter(|name| !config.buses.contains_key(*name)) {
        return Err(Failure::new(format!(
            "no bus {name} is configured: add a section [buses.{name}] to symphony.toml"
        )));
    }
    if config.buses.is_empty() {
        return Err(Failure::new(
            "no bus is configured: add a section such as [buses.main] to symphony.toml (`symphony config` shows one)",
        ));
    }
    let mut all = Map::new();
    for (name, section) in &config.buses {
        if options.name.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let done = set_up_bus(name, section, options.dry_run).await?;
        if global.json {
            let value = serde_json::to_value(&done);
            all.insert(name.clone(), value.map_err(|error| Failure::new(error.to_string()))?);
        } else {
            print(name, &done, options.dry_run)?;
        }
    }
    if global.json {
        output::json(&Value::Object(all))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(bus: &str, done: &Setup, dry_run: bool) -> Result<(), Failure> {
    if done.steps.is_empty() {
        return output::print(&format!("{bus}: nothing to set up; see [buses.{bus}.setup]\n"));
    }
    let rows = done.steps.iter().map(|step| {
        let action = match (step.action, dry_run) {
            (Action::Keep, _) => "as it should be",
            (Action::Create, false) => "created",
            (Action::Create, true) => "would be created",
            (Action::Change, false) => "changed",
            (Action::Change, true) => "would be changed",
        };
        [step.what.to_owned(), step.name.clone(), action.to_owned(), step.differs.join(", ")]
    });
    let table = output::table(["what", "name", bus, "differed in"], rows);
    let mut text = format!("{table}\nThe least that each party of {bus} must be allowed:\n");
    for policy in &done.policies {
        let document = serde_json::to_string_pretty(&policy.document)
            .map_err(|error| Failure::new(error.to_string()))?;
        text.push_str(&format!("\n{}\n{document}\n", policy.party));
    }
    output::print(&text)
}
