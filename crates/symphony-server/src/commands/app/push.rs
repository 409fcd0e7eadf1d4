//! `symphony app push`: make an app what its folder says, and say what that changed.

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{AppPart, DbError, Operator, PushAnswer};

use super::super::acts::{actor_or_account, as_operator};
use super::folder::{self, AppFolder};
use super::in_words;
use crate::cli::{AppPush, Global};
use crate::output::{self, Failure};

/// What a push did.
#[derive(Serialize)]
struct Pushed<'a> {
    app: &'a str,
    #[serde(flatten)]
    answer: PushAnswer,
    changes: Vec<Change<'a>>,
}

/// What it did to one part.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Change<'a> {
    what: &'static str,
    kind: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<i32>,
}

pub(super) async fn run(global: &Global, options: &AppPush) -> Result<ExitCode, Failure> {
    let actor = actor_or_account(options.actor.as_ref());
    // A bad folder is refused before a server is started for it.
    let folder = folder::read(&options.folder, options.name.as_deref())?;
    as_operator(global, async |operator| {
        let reader = operator.reader();
        let before = reader.app_parts(&folder.name).await?;
        let answer = push(&operator, &folder, &actor).await?;
        let after = reader.app_parts(&folder.name).await?;
        let pushed = Pushed { app: &folder.name, answer, changes: changes(&before, &after) };
        if global.json {
            output::json(&pushed)?;
        } else {
            output::print(&render(&pushed, &after))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

pub(super) async fn push(
    operator: &Operator,
    folder: &AppFolder,
    actor: &str,
) -> Result<PushAnswer, Failure> {
    operator
        .push_app(&folder.name, &folder.manifest, actor, None)
        .await
        .map_err(|error| refused(error, folder))
}

/// What the database says about a manifest names its fields: say of which file.
fn refused(error: DbError, folder: &AppFolder) -> Failure {
    let code = error.code().to_owned();
    let failure = in_words(error);
    let told = failure.to_string();
    if code != "P7005" || told.starts_with("the app's name") || told.starts_with("--actor") {
        return failure;
    }
    Failure::new(format!("{}: {told}", folder.manifest_path.display())).with_code(&code)
}

fn changes<'a>(before: &'a [AppPart], after: &'a [AppPart]) -> Vec<Change<'a>> {
    fn named<'a>(parts: &'a [AppPart], part: &AppPart) -> Option<&'a AppPart> {
        parts.iter().find(|other| other.kind == part.kind && other.name == part.name)
    }
    let change = |what, part: &'a AppPart| Change {
        what,
        kind: &part.kind,
        name: &part.name,
        version: part.version,
    };
    let there = after.iter().filter_map(|part| match named(before, part) {
        None => Some(change("new", part)),
        Some(old) if old.stands_as != part.stands_as => Some(change("changed", part)),
        Some(_) => None,
    });
    let gone = before.iter().filter(|part| named(after, part).is_none());
    there.chain(gone.map(|part| change("gone", part))).collect()
}

fn render(pushed: &Pushed<'_>, after: &[AppPart]) -> String {
    let app = pushed.app;
    if pushed.answer.created {
        return format!("created app {app}: {}\n", counts(after));
    }
    if pushed.changes.is_empty() {
        return format!("app {app} is so already: nothing changed\n");
    }
    let mut text = format!("pushed app {app}:\n");
    for Change { what, kind, name, version } in &pushed.changes {
        let version = version.map(|version| format!(", version {version}")).unwrap_or_default();
        text.push_str(&format!("  {what} {kind} {}{version}\n", output::plain(name)));
    }
    text
}

/// What it consists of, without what it has none of.
fn counts(parts: &[AppPart]) -> String {
    let counts: Vec<String> = ["script", "route", "trigger", "topic", "queue"]
        .into_iter()
        .filter_map(|kind| match parts.iter().filter(|part| part.kind == kind).count() {
            0 => None,
            1 => Some(format!("1 {kind}")),
            count => Some(format!("{count} {kind}s")),
        })
        .collect();
    if counts.is_empty() { "it has nothing yet".to_owned() } else { counts.join(", ") }
}
