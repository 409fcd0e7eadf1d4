//! What waits for a person: parked payments, dead letters of every lane; page by page.

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use symphony::db::{
    FailedExecution, FoundEvent, LetterCount, LetterFilter, WaitingItem, WaitingQuery,
};
use uuid::Uuid;

use super::bulk;
use super::page::{age, badge, figure, in_address, moment, nothing, pager, plain};
use super::visit::{Asked, Named, Refused, Visit};
use crate::api::{Problem, cursor, place};
use crate::bounds::CONSOLE_ROWS;

const LANES: [&str; 3] = ["payments", "events", "triggers"];

/// How many there are of each kind.
pub(super) async fn overview(visit: Visit) -> Result<Response, Refused> {
    let counts = visit.caller.database.auditor().letter_counts().await?;
    let body = html! {
        h1 { "Waiting for a person" }
        (tabs(None))
        section.card {
            @if counts.is_empty() { (nothing("Nothing is parked, and no dead letter is open.")) }
            @else { (counted(&counts)) }
        }
    };
    Ok(visit.page("Waiting", &body))
}

fn counted(counts: &[LetterCount]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "Lane" } th { "State" } th { "Rail, topic or app" } th { "Code" } th.number { "Items" } th { "Oldest" } } }
                tbody {
                    @for count in counts {
                        tr {
                            td { (count.lane) }
                            td { (badge(&count.state)) }
                            td { (plain(count.place.as_deref().unwrap_or("–"))) }
                            td {
                                a href={ "/console/waiting/" (count.lane) @if let Some(code) = &count.code { "?code=" (in_address(code)) } } {
                                    (plain(count.code.as_deref().unwrap_or("any")))
                                }
                            }
                            td.number { (figure(count.items)) }
                            td { (moment(count.oldest)) }
                        }
                    }
                }
            }
        }
    }
}

fn tabs(here: Option<&str>) -> Markup {
    html! {
        nav.tabs aria-label="Lanes" {
            a href="/console/waiting" aria-current=[here.is_none().then_some("page")] { "all" }
            @for lane in LANES {
                a href={ "/console/waiting/" (lane) } aria-current=[(here == Some(lane)).then_some("page")] { (lane) }
            }
        }
    }
}

/// One lane, a page of it.
pub(super) async fn page(
    visit: Visit,
    Named(lane): Named<String>,
    asked: Asked,
) -> Result<Response, Refused> {
    let filter = LetterFilter {
        code: asked.get("code"),
        newest: asked.get("newest").is_some(),
        after: asked.get("after").map(cursor).transpose()?,
        // One more, to know whether there is another page.
        limit: CONSOLE_ROWS + 1,
        ..LetterFilter::default()
    };
    let reader = visit.caller.database.auditor();
    let (table, next, is_empty) = match lane.as_str() {
        "payments" => {
            let state = asked.get("state");
            let waiting = WaitingQuery {
                parked: state != Some("FAILED"),
                failed: state != Some("PARKED"),
                rail_type: asked.get("rail"),
                participant_id: asked.get("participant"),
                filter,
            };
            let mut items = reader.waiting(waiting).await?;
            let next = cut(&mut items, |item| (item.since, item.outbox_id.0));
            (payments(&visit, &items), next, items.is_empty())
        }
        "events" => {
            let mut events = reader.failed_events(asked.get("topic"), filter).await?;
            let next = cut(&mut events, |event| (event.ended_at, event.event_id));
            (events_table(&visit, &events), next, events.is_empty())
        }
        "triggers" => {
            let mut executions = reader.failed_executions(asked.get("app"), filter).await?;
            let next = cut(&mut executions, |execution| (execution.failed_at, execution.id));
            (executions_table(&visit, &executions), next, executions.is_empty())
        }
        _ => return Err(Problem::not_found("lane: payments, events or triggers").into()),
    };
    let here = format!("/console/waiting/{lane}?{}", kept(&asked));
    let next = next.map(|next| format!("{here}&after={}", in_address(&next)));
    let first = asked.get("after").map(|_| here.as_str());
    let body = html! {
        h1 { "Waiting for a person" }
        (tabs(Some(&lane)))
        (filters(&lane, &asked))
        @if is_empty { (table) } @else { (bulk::form(&visit, &lane, &table)) }
        (pager(first, next.as_deref()))
    };
    Ok(visit.page("Waiting", &body))
}

/// Leaves a page's rows, and says whether there are more.
pub(super) fn cut_rows<T>(rows: &mut Vec<T>) -> bool {
    let rows_max = usize::try_from(CONSOLE_ROWS).unwrap_or(usize::MAX);
    let more = rows.len() > rows_max;
    rows.truncate(rows_max);
    more
}

/// The same, and where the next begins.
pub(super) fn cut<T>(
    rows: &mut Vec<T>,
    placed: impl Fn(&T) -> (DateTime<Utc>, Uuid),
) -> Option<String> {
    let more = cut_rows(rows);
    let (since, id) = rows.last().filter(|_| more).map(placed)?;
    Some(place(since, id))
}

/// What was filtered by, as an address has it.
fn kept(asked: &Asked) -> String {
    let names = ["code", "state", "rail", "participant", "topic", "app", "newest"];
    let kept = names
        .into_iter()
        .filter_map(|name| asked.get(name).map(|value| format!("{name}={}", in_address(value))));
    kept.collect::<Vec<_>>().join("&")
}

fn filters(lane: &str, asked: &Asked) -> Markup {
    let fields: &[(&str, &str)] = match lane {
        "payments" => &[("rail", "Rail"), ("participant", "Participant"), ("code", "Code")],
        "events" => &[("topic", "Topic"), ("code", "Code")],
        _ => &[("app", "App"), ("code", "Code")],
    };
    html! {
        form.filter action={ "/console/waiting/" (lane) } {
            @for (name, words) in fields {
                label { (words) input type="text" name=(name) value=[asked.get(name)] autocomplete="off" spellcheck="false"; }
            }
            @if lane == "payments" {
                label {
                    "State"
                    select name="state" {
                        @for (value, words) in [("", "parked and failed"), ("PARKED", "parked"), ("FAILED", "failed")] {
                            option value=(value) selected[asked.get("state").unwrap_or("") == value] { (words) }
                        }
                    }
                }
            }
            label.tick { input type="checkbox" name="newest" value="1" checked[asked.get("newest").is_some()]; "newest first" }
            button type="submit" { "Filter" }
        }
    }
}

fn payments(visit: &Visit, items: &[WaitingItem]) -> Markup {
    html! {
        @if items.is_empty() { (nothing("No payment waits for a person.")) }
        @else {
            div.scroll tabindex="0" {
                table {
                    thead { tr { (bulk::tick_head(visit)) th { "Payment" } th { "State" } th { "Participant" } th { "Rail" } th { "Code" } th { "Waits" } th { "" } } }
                    tbody {
                        @for item in items {
                            tr {
                                (bulk::tick(visit, &item.outbox_id.to_string(), &plain(&item.instruction_id)))
                                td { a href={ "/console/payments/" (item.outbox_id) } { (plain(&item.instruction_id)) } }
                                td { (badge(&item.state)) }
                                td { (plain(&item.participant_id)) }
                                td { (plain(&item.rail_type)) }
                                td { (codes(item.error_code.as_deref(), item.rail_code.as_deref())) }
                                td title=(item.since.to_rfc3339()) { (age(item.age_seconds)) }
                                td {
                                    @if item.must_inquire { span.badge.warn { "money may have moved" } " " }
                                    @if item.late_yes { span.badge.bad { "a late yes" } " " }
                                    @if item.blocks_its_lane { span.badge.bad { "blocks its lane" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn codes(ours: Option<&str>, theirs: Option<&str>) -> String {
    let codes: Vec<String> = [ours, theirs].into_iter().flatten().map(plain).collect();
    codes.join(", ")
}

fn events_table(visit: &Visit, events: &[FoundEvent]) -> Markup {
    html! {
        @if events.is_empty() { (nothing("No event waits for a person.")) }
        @else {
            div.scroll tabindex="0" {
                table {
                    thead { tr { (bulk::tick_head(visit)) th { "Event" } th { "Type" } th { "Key" } th { "To" } th { "Code" } th { "Failed" } th { "" } } }
                    tbody {
                        @for event in events {
                            tr {
                                (bulk::tick(visit, &event.event_id.to_string(), &event.event_id.to_string()))
                                td { a.id href={ "/console/events/" (event.event_id) } { (event.event_id) } }
                                td { (plain(&event.event_type)) }
                                td { (plain(&event.event_key)) }
                                td { (plain(event.destination.as_deref().unwrap_or("–"))) }
                                td title=(plain(event.error_message.as_deref().unwrap_or_default())) { (codes(event.error_code.as_deref(), None)) }
                                td { (moment(event.ended_at)) }
                                td { @if event.blocks_its_key { span.badge.bad { "blocks its key" } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn executions_table(visit: &Visit, executions: &[FailedExecution]) -> Markup {
    html! {
        @if executions.is_empty() { (nothing("No execution waits for a person.")) }
        @else {
            div.scroll tabindex="0" {
                table {
                    thead { tr { (bulk::tick_head(visit)) th { "Execution" } th { "App" } th { "Script" } th { "Fired by" } th { "Code" } th { "Failed" } } }
                    tbody {
                        @for execution in executions {
                            tr {
                                (bulk::tick(visit, &execution.id.to_string(), &execution.id.to_string()))
                                td { a.id href={ "/console/executions/" (execution.id) } { (execution.id) } }
                                td { (plain(execution.app_name.as_deref().unwrap_or("–"))) }
                                td { (plain(execution.script_name.as_deref().unwrap_or("–"))) }
                                td { (plain(&execution.source_kind)) }
                                td title=(plain(execution.error_message.as_deref().unwrap_or_default())) { (codes(execution.error_code.as_deref(), None)) }
                                td { (moment(execution.failed_at)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
