//! To act: a form that first shows what would change, then does it, or asks a second person where one must approve.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::value::to_raw_value;
use serde_json::{Map, Value};

use super::Console;
use super::act_forms::{self, ActForm, Field, Kind};
use super::page::{answer, form_token, plain, sentence};
use super::visit::{Asked, Fields, Named, Refused, Visit, is_ours};
use crate::api::{ActBody, Acted, Problem, Scope, perform};

/// What the form holds: given by the address at first, by the form itself after a preview.
struct Filled<'a> {
    form: &'static ActForm,
    get: &'a (dyn Fn(&str) -> Option<String> + Sync),
    back: &'a str,
}

pub(super) async fn form(
    visit: Visit,
    Named(act): Named<String>,
    asked: Asked,
) -> Result<Response, Refused> {
    visit.caller.needs(Scope::Operate)?;
    let form = act_forms::find(&act).ok_or_else(|| Problem::not_found("act"))?;
    let back = asked.get("back").filter(|back| is_ours(back)).unwrap_or("/console");
    let filled = Filled { form, get: &|name| asked.get(name).map(str::to_owned), back };
    Ok(visit.page(form.title, &show(&visit, &filled, &html! {}, None)))
}

pub(super) async fn submit(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Named(act): Named<String>,
    fields: Fields,
) -> Result<Response, Refused> {
    let form = act_forms::find(&act).ok_or_else(|| Problem::not_found("act"))?;
    let get = |name: &str| fields.get(name).map(str::to_owned);
    let filled = Filled { form, get: &get, back: fields.back() };
    let step = fields.get("step").unwrap_or("preview");
    let body = ActBody {
        arguments: to_raw_value(&arguments(form, &fields))
            .map_err(|error| Problem::invalid(error.to_string()))?,
        reason: fields.needs("reason")?,
        dry_run: step == "preview",
        request_approval: step == "ask",
    };
    let acted = perform(&visit.caller, &act, body).await;
    if acted.is_ok() && step != "preview" {
        console.live.forget().await;
    }
    match acted {
        Ok(acted) if step == "preview" => {
            let asks = needs_approval(&visit, form).await?;
            let would = preview(&acted, asks);
            Ok(visit.page(form.title, &show(&visit, &filled, &would, Some(asks))))
        }
        Ok(Acted { request_no: Some(number), .. }) => {
            visit.session.notify(format!(
                "Nothing is done yet: request {number} waits for a second person."
            ));
            Ok(Redirect::to(&format!("/console/approvals/{number}")).into_response())
        }
        Ok(_) => {
            visit.session.notify(format!("Done: {}.", form.title.to_lowercase()));
            Ok(Redirect::to(fields.back()).into_response())
        }
        // The form again, with why: what was typed is not lost.
        Err(problem) if problem.status() != StatusCode::SERVICE_UNAVAILABLE => {
            let told = html! {
                div.told role="alert" {
                    p { (sentence(problem.detail())) }
                    p.hint { "Code " code { (problem.code()) } ". Nothing was done." }
                }
            };
            let mut response = visit.page(form.title, &show(&visit, &filled, &told, None));
            *response.status_mut() = problem.status();
            Ok(response)
        }
        Err(problem) => Err(problem.into()),
    }
}

/// The arguments by their names; what was left empty is not given.
fn arguments(form: &ActForm, fields: &Fields) -> Map<String, Value> {
    let given = form.fields.iter().filter_map(|field| {
        let text = fields.get(field.argument)?;
        let value = match field.kind {
            Kind::Consent(_) => Value::Bool(true),
            _ => Value::String(text.to_owned()),
        };
        Some((field.argument.to_owned(), value))
    });
    given.collect()
}

/// What would change, and whether it would be done or asked for.
fn preview(acted: &Acted, asks: bool) -> Markup {
    html! {
        div.preview role="status" {
            h2 { "What would change" }
            (answer(&acted.answer))
            @if asks {
                p { "A second person must approve it: it becomes a request, which they find under Approvals." }
            }
        }
    }
}

/// Whether the act's lane wants a second person. What stops something, or only asks, needs none.
pub(super) async fn needs_approval(visit: &Visit, form: &ActForm) -> Result<bool, Refused> {
    let alone = ["pause_", "park_", "inquire_", "reset_"];
    if alone.iter().any(|prefix| form.act.starts_with(prefix)) {
        return Ok(false);
    }
    let lane = match form.act {
        act if act.contains("event") => "events",
        act if act.contains("trigger") || act.contains("app") => "triggers",
        _ => "payments",
    };
    let required = visit.caller.database.auditor().approval_required().await?;
    Ok(required.iter().any(|(name, required)| name == lane && *required))
}

fn show(visit: &Visit, filled: &Filled<'_>, told: &Markup, previewed: Option<bool>) -> Markup {
    let form = filled.form;
    html! {
        section.card.act {
            h1 { (form.title) }
            p { (form.does) }
            (told)
            form method="post" action={ "/console/act/" (form.act) } {
                (form_token(visit))
                input type="hidden" name="back" value=(filled.back);
                @for field in form.fields { (input(field, (filled.get)(field.argument).as_deref())) }
                label for="reason" { "Reason" }
                textarea #reason name="reason" rows="3" maxlength="500" required
                    placeholder="Why; it is kept in the ledger, so no account numbers" {
                    (filled_reason(filled))
                }
                div.actions {
                    @if let Some(asks) = previewed {
                        @if !asks { button.primary type="submit" name="step" value="do" { "Do it" } }
                        button.primary[asks] type="submit" name="step" value="ask" { "Ask a second person" }
                        button type="submit" name="step" value="preview" { "Preview again" }
                    } @else {
                        button.primary type="submit" name="step" value="preview" { "Preview" }
                    }
                    a.button href=(filled.back) { "Cancel" }
                }
                @if previewed.is_none() { p.hint { "The preview changes nothing." } }
            }
        }
    }
}

fn filled_reason(filled: &Filled<'_>) -> String {
    (filled.get)("reason").unwrap_or_default()
}

fn input(field: &Field, value: Option<&str>) -> Markup {
    let name = field.argument;
    html! {
        @match field.kind {
            Kind::Target => {
                @if let Some(value) = value {
                    div.target { span { (field.label) } code.id { (plain(value)) } }
                    input type="hidden" name=(name) value=(value);
                } @else {
                    label for=(name) { (field.label) }
                    input type="text" id=(name) name=(name) required autocomplete="off" spellcheck="false";
                }
            }
            Kind::Text => {
                label for=(name) { (field.label) }
                input type="text" id=(name) name=(name) value=[value] autocomplete="off" spellcheck="false";
            }
            Kind::Choice(choices) => {
                fieldset {
                    legend { (field.label) }
                    @for (word, words) in choices {
                        label.tick { input type="radio" name=(name) value=(word) required checked[value == Some(*word)]; (words) }
                    }
                }
            }
            Kind::Consent(means) => {
                label.tick { input type="checkbox" name=(name) value="1" checked[value.is_some()]; (field.label) }
                p.hint { (means) }
            }
        }
    }
}
