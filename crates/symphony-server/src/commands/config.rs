//! `symphony config`: the documented defaults, or whether one's own file is right.

use std::process::ExitCode;

use symphony::engine;

use crate::cli::Global;
use crate::config::{Config, DEFAULT, build_rails};
use crate::output::{self, Failure};

pub(super) fn run(global: &Global, check: bool) -> Result<ExitCode, Failure> {
    if !check {
        output::print(DEFAULT)?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = Config::load(global.config.as_deref())?;
    let rails = build_rails(&config.rails, &[])?;
    let groups: Vec<_> = rails.iter().map(symphony::lanes::payments::RailSetup::group).collect();
    engine::check(&config.worker.engine(), &groups)
        .map_err(|contradiction| Failure::new(contradiction.to_string()))?;
    let names: Vec<_> = rails.iter().map(|rail| rail.name.as_str()).collect();
    output::print(&format!("the configuration is right; rails: {}\n", names.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}
