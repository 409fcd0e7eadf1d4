//! `symphony app dev`: push a folder, push it again whenever a file of it changes, and print what its scripts log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use symphony::db::Operator;

use super::super::acts::{actor_or_account, as_operator};
use super::super::database::StopSignals;
use super::follow::Follower;
use super::{folder, push};
use crate::bounds::{DEV_FILES_MAX, DEV_POLL};
use crate::cli::{AppPush, Global};
use crate::output::Failure;

/// Refusals that the next change of a file does not mend: a role that is lacking, an approval.
const ENDS: [&str; 2] = ["42501", "P7008"];

pub(super) async fn run(global: &Global, options: &AppPush) -> Result<ExitCode, Failure> {
    let actor = actor_or_account(options.actor.as_ref());
    as_operator(global, async |operator| {
        let reader = operator.reader();
        let mut signals = StopSignals::new()?;
        let mut follower = Follower::new(&reader).await?;
        let mut app = None;
        let mut pushed = None;
        let mut before = None;
        loop {
            let files = files(&options.folder)?;
            // A folder that is just being written is pushed once it has come to rest.
            let is_at_rest = pushed.is_none() || before.as_ref() == Some(&files);
            if is_at_rest && pushed.as_ref() != Some(&files) {
                match push_once(global, options, &operator, &actor).await {
                    Ok(name) => app = Some(name),
                    Err(failure) if failure.code().is_some_and(|code| ENDS.contains(&code)) => {
                        return Err(failure);
                    }
                    Err(failure) => failure.report(global.json),
                }
                pushed = Some(files.clone());
            }
            before = Some(files);
            if app.is_some() {
                while follower.print_next(global, &reader, app.as_deref()).await? {}
            }
            tokio::select! {
                () = signals.received() => return Ok(ExitCode::SUCCESS),
                () = tokio::time::sleep(DEV_POLL) => {}
            }
        }
    })
    .await
}

/// Answers the app's name.
async fn push_once(
    global: &Global,
    options: &AppPush,
    operator: &Operator,
    actor: &str,
) -> Result<String, Failure> {
    let folder = folder::read(&options.folder, options.name.as_deref())?;
    let applied = push::apply(operator, &folder, actor).await;
    let applied = applied.map_err(|error| push::refused(error, &folder))?;
    applied.tell_line(global, &folder.name)?;
    Ok(folder.name)
}

/// When each file was written, and how long it is.
type Files = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

/// Without what editors and tools keep in hidden folders.
fn files(folder: &Path) -> Result<Files, Failure> {
    let mut found = Files::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let cannot = |error| Failure::new(format!("cannot read {}: {error}", folder.display()));
        for entry in fs::read_dir(&folder).map_err(cannot)? {
            let Ok(entry) = entry else { continue };
            let name = entry.file_name();
            let is_hidden = name.as_encoded_bytes().starts_with(b".") || name == "node_modules";
            // It may be gone by now: editors write another file and rename it.
            let (false, Ok(metadata)) = (is_hidden, entry.metadata()) else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                found.insert(entry.path(), (metadata.modified().ok(), metadata.len()));
            }
            if found.len() > DEV_FILES_MAX {
                let problem = "has more than 10000 files: it is no app's folder";
                return Err(Failure::new(format!("{} {problem}", folder.display())));
            }
        }
    }
    Ok(found)
}
