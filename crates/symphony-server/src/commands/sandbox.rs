//! `symphony sandbox`: the simulated provider, alone.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use symphony_lab::sandbox::{Plan, Sandbox, Secret, Settings};

use super::database::StopSignals;
use crate::cli::{Global, Sandbox as Options};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, options: &Options) -> Result<ExitCode, Failure> {
    let sandbox = Sandbox::start(settings(options)?).await.map_err(failure)?;
    let (address, record) = (sandbox.address(), sandbox.record_path().to_owned());
    if sandbox.torn_bytes() > 0 {
        output::note(&format!(
            "{} bytes of an unfinished last line were cut off the record: a crash came before its answer",
            sandbox.torn_bytes()
        ));
    }
    let mut signals = StopSignals::new()?;
    if global.json {
        output::json_line(&json!({ "address": format!("http://{address}"), "record": record }))?;
    } else {
        output::print(&format!(
            "sandbox provider on http://{address}, record in {}\n",
            record.display()
        ))?;
    }
    signals.received().await;
    let summary = sandbox.stop().await.map_err(failure)?;
    if global.json {
        output::json_line(&json!(summary))?;
    } else {
        output::print(&format!(
            "{} transfers executed under {} keys, {} keys executed more than once, {} transfers refused\n",
            summary.executed, summary.keys, summary.executed_twice, summary.refused
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn settings(options: &Options) -> Result<Settings, Failure> {
    let record = options.record.clone().unwrap_or_else(new_record);
    let mut settings = Settings::new(record);
    settings.listen = options.listen;
    settings.settle_ms = options.settle_ms;
    settings.key_lifetime_seconds = options.key_lifetime_seconds;
    if let Some(path) = &options.faults {
        settings.faults = plan(path)?;
    }
    if let Some(name) = &options.secret_env {
        let secret = std::env::var(name).ok().and_then(|secret| Secret::new(secret.as_bytes()));
        let missing = || Failure::new(format!("--secret-env: {name} is not set, or empty"));
        settings.secret = Some(secret.ok_or_else(missing)?);
    }
    Ok(settings)
}

fn plan(path: &Path) -> Result<Plan, Failure> {
    let named = |problem: String| Failure::new(format!("--faults {}: {problem}", path.display()));
    let text = std::fs::read(path).map_err(|error| named(error.to_string()))?;
    Plan::from_json(&text).map_err(|error| named(error.to_string()))
}

fn new_record() -> PathBuf {
    let id = uuid::Uuid::new_v4();
    std::env::temp_dir().join(format!("symphony-sandbox-{id}.jsonl"))
}

#[allow(clippy::needless_pass_by_value)] // for map_err
fn failure(error: symphony_lab::sandbox::SandboxError) -> Failure {
    Failure::new(error.to_string())
}
