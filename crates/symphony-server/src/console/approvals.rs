//! Requests for approval: what waits, what became of it; to approve, reject and withdraw.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use symphony::db::{Approval, ApprovalQuery};
use uuid::Uuid;

use super::Console;
use super::act_forms;
use super::page::{
    answer, badge, facts, form_token, hidden, moment, moment_or, nothing, pager, plain, sentence,
};
use super::visit::{Asked, Fields, Named, Refused, Visit};
use crate::api::{Problem, Scope, by};
use crate::bounds::CONSOLE_ROWS;

const STATES: [&str; 5] = ["WAITING", "APPROVED", "REJECTED", "WITHDRAWN", "EXPIRED"];

pub(super) async fn list(visit: Visit, asked: Asked) -> Result<Response, Refused> {
    let state = asked.get("state");
    let query = ApprovalQuery {
        state,
        lane: None,
        request_no: None,
        before: asked.number("before")?,
        limit: CONSOLE_ROWS,
    };
    let requests = visit.caller.database.auditor().approvals(query).await?;
    let filter = state.map(|state| format!("state={state}&")).unwrap_or_default();
    let full = i64::try_from(requests.len()).unwrap_or_default() == CONSOLE_ROWS;
    let next = requests
        .last()
        .filter(|_| full)
        .map(|last| format!("/console/approvals?{filter}before={}", last.request_no));
    let first = asked.get("before").map(|_| format!("/console/approvals?{filter}"));
    let body = html! {
        h1 { "Requests for approval" }
        nav.tabs aria-label="States" {
            a href="/console/approvals" aria-current=[state.is_none().then_some("page")] { "all" }
            @for name in STATES {
                a href={ "/console/approvals?state=" (name) } aria-current=[(state == Some(name)).then_some("page")] { (name.to_lowercase()) }
            }
        }
        @if requests.is_empty() { (nothing("There is no such request.")) }
        @else { (table(&requests)) }
        (pager(first.as_deref(), next.as_deref()))
    };
    Ok(visit.page("Approvals", &body))
}

fn table(requests: &[Approval]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th.number { "No." } th { "State" } th { "Act" } th { "Asked by" } th { "Reason" } th { "Asked" } th { "Decided by" } } }
                tbody {
                    @for request in requests {
                        tr {
                            td.number { a href={ "/console/approvals/" (request.request_no) } { (request.request_no) } }
                            td { (badge(&request.state)) }
                            td { (act_forms::title(&request.act)) }
                            td { (plain(&request.actor)) }
                            td.long { (plain(&request.reason)) }
                            td { (moment(request.created_at)) }
                            td { (plain(request.decided_by.as_deref().unwrap_or("–"))) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) async fn page(visit: Visit, Named(number): Named<i64>) -> Result<Response, Refused> {
    let request = read(&visit, number).await?;
    Ok(visit.page("Request", &body(&visit, &request, &html! {})))
}

async fn read(visit: &Visit, number: i64) -> Result<Approval, Refused> {
    let query = ApprovalQuery { request_no: Some(number), limit: 1, ..ApprovalQuery::default() };
    let found = visit.caller.database.auditor().approvals(query).await?.pop();
    found.ok_or_else(|| Problem::not_found("request").into())
}

/// The token that it was done with, and its id for whoever must revoke it.
fn with_token(name: Option<&str>, id: Option<Uuid>) -> Markup {
    html! {
        @if let (Some(name), Some(id)) = (name, id) { ", with token " (plain(name)) " " code.id { (id) } }
    }
}

fn body(visit: &Visit, request: &Approval, told: &Markup) -> Markup {
    let mut asked: Vec<(&str, Markup)> = vec![
        ("lane", html! { (request.lane) }),
        ("function", html! { code { (plain(&request.act)) } }),
        (
            "asked by",
            html! { (plain(&request.actor)) ", from login " (plain(&request.session_role)) (with_token(request.token_name.as_deref(), request.token_id)) },
        ),
        ("reason", html! { (plain(&request.reason)) }),
        ("asked", moment(request.created_at)),
        ("can be decided until", moment(request.expires_at)),
    ];
    if let Some(decided_by) = &request.decided_by {
        let login = plain(request.decided_from_login.as_deref().unwrap_or("–"));
        asked.push(("decided by", html! { (plain(decided_by)) ", from login " (login) (with_token(request.decided_with_token_name.as_deref(), request.decided_with_token)) }));
        let why = plain(request.decision_reason.as_deref().unwrap_or("–"));
        asked.push(("because", html! { (why) }));
        asked.push(("decided", moment_or(request.decided_at, "–")));
    }
    html! {
        div.title {
            h1 { "Request " (request.request_no) ": " (act_forms::title(&request.act).to_lowercase()) }
            (badge(&request.state))
        }
        (told)
        div.columns {
            div {
                section.card aria-labelledby="asked" { h2 #asked { "What was asked" } (facts(&asked)) }
                @if request.state == "WAITING" { (decision(visit, request)) }
            }
            div {
                @if let Some(arguments) = &request.arguments {
                    section.card aria-labelledby="arguments" { h2 #arguments { "On what" } (target(&arguments.0)) }
                } @else { (hidden("What it acts on")) }
                @if let Some(preview) = &request.preview {
                    section.card aria-labelledby="preview" { h2 #preview { "What would have changed, when it was asked" } (answer(&preview.0)) }
                }
                @if let Some(done) = &request.answer {
                    section.card aria-labelledby="answer" { h2 #answer { "What was done" } (answer(&done.0)) }
                }
            }
        }
    }
}

/// The arguments, and a way to what they name.
fn target(arguments: &serde_json::Value) -> Markup {
    let named = ["p_outbox_id", "p_event_id", "p_id"]
        .into_iter()
        .find_map(|name| arguments.get(name).and_then(serde_json::Value::as_str));
    html! {
        (answer(arguments))
        @if let Some(id) = named {
            p { a.button href={ "/console/search?q=" (super::page::in_address(id)) } { "Look at it" } }
        }
    }
}

fn decision(visit: &Visit, request: &Approval) -> Markup {
    let number = request.request_no;
    let own = visit.caller.token.person == request.actor;
    html! {
        @if visit.may(Scope::Approve) || (own && visit.may(Scope::Operate)) {
            section.card.act aria-labelledby="decide" {
                h2 #decide { "Decide" }
                @if own { p.hint { "You asked for this: a second person approves it. You may withdraw it." } }
                form method="post" action={ "/console/approvals/" (number) "/approve" } {
                    (form_token(visit))
                    label for="reason" { "Reason" }
                    textarea #reason name="reason" rows="2" maxlength="500" required placeholder="Why you agree, or do not" {}
                    div.actions {
                        @if visit.may(Scope::Approve) {
                            button.primary type="submit" { "Approve: it is done at once" }
                            button type="submit" formaction={ "/console/approvals/" (number) "/reject" } { "Reject" }
                        }
                        @if own && visit.may(Scope::Operate) {
                            button type="submit" formaction={ "/console/approvals/" (number) "/withdraw" } { "Withdraw" }
                        }
                    }
                }
            }
        } @else {
            p.hint { "To approve or reject it needs scope approve, of another person than " (plain(&request.actor)) "." }
        }
    }
}

pub(super) async fn decide(
    State(console): State<Arc<Console>>,
    visit: Visit,
    Named((number, decision)): Named<(i64, String)>,
    fields: Fields,
) -> Result<Response, Refused> {
    let (scope, done) = match decision.as_str() {
        "approve" => (Scope::Approve, "approved, and done"),
        "reject" => (Scope::Approve, "rejected: nothing was done"),
        "withdraw" => (Scope::Operate, "withdrawn: nothing was done"),
        _ => return Err(Problem::not_found("decision").into()),
    };
    visit.caller.needs(scope)?;
    let act = by(&visit.caller, fields.needs("reason")?, false);
    let database = &visit.caller.database;
    let decided = match decision.as_str() {
        "approve" => database.approver().approve(number, &act).await.map(drop),
        "reject" => database.approver().reject(number, &act).await.map(drop),
        _ => database.operator().withdraw_request(number, &act).await.map(drop),
    };
    match decided.map_err(Problem::from) {
        Ok(()) => {
            console.live.forget().await;
            visit.session.notify(format!("Request {number} is {done}."));
            Ok(Redirect::to(&format!("/console/approvals/{number}")).into_response())
        }
        Err(problem) => {
            let request = read(&visit, number).await?;
            let told = html! {
                div.told role="alert" {
                    p { (sentence(problem.detail())) }
                    p.hint { "Code " code { (problem.code()) } ". Nothing was done." }
                }
            };
            let mut response = visit.page("Request", &body(&visit, &request, &told));
            *response.status_mut() = problem.status();
            Ok(response)
        }
    }
}
