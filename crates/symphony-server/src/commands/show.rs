//! `symphony show`: the life of one payment, event or execution, outcome by outcome, and what it waits for.

pub(crate) mod event;
pub(crate) mod execution;
pub(crate) mod payment;

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use serde_json::Value;
use symphony::db::{Database, EventLife, PaymentHistoryRow, PaymentLife, Role};
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
    for item in auditor.find_payments(id).await? {
        lives.extend(
            auditor.payment_life(item).await?.map(|life| ItemHistory::Payment(Box::new(life))),
        );
    }
    if let Ok(uuid) = id.parse::<Uuid>() {
        lives
            .extend(auditor.event_life(uuid).await?.map(|life| ItemHistory::Event(Box::new(life))));
        let execution = execution::read(&auditor, uuid).await?;
        lives.extend(execution.map(|life| ItemHistory::Execution(Box::new(life))));
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
                ItemHistory::Payment(life) => render(life),
                ItemHistory::Event(life) => event::render(life),
                ItemHistory::Execution(life) => execution::render(life),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An id names one of them; should it name several, all are shown.
#[derive(Serialize)]
#[serde(untagged)]
enum ItemHistory {
    Payment(Box<PaymentLife>),
    Event(Box<EventLife>),
    Execution(Box<ExecutionLife>),
}

/// Something that happened: when, what in a word, and the rest of the sentence.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) at: DateTime<Utc>,
    pub(crate) what: String,
    pub(crate) rest: String,
}

/// Everything that happened.
pub(crate) type Timeline = Vec<Happened>;

/// What every life begins with.
fn enqueued(at: DateTime<Utc>) -> Happened {
    Happened { at, what: "ENQUEUED".to_owned(), rest: String::new() }
}

/// One line of the narrative, with what its details say.
fn told(event: &PaymentHistoryRow) -> Happened {
    let mut told = String::new();
    let details: Value = serde_json::from_str(event.details.0.get()).unwrap_or_default();
    for (detail, word) in [
        ("state", ""),
        ("resolution", "as "),
        ("redriven_as", "as "),
        ("replay_id", "as "),
        ("incident_no", "incident "),
        ("expired_worker", "of "),
        ("request_no", "request "),
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
        let separator = if told.is_empty() { " " } else { ", " };
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
    if event.event_type.starts_with("APPROVAL_") {
        let _infallible = write!(told, ", from login {}", output::plain(&event.session_role));
    }
    if let Some(approver) = &event.approver {
        let _infallible = write!(told, ", approved by {}", output::plain(approver));
    }
    Happened { at: event.created_at, what: event.event_type.clone(), rest: told }
}

/// One attempt, as every lane tells it.
struct Outcome<'a> {
    attempt_no: i32,
    state: String,
    unknown: bool,
    /// What is known of it, by name.
    facts: &'a [(&'a str, &'a Option<String>)],
    message: Option<&'a str>,
    worker_id: &'a str,
}

impl Outcome<'_> {
    fn tell(&self, at: DateTime<Utc>) -> Happened {
        let mut told = String::new();
        if self.unknown {
            told.push_str(" (outcome unknown)");
        }
        for (name, value) in self.facts {
            if let Some(value) = value {
                let _infallible = write!(told, ", {name} {}", output::plain(value));
            }
        }
        if let Some(message) = self.message {
            let _infallible = write!(told, " ({})", output::plain(message));
        }
        let _infallible = write!(told, ", by {}", output::plain(self.worker_id));
        let what = format!("attempt {}: {}", self.attempt_no, self.state);
        Happened { at, what, rest: told }
    }
}

fn in_order(mut timeline: Timeline) -> Timeline {
    timeline.sort_by_key(|happened| happened.at);
    timeline
}

/// A line each.
fn lines(timeline: &[Happened]) -> String {
    let mut text = String::new();
    for Happened { at, what, rest } in timeline {
        let _infallible = writeln!(text, "  {}  {what}{rest}", moment(*at));
    }
    text
}

fn moment(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}
