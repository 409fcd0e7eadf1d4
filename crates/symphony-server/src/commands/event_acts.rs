//! What people do to events: publish them again, let a key go on past one. Each act is a dry run until `--yes`.

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use serde::Serialize;
use symphony::db::{ActCall, EventFilter, EventRedriveAnswer, Operator, Resend};
use symphony::domain::Act;
use uuid::Uuid;

use super::acts::{self, REDRIVE, SKIP, approved_act, as_operator, in_options};
use super::approval::{self, Acted};
use super::suggested_command::symphony;
use crate::cli::{DEDUP_WINDOW_SECONDS, Global, Redrive};
use crate::output::{self, Failure};

/// Which events are meant.
enum EventSelection {
    ByIds(Vec<Uuid>),
    Filtered(EventFilter),
}

/// Whether an option says that events are meant.
pub(super) fn names_events(options: &Redrive) -> bool {
    !options.event_id.is_empty()
        || options.event_type.is_some()
        || options.key.is_some()
        || options.tenant.is_some()
        || options.sent
}

/// Whether some are chosen, and not named.
pub(super) fn has_filter(options: &Redrive) -> bool {
    options.event_type.is_some()
        || options.key.is_some()
        || options.tenant.is_some()
        || options.error_code.is_some()
        || options.since.is_some()
        || options.until.is_some()
}

fn chosen(options: &Redrive) -> Result<EventSelection, Failure> {
    match (options.event_id.is_empty(), has_filter(options)) {
        (false, true) => Err(Failure::new(
            "name events by --event-id, or choose them by a filter: not both at once",
        )),
        (false, false) => {
            let mut named: Vec<Uuid> = Vec::new();
            for event in &options.event_id {
                if !named.contains(event) {
                    named.push(*event);
                }
            }
            Ok(EventSelection::ByIds(named))
        }
        (true, true) => Ok(EventSelection::Filtered(EventFilter {
            sent: options.sent,
            event_type: options.event_type.clone(),
            key: options.key.clone(),
            tenant_id: options.tenant.clone(),
            error_code: options.error_code.clone(),
            since: options.since,
            until: options.until,
            // One more than asked for, to know whether there are more.
            limit: i64::from(options.limit) + 1,
        })),
        (true, false) => Err(Failure::new(
            "name what to redrive: a payment by its id, events by --event-id, or by a filter such as --event-type '*', --rail NAME \
             or --app NAME",
        )),
    }
}

/// An event as a person recognises it.
struct NamedEvent {
    id: Uuid,
    kind: String,
    key: String,
}

#[derive(Serialize)]
struct Line<'a> {
    event_id: Uuid,
    event_type: &'a str,
    event_key: &'a str,
    state_before: &'a str,
    state_after: &'a str,
    due_at: DateTime<Utc>,
}

#[derive(Serialize)]
struct Report<'a> {
    act: &'static str,
    dry_run: bool,
    /// There are more events that the filter names.
    more: bool,
    events: Vec<Line<'a>>,
}

pub(super) async fn redrive(global: &Global, options: &Redrive) -> Result<ExitCode, Failure> {
    let chosen = chosen(options)?;
    let act = approved_act(&options.act)?;
    let resend = Resend { sent_too: options.sent, dedup_window_seconds: options.dedup_window };
    as_operator(global, async |operator| {
        let (events, more) = find(&operator, &chosen, options.limit).await?;
        let ids: Vec<Uuid> = events.iter().map(|event| event.id).collect();
        let wished = options.act.request_approval;
        if !act.dry_run
            && !ids.is_empty()
            && (wished || approval::is_required(&operator.reader(), "events").await?)
        {
            let calls: Vec<ActCall> =
                ids.iter().map(|event| ActCall::redrive_event(*event, resend)).collect();
            let requests =
                approval::ask_for_all(&operator, &calls, &act).await.map_err(in_options)?;
            return approval::tell_asked(global, &REDRIVE, &counted(ids.len()), &requests);
        }
        let answers = operator.redrive_events(&ids, resend, &act).await.map_err(in_options)?;
        let ends = approval::ending(&operator, "events", &act, wished).await?;
        let lines: Vec<Line<'_>> = events
            .iter()
            .zip(&answers)
            .map(|(event, answer): (&NamedEvent, &EventRedriveAnswer)| Line {
                event_id: event.id,
                event_type: &event.kind,
                event_key: &event.key,
                state_before: &answer.state_before,
                state_after: &answer.state_after,
                due_at: answer.due_at,
            })
            .collect();
        let told = Report { act: REDRIVE.would, dry_run: act.dry_run, more, events: lines };
        if global.json {
            output::json(&told)?;
        } else {
            output::print(&render(&told, options, ends))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}

/// The events that are meant, and whether there are more than were asked for.
async fn find(
    operator: &Operator,
    chosen: &EventSelection,
    limit: u32,
) -> Result<(Vec<NamedEvent>, bool), Failure> {
    let reader = operator.reader();
    match chosen {
        EventSelection::ByIds(ids) => {
            let mut events = Vec::with_capacity(ids.len());
            for id in ids {
                events.push(match reader.event_life(*id).await? {
                    Some(life) => NamedEvent {
                        id: *id,
                        kind: life.record.event_type,
                        key: life.record.event_key,
                    },
                    None => return Err(no_such_event(*id)),
                });
            }
            Ok((events, false))
        }
        EventSelection::Filtered(filter) => {
            let mut found = reader.find_events(filter).await?;
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let more = found.len() > limit;
            found.truncate(limit);
            let events = found
                .into_iter()
                .map(|event| NamedEvent {
                    id: event.event_id,
                    kind: event.event_type,
                    key: event.event_key,
                })
                .collect();
            Ok((events, more))
        }
    }
}

fn no_such_event(id: Uuid) -> Failure {
    Failure::new(format!("no event has the id {id}")).with_code("P7007")
}

fn counted(events: usize) -> String {
    if events == 1 { "1 event".to_owned() } else { format!("{events} events") }
}

fn render(told: &Report<'_>, options: &Redrive, ends: &str) -> String {
    if told.events.is_empty() {
        let state = if options.sent { "SENT" } else { "FAILED" };
        return format!("no {state} event is like that: nothing to redrive\n");
    }
    let now = Utc::now();
    let count = counted(told.events.len());
    let mut text = if told.dry_run {
        format!("would redrive {count}, under the same event id:\n")
    } else {
        format!("redriven {count}, under the same event id:\n")
    };
    text.push_str(&output::table(
        [
            output::id("event"),
            output::short("type"),
            output::short("key"),
            output::states("state"),
            output::whole("goes out"),
            output::command("look"),
        ],
        told.events.iter().map(|line| {
            [
                line.event_id.to_string(),
                line.event_type.to_owned(),
                output::plain(line.event_key),
                format!("{} → {}", line.state_before, line.state_after),
                goes_out(line.due_at, now),
                symphony(&format!("show {}", line.event_id)),
            ]
        }),
    ));
    for (applies, advice) in [
        (
            told.events.iter().any(|line| line.due_at > now),
            format!(
                "it waits: until {} s after its last attempt the broker would swallow the repeated id without a word \
                 (--dedup-window); later events of its key wait behind it",
                options.dedup_window
            ),
        ),
        (
            options.dedup_window < DEDUP_WINDOW_SECONDS,
            format!(
                "careful: SNS FIFO swallows a repeated id for {DEDUP_WINDOW_SECONDS} s without a word, and the ledger would \
                 say SENT; a shorter --dedup-window is for a bus that does not"
            ),
        ),
        (told.more, "there are more like that: raise --limit, or repeat it afterwards".to_owned()),
    ] {
        if applies {
            text.push_str(&format!("  {advice}\n"));
        }
    }
    text.push_str(ends);
    text
}

fn goes_out(due_at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let wait_seconds = (due_at - now).num_seconds();
    if wait_seconds <= 0 {
        return "at once".to_owned();
    }
    format!("in {}", output::length(wait_seconds))
}

pub(super) async fn skip(
    global: &Global,
    event: Uuid,
    act: &Act,
    wished: bool,
) -> Result<ExitCode, Failure> {
    as_operator(global, async |operator| {
        let Some(life) = operator.reader().event_life(event).await? else {
            return Err(no_such_event(event));
        };
        let target = format!(
            "{event} (type {}, key {})",
            output::plain(&life.record.event_type),
            output::plain(&life.record.event_key)
        );
        let call = ActCall::skip_event(event);
        let doing = operator.skip_event(event, act);
        let answer = match approval::act_or_ask(&operator, wished, act, &call, doing).await {
            Ok(Acted::Done(answer)) => answer,
            Ok(Acted::Asked(request)) => {
                return approval::tell_asked(global, &SKIP, &target, &[request]);
            }
            Err(error) => return Err(in_options(error)),
        };
        let becomes = format!(
            "it stays FAILED, consumers do not get it, and its key goes on with the {} waiting behind it",
            answer.waiting
        );
        let ends = approval::ending(&operator, "events", act, wished).await?;
        acts::tell(global, &SKIP, ends, &answer, &target, &becomes)
    })
    .await
}

/// An id that is no payment's may be an event's: the person is told how to say that.
pub(super) async fn is_it_an_event(
    operator: &Operator,
    id: &str,
) -> Result<Option<Failure>, Failure> {
    let Ok(event) = id.parse::<Uuid>() else { return Ok(None) };
    Ok(operator.reader().event_life(event).await?.map(|_| {
        let redrive = symphony(&format!("redrive --event-id {event} --reason WHY"));
        Failure::new(format!("{event} is an event: {redrive}"))
    }))
}
