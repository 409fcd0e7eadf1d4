//! `symphony app push`: make an app what its folder says, and say what that changed.

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{ActCall, AppPart, DbError, Operator, PushAnswer};

use symphony::domain::Act;

use super::super::acts::{Verb, actor_or_account, as_operator};
use super::super::approval;
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
        match apply(&operator, &folder, &actor).await {
            Ok(applied) => applied.tell(global, &folder.name)?,
            Err(DbError::ApprovalMissing { .. }) => {
                return ask(global, options, &operator, &folder, actor).await;
            }
            Err(error) => return Err(refused(error, &folder)),
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// A push that was made, with what there was before and is now.
pub(super) struct Applied {
    answer: PushAnswer,
    before: Vec<AppPart>,
    after: Vec<AppPart>,
}

pub(super) async fn apply(
    operator: &Operator,
    folder: &AppFolder,
    actor: &str,
) -> Result<Applied, DbError> {
    let reader = operator.reader();
    let before = reader.app_parts(&folder.name).await?;
    let answer = operator.push_app(&folder.name, &folder.manifest, actor).await?;
    let after = reader.app_parts(&folder.name).await?;
    Ok(Applied { answer, before, after })
}

impl Applied {
    fn pushed<'a>(&'a self, app: &'a str) -> Pushed<'a> {
        let changes = changes(&self.before, &self.after);
        Pushed { app, answer: self.answer.clone(), changes }
    }

    fn tell(&self, global: &Global, app: &str) -> Result<(), Failure> {
        let pushed = self.pushed(app);
        if global.json {
            return output::json(&pushed);
        }
        output::print(&render(&pushed, &self.after))
    }

    /// The same as one line among others.
    pub(super) fn tell_line(&self, global: &Global, app: &str) -> Result<(), Failure> {
        let pushed = self.pushed(app);
        if global.json {
            return output::json_line(&serde_json::json!(pushed));
        }
        output::print_verbatim(&render(&pushed, &self.after))
    }
}

const PUSH: Verb = Verb { would: "push", done: "pushed" };

/// Where pushes need approval, a second person is asked.
async fn ask(
    global: &Global,
    options: &AppPush,
    operator: &Operator,
    folder: &AppFolder,
    actor: String,
) -> Result<ExitCode, Failure> {
    let Some(reason) = options.reason.clone() else {
        return Err(Failure::new(
            "a second person must approve this push: add --reason, which tells them why",
        )
        .with_code("P7008"));
    };
    let act = Act { actor, reason, dry_run: false, despite_unknown: false };
    let call = ActCall::push_app(&folder.name, &folder.manifest);
    let request = approval::ask(operator, &call, &act).await;
    let request = request.map_err(|error| refused(error, folder))?;
    approval::tell_asked(global, &PUSH, &format!("app {}", folder.name), &[request])
}

pub(super) async fn push(
    operator: &Operator,
    folder: &AppFolder,
    actor: &str,
) -> Result<PushAnswer, Failure> {
    operator
        .push_app(&folder.name, &folder.manifest, actor)
        .await
        .map_err(|error| refused(error, folder))
}

/// What the database says about a manifest names its fields: say of which file.
pub(super) fn refused(error: DbError, folder: &AppFolder) -> Failure {
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
