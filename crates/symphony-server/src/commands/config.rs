//! `symphony config`: the documented defaults, or whether one's own file is right.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::Global;
use crate::config::{Config, DEFAULT, defaults};
use crate::output::{self, Failure};
use crate::worker::Plan;

pub(super) fn run(global: &Global, check: bool) -> Result<ExitCode, Failure> {
    if !check {
        if global.json {
            output::json(&defaults()?)?;
        } else {
            output::print_verbatim(DEFAULT)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // As `run` does it, so that the two cannot disagree.
    let mut config = Config::load_all(global.config.as_deref())?;
    config.set_database_url(global.database_url.as_deref());
    let plan = Plan::new(&config, &[], &[])?;
    let rails = plan.rail_names();
    let buses: Vec<_> =
        plan.events.iter().flat_map(|events| &events.buses).map(|bus| bus.name.as_str()).collect();
    if global.json {
        output::json(&json!({
            "right": true, "lanes": plan.lanes(), "rails": rails, "buses": buses,
            "database_named": config.database.url.is_some(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut lines = vec!["the configuration is right".to_owned()];
    if !rails.is_empty() {
        lines.push(format!("rails: {}", rails.join(", ")));
    }
    if !buses.is_empty() {
        lines.push(format!("buses: {}", buses.join(", ")));
    }
    if config.database.url.is_none() {
        lines.push(
            "no database is named here: `run` needs DATABASE_URL or --database-url".to_owned(),
        );
    }
    output::print(&format!("{}\n", lines.join("; ")))?;
    Ok(ExitCode::SUCCESS)
}
