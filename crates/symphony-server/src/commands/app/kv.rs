//! `symphony app kv`: an app's entries. Writing is a dry run until `--yes`, and fires what watches the entry.

use std::io::Read as _;
use std::process::ExitCode;

use serde_json::value::RawValue;
use symphony::db::{ActCall, DbError, KvEntryRow, KvQuery};

use super::super::acts::{Verb, as_operator};
use super::change::Change;
use super::in_words;
use crate::bounds::APP_FILE_BYTES_MAX;
use crate::cli::{ApprovedAct, Global, Kv};
use crate::output::{self, Failure};

const SET: Verb = Verb { would: "set", done: "set" };
const DELETE: Verb = Verb { would: "delete", done: "deleted" };

pub(super) async fn run(global: &Global, what: &Kv) -> Result<ExitCode, Failure> {
    match what {
        Kv::Get { app, key } => get(global, app, key).await,
        Kv::List { app, prefix, after, limit } => {
            list(global, KvQuery { app, prefix, after: after.as_deref(), limit: *limit }).await
        }
        Kv::Set { app, key, value, ttl, act } => {
            let value = json_value(value)?;
            let call = ActCall::set_entry(app, key, &value, *ttl);
            write(app, key, call, act, &SET)
                .run(
                    global,
                    async |operator, act| operator.set_entry(app, key, &value, *ttl, act).await,
                    |answer| {
                        if answer.existed {
                            "it replaces what was there, and fires what watches it".to_owned()
                        } else {
                            "it is new, and fires what watches it".to_owned()
                        }
                    },
                )
                .await
        }
        Kv::Delete { app, key, act } => {
            let call = ActCall::delete_entry(app, key);
            write(app, key, call, act, &DELETE)
                .run(
                    global,
                    async |operator, act| operator.delete_entry(app, key, act).await,
                    |answer| {
                        if answer.existed {
                            "what watches it is fired".to_owned()
                        } else {
                            "there is none, so nothing is fired".to_owned()
                        }
                    },
                )
                .await
        }
    }
}

async fn get(global: &Global, app: &str, key: &str) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let found = operator.reader().entry_of(app, key).await.map_err(unreadable)?;
        let entry = found.ok_or_else(|| {
            Failure::new(format!("app {app} has no entry {key:?}")).with_code("P7007")
        })?;
        if global.json {
            output::json(&entry)?;
        } else {
            output::print(&format!("{}\n", output::plain(entry.value.0.get())))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

async fn list(global: &Global, query: KvQuery<'_>) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let entries = operator.reader().entries_of(query).await.map_err(unreadable)?;
        if global.json {
            output::json(&entries)?;
            return Ok(ExitCode::SUCCESS);
        }
        if entries.is_empty() {
            output::print("there is no such entry\n")?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut text = String::new();
        for KvEntryRow { key, value, .. } in &entries {
            text.push_str(&format!("{} {}\n", output::plain(key), output::plain(value.0.get())));
        }
        output::print_verbatim(&text)?;
        let is_full = i32::try_from(entries.len()).is_ok_and(|found| found == query.limit);
        if let Some(last) = entries.last().filter(|_| is_full) {
            output::note(&format!("there may be more: --after {}", output::plain(&last.key)));
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// Keys alone are not shown instead: whoever may not see payloads is told so.
fn unreadable(error: DbError) -> Failure {
    match error {
        DbError::MissingPrivilege { .. } => Failure::new(
            "an entry's value is a payload: to read it the login needs symphony_operator, symphony_approver or \
             symphony_auditor",
        )
        .with_code("42501"),
        other => in_words(other),
    }
}

fn write<'a>(
    app: &str,
    key: &str,
    call: ActCall,
    options: &'a ApprovedAct,
    verb: &'static Verb,
) -> Change<'a> {
    let target = format!("entry {} of app {}", output::plain(key), output::plain(app));
    Change { target, call, options, verb }
}

/// JSON as it was written: no number of it becomes a float.
fn json_value(given: &str) -> Result<Box<RawValue>, Failure> {
    let mut read = String::new();
    let text = if given == "-" {
        std::io::stdin().lock().take(APP_FILE_BYTES_MAX).read_to_string(&mut read)?;
        read.as_str()
    } else {
        given
    };
    RawValue::from_string(text.trim().to_owned()).map_err(|error| {
        let told = output::plain(&error.to_string());
        Failure::new(format!("VALUE is not JSON: {told}; a text has quotes of its own: '\"so\"'"))
    })
}
