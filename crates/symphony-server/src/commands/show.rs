//! `symphony show`: the life of one item, event by event.

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use symphony::db::{Database, ItemLife};

use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;

pub(super) async fn run(global: &Global, id: &str) -> Result<ExitCode, Failure> {
    let server = Server::open(global).await?;
    let result = match server.database(1).await {
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
        lives.extend(auditor.life(item).await?);
    }
    if lives.is_empty() {
        return Err(Failure::new(format!("no item has the outbox or instruction id {id:?}")));
    }
    if global.json {
        output::json(&lives)?;
    } else {
        for life in &lives {
            output::print(&render(life))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The life of one item as people read it: what was asked, then everything that happened, in order of time.
pub(super) fn render(life: &ItemLife) -> String {
    let asked = &life.instruction;
    let mut text = format!(
        "{}  {}\n  instruction {}, key {}\n  participant {}, number {}, rail {}\n",
        asked.outbox_id,
        life.state,
        asked.instruction_id,
        asked.idempotency_key,
        asked.participant_id,
        asked.sequence_id,
        asked.rail_type
    );
    if let Some(origin) = asked.redrive_of {
        let _infallible = writeln!(text, "  redrive {} of {origin}", asked.redrive_no);
    }
    let mut story: Vec<(DateTime<Utc>, String)> = vec![(asked.created_at, "ENQUEUED".to_owned())];
    for attempt in &life.attempts {
        let mut told = format!("attempt {}: {:?}", attempt.attempt_no, attempt.state);
        if attempt.outcome_unknown {
            told.push_str(" (outcome unknown)");
        }
        for (name, value) in [
            ("reference", &attempt.rail_reference),
            ("rail code", &attempt.rail_code),
            ("error", &attempt.error_code),
        ] {
            if let Some(value) = value {
                let _infallible = write!(told, ", {name} {value}");
            }
        }
        if let Some(message) = &attempt.error_message {
            let _infallible = write!(told, " ({message})");
        }
        let _infallible = write!(told, ", by {}", attempt.worker_id);
        story.push((attempt.completed_at, told));
    }
    for event in &life.events {
        let mut told = event.event_type.clone();
        if let Some(reason) = &event.reason {
            let _infallible = write!(told, ": {reason}");
        }
        if let Some(who) = event.actor.as_ref().or(event.worker_id.as_ref()) {
            let _infallible = write!(told, ", by {who}");
        }
        if let Some(approver) = &event.approver {
            let _infallible = write!(told, ", approved by {approver}");
        }
        story.push((event.created_at, told));
    }
    story.sort_by_key(|(at, _)| *at);
    for (at, told) in story {
        let _infallible =
            writeln!(text, "  {}  {told}", at.to_rfc3339_opts(SecondsFormat::Millis, true));
    }
    if let Some(live) = &life.live {
        let _infallible = writeln!(
            text,
            "  now: {}, due {}{}{}",
            live.state,
            live.next_attempt_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            live.claimed_by
                .as_ref()
                .map(|worker| format!(", held by {worker}"))
                .unwrap_or_default(),
            if live.must_inquire { ", must inquire before sending" } else { "" },
        );
    }
    text
}
