//! `symphony app secret`: secrets of an app. They are read from a file or standard input, sealed here, and never told again.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use symphony::db::{ActCall, SecretRow};

use super::super::acts::{Verb, as_operator};
use super::change::Change;
use super::in_words;
use crate::apps::secrets::{SecretKeys, value_defect};
use crate::bounds::SECRET_BYTES_MAX;
use crate::cli::{AppSecret, ApprovedAct, Global};
use crate::config::{Config, Defects};
use crate::output::{self, Failure};

const SET: Verb = Verb { would: "set", done: "set" };
const DELETE: Verb = Verb { would: "delete", done: "deleted" };

pub(super) async fn run(global: &Global, what: &AppSecret) -> Result<ExitCode, Failure> {
    match what {
        AppSecret::List { app } => list(global, app).await,
        AppSecret::Set { app, name, from_file, act } => {
            let keys = keys(global)?;
            let value = value(from_file.as_deref())?;
            let sealed = keys.seal(app, name, &value).map_err(Failure::new)?;
            let call = ActCall::set_secret(app, name, &sealed);
            change(app, name, call, act, &SET)
                .run(
                    global,
                    async |operator, act| operator.set_secret(app, name, &sealed, act).await,
                    |answer| {
                        if answer.existed {
                            "runs that begin from now on get the new one".to_owned()
                        } else {
                            "it is new".to_owned()
                        }
                    },
                )
                .await
        }
        AppSecret::Delete { app, name, act } => {
            let call = ActCall::delete_secret(app, name);
            change(app, name, call, act, &DELETE)
                .run(
                    global,
                    async |operator, act| operator.delete_secret(app, name, act).await,
                    |_| "scripts that read it fail from now on".to_owned(),
                )
                .await
        }
    }
}

/// The configuration's; without one that seals, nothing is read or asked.
fn keys(global: &Global) -> Result<SecretKeys, Failure> {
    let config = Config::load(global.config.as_deref())?;
    let mut defects = Defects::default();
    let keys = config.triggers.secret_keys(&mut defects);
    if !defects.is_empty() {
        return Err(Failure::from(defects));
    }
    keys.current().map_err(Failure::new)?;
    Ok(keys)
}

/// Without the end of its last line, which an editor or `echo` adds.
fn value(file: Option<&Path>) -> Result<String, Failure> {
    let source = file.map_or("standard input".to_owned(), |file| file.display().to_string());
    let wrong = |why: &str| Failure::new(format!("the secret in {source} {why}"));
    let mut bytes = Vec::new();
    let most = u64::try_from(SECRET_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(2);
    let read = match file {
        None => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        Some(file) => File::open(file).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    read.map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("is not UTF-8 text"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    match value_defect(text) {
        Some(defect) => Err(wrong(&defect)),
        None => Ok(text.to_owned()),
    }
}

async fn list(global: &Global, app: &str) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let secrets = operator.reader().secrets_of(app).await.map_err(in_words)?;
        if global.json {
            output::json(&secrets)?;
        } else if secrets.is_empty() {
            output::print(&format!("app {} has no secret\n", output::plain(app)))?;
        } else {
            output::print(&output::table(
                ["secret".into(), "set by".into(), output::whole("set at"), output::whole("key")],
                secrets.iter().map(|SecretRow { name, key_id, set_by, set_at }| {
                    let at = set_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
                    [name.clone(), set_by.clone(), at, key_id.clone()]
                }),
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

fn change<'a>(
    app: &str,
    name: &str,
    call: ActCall,
    options: &'a ApprovedAct,
    verb: &'static Verb,
) -> Change<'a> {
    let target = format!("secret {} of app {}", output::plain(name), output::plain(app));
    Change { target, call, options, verb }
}
