//! `symphony dlq list`: what waits for a person, and what to type next.

use std::process::ExitCode;

use chrono::Utc;
use serde::Serialize;
use symphony::db::{EventFilter, FoundEvent, Incident, Operator, WaitingItem, WaitingQuery};

use super::incident;
use crate::cli::{DlqLane, DlqList, Global};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, options: &DlqList) -> Result<ExitCode, Failure> {
    super::acts::as_operator(global, async |operator| list(global, options, &operator).await).await
}

/// What waits, with what to type next.
#[derive(Serialize)]
struct Line<T> {
    lane: &'static str,
    #[serde(flatten)]
    item: T,
    next_command: String,
}

/// One after the other, for scripts.
#[derive(Serialize)]
#[serde(untagged)]
enum Either {
    Payment(Line<WaitingItem>),
    Event(Line<FoundEvent>),
    Incident(Incident),
}

async fn list(
    global: &Global,
    options: &DlqList,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let about_payments = options.parked || options.rail.is_some();
    if about_payments && options.lane == Some(DlqLane::Events) {
        return Err(Failure::new(
            "--parked and --rail are about payments: leave out --lane events",
        ));
    }
    let (payments, more_payments) = if options.lane == Some(DlqLane::Events) {
        (Vec::new(), false)
    } else {
        waiting_payments(options, operator).await?
    };
    let (events, more_events) = if options.lane == Some(DlqLane::Payments) || about_payments {
        (Vec::new(), false)
    } else {
        failed_events(options, operator).await?
    };
    let wanted = |incident: &Incident| match options.lane {
        None => true,
        Some(DlqLane::Payments) => incident.lane == "payments",
        Some(DlqLane::Events) => incident.lane == "events",
    };
    // Whoever asks for one kind of item only is not told of contradictions.
    let incidents: Vec<Incident> = if about_payments || options.failed {
        Vec::new()
    } else {
        let all = operator.reader().incidents(i64::from(options.limit)).await?;
        all.into_iter().filter(wanted).collect()
    };
    if global.json {
        let payments = payments.into_iter().map(Either::Payment);
        let events = events.into_iter().map(Either::Event);
        let incidents = incidents.into_iter().map(Either::Incident);
        let lines: Vec<Either> = payments.chain(events).chain(incidents).collect();
        output::json(&lines)?;
    } else if payments.is_empty() && events.is_empty() && incidents.is_empty() {
        output::print("nothing waits for a person\n")?;
    } else {
        let mut tables = Vec::new();
        if !payments.is_empty() {
            tables.push(render(&payments, more_payments));
        }
        if !events.is_empty() {
            tables.push(render_events(&events, more_events));
        }
        if !incidents.is_empty() {
            tables.push(incident::render(&incidents));
        }
        output::print(&tables.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn waiting_payments(
    options: &DlqList,
    operator: &Operator,
) -> Result<(Vec<Line<WaitingItem>>, bool), Failure> {
    let query = WaitingQuery {
        parked: !options.failed,
        failed: !options.parked,
        rail_type: options.rail.as_deref(),
        // One more than asked for, to know whether there are more.
        limit: i64::from(options.limit) + 1,
    };
    let items = operator.reader().waiting(query).await?;
    let lines = items.into_iter().map(|item| Line {
        lane: "payments",
        next_command: next_command(&item),
        item,
    });
    Ok(at_most(lines.collect(), options.limit))
}

async fn failed_events(
    options: &DlqList,
    operator: &Operator,
) -> Result<(Vec<Line<FoundEvent>>, bool), Failure> {
    let filter = EventFilter { limit: i64::from(options.limit) + 1, ..EventFilter::default() };
    let events = operator.reader().find_events(&filter).await?;
    let lines = events.into_iter().map(|item| Line {
        lane: "events",
        next_command: format!("symphony redrive --event-id {} --reason WHY", item.event_id),
        item,
    });
    Ok(at_most(lines.collect(), options.limit))
}

/// So many, and whether there were more.
fn at_most<T>(mut lines: Vec<T>, limit: u32) -> (Vec<T>, bool) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = lines.len() > limit;
    lines.truncate(limit);
    (lines, more)
}

/// The safe next step. Where the money may have moved that is to look, never to send.
fn next_command(item: &WaitingItem) -> String {
    let id = item.outbox_id;
    match (item.state.as_str(), item.must_inquire || item.late_yes) {
        ("FAILED", false) => format!("symphony redrive {id} --reason WHY"),
        ("PARKED", false) => format!("symphony release {id} --reason WHY"),
        _ => format!("symphony show {id}"),
    }
}

fn render(lines: &[Line<WaitingItem>], more: bool) -> String {
    let mut text = output::table(
        [
            output::short("id"),
            output::short("instruction"),
            output::short("participant"),
            output::short("rail"),
            output::states("state"),
            output::short("code"),
            output::whole("for"),
            output::command("next"),
        ],
        lines.iter().map(|Line { item, next_command, .. }| {
            [
                item.outbox_id.to_string(),
                output::plain(&item.instruction_id),
                output::plain(&item.participant_id),
                output::plain(&item.rail_type),
                state(item),
                codes(item),
                output::length(item.age_seconds),
                next_command.clone(),
            ]
        }),
    );
    let any = |of: fn(&WaitingItem) -> bool| lines.iter().any(|line| of(&line.item));
    advise(
        &mut text,
        &[
            (
                any(|item| item.state == "PARKED" && (item.must_inquire || item.late_yes)),
                "unknown: look, ask the rail, then: symphony resolve ID --as dispatched --reference REF | --as failed | --as retry",
            ),
            (
                any(|item| item.blocks_its_lane),
                "blocks its lane: redrive it, or let the lane go on: symphony skip --participant ID --rail NAME",
            ),
            (
                any(|item| item.late_yes),
                "late yes: a rail told a lost worker that it was executed; sending it again may pay twice",
            ),
            (more, "there are more: raise --limit, or choose by --rail, --parked or --failed"),
        ],
    );
    text
}

fn render_events(lines: &[Line<FoundEvent>], more: bool) -> String {
    let now = Utc::now();
    let mut text = output::table(
        [
            output::short("event"),
            output::short("type"),
            output::short("key"),
            output::states("state"),
            output::short("to"),
            output::short("code"),
            output::whole("for"),
            output::command("next"),
        ],
        lines.iter().map(|Line { item, next_command, .. }| {
            [
                item.event_id.to_string(),
                output::plain(&item.event_type),
                output::plain(&item.event_key),
                if item.blocks_its_key { "FAILED, blocks its key" } else { "FAILED" }.to_owned(),
                output::plain(item.destination.as_deref().unwrap_or_default()),
                output::plain(item.error_code.as_deref().unwrap_or_default()),
                output::length((now - item.ended_at).num_seconds()),
                next_command.clone(),
            ]
        }),
    );
    advise(
        &mut text,
        &[
            (
                lines.iter().any(|line| line.item.blocks_its_key),
                "blocks its key: redrive it, or let the key go on without it: symphony skip --event-id ID",
            ),
            (
                lines.len() > 1,
                "many of one cause: symphony redrive --error-code CODE --event-type 'TYPE.*' --reason WHY",
            ),
            (more, "there are more: raise --limit"),
        ],
    );
    text
}

fn advise(text: &mut String, advice: &[(bool, &str)]) {
    for (applies, advice) in advice {
        if *applies {
            text.push_str("  ");
            text.push_str(advice);
            text.push('\n');
        }
    }
}

fn state(item: &WaitingItem) -> String {
    let mut text = item.state.clone();
    for (applies, word) in [
        (item.must_inquire, ", unknown"),
        (item.blocks_its_lane, ", blocks its lane"),
        (item.late_yes, ", late yes"),
    ] {
        if applies {
            text.push_str(word);
        }
    }
    text
}

fn codes(item: &WaitingItem) -> String {
    let codes: Vec<String> = [&item.error_code, &item.rail_code]
        .into_iter()
        .flatten()
        .map(|c| output::plain(c))
        .collect();
    codes.join(" / ")
}
