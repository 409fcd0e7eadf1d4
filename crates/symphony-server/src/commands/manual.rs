//! `symphony completions` and `symphony man`: what a shell and `man` know of the command line, from its one definition.

use std::path::Path;
use std::process::ExitCode;

use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::{self, Failure};

pub(super) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "symphony", &mut script);
    output::print_verbatim(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// The first page, or all of them as files.
pub(super) fn man(folder: Option<&Path>) -> Result<ExitCode, Failure> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(Cli::definition()).render(&mut page)?;
        output::print_verbatim(&String::from_utf8_lossy(&page))?;
        return Ok(ExitCode::SUCCESS);
    };
    let named =
        |error: std::io::Error| Failure::new(format!("--dir {}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(named)?;
    clap_mangen::generate_to(Cli::definition(), folder).map_err(named)?;
    let shown = output::plain(&folder.display().to_string());
    output::print(&format!("manual pages written: man -l {shown}/symphony.1\n"))?;
    Ok(ExitCode::SUCCESS)
}
