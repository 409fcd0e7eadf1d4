//! `symphony database`: the private PostgreSQL in the foreground.

use std::process::ExitCode;

use serde_json::json;

use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;

pub(super) async fn run(global: &Global) -> Result<ExitCode, Failure> {
    if global.database_url.is_some() {
        return Err(Failure::new(
            "a database URL was given: `symphony database` runs the private PostgreSQL, without one",
        ));
    }
    let server = Server::open_or_private(global).await?;
    let result = until_interrupted(global, &server).await;
    server.close().await?;
    result
}

async fn until_interrupted(global: &Global, server: &Server) -> Result<ExitCode, Failure> {
    // Migrated already, so that psql finds the functions.
    server.database(1).await?;
    let Some(private) = server.private() else {
        return Err(Failure::new("no private PostgreSQL is running"));
    };
    let password_file = private.data_folder().join("password");
    if global.json {
        output::json(&json!({
            "port": private.port(), "user": "postgres", "database": "symphony", "password_file": password_file,
        }))?;
    } else {
        output::print(&format!(
            "PostgreSQL {} is running on 127.0.0.1:{}; Ctrl-C leaves it.\n\n  \
             PGPASSWORD=$(cat {}) psql -h 127.0.0.1 -p {} -U postgres symphony\n",
            private.server_version(),
            private.port(),
            password_file.display(),
            private.port(),
        ))?;
    }
    wait_for_signal().await?;
    Ok(ExitCode::SUCCESS)
}

/// Until Ctrl-C or SIGTERM.
pub(super) async fn wait_for_signal() -> Result<(), Failure> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
