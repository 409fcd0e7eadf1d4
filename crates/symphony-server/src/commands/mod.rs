//! One module per command.

mod acts;
mod app;
mod approval;
mod attention;
mod bench;
mod bulk;
mod bus;
mod config;
mod consume;
mod database;
mod demo;
mod destination;
mod dlq;
mod doctor;
mod enqueue;
mod enqueue_events;
mod event_acts;
mod exclusive_lock;
mod guard;
mod incident;
mod inquire;
mod manual;
mod migrate;
mod names;
mod nearest;
mod rail;
mod restore;
mod run;
mod sandbox;
pub(crate) mod show;
mod statement;
mod status;
pub(crate) mod suggested_command;
mod token;
mod top;
mod up;

use std::process::ExitCode;

use crate::cli::{Cli, Command, Enqueue};
use crate::output::Failure;
use crate::telemetry;

/// What is a text in a language of its own.
fn never_json(command: &Command) -> Option<&'static str> {
    match command {
        Command::Migrate(options) if options.print => Some("SQL, which --print prints,"),
        Command::Completions { .. } => Some("a shell's script"),
        Command::Man { .. } => Some("a manual page"),
        _ => None,
    }
}

/// Do what was asked.
pub async fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let global = &cli.global;
    let has_log = matches!(cli.command, Command::Run(_) | Command::Up(_) | Command::Consume(_));
    if !has_log && !global.json {
        telemetry::start_for_people();
    }
    if let Some(what) = never_json(&cli.command).filter(|_| global.json) {
        return Err(Failure::new(format!("{what} is no JSON: leave out --json")));
    }
    suggested_command::remember(global);
    match cli.command {
        Command::Demo(options) => demo::run(global, &options).await,
        Command::Up(options) => Box::pin(up::run(global, &options)).await,
        Command::Run(options) => Box::pin(run::run(global, &options)).await,
        Command::Config { check } => config::run(global, check),
        Command::Migrate(options) => migrate::run(global, &options).await,
        Command::Enqueue { what: Enqueue::Payment(options) } => {
            enqueue::run(global, &options).await
        }
        Command::Enqueue { what: Enqueue::Event(options) } => {
            enqueue_events::run(global, &options).await
        }
        Command::Consume(options) => consume::run(global, options).await,
        Command::Status { watch } => status::run(global, watch).await,
        Command::Top => top::run(global).await,
        Command::Show { id } => show::run(global, &id).await,
        Command::Dlq { what } => dlq::run(global, &what).await,
        Command::Restore { what } => restore::run(global, &what).await,
        Command::Incident { what } => incident::run(global, &what).await,
        Command::Approval { what } => approval::run(global, &what).await,
        Command::Park(options) => acts::park(global, &options).await,
        Command::Release(options) => acts::release(global, &options).await,
        Command::Resolve(options) => acts::resolve(global, &options).await,
        Command::Inquire(options) => inquire::run(global, &options).await,
        Command::Redrive(options) => acts::redrive(global, &options).await,
        Command::Skip(options) => acts::skip(global, &options).await,
        Command::Pause { what } => acts::pause(global, &what).await,
        Command::Resume { what } => acts::resume(global, &what).await,
        Command::Rail(options) => rail::run(global, &options).await,
        Command::Bus { what } => bus::run(global, what.as_ref()).await,
        Command::App { what } => app::run(global, &what).await,
        Command::Token { what } => token::run(global, &what).await,
        Command::Doctor { deep } => doctor::run(global, deep).await,
        Command::Guard { paths } => guard::run(global, &paths),
        Command::Bench { what } => bench::run(global, &what).await,
        Command::Database => database::run(global).await,
        Command::Sandbox(options) => sandbox::run(global, &options).await,
        Command::Completions { shell } => manual::completions(shell),
        Command::Man { dir } => manual::man(dir.as_deref()),
    }
}
