//! `symphony bus setup`: topics, queues, streams and consumers, and who must be allowed what.

use std::process::ExitCode;

use serde_json::{Map, Value};
use symphony_connect::buses::setup::{Action, Setup};

use crate::cli::{BusSetup, Global};
use crate::config::{Config, set_up_bus};
use crate::output::{self, Failure};

pub(super) async fn set_up(global: &Global, options: &BusSetup) -> Result<ExitCode, Failure> {
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
