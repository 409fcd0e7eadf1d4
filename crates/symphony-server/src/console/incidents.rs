//! Contradictions that nobody has closed, all of them: what a late outcome says against the ledger.

use axum::response::Response;
use chrono::DateTime;
use maud::{Markup, html};
use symphony::db::{Incident, IncidentPlace};

use super::page::{act_link, moment, nothing, pager, plain};
use super::visit::{Asked, Refused, Visit};
use super::waiting::cut_rows;
use crate::api::Problem;
use crate::bounds::CONSOLE_ROWS;

pub(super) async fn page(visit: Visit, asked: Asked) -> Result<Response, Refused> {
    let after = asked.get("after").map(place).transpose()?;
    let reader = visit.caller.database.auditor();
    let mut incidents = reader.incidents_after(None, after.as_ref(), CONSOLE_ROWS + 1).await?;
    let more = cut_rows(&mut incidents);
    let next = incidents.last().filter(|_| more).map(|last| {
        let at = last.opened_at.timestamp_micros();
        format!("/console/contradictions?after={at}~{}~{}", last.lane, last.incident_no)
    });
    let first = after.map(|_| "/console/contradictions");
    let body = html! {
        h1 { "Contradictions" }
        section.card {
            @if incidents.is_empty() { (nothing("There is none: no late outcome says something else than the ledger.")) }
            @else { (table(&visit, &incidents)) }
            (pager(first, next.as_deref()))
        }
    };
    Ok(visit.page("Contradictions", &body))
}

fn place(text: &str) -> Result<IncidentPlace, Problem> {
    let parts: Vec<&str> = text.split('~').collect();
    let parsed = match *parts {
        [at, lane, number] => at
            .parse()
            .ok()
            .and_then(DateTime::from_timestamp_micros)
            .zip(number.parse().ok())
            .map(|(at, number)| (at, lane.to_owned(), number)),
        _ => None,
    };
    parsed.ok_or_else(|| Problem::invalid("after must be as the page before says"))
}

fn table(visit: &Visit, incidents: &[Incident]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th.number { "No." } th { "Lane" } th { "Item" } th { "The ledger says" } th { "A late outcome says" } th { "Since" } th { "From worker" } th { "" } } }
                tbody {
                    @for incident in incidents {
                        tr {
                            td.number { (incident.incident_no) }
                            td { (incident.lane) }
                            td { a.id href={ "/console/search?q=" (incident.item_id) } { (incident.item_id) } }
                            td { (said(&incident.recorded_state, incident.recorded_reference.as_deref())) }
                            td { (said(&incident.late_state, incident.late_reference.as_deref())) }
                            td { (moment(incident.opened_at)) }
                            td { (plain(incident.worker_id.as_deref().unwrap_or("–"))) }
                            td.acts { (close(visit, incident)) }
                        }
                    }
                }
            }
        }
    }
}

fn said(state: &str, reference: Option<&str>) -> String {
    let reference = reference.map(|reference| format!(", {}", plain(reference)));
    format!("{}{}", plain(state), reference.unwrap_or_default())
}

/// The form that closes it.
pub(super) fn close(visit: &Visit, incident: &Incident) -> Markup {
    let act = match incident.lane.as_str() {
        "payments" => "close_payment_incident",
        "events" => "close_event_incident",
        _ => "close_trigger_incident",
    };
    let number = incident.incident_no.to_string();
    act_link(visit, act, &[("p_incident_no", &number)], "Close")
}
