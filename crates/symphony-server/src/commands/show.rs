//! `symphony show`: the life of one payment, event or execution, outcome by outcome, and what it waits for.

mod event;
mod execution;
mod payment;

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use symphony::db::{Database, EventLife, EventRow, ItemLife, Role};
use uuid::Uuid;

use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;
use execution::ExecutionLife;
pub(super) use payment::{render, waits_for};

pub(super) async fn run(global: &Global, id: &str) -> Result<ExitCode, Failure> {
    let server = Server::open(global).await?;
    let result = match server.database_as(Role::Auditor).await {
        Ok(database) => show(global, id, &database).await,
        Err(failure) => Err(failure),
    };
    server.close().await?;
    result
}

async fn show(global: &Global, id: &str, database: &Database) -> Result<ExitCode, Failure> {
    let auditor = database.auditor();
    let mut lives = Vec::new();
    for item in auditor.find(id).await? {
        lives.extend(auditor.life(item).await?.map(|life| Life::Payment(Box::new(life))));
    }
    if let Ok(uuid) = id.parse::<Uuid>() {
        lives.extend(auditor.event_life(uuid).await?.map(|life| Life::Event(Box::new(life))));
        let execution = execution::read(&auditor, uuid).await?;
        lives.extend(execution.map(|life| Life::Execution(Box::new(life))));
    }
    if lives.is_empty() {
        return Err(Failure::new(format!(
            "no item has the outbox or instruction id {id:?}, and no event that id, nor an execution"
        )));
    }
    if global.json {
        output::json(&lives)?;
    } else {
        for life in &lives {
            output::print(&match life {
                Life::Payment(life) => render(life),
                Life::Event(life) => event::render(life),
                Life::Execution(life) => execution::render(life),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An id names one of them; should it name several, all are shown.
#[derive(Serialize)]
#[serde(untagged)]
enum Life {
    Payment(Box<ItemLife>),
    Event(Box<EventLife>),
    Execution(Box<ExecutionLife>),
}

/// What happened, and when.
type Story = Vec<(DateTime<Utc>, String)>;

/// One line of the narrative, with what its details say.
fn told(event: &EventRow) -> String {
    let mut told = event.event_type.clone();
    let details: Value = serde_json::from_str(event.details.0.get()).unwrap_or_default();
    for (detail, word) in [
        ("state", ""),
        ("resolution", "as "),
        ("redriven_as", "as "),
        ("replay_id", "as "),
        ("incident_no", "incident "),
        ("expired_worker", "of "),
        ("rail_reference", "reference "),
        ("bus_reference", "reference "),
        ("rail_code", "rail code "),
        ("error_code", "error "),
    ] {
        let value = match details.get(detail) {
            Some(Value::String(text)) => output::plain(text),
            Some(Value::Number(number)) => number.to_string(),
            _ => continue,
        };
        let separator = if told.len() == event.event_type.len() { " " } else { ", " };
        let _infallible = write!(told, "{separator}{word}{value}");
    }
    for (detail, words) in [
        ("conflict", "contradicts the ledger"),
        ("despite_unknown", "although a try's outcome was unknown"),
    ] {
        if details.get(detail) == Some(&Value::Bool(true)) {
            let _infallible = write!(told, ", {words}");
        }
    }
    if let Some(reason) = &event.reason {
        let _infallible = write!(told, ": {}", output::plain(reason));
    }
    if let Some(who) = event.actor.as_ref().or(event.worker_id.as_ref()) {
        let _infallible = write!(told, ", by {}", output::plain(who));
    }
    if let Some(approver) = &event.approver {
        let _infallible = write!(told, ", approved by {}", output::plain(approver));
    }
    told
}

fn in_order(mut story: Story) -> String {
    story.sort_by_key(|(at, _)| *at);
    let mut text = String::new();
    for (at, told) in story {
        let _infallible = writeln!(text, "  {}  {told}", moment(at));
    }
    text
}

fn moment(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
