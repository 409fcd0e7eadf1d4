//! `symphony config`: the documented defaults, or whether one's own file is right.

use std::process::ExitCode;

use crate::cli::Global;
use crate::config::{Config, DEFAULT};
use crate::output::{self, Failure};
use crate::worker::Plan;

pub(super) fn run(global: &Global, check: bool) -> Result<ExitCode, Failure> {
    if !check {
        output::print_verbatim(DEFAULT)?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = Config::load(global.config.as_deref())?;
    let plan = Plan::new(&config, &[], &[])?;
    plan.check(&config)?;
    let mut lines = vec!["the configuration is right".to_owned()];
    if plan.rails.is_some() {
        lines.push(format!("rails: {}", plan.rail_names().join(", ")));
    }
    if let Some(events) = &plan.events {
        let buses: Vec<_> = events.buses.iter().map(|bus| bus.name.as_str()).collect();
        lines.push(format!("buses: {}", buses.join(", ")));
    }
    output::print(&format!("{}\n", lines.join("; ")))?;
    Ok(ExitCode::SUCCESS)
}
