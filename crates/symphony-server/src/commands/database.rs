//! `symphony database`: the private PostgreSQL in the foreground.

use std::process::ExitCode;

use serde_json::json;
use symphony::db::DbError;
use tokio::signal::unix::{Signal, SignalKind, signal};

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
    let mut signals = StopSignals::new()?;
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
    signals.received().await;
    Ok(ExitCode::SUCCESS)
}

/// Ctrl-C and SIGTERM, from now on: made before anybody is told that it runs, so that none comes too early.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Until the next one.
    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// For a command that goes on however long the database is away.
#[derive(Debug, Default)]
pub(super) struct Away(bool);

impl Away {
    /// The answer, or `None` while the database is away, which is said once. Any other error ends the command.
    pub(super) fn unless<T>(&mut self, asked: Result<T, DbError>) -> Result<Option<T>, Failure> {
        match asked {
            Ok(answer) => {
                self.0 = false;
                Ok(Some(answer))
            }
            Err(error) if error.is_transient() => {
                if !std::mem::replace(&mut self.0, true) {
                    output::note(&format!("{error}; trying again"));
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
