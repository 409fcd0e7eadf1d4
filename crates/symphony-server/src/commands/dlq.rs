//! `symphony dlq`: what waits for a person in every lane, by pages and in figures, and what to type next.

mod close;
mod render;

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{
    FailedExecution, FoundEvent, Incident, LetterFilter, Operator, WaitingItem, WaitingQuery,
};
use symphony::domain::Switch;

use super::names;
use super::suggested_command::symphony;
use crate::cli::{Cursor, Dlq, DlqLane, DlqList, Global};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, what: &Dlq) -> Result<ExitCode, Failure> {
    super::acts::as_operator(global, async |operator| match what {
        Dlq::List(options) => list(global, options, &operator).await,
        Dlq::Count => count(global, &operator).await,
        Dlq::Close(options) => close::run(global, options, &operator).await,
    })
    .await
}

/// What waits, with what to type next.
#[derive(Serialize)]
struct Line<T> {
    lane: &'static str,
    #[serde(flatten)]
    item: T,
    next_command: String,
    /// For `--after`.
    cursor: String,
}

/// A lane's page.
struct Page<T> {
    lines: Vec<Line<T>>,
    /// What prints the next one, if there is one.
    next: Option<String>,
}

/// One after the other, for scripts.
#[derive(Serialize)]
#[serde(untagged)]
enum DeadLetter {
    Payment(Line<WaitingItem>),
    Event(Line<FoundEvent>),
    Execution(Line<FailedExecution>),
    Incident(Incident),
}

/// Which lanes the options are about; options of two lanes contradict each other.
fn wanted_lanes(options: &DlqList) -> Result<Vec<DlqLane>, Failure> {
    let named = [
        (DlqLane::Payments, "--parked, --rail and --participant are about payments", {
            options.parked || options.rail.is_some() || options.participant.is_some()
        }),
        (DlqLane::Events, "--topic is about events", options.topic.is_some()),
        (DlqLane::Triggers, "--app is about executions", options.app.is_some()),
    ];
    let mut lanes = match options.lane {
        Some(lane) => vec![lane],
        None => vec![DlqLane::Payments, DlqLane::Events, DlqLane::Triggers],
    };
    for (lane, about, given) in named {
        if given && !lanes.contains(&lane) {
            let other = options.lane.map_or("the other lane's option".to_owned(), |lane| {
                format!("--lane {}", lane_name(lane))
            });
            return Err(Failure::new(format!("{about}: leave out {other}")));
        }
        if given {
            lanes = vec![lane];
        }
    }
    if options.after.is_some() && lanes.len() > 1 {
        return Err(Failure::new("--after goes on with one lane's page: say which with --lane"));
    }
    Ok(lanes)
}

async fn list(
    global: &Global,
    options: &DlqList,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let lanes = wanted_lanes(options)?;
    let narrowed = options.parked
        || options.failed
        || options.code.is_some()
        || options.rail.is_some()
        || options.participant.is_some()
        || options.topic.is_some()
        || options.app.is_some()
        || options.after.is_some();
    let mut all: Vec<DeadLetter> = Vec::new();
    let mut texts = Vec::new();
    for lane in &lanes {
        match lane {
            DlqLane::Payments => {
                let page = payments(options, operator).await?;
                if !page.lines.is_empty() {
                    texts.push(render::payments(&page));
                }
                all.extend(page.lines.into_iter().map(DeadLetter::Payment));
            }
            DlqLane::Events => {
                let page = events(options, operator).await?;
                if !page.lines.is_empty() {
                    texts.push(render::events(&page));
                }
                all.extend(page.lines.into_iter().map(DeadLetter::Event));
            }
            DlqLane::Triggers => {
                let page = executions(options, operator).await?;
                if !page.lines.is_empty() {
                    texts.push(render::executions(&page));
                }
                all.extend(page.lines.into_iter().map(DeadLetter::Execution));
            }
        }
    }
    if all.is_empty() {
        names::require_known(&operator.reader(), &named(options)).await?;
    }
    // Whoever asks for one kind of item only is not told of contradictions.
    if !narrowed {
        let of_lanes =
            |incident: &Incident| lanes.iter().any(|lane| lane_name(*lane) == incident.lane);
        let mut incidents = operator.reader().incidents(i64::from(options.limit)).await?;
        incidents.retain(of_lanes);
        if !incidents.is_empty() {
            texts.push(super::incident::render(&incidents));
        }
        all.extend(incidents.into_iter().map(DeadLetter::Incident));
    }
    if global.json {
        output::json(&all)?;
    } else if texts.is_empty() {
        output::print("nothing waits for a person\n")?;
    } else {
        output::print(&texts.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn lane_name(lane: DlqLane) -> &'static str {
    match lane {
        DlqLane::Payments => "payments",
        DlqLane::Events => "events",
        DlqLane::Triggers => "triggers",
    }
}

/// What the options name.
fn named(options: &DlqList) -> Vec<Switch> {
    let of = |name: &Option<String>, switch: fn(String) -> Switch| name.clone().map(switch);
    [
        of(&options.rail, Switch::Rail),
        of(&options.participant, Switch::Participant),
        of(&options.topic, Switch::Topic),
        of(&options.app, Switch::App),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn filter(options: &DlqList) -> LetterFilter<'_> {
    LetterFilter {
        code: options.code.as_deref(),
        since: options.since,
        until: options.until,
        newest: options.newest,
        after: options.after.map(|after| (after.since, after.id)),
        // One more than asked for, to know whether there are more.
        limit: i64::from(options.limit) + 1,
    }
}

/// So many, each with its cursor; and what prints the next page.
fn page<T>(
    options: &DlqList,
    lane: DlqLane,
    found: Vec<T>,
    told: impl Fn(T) -> (Cursor, String, T),
) -> Page<T> {
    let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
    let more = found.len() > limit;
    let lines: Vec<Line<T>> = found
        .into_iter()
        .take(limit)
        .map(|item| {
            let (cursor, next_command, item) = told(item);
            Line { lane: lane_name(lane), item, next_command, cursor: cursor.to_string() }
        })
        .collect();
    let last = lines.last().map(|line| line.cursor.as_str()).filter(|_| more);
    let next = last.map(|after| symphony(&next_page(options, lane, after)));
    Page { lines, next }
}

/// The same command, for the page after this.
fn next_page(options: &DlqList, lane: DlqLane, after: &str) -> String {
    let mut command = format!("dlq list --lane {}", lane_name(lane));
    for (given, flag) in
        [(options.parked, "--parked"), (options.failed, "--failed"), (options.newest, "--newest")]
    {
        if given {
            command.push_str(&format!(" {flag}"));
        }
    }
    for (name, value) in [
        ("--rail", &options.rail),
        ("--participant", &options.participant),
        ("--topic", &options.topic),
        ("--app", &options.app),
        ("--code", &options.code),
    ] {
        if let Some(value) = value {
            command.push_str(&format!(" {}", super::suggested_command::option(name, value)));
        }
    }
    for (name, value) in [("--since", options.since), ("--until", options.until)] {
        if let Some(value) = value {
            command.push_str(&format!(" {name} {}", value.format("%Y-%m-%dT%H:%M:%SZ")));
        }
    }
    if options.limit != 50 {
        command.push_str(&format!(" --limit {}", options.limit));
    }
    command.push_str(&format!(" --after {after}"));
    command
}

async fn payments(options: &DlqList, operator: &Operator) -> Result<Page<WaitingItem>, Failure> {
    let query = WaitingQuery {
        parked: !options.failed,
        failed: !options.parked,
        rail_type: options.rail.as_deref(),
        participant_id: options.participant.as_deref(),
        filter: filter(options),
    };
    let found = operator.reader().waiting(query).await?;
    Ok(page(options, DlqLane::Payments, found, |item| {
        let cursor = Cursor { since: item.since, id: item.outbox_id.0 };
        (cursor, render::next_command(&item), item)
    }))
}

async fn events(options: &DlqList, operator: &Operator) -> Result<Page<FoundEvent>, Failure> {
    let found = operator.reader().failed_events(options.topic.as_deref(), filter(options)).await?;
    Ok(page(options, DlqLane::Events, found, |item| {
        let cursor = Cursor { since: item.ended_at, id: item.event_id };
        let next = symphony(&format!("redrive --event-id {} --reason WHY", item.event_id));
        (cursor, next, item)
    }))
}

async fn executions(
    options: &DlqList,
    operator: &Operator,
) -> Result<Page<FailedExecution>, Failure> {
    let found =
        operator.reader().failed_executions(options.app.as_deref(), filter(options)).await?;
    Ok(page(options, DlqLane::Triggers, found, |item| {
        let cursor = Cursor { since: item.failed_at, id: item.id };
        let next = match item.script_name {
            Some(_) => symphony(&format!("app replay {} --reason WHY", item.id)),
            // Mail has no script to replay.
            None => symphony(&format!("show {}", item.id)),
        };
        (cursor, next, item)
    }))
}

async fn count(global: &Global, operator: &Operator) -> Result<ExitCode, Failure> {
    let counts = operator.reader().letter_counts().await?;
    if global.json {
        output::json(&counts)?;
    } else if counts.is_empty() {
        output::print("nothing waits for a person\n")?;
    } else {
        output::print(&render::counts(&counts))?;
    }
    Ok(ExitCode::SUCCESS)
}
