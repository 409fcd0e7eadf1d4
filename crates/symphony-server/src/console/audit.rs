//! The audit of acts: who did what to what, why, and who approved it; of all lanes, the newest first.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;
use symphony::db::{ActRow, ActsQuery};

use super::page::{moment, nothing, pager, plain};
use super::visit::{Asked, Refused, Visit};
use crate::api::{act_cursor, place_of_act};
use crate::bounds::CONSOLE_ROWS;

const LANES: [&str; 3] = ["payments", "events", "triggers"];

pub(super) async fn page(visit: Visit, asked: Asked) -> Result<Response, Refused> {
    let lane = asked.get("lane").filter(|lane| LANES.contains(lane));
    let before = asked.get("before").map(act_cursor).transpose()?.unwrap_or_default();
    let reader = visit.caller.database.auditor();
    let rows = reader.acts(ActsQuery { lane, before, limit: CONSOLE_ROWS }).await?;
    let full = i64::try_from(rows.len()).unwrap_or_default() == CONSOLE_ROWS;
    let filter = lane.map(|lane| format!("lane={lane}&")).unwrap_or_default();
    let next = full.then(|| {
        let place = place_of_act(before.after(&rows));
        format!("/console/audit?{filter}before={place}")
    });
    let first = asked.get("before").map(|_| format!("/console/audit?{filter}"));
    let body = html! {
        h1 { "Audit of acts" }
        nav.tabs aria-label="Lanes" {
            a href="/console/audit" aria-current=[lane.is_none().then_some("page")] { "all" }
            @for name in LANES {
                a href={ "/console/audit?lane=" (name) } aria-current=[(lane == Some(name)).then_some("page")] { (name) }
            }
        }
        @if rows.is_empty() { (nothing("Nobody has acted yet.")) }
        @else { (table(&rows)) }
        (pager(first.as_deref(), next.as_deref()))
    };
    Ok(visit.page("Audit", &body))
}

fn table(rows: &[ActRow]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "When" } th { "Who" } th { "Did" } th { "Lane" } th { "To" } th { "Why" } th { "Approved by" } th { "From login" } } }
                tbody {
                    @for row in rows {
                        tr {
                            td { (moment(row.created_at)) }
                            td { b { (plain(&row.actor)) } (with_token(row, "token")) }
                            td { (plain(&row.event_type).replace('_', " ").to_lowercase()) }
                            td { (row.lane) }
                            td {
                                @if let Some(id) = row.item_id { a.id href={ "/console/search?q=" (id) } { (id) } }
                                @else { (target(row)) }
                            }
                            td.long { (plain(row.reason.as_deref().unwrap_or("–"))) }
                            td { (plain(row.approver.as_deref().unwrap_or("–"))) (with_token(row, "approver_token")) }
                            td { (plain(&row.session_role)) }
                        }
                    }
                }
            }
        }
    }
}

/// By the name of the token it was done with, and its id for whoever must revoke it.
fn with_token(row: &ActRow, name: &str) -> Markup {
    let text = |name: &str| row.details.0.get(name).and_then(Value::as_str);
    html! {
        @if let (Some(token), Some(id)) = (text(name), text(&format!("{name}_id"))) {
            span.hint title=(plain(id)) { " with token " (plain(token)) }
        }
    }
}

/// What an act on no item was about: a rail, a participant, a topic, an app, a request.
fn target(row: &ActRow) -> String {
    let names = ["rail_type", "participant_id", "topic", "app", "name", "request_no"];
    let found = names.into_iter().find_map(|name| {
        let value = row.details.0.get(name)?;
        Some(value.as_str().map_or_else(|| format!("{name} {value}"), plain))
    });
    found.map_or_else(|| "the lane".to_owned(), |name| name.replace("request_no", "request"))
}
