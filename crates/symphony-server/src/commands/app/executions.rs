//! `symphony app executions` and `symphony app logs`: what ran, and one of them whole.

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use symphony::db::{ExecutionAttemptRow, ExecutionQuery, ExecutionRow};
use symphony::domain::Switch;
use symphony::json::pretty;
use symphony::lanes::triggers::executor::LogLine;
use uuid::Uuid;

use super::super::acts::as_operator;
use super::super::names;
use super::super::suggested_command::symphony;
use super::{execution, script_of, took};
use crate::cli::{AppExecutions, ExecutionState, Global};
use crate::output::{self, Failure};

pub(super) async fn list(global: &Global, options: &AppExecutions) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let reader = operator.reader();
        let app = options.app.as_deref();
        let state = options.state.map(ExecutionState::name);
        // One more than asked for, to know whether there are more.
        let limit = i64::from(options.limit) + 1;
        let query = ExecutionQuery { app, state, before: None, limit };
        let mut found = reader.executions(query).await?;
        // Executions outlive their app: only an app without any must be one that exists.
        if let (true, Some(app)) = (found.is_empty(), app) {
            names::require_known(&reader, &[Switch::App(app.to_owned())]).await?;
        }
        let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
        let more = found.len() > limit;
        found.truncate(limit);
        if global.json {
            output::json(&found)?;
        } else if found.is_empty() {
            output::print("no execution is like that\n")?;
        } else {
            output::print(&table(&found, more))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

fn table(executions: &[ExecutionRow], more: bool) -> String {
    let now = Utc::now();
    let mut text = output::table(
        [
            output::short("app"),
            output::short("source"),
            output::short("script"),
            output::short("caused by"),
            output::states("state"),
            output::short("code"),
            output::number("attempts"),
            output::whole("took"),
            output::whole("ago"),
            output::command("next"),
        ],
        executions.iter().map(|execution| {
            [
                output::plain(&execution.app_name),
                execution.source_kind.clone(),
                script_of(execution),
                output::plain(execution.caused_by.as_deref().unwrap_or_default()),
                execution.state.clone(),
                output::plain(execution.error_code.as_deref().unwrap_or_default()),
                execution.attempts.to_string(),
                took(execution),
                output::length((now - execution.created_at).num_seconds()),
                symphony(&format!("app logs {}", execution.id)),
            ]
        }),
    );
    if more {
        text.push_str("  there are more: raise --limit, or choose by --app or --state\n");
    }
    text
}

/// An execution, with the ledger's outcomes.
#[derive(Serialize)]
struct ExecutionDetail {
    #[serde(flatten)]
    execution: ExecutionRow,
    outcomes: Vec<ExecutionAttemptRow>,
}

pub(super) async fn logs(global: &Global, id: Uuid) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let reader = operator.reader();
        let execution = execution(&reader, id).await?;
        let outcomes = reader.execution_attempts(id).await?;
        let whole = ExecutionDetail { execution, outcomes };
        if global.json {
            output::json(&whole)?;
        } else {
            output::print(&render(&whole))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

fn render(ExecutionDetail { execution, outcomes }: &ExecutionDetail) -> String {
    let mut text = format!(
        "{}  {}\n  app {}, {}, script {}",
        execution.id,
        execution.state,
        output::plain(&execution.app_name),
        execution.source_kind,
        script_of(execution)
    );
    if let Some(version) = execution.script_version {
        let _infallible = write!(text, " version {version}");
    }
    text.push('\n');
    if let Some(parent) = execution.parent_execution_id {
        let _infallible = writeln!(
            text,
            "  fired by {parent}, depth {}, root {}",
            execution.trigger_depth, execution.root_execution_id
        );
    }
    text.push_str(&who(execution));
    let _infallible = write!(text, "  written {}", moment(execution.created_at));
    if let Some(ended) = execution.completed_at {
        let _infallible = write!(text, ", ended {} ({})", moment(ended), took(execution));
    }
    text.push('\n');
    match &execution.payload {
        Some(payload) => {
            text.push_str("payload\n");
            text.push_str(&indented(&pretty(&payload.0)));
        }
        None => text.push_str("payload, result and logs\n  hidden from symphony_readonly\n"),
    }
    if let Some(result) = &execution.result {
        text.push_str("result\n");
        text.push_str(&indented(&pretty(&result.0)));
    }
    if let Some(code) = &execution.error_code {
        text.push_str("error\n");
        text.push_str(&indented(&error(code, execution.error_message.as_deref())));
    }
    if let Some(logs) = &execution.logs {
        text.push_str("logs\n");
        text.push_str(&log(&logs.0));
    }
    text.push_str("attempts\n");
    if outcomes.is_empty() {
        text.push_str("  none yet\n");
    }
    for one in outcomes {
        let _infallible =
            write!(text, "  {}  {}  {}", one.attempt_no, moment(one.completed_at), one.state);
        if let Some(code) = &one.error_code {
            let told = output::plain(&error(code, one.error_message.as_deref()));
            let _infallible = write!(text, ", {told}");
        }
        if let Some(latency_ms) = one.latency_ms {
            let _infallible = write!(text, ", {latency_ms} ms");
        }
        let _infallible = writeln!(text, ", by {}", output::plain(&one.worker_id));
    }
    text
}

/// Who caused it and as whom it runs, as far as somebody is known.
pub(in crate::commands) fn who(execution: &ExecutionRow) -> String {
    let told = [("caused by", &execution.caused_by), ("runs as", &execution.runs_as)];
    let told: Vec<String> = told
        .iter()
        .filter_map(|(what, who)| Some(format!("{what} {}", output::plain(who.as_deref()?))))
        .collect();
    if told.is_empty() { String::new() } else { format!("  {}\n", told.join(", ")) }
}

fn moment(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn error(code: &str, message: Option<&str>) -> String {
    match message {
        Some(message) => format!("{code}: {message}"),
        None => code.to_owned(),
    }
}

fn log(lines: &RawValue) -> String {
    // Whatever is in the row is shown, also if it is not as our own executors write it.
    let Ok(lines) = serde_json::from_str::<Vec<LogLine>>(lines.get()) else {
        return indented(&pretty(lines));
    };
    if lines.is_empty() {
        return "  nothing was logged\n".to_owned();
    }
    lines
        .iter()
        .map(|line| indented(&format!("+{} ms {}: {}", line.at_ms, line.level, line.message)))
        .collect()
}

fn indented(text: &str) -> String {
    let mut indented = String::new();
    for line in text.lines() {
        let _infallible = writeln!(indented, "  {}", output::plain(line));
    }
    indented
}
