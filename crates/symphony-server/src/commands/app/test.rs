//! `symphony app test`: the cases in a folder's `tests/*.json`, each one run of one script, without a database.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::local::{Entries, LocalApp, LocalRun, Secrets, WrittenRequest};
use crate::bounds::APP_FILE_BYTES_MAX;
use crate::cli::{AppTest, Global};
use crate::output::{self, Failure};

/// One run, and what is to come of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    name: String,
    script: String,
    #[serde(default)]
    request: WrittenRequest,
    #[serde(default)]
    kv: Entries,
    /// By their names; else those of --secret-file.
    secrets: Option<Secrets>,
    expect: Expected,
}

/// What is left out is not looked at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expected {
    answer: Option<Value>,
    /// A code; with it there is no answer.
    error: Option<String>,
    /// All entries afterwards.
    kv: Option<Value>,
    /// All times to live that the run gave to entries.
    ttl_seconds: Option<Value>,
    /// All effects but those on entries, in order.
    effects: Option<Value>,
    /// The log's lines, without levels and times.
    logs: Option<Vec<String>>,
}

/// How a case ended.
#[derive(Serialize)]
struct Tested {
    file: String,
    case: String,
    passed: bool,
    differences: Vec<Difference>,
}

#[derive(Serialize)]
struct Difference {
    what: &'static str,
    expected: Value,
    found: Value,
}

pub(super) async fn run(global: &Global, options: &AppTest) -> Result<ExitCode, Failure> {
    let app = LocalApp::read(&options.folder)?;
    let of_file = super::run::secrets(options.secret_file.as_deref())?;
    let mut all = Vec::new();
    for path in files(&options.folder)? {
        let file = path.strip_prefix(&options.folder).unwrap_or(&path).display().to_string();
        for case in cases(&path)? {
            let named = |error: Failure| Failure::new(format!("{file}: {}: {error}", case.name));
            let kv = case.kv.clone();
            // A test that calls others is a test of others: fetch throws.
            let secrets = case.secrets.as_ref().unwrap_or(&of_file);
            let ended = app.run(&case.script, &case.request, kv, secrets, 0).await;
            let ended = ended.map_err(named)?;
            let differences = differences(&case.expect, &ended)?;
            let passed = differences.is_empty();
            all.push(Tested { file: file.clone(), case: case.name, passed, differences });
        }
    }
    if all.is_empty() {
        let folder = options.folder.join("tests");
        return Err(Failure::new(format!("there is no case in {}/*.json", folder.display())));
    }
    if global.json {
        output::json(&all)?;
    } else {
        output::print(&render(&all))?;
    }
    let passed = all.iter().all(|tested| tested.passed);
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The folder's fixtures, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let tests = folder.join("tests");
    let cannot =
        |error: std::io::Error| Failure::new(format!("cannot read {}: {error}", tests.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&tests).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn cases(path: &Path) -> Result<Vec<Case>, Failure> {
    let wrong = |why: String| Failure::new(format!("{}: {}", path.display(), output::plain(&why)));
    let length = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if length > APP_FILE_BYTES_MAX {
        return Err(wrong("it is larger than 1 MiB".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

fn differences(expected: &Expected, ended: &LocalRun) -> Result<Vec<Difference>, Failure> {
    fn value<T: Serialize>(of: &T) -> Result<Value, Failure> {
        // By way of text: an entry is stored as text, and read as what it says.
        let text = serde_json::to_string(of);
        text.and_then(|text| serde_json::from_str(&text))
            .map_err(|error| Failure::new(error.to_string()))
    }
    let code = ended.error.as_ref().map(|error| error.code.as_str());
    let logs: Vec<&str> = ended.logs.iter().map(|line| line.message.as_str()).collect();
    let mut differences = Vec::new();
    let mut compare = |what, expected: Option<Value>, found: Value| {
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            differences.push(Difference { what, expected, found });
        }
    };
    // An error that nobody expects is always one; then the message says more than the code.
    match (&expected.error, &ended.error) {
        (None, Some(error)) => {
            let told = format!("{}: {}", error.code, error.message);
            compare("error", Some(Value::Null), Value::String(told));
        }
        (wanted, _) => compare("error", value(wanted).ok(), value(&code)?),
    }
    if ended.error.is_none() {
        compare("answer", expected.answer.clone(), value(&ended.answer)?);
    }
    compare("kv", expected.kv.clone(), value(&ended.kv)?);
    compare("ttlSeconds", expected.ttl_seconds.clone(), value(&ended.ttl_seconds)?);
    compare("effects", expected.effects.clone(), value(&ended.effects)?);
    compare("logs", expected.logs.as_ref().map(value).transpose()?, value(&logs)?);
    Ok(differences)
}

fn render(all: &[Tested]) -> String {
    let mut text = String::new();
    for Tested { file, case, passed, differences } in all {
        let state = if *passed { "ok      " } else { "FAILED  " };
        text.push_str(&output::plain(&format!("{state}{file}: {case}")));
        text.push('\n');
        for Difference { what, expected, found } in differences {
            let told = format!("{what}: expected {expected}, found {found}");
            text.push_str(&format!("  {}\n", output::plain(&told)));
        }
    }
    let passed = all.iter().filter(|tested| tested.passed).count();
    let failed = all.len().saturating_sub(passed);
    text.push_str(&format!("{passed} passed, {failed} failed\n"));
    text
}
