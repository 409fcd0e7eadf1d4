//! `symphony app`: push a folder, read what became of it, act on it.
//!
//! - [`folder`]: `app.json` and its scripts, read and checked without a database.
//! - [`push`]: make an app what its folder says, and say what that changed.
//! - [`local`]: a script of a folder run without a database; [`run`](mod@run) and [`test`](mod@test) are the commands.
//!   [`served`] makes a request what the server makes of it; [`effects`] and [`jsonb`] refuse what the database refuses.
//! - [`executions`], [`tree`]: what ran, and what fired what.
//! - [`acts`]: replay, delete. [`change`]: what all changes do alike.
//! - [`mail`]: whose mail is whose.
//! - [`versions`]: what pushes made of an app, and back to it.
//! - [`kv`], [`secret`]: entries and secrets.
//! - [`dev`]: push again on every change, and follow the logs.

mod acts;
mod change;
mod dev;
mod effects;
mod executions;
mod folder;
mod follow;
mod jsonb;
mod kv;
mod local;
mod mail;
mod push;
mod run;
mod secret;
mod served;
mod test;
mod tree;
mod versions;

use std::path::Path;
use std::process::ExitCode;

use symphony::db::{Auditor, DbError, ExecutionRow, Operator, PushAnswer};
use uuid::Uuid;

pub(in crate::commands) use executions::who;

use super::acts::{as_operator, in_options};
use super::suggested_command::symphony;
use crate::apps::manifest::SCHEMA as MANIFEST_SCHEMA;
use crate::bounds::TREE_ROWS_MAX;
use crate::cli::{App, Global};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, what: &App) -> Result<ExitCode, Failure> {
    match what {
        App::Push(options) => push::run(global, options).await,
        App::Run(options) => run::run(global, options).await,
        App::Test(options) => test::run(global, options).await,
        App::List => as_operator(global, async |operator| list(global, &operator).await).await,
        App::Executions(options) => executions::list(global, options).await,
        App::Logs { id: Some(id), .. } => executions::logs(global, *id).await,
        App::Logs { id: None, app, .. } => follow::run(global, app.as_deref()).await,
        App::Tree { id } => tree::run(global, *id).await,
        App::Replay(options) => acts::replay(global, options).await,
        App::Delete(options) => acts::delete(global, options).await,
        App::Mail(what) => mail::run(global, what).await,
        App::Rollback { name, to, act } => versions::rollback(global, name, *to, act).await,
        App::Versions { name } => versions::list(global, name).await,
        App::Kv(what) => kv::run(global, what).await,
        App::Secret(what) => secret::run(global, what).await,
        App::Dev(options) => dev::run(global, options).await,
        App::Schema => {
            output::print_verbatim(MANIFEST_SCHEMA)?;
            Ok(ExitCode::SUCCESS)
        }
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
    let tree = reader.execution_tree(root, TREE_ROWS_MAX).await?;
    Ok(tree::render(&tree::grow(tree.executions), tree.left_out, None))
}

async fn list(global: &Global, operator: &Operator) -> Result<ExitCode, Failure> {
    let apps = operator.reader().apps(None, i64::MAX).await?;
    if global.json {
        output::json(&apps)?;
    } else if apps.is_empty() {
        output::print(&format!("there is no app yet: {}\n", symphony("app push DIR")))?;
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
    in_options(error).reworded(&[
        ("p_app: ", ""),
        ("p_app must", "the app's name must"),
        ("p_id: ", ""),
        ("p_filter: ", ""),
        ("p_filter must", "the filter must"),
        ("p_manifest must", "it must"),
        ("p_version: ", ""),
        ("p_key", "the key"),
        ("p_value", "the value"),
        ("p_ttl_seconds", "--ttl"),
    ])
}
