//! One act on many items of a waiting list: ticked, previewed one by one, then done, or asked of a second person as one request.
//!
//! What a preview refuses stays where it is: passing over an unknown outcome is for one payment at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

use super::Console;
use super::act_forms::{self, ActForm};
use super::acts::needs_approval;
use super::page::{badge, count, form_token, sentence};
use super::visit::{Fields, Named, Refused, Visit};
use crate::api::{ActBody, Problem, Scope, by, perform};
use crate::bounds::{APPROVAL_EXPIRES_SECONDS, BULK_ITEMS_MAX};

/// The acts that make sense on many, by lane; and what names an item to them.
const LANES: [(&str, &str, &[&str]); 3] = [
    (
        "payments",
        "p_outbox_id",
        &["redrive_outbox", "release_outbox", "inquire_outbox", "close_payment_dead_letter"],
    ),
    (
        "events",
        "p_event_id",
        &["redrive_event_outbox", "skip_event_outbox", "close_event_dead_letter"],
    ),
    ("triggers", "p_id", &["replay_trigger_execution", "close_trigger_dead_letter"]),
];

/// Where the pages of an item are.
fn place(lane: &str) -> &str {
    if lane == "triggers" { "executions" } else { lane }
}

/// What becomes, or became, of one.
struct Line {
    item: Uuid,
    told: Result<Value, Problem>,
}

/// The list of a lane, with a box at each row and what to do with those that are ticked.
pub(super) fn form(visit: &Visit, lane: &str, table: &Markup) -> Markup {
    let acts = LANES.iter().find(|(name, ..)| *name == lane).map(|(.., acts)| *acts);
    let Some(acts) = acts.filter(|_| visit.may(Scope::Operate)) else {
        return html! { (table) };
    };
    html! {
        form.many method="post" action={ "/console/many/" (lane) } {
            (form_token(visit))
            input type="hidden" name="back" value=(visit.path);
            (table)
            div.with-ticked {
                label {
                    "With those that are ticked"
                    select name="act" { @for act in acts { option value=(act) { (act_forms::title(act)) } } }
                }
                label.wide {
                    "Reason"
                    input type="text" name="reason" maxlength="500" required autocomplete="off"
                        placeholder="Why; it is kept in the ledger, so no account numbers";
                }
                button type="submit" name="step" value="preview" { "Preview" }
            }
        }
    }
}

/// The box of one row.
pub(super) fn tick(visit: &Visit, item: &str, name: &str) -> Markup {
    html! {
        @if visit.may(Scope::Operate) {
            td.tick { input type="checkbox" name="item" value=(item) aria-label={ "Tick " (name) }; }
        }
    }
}

/// The head over the boxes.
pub(super) fn tick_head(visit: &Visit) -> Markup {
    html! {
        @if visit.may(Scope::Operate) {
            th.tick { input type="checkbox" data-tick-all aria-label="Tick all on this page" hidden; }
        }
    }
}

pub(super) async fn submit(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Named(lane): Named<String>,
    fields: Fields,
) -> Result<Response, Refused> {
    visit.caller.needs(Scope::Operate)?;
    let known = LANES.iter().find(|(name, ..)| *name == lane);
    let (_, argument, acts) = known.ok_or_else(|| Problem::not_found("lane"))?;
    let act = fields.needs("act")?;
    let form = acts.iter().find(|known| **known == act).and_then(|act| act_forms::find(act));
    let form = form.ok_or_else(|| Problem::invalid("act must be one that the list offers"))?;
    let reason = fields.needs("reason")?;
    let items = ticked(&fields)?;
    let arguments = |item: &Uuid| {
        to_raw_value(&json!({ *argument: item }))
            .map_err(|error| Problem::invalid(error.to_string()))
    };
    let asks = needs_approval(&visit, form).await?;
    let scene = Scene { visit: &visit, form, lane: &lane, reason: &reason, back: fields.back() };
    match fields.get("step") {
        Some("do") if !asks => {
            let mut lines = Vec::with_capacity(items.len());
            for item in items {
                let body = ActBody {
                    arguments: arguments(&item)?,
                    reason: reason.clone(),
                    dry_run: false,
                    request_approval: false,
                };
                let told = perform(&visit.caller, form.act, body).await.map(|acted| acted.answer);
                lines.push(Line { item, told });
            }
            console.live.forget().await;
            let done = lines.iter().filter(|line| line.told.is_ok()).count();
            if done == lines.len() {
                visit.session.notify(format!("Done with {done}: {}.", form.title.to_lowercase()));
                return Ok(Redirect::to(fields.back()).into_response());
            }
            Ok(visit.page(form.title, &scene.results(&lines)))
        }
        Some("ask" | "do") => {
            let all = items.iter().map(arguments).collect::<Result<Vec<Box<RawValue>>, _>>()?;
            let all = to_raw_value(&all).map_err(|error| Problem::invalid(error.to_string()))?;
            let act = by(&visit.caller, reason.clone(), false);
            let operator = visit.caller.database.operator();
            let asked = operator.request_act(form.act, &all, &act, APPROVAL_EXPIRES_SECONDS).await;
            let number = asked?.request_no.unwrap_or_default();
            console.live.forget().await;
            visit.session.notify(format!(
                "Nothing is done yet: request {number} waits for a second person."
            ));
            Ok(Redirect::to(&format!("/console/approvals/{number}")).into_response())
        }
        _ => {
            let act = by(&visit.caller, reason.clone(), true);
            let mut lines = Vec::with_capacity(items.len());
            for item in items {
                let operator = visit.caller.database.operator();
                let would = operator.act_by_name(form.act, &arguments(&item)?, &act).await;
                let told = would.map_err(Problem::from);
                if let Err(problem) = &told
                    && problem.status() == StatusCode::SERVICE_UNAVAILABLE
                {
                    return Err(Refused(problem.clone()));
                }
                lines.push(Line { item, told });
            }
            Ok(visit.page(form.title, &scene.preview(&lines, asks)))
        }
    }
}

/// The items of the ticked boxes, each once.
fn ticked(fields: &Fields) -> Result<BTreeSet<Uuid>, Problem> {
    let items: Result<BTreeSet<Uuid>, _> = fields.all("item").map(str::parse).collect();
    let items = items.map_err(|_| Problem::invalid("item must be an id of the list"))?;
    if items.is_empty() {
        return Err(Problem::invalid("nothing is ticked: tick at least one item of the list"));
    }
    if items.len() > BULK_ITEMS_MAX {
        let detail = format!("more than {BULK_ITEMS_MAX} are ticked: do it in parts");
        return Err(Problem::invalid(detail));
    }
    Ok(items)
}

struct Scene<'a> {
    visit: &'a Visit,
    form: &'static ActForm,
    lane: &'a str,
    reason: &'a str,
    back: &'a str,
}

impl Scene<'_> {
    fn preview(&self, lines: &[Line], asks: bool) -> Markup {
        let would: Vec<&Line> = lines.iter().filter(|line| line.told.is_ok()).collect();
        let number = i64::try_from(would.len()).unwrap_or(i64::MAX);
        html! {
            section.card.act {
                h1 { (self.form.title) ": " (count(number, "item", "items")) }
                p { (self.form.does) }
                div.preview role="status" {
                    h2 { "What would change" }
                    (self.table(lines))
                    @if would.len() < lines.len() { p.hint { "What is refused stays as it is: look at each by itself." } }
                    @if asks && !would.is_empty() { p { "A second person must approve it: all of them become one request." } }
                }
                form method="post" action={ "/console/many/" (self.lane) } {
                    (form_token(self.visit))
                    input type="hidden" name="back" value=(self.back);
                    input type="hidden" name="act" value=(self.form.act);
                    @for line in &would { input type="hidden" name="item" value=(line.item); }
                    label for="reason" { "Reason" }
                    textarea #reason name="reason" rows="3" maxlength="500" required { (self.reason) }
                    div.actions {
                        @if !would.is_empty() && !asks { button.primary type="submit" name="step" value="do" { "Do it" } }
                        @if !would.is_empty() { button.primary[asks] type="submit" name="step" value="ask" { "Ask a second person" } }
                        a.button href=(self.back) { "Cancel" }
                    }
                }
            }
        }
    }

    fn results(&self, lines: &[Line]) -> Markup {
        html! {
            section.card.act {
                h1 { (self.form.title) }
                p { "Not all of it was done: what is refused stays as it was." }
                (self.table(lines))
                p { a.button href=(self.back) { "Back to the list" } }
            }
        }
    }

    fn table(&self, lines: &[Line]) -> Markup {
        html! {
            div.scroll tabindex="0" {
                table {
                    thead { tr { th { "Item" } th { "What becomes of it" } } }
                    tbody {
                        @for line in lines {
                            tr {
                                td { a.id href={ "/console/" (place(self.lane)) "/" (line.item) } { (line.item) } }
                                td { (becomes(line)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn becomes(line: &Line) -> Markup {
    match &line.told {
        Err(problem) => html! {
            span.badge.bad { "refused" } " " (sentence(problem.detail())) " " code { (problem.code()) }
        },
        Ok(answer) => {
            let state = |name: &str| answer.get(name).and_then(Value::as_str);
            html! {
                @match (state("state_before"), state("state_after")) {
                    (Some(before), Some(after)) => { (badge(before)) " → " (badge(after)) },
                    _ => span.badge.good { "yes" },
                }
            }
        }
    }
}
