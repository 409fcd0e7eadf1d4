//! One module per command.

mod bench;
mod database;
mod demo;
mod doctor;
mod enqueue;
mod guard;
mod migrate;
mod sandbox;
mod show;
mod status;

use std::process::ExitCode;

use crate::cli::{Bench, Cli, Command, Enqueue};
use crate::output::Failure;

/// Do what was asked.
pub async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let global = &cli.global;
    match cli.command {
        Command::Demo => demo::run(global).await,
        Command::Migrate(options) => migrate::run(global, &options).await,
        Command::Enqueue { what: Enqueue::Payment(options) } => {
            enqueue::run(global, &options).await
        }
        Command::Status { watch } => status::run(global, watch).await,
        Command::Show { id } => show::run(global, &id).await,
        Command::Doctor => doctor::run(global).await,
        Command::Guard { paths } => guard::run(global, &paths),
        Command::Bench { what: Bench::Sql(options) } => bench::run(global, &options).await,
        Command::Database => database::run(global).await,
        Command::Sandbox(options) => sandbox::run(global, &options).await,
    }
}
