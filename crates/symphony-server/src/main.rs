//! `symphony`: see `symphony --help`.

use std::process::ExitCode;

use clap::Parser as _;
use symphony_server::{cli::Cli, commands};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.global.json;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("symphony: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(code) => code,
        Err(failure) => {
            failure.report(json);
            ExitCode::FAILURE
        }
    }
}
