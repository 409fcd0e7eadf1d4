//! `symphony migrate`: install or update the schema.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use symphony::db::migrate::{self, Options, Report, State};

use super::suggested_command::symphony;
use crate::cli::{Global, Migrate};
use crate::config::Config;
use crate::output::{self, Failure};
use crate::server::Server;

pub(super) async fn run(global: &Global, options: &Migrate) -> Result<ExitCode, Failure> {
    if options.print {
        let config = Config::load(global.config.as_deref());
        let schema = Server::schema_of(global, config.as_ref().ok())?;
        output::print_verbatim(&migrate::print(&schema))?;
        return Ok(ExitCode::SUCCESS);
    }
    let server = Server::open(global).await?;
    let result = on(global, options, &server).await;
    server.close().await?;
    result
}

async fn on(global: &Global, options: &Migrate, server: &Server) -> Result<ExitCode, Failure> {
    if options.check {
        let (state, differences) =
            server.look(async |c| Ok(migrate::check(c, server.schema()).await?)).await?;
        if global.json {
            output::json(&json!({ "state": state, "differences": differences }))?;
        } else {
            output::print(&format!("{}\n", describe(state)))?;
            for difference in differences {
                output::print(&format!("  {}\n", output::plain(&difference.to_string())))?;
            }
        }
        return Ok(if state == State::UpToDate { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let report = migrate::migrate(
        server.options(),
        Options {
            schema: server.schema().clone(),
            replace_legacy: options.replace_legacy,
            fresh: options.fresh,
            lock_timeout: Duration::from_secs(options.lock_timeout),
        },
    )
    .await?;
    if global.json {
        let Report { before, repaired, notes } = report;
        output::json(
            &json!({ "before": before, "state": State::UpToDate, "repaired": repaired, "notes": notes }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    output::print(match (report.before, options.fresh) {
        (State::NotInstalled, _) => "schema installed\n",
        (_, true) => "everything dropped and installed anew\n",
        (State::UpToDate, _) => "schema is up to date; privileges applied again\n",
        (State::ChangedByHand, _) => "restored what was not as declared:\n",
        _ => "functions, views and privileges updated\n",
    })?;
    if report.before == State::ChangedByHand {
        for repaired in report.repaired {
            output::print(&format!("  {}\n", output::plain(&repaired)))?;
        }
    }
    for note in report.notes {
        output::print(&format!("note: {}\n", output::plain(&note)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn describe(state: State) -> String {
    let migrate = symphony("migrate");
    match state {
        State::NotInstalled => format!("not installed: run `{migrate}`"),
        State::UpToDate => "up to date".to_owned(),
        State::CodeDiffers => {
            format!("functions, views or privileges are of another version: run `{migrate}`")
        }
        State::ChangedByHand => {
            format!("not as declared: `{migrate}` restores what it can and names the rest")
        }
        State::TablesDiffer => format!(
            "tables are of another version: only `{}` helps, which drops everything",
            symphony("migrate --fresh --yes")
        ),
        State::Newer => "installed by a newer version: use a newer symphony".to_owned(),
    }
}
