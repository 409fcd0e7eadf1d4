//! `symphony show`: the life of one payment or one event, outcome by outcome.

use std::fmt::Write as _;
use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;
use symphony::db::{Database, EventLife, EventRow, ItemLife, Role};
use symphony::event::Event;
use uuid::Uuid;

use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;

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
        lives.extend(auditor.life(item).await?.map(Life::Payment));
    }
    if let Ok(event) = id.parse::<Uuid>() {
        lives.extend(auditor.event_life(event).await?.map(Life::Event));
    }
    if lives.is_empty() {
        return Err(Failure::new(format!(
            "no item has the outbox or instruction id {id:?}, and no event that id"
        )));
    }
    if global.json {
        output::json(&lives)?;
    } else {
        for life in &lives {
            output::print(&match life {
                Life::Payment(life) => render(life),
                Life::Event(life) => render_event(life),
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// An id names one or the other; should it name both, both are shown.
#[derive(Serialize)]
#[serde(untagged)]
enum Life {
    Payment(ItemLife),
    Event(EventLife),
}

/// The life of one item as people read it: what was asked, then everything that happened, in order of time.
pub(super) fn render(life: &ItemLife) -> String {
    let asked = &life.instruction;
    let mut text = format!(
        "{}  {}\n  instruction {}, key {}\n  participant {}, number {}, rail {}\n",
        asked.outbox_id,
        life.state,
        output::plain(&asked.instruction_id),
        output::plain(&asked.idempotency_key),
        output::plain(&asked.participant_id),
        asked.sequence_id,
        output::plain(&asked.rail_type)
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
                let _infallible = write!(told, ", {name} {}", output::plain(value));
            }
        }
        if let Some(message) = &attempt.error_message {
            let _infallible = write!(told, " ({})", output::plain(message));
        }
        let _infallible = write!(told, ", by {}", output::plain(&attempt.worker_id));
        story.push((attempt.completed_at, told));
    }
    story.extend(life.events.iter().map(|event| (event.created_at, told(event))));
    text.push_str(&in_order(story));
    if let Some(live) = &life.live {
        let _infallible = writeln!(
            text,
            "  now: {}, due {}{}{}",
            live.state,
            live.next_attempt_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            live.claimed_by
                .as_ref()
                .map(|worker| format!(", held by {}", output::plain(worker)))
                .unwrap_or_default(),
            if live.must_inquire { ", must inquire before sending" } else { "" },
        );
    }
    text
}

/// The same of an event.
fn render_event(life: &EventLife) -> String {
    let record = &life.record;
    let mut text = format!(
        "{}  {}\n  type {}",
        record.event_id,
        record.state,
        output::plain(&record.event_type)
    );
    // Accepted once, so it is readable; should the rules have changed since, the rest is shown all the same.
    let event = record.event.as_ref().and_then(|event| Event::parse(event.0.get()).ok());
    if let Some(event) = event {
        let _infallible = write!(
            text,
            ", tenant {}\n  {} {}",
            output::plain(event.tenant_id()),
            output::plain(event.key_name()),
            output::plain(event.key())
        );
    } else {
        let _infallible = write!(text, "\n  key {}", output::plain(&record.event_key));
    }
    let _infallible = writeln!(text, ", position {} in the log", record.log_position);
    let mut story: Vec<(DateTime<Utc>, String)> = vec![(record.created_at, "ENQUEUED".to_owned())];
    for attempt in &life.attempts {
        let mut told = String::new();
        if attempt.redrive_no > 0 {
            let _infallible = write!(told, "redrive {}, ", attempt.redrive_no);
        }
        let _infallible = write!(told, "attempt {}: {:?}", attempt.attempt_no, attempt.state);
        if attempt.outcome_unknown {
            told.push_str(" (outcome unknown)");
        }
        for (name, value) in [
            ("to", &attempt.destination),
            ("reference", &attempt.bus_reference),
            ("error", &attempt.error_code),
        ] {
            if let Some(value) = value {
                let _infallible = write!(told, ", {name} {}", output::plain(value));
            }
        }
        if let Some(message) = &attempt.error_message {
            let _infallible = write!(told, " ({})", output::plain(message));
        }
        let _infallible = write!(told, ", by {}", output::plain(&attempt.worker_id));
        story.push((attempt.completed_at, told));
    }
    story.extend(life.events.iter().map(|event| (event.created_at, told(event))));
    text.push_str(&in_order(story));
    match (record.state.as_str(), record.next_attempt, record.blocked_by) {
        ("PENDING", Some(at), _) => {
            let at = at.to_rfc3339_opts(SecondsFormat::Millis, true);
            let _infallible = writeln!(text, "  now: PENDING, due {at}");
        }
        ("PENDING", None, Some(head)) => {
            let _infallible =
                writeln!(text, "  now: waits behind {head}, which FAILED: see that one");
        }
        ("FAILED", _, Some(head)) if head == record.event_id => {
            let _infallible = writeln!(
                text,
                "  now: blocks its key: symphony redrive --event-id {head}, or symphony skip --event-id {head}"
            );
        }
        _ => {}
    }
    text
}

/// One line of the narrative.
fn told(event: &EventRow) -> String {
    let mut told = event.event_type.clone();
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

fn in_order(mut story: Vec<(DateTime<Utc>, String)>) -> String {
    story.sort_by_key(|(at, _)| *at);
    let mut text = String::new();
    for (at, told) in story {
        let _infallible =
            writeln!(text, "  {}  {told}", at.to_rfc3339_opts(SecondsFormat::Millis, true));
    }
    text
}
