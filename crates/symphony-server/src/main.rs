//! `symphony`: see `symphony --help`.

use std::process::ExitCode;

use symphony_server::{cli::Cli, commands};

fn main() -> ExitCode {
    let cli = match Cli::from_arguments(&std::env::args_os().collect::<Vec<_>>()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let json = cli.global.json;
    // The database's answers are looked for after every few tasks: while five hundred payments are being dispatched,
    // the next claim must not wait for its turn.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().event_interval(3).build();
    let runtime = match runtime {
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
