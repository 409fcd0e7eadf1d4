//! `symphony app`: push a folder, read what became of it, act on it.
//!
//! - [`folder`]: `app.json` and its scripts, read and checked without a database.
//! - [`push`]: make an app what its folder says, and say what that changed.
//! - [`executions`], [`tree`]: what ran, and what fired what.
//! - [`switch`]: replay, delete, pause, resume.

mod executions;
mod folder;
mod push;
mod strict_json;
mod switch;
mod tree;

use std::path::Path;
use std::process::ExitCode;

use symphony::db::{Auditor, DbError, ExecutionRow, Operator, PushAnswer};
use uuid::Uuid;

use super::acts;
use crate::cli::{App, Global};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, what: &App) -> Result<ExitCode, Failure> {
    match what {
        App::Push(options) => push::run(global, options).await,
        App::List => {
            acts::as_operator(global, async |operator| list(global, &operator).await).await
        }
        App::Executions(options) => executions::list(global, options).await,
        App::Logs { id } => executions::logs(global, *id).await,
        App::Tree { id } => tree::run(global, *id).await,
        App::Replay(options) => switch::replay(global, options).await,
        App::Delete(options) => switch::delete(global, options).await,
        App::Pause(options) => switch::switch(global, options, true).await,
        App::Resume(options) => switch::switch(global, options, false).await,
    }
}

/// Make an app what its folder says.
pub(super) async fn push(
    operator: &Operator,
    folder: &Path,
    actor: &str,
) -> Result<PushAnswer, Failure> {
    push::push(operator, &folder::read(folder, None)?, actor).await
}

/// The tree an execution belongs to, drawn.
pub(super) async fn tree(reader: &Auditor, root: Uuid) -> Result<String, Failure> {
    Ok(tree::render(&tree::grow(reader.execution_tree(root).await?), None))
}

async fn list(global: &Global, operator: &Operator) -> Result<ExitCode, Failure> {
    let apps = operator.reader().apps().await?;
    if global.json {
        output::json(&apps)?;
    } else if apps.is_empty() {
        output::print("there is no app yet: symphony app push DIR\n")?;
    } else {
        output::print(&output::table(
            [
                "app".into(),
                output::number("scripts"),
                output::number("routes"),
                output::number("triggers"),
                output::number("pending"),
                output::states(""),
            ],
            apps.iter().map(|app| {
                [
                    app.name.clone(),
                    app.scripts.to_string(),
                    app.routes.to_string(),
                    app.triggers.to_string(),
                    app.pending.to_string(),
                    if app.paused { "PAUSED".to_owned() } else { String::new() },
                ]
            }),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The execution an id names.
async fn execution(reader: &Auditor, id: Uuid) -> Result<ExecutionRow, Failure> {
    reader
        .execution(id)
        .await?
        .ok_or_else(|| Failure::new(format!("no execution has the id {id}")).with_code("P7007"))
}

/// The script's name; what a script sends by `email.send` has none.
fn script_of(execution: &ExecutionRow) -> String {
    output::plain(execution.script_name.as_deref().unwrap_or("(email to be sent)"))
}

/// From its writing to its end; `None` while it has not ended.
fn duration_ms(execution: &ExecutionRow) -> Option<i64> {
    execution.completed_at.map(|ended| (ended - execution.created_at).num_milliseconds())
}

fn took(execution: &ExecutionRow) -> String {
    match duration_ms(execution) {
        None => String::new(),
        Some(short @ ..10_000) => format!("{short} ms"),
        Some(long) => output::length(long / 1_000),
    }
}

/// A refusal in the words of the command line.
fn in_words(error: DbError) -> Failure {
    acts::in_options(error).reworded(&[
        ("p_app: ", ""),
        ("p_app must", "the app's name must"),
        ("p_id: ", ""),
        ("p_manifest must", "it must"),
    ])
}
