//! `symphony app run`: one script of a folder with one request, without a database.

use std::path::Path;
use std::process::ExitCode;

use serde::de::DeserializeOwned;

use super::local::{Entries, LocalApp, LocalRun, Secrets, WrittenRequest};
use crate::bounds::{APP_FILE_BYTES_MAX, LOCAL_FETCHES_MAX};
use crate::cli::{AppRun, Global};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, options: &AppRun) -> Result<ExitCode, Failure> {
    let app = LocalApp::read(&options.folder)?;
    let request: WrittenRequest = match &options.request {
        Some(given) => written("--request", given)?,
        None => WrittenRequest::default(),
    };
    let kv: Entries = match &options.kv {
        Some(given) => written("--kv", given)?,
        None => Entries::new(),
    };
    let secrets = secrets(options.secret_file.as_deref())?;
    let ended = app.run(&options.script, &request, kv, &secrets, LOCAL_FETCHES_MAX).await?;
    if global.json {
        output::json(&ended)?;
    } else {
        output::print(&render(&ended)?)?;
    }
    Ok(if ended.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Secrets of a file; none if there is none.
pub(super) fn secrets(file: Option<&Path>) -> Result<Secrets, Failure> {
    let Some(file) = file else { return Ok(Secrets::new()) };
    let wrong = |why: &str| Failure::new(format!("--secret-file: {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(&error.to_string()))?;
    // What the parser says may repeat a part of it.
    let problem = "must be a JSON object of names and texts";
    serde_json::from_str(&text).map_err(|_| wrong(problem))
}

/// JSON that was given, or the file that has it.
fn written<T: DeserializeOwned>(option: &str, given: &str) -> Result<T, Failure> {
    let wrong = |why: String| Failure::new(format!("{option}: {}", output::plain(&why)));
    if given.trim_start().starts_with('{') {
        return serde_json::from_str(given).map_err(|error| wrong(error.to_string()));
    }
    let length =
        std::fs::metadata(given).map_err(|error| wrong(format!("{given}: {error}")))?.len();
    if length > APP_FILE_BYTES_MAX {
        return Err(wrong(format!("{given} is larger than 1 MiB")));
    }
    let text =
        std::fs::read_to_string(given).map_err(|error| wrong(format!("{given}: {error}")))?;
    serde_json::from_str(&text).map_err(|error| wrong(format!("{given}: {error}")))
}

fn render(ended: &LocalRun) -> Result<String, Failure> {
    let mut lines = Vec::new();
    for line in &ended.logs {
        for part in format!("{}: {}", line.level, line.message).lines() {
            lines.push(output::plain(part));
        }
    }
    for effect in &ended.effects {
        lines.push(format!("effect {}", json(effect)?));
    }
    for (key, value) in &ended.kv {
        let (key, value) = (output::plain(key), output::plain(value.get()));
        let time = ended.ttl_seconds.get(key.as_str());
        let time = time.map_or_else(String::new, |seconds| format!(", for {seconds} seconds"));
        lines.push(format!("entry {key} {value}{time}"));
    }
    if let Some(answer) = &ended.answer {
        lines.push(format!("answer {}", output::plain(answer.get())));
    }
    if let Some(error) = &ended.error {
        lines.push(output::plain(&format!("error {}: {}", error.code, error.message)));
    }
    lines.push(String::new());
    Ok(lines.join("\n"))
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string(value).map_err(|error| Failure::new(error.to_string()))?;
    Ok(output::plain(&text))
}
