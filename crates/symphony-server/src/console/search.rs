//! Search by any id: what it names, wherever that is.

use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use symphony::db::{ApprovalQuery, Auditor, FoundElsewhere, WorkersQuery};
use uuid::Uuid;

use super::page::{badge, in_address, nothing, plain};
use super::visit::{Asked, Refused, Visit};
use crate::api::Problem;
use crate::bounds::SEARCH_BYTES_MAX;

/// Something an id names.
struct Found {
    kind: &'static str,
    address: String,
    name: String,
    state: Option<String>,
    more: String,
}

pub(super) async fn page(visit: Visit, asked: Asked) -> Result<Response, Refused> {
    let sought = asked.get("q").map(str::trim).unwrap_or_default();
    if sought.is_empty() {
        return Ok(visit.page("Search", &form(sought, &nothing("Type an id above."))));
    }
    if sought.len() > SEARCH_BYTES_MAX || sought.contains('\0') {
        return Err(Problem::invalid("an id has at most 256 bytes").into());
    }
    let mut found = look(&visit, sought).await?;
    let everywhere = asked.get("everywhere").is_some();
    if found.is_empty() && everywhere {
        found = look_everywhere(&visit, sought).await?;
    }
    if let [one] = found.as_slice() {
        return Ok(Redirect::to(&one.address).into_response());
    }
    Ok(visit.page("Search", &form(sought, &list(sought, everywhere, &found))))
}

/// By what has an index: payments, events, executions, participants, apps, workers, requests, contradictions.
async fn look(visit: &Visit, sought: &str) -> Result<Vec<Found>, Refused> {
    let reader = visit.caller.database.auditor();
    let mut found: Vec<Found> = reader
        .find_payment_items(sought)
        .await?
        .into_iter()
        .map(|item| Found {
            kind: "payment",
            address: format!("/console/payments/{}", item.outbox_id),
            name: item.outbox_id.to_string(),
            state: Some(item.state),
            more: format!(
                "instruction {}, participant {}, rail {}",
                plain(&item.instruction_id),
                plain(&item.participant_id),
                plain(&item.rail_type)
            ),
        })
        .collect();
    if let Ok(id) = sought.parse::<Uuid>() {
        found.extend(reader.event_life(id).await?.map(|life| Found {
            kind: "event",
            address: format!("/console/events/{id}"),
            name: id.to_string(),
            state: Some(life.record.state),
            more: plain(&life.record.event_type),
        }));
        found.extend(reader.execution(id).await?.map(|execution| Found {
            kind: "execution",
            address: format!("/console/executions/{id}"),
            name: id.to_string(),
            state: Some(execution.state),
            more: format!("app {}", plain(&execution.app_name)),
        }));
    }
    if let Some(participant) = reader.participant(sought).await? {
        found.push(Found {
            kind: "participant",
            address: format!("/console/participants/{}", in_address(&participant.participant_id)),
            name: plain(&participant.participant_id),
            state: None,
            more: format!("{} payments asked for", participant.last_number),
        });
    }
    if !reader.app_parts(sought).await?.is_empty() {
        found.push(Found {
            kind: "app",
            address: format!("/console/apps/{}", in_address(sought)),
            name: plain(sought),
            state: None,
            more: String::new(),
        });
    }
    let named = WorkersQuery { worker_id: Some(sought), limit: 1, ..WorkersQuery::default() };
    if let Some(worker) = reader.workers(named).await?.first() {
        found.push(Found {
            kind: "worker",
            address: format!("/console/workers?worker={}", in_address(sought)),
            name: plain(sought),
            state: Some(if worker.live { "LIVE" } else { "GONE" }.to_owned()),
            more: format!("of {}", worker.lane),
        });
    }
    if let Ok(number) = sought.parse::<i64>() {
        found.extend(by_number(&reader, number).await?);
    }
    Ok(found)
}

/// A number may be a request's, and a contradiction's in each lane.
async fn by_number(reader: &Auditor, number: i64) -> Result<Vec<Found>, Refused> {
    let query = ApprovalQuery { request_no: Some(number), limit: 1, ..ApprovalQuery::default() };
    let mut found: Vec<Found> = reader
        .approvals(query)
        .await?
        .into_iter()
        .map(|request| Found {
            kind: "request",
            address: format!("/console/approvals/{number}"),
            name: number.to_string(),
            more: format!("to {}", super::act_forms::title(&request.act).to_lowercase()),
            state: Some(request.state),
        })
        .collect();
    found.extend(reader.find_incident(number).await?.into_iter().map(Found::from));
    Ok(found)
}

impl From<FoundElsewhere> for Found {
    fn from(item: FoundElsewhere) -> Self {
        let (kind, place) = match item.lane.as_str() {
            "payments" => ("payment", "payments"),
            "events" => ("event", "events"),
            _ => ("execution", "executions"),
        };
        Self {
            kind,
            address: format!("/console/{place}/{}", item.item_id),
            name: item.item_id.to_string(),
            state: None,
            more: format!("by {}", plain(&item.named_by)),
        }
    }
}

/// By what has none, so all of it is read: the key that a rail knows a payment by, which is derived; references of rails and
/// buses, idempotency keys and traces, because an index of them would cost every item something.
async fn look_everywhere(visit: &Visit, sought: &str) -> Result<Vec<Found>, Refused> {
    let (named, known_to_rail) = visit.caller.find_everywhere(sought.to_owned()).await?;
    let mut found: Vec<Found> = named.into_iter().map(Found::from).collect();
    found.extend(known_to_rail.into_iter().map(|item| Found {
        kind: "payment",
        address: format!("/console/payments/{item}"),
        name: item.to_string(),
        state: None,
        more: "the rail knows it by that key".to_owned(),
    }));
    Ok(found)
}

fn form(sought: &str, results: &Markup) -> Markup {
    html! {
        h1 { "Search" }
        form.filter action="/console/search" role="search" {
            input type="search" name="q" value=(sought) aria-label="Any id" autofocus;
            button type="submit" { "Search" }
        }
        (results)
    }
}

fn list(sought: &str, everywhere: bool, found: &[Found]) -> Markup {
    html! {
        @if found.is_empty() {
            @if everywhere {
                (nothing("Nothing has that id: all payments, events and executions were looked through."))
            } @else {
                (nothing("Nothing has that id: no payment by its outbox or instruction id, no event, execution, participant, app, worker, request or contradiction."))
                p { a.button href={ "/console/search?everywhere=1&q=" (in_address(sought)) } { "Look through all for it" } }
                p.hint { "As a rail's or a bus's reference, a key that a rail knows, an idempotency key or a trace. This reads everything there is." }
            }
        } @else {
            div.scroll tabindex="0" {
                table {
                    thead { tr { th { "Kind" } th { "Id" } th { "State" } th { "" } } }
                    tbody {
                        @for one in found {
                            tr {
                                td { (one.kind) }
                                td { a.id href=(one.address) { (one.name) } }
                                td { @if let Some(state) = &one.state { (badge(state)) } }
                                td { (one.more) }
                            }
                        }
                    }
                }
            }
        }
    }
}
