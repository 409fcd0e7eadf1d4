//! The frame of every page, and what pages are made of. Stored text passes through `plain`, then through maud's escaping.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, SecondsFormat, Utc};
use maud::{DOCTYPE, Markup, html};
use serde_json::Value;
use serde_json::value::RawValue;

use super::visit::Visit;
use crate::api::Problem;
use crate::output;

/// The pages a person chooses from.
const PAGES: [(&str, &str); 8] = [
    ("/console", "Overview"),
    ("/console/waiting", "Waiting"),
    ("/console/approvals", "Approvals"),
    ("/console/participants", "Participants"),
    ("/console/destinations", "Rails & buses"),
    ("/console/apps", "Apps"),
    ("/console/workers", "Workers"),
    ("/console/audit", "Audit"),
];

pub(super) fn html(status: StatusCode, markup: &Markup) -> Response {
    (status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], markup.0.clone()).into_response()
}

/// Why a page is not shown, or a form not taken.
pub(super) fn refusal(problem: &Problem, visit: Option<&Visit>) -> Response {
    let title = match problem.status() {
        StatusCode::FORBIDDEN => "Not for you",
        StatusCode::NOT_FOUND => "Not here",
        StatusCode::CONFLICT => "Not now",
        StatusCode::UNPROCESSABLE_ENTITY => "Not like that",
        StatusCode::UNAUTHORIZED => "Sign in first",
        StatusCode::TOO_MANY_REQUESTS => "Too fast",
        _ => "Not possible",
    };
    let body = html! {
        section.card.refusal role="alert" {
            h1 { (title) }
            p { (sentence(problem.detail())) }
            p.hint { "Code " code { (problem.code()) } }
            @if visit.is_some() {
                p { a href="/console" { "To the overview" } }
            } @else {
                p { a href="/console/sign-in" { "Sign in" } }
            }
        }
    };
    html(problem.status(), &frame(title, visit, None, &body))
}

pub(super) fn frame(
    title: &str,
    visit: Option<&Visit>,
    notice: Option<&str>,
    body: &Markup,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Symphony" }
                link rel="icon" type="image/svg+xml" href="/console/icon.svg";
                link rel="stylesheet" href="/console/style.css";
                script src="/console/script.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the page" }
                header.top {
                    a.brand href="/console" { (mark()) "Symphony" }
                    @if let Some(visit) = visit { (visitor(visit)) }
                }
                @if let Some(visit) = visit { (navigation(visit)) }
                main #main tabindex="-1" {
                    @if let Some(notice) = notice { p.notice role="status" { (notice) } }
                    (body)
                }
                footer.foot { "Symphony " (env!("CARGO_PKG_VERSION")) ". Times are UTC." }
            }
        }
    }
}

/// The three lanes.
fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 24 24" width="20" height="20" aria-hidden="true" {
            path d="M2 6h20M2 12h14M2 18h18" fill="none" stroke="currentColor" stroke-width="3" stroke-linecap="round" {}
        }
    }
}

fn visitor(visit: &Visit) -> Markup {
    let token = &visit.caller.token;
    html! {
        form.search role="search" action="/console/search" {
            input #search type="search" name="q" placeholder="Any id: payment, instruction, event, …" aria-label="Search by any id"
                autocomplete="off" spellcheck="false";
            kbd aria-hidden="true" { "/" }
        }
        div.who {
            span.person title={ "scopes: " (token.scopes.join(", ")) } { (plain(&token.person)) }
            span.scopes { (token.scopes.join(" · ")) }
            form method="post" action="/console/sign-out" {
                (form_token(visit))
                button.quiet type="submit" { "Sign out" }
            }
        }
    }
}

fn navigation(visit: &Visit) -> Markup {
    let path = visit.path.split('?').next().unwrap_or_default();
    let is_here = |page: &str| match page {
        "/console" => path == page,
        "/console/apps" => path.starts_with(page) || path.starts_with("/console/executions"),
        _ => path.starts_with(page),
    };
    html! {
        nav.pages aria-label="Pages" {
            @for (page, name) in PAGES {
                a href=(page) aria-current=[is_here(page).then_some("page")] { (name) }
            }
        }
    }
}

/// What every form of ours carries.
pub(super) fn form_token(visit: &Visit) -> Markup {
    html! { input type="hidden" name="form_token" value=(visit.session.form_token); }
}

/// Stored text, as one line that shows all of it.
pub(super) fn plain(text: &str) -> String {
    output::plain(text)
}

/// A refusal as a sentence.
pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

pub(super) fn badge(state: &str) -> Markup {
    let tone = match state {
        "DISPATCHED" | "SENT" | "APPROVED" | "CLOSED" | "RUNNING" | "LIVE" => "good",
        "PARKED" | "RETRYABLE" | "SCHEDULED" | "HALF_OPEN" | "PAUSED" | "EXPIRED" => "warn",
        "FAILED" | "OPEN" | "LEASE_EXPIRED" | "ZOMBIE_REQUEUE" | "REJECTED" | "GONE" => "bad",
        "DUE" | "IN_FLIGHT" | "PENDING" | "WAITING" => "info",
        _ => "dull",
    };
    html! { span class={ "badge " (tone) } { (words_of(state)) } }
}

/// `LEASE_EXPIRED` as `lease expired`.
fn words_of(state: &str) -> String {
    plain(state).replace('_', " ").to_lowercase()
}

pub(super) fn moment(at: DateTime<Utc>) -> Markup {
    let whole = at.to_rfc3339_opts(SecondsFormat::Millis, true);
    html! { time datetime=(whole) title=(whole) { (at.format("%Y-%m-%d %H:%M:%S")) } }
}

pub(super) fn moment_or(at: Option<DateTime<Utc>>, none: &str) -> Markup {
    at.map_or_else(|| html! { (none) }, moment)
}

pub(super) fn age(seconds: i64) -> String {
    output::length(seconds)
}

/// A figure with its thousands apart.
pub(super) fn figure(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut shown = String::with_capacity(digits.len() * 2);
    if number < 0 {
        shown.push('−');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            shown.push('\u{202f}');
        }
        shown.push(digit);
    }
    shown
}

/// Names and what they are.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// A document as people read it; no number of it is ever a float.
pub(super) fn document(value: &RawValue) -> Markup {
    html! { pre.document tabindex="0" { (output::plain_json(&symphony::json::pretty(value))) } }
}

/// What an act answered, or would: from which state to which first, then what is not as usual.
pub(super) fn answer(value: &Value) -> Markup {
    if let Value::Array(many) = value {
        return html! { @for one in many { (answer(one)) } };
    }
    let Some(members) = value.as_object() else {
        return html! { p { (shown(value)) } };
    };
    let state = |name: &str| members.get(name).and_then(Value::as_str);
    let usual = ["state_before", "state_after", "dry_run", "tries"];
    let rest = members.iter().filter(|(name, value)| {
        !usual.contains(&name.as_str()) && !matches!(value, Value::Null | Value::Bool(false))
    });
    html! {
        @if let (Some(before), Some(after)) = (state("state_before"), state("state_after")) {
            p.change { (badge(before)) " → " (badge(after)) }
        }
        dl.facts {
            @for (name, value) in rest {
                div { dt { (label(name)) } dd { (shown(value)) } }
            }
        }
        @if let Some(Value::Array(tries)) = members.get("tries").filter(|tries| **tries != Value::Array(Vec::new())) {
            p { "What is known of its tries:" }
            ul.tries { @for one in tries { li { (a_try(one)) } } }
        }
    }
}

/// An argument's or a column's name, as a person reads it.
fn label(name: &str) -> String {
    plain(&name.strip_prefix("p_").unwrap_or(name).replace('_', " "))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => plain(text),
        other => output::plain_json(&other.to_string()),
    }
}

/// One try, in a line.
fn a_try(value: &Value) -> String {
    let text = |name: &str| value.get(name).map(shown);
    let number = text("attempt_no").map(|number| format!("attempt {number}"));
    let unknown = value.get("unknown") == Some(&Value::Bool(true));
    let parts = [
        number.or_else(|| text("what").map(|what| what.replace('_', " ").to_lowercase())),
        text("outcome"),
        unknown.then(|| "outcome unknown".to_owned()),
        text("error_code"),
        text("rail_code"),
        text("rail_reference"),
        text("reason"),
        text("at").map(|at| at.chars().take(19).map(|c| if c == 'T' { ' ' } else { c }).collect()),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// So many of them.
pub(super) fn count(number: i64, one: &str, many: &str) -> String {
    format!("{} {}", figure(number), if number == 1 { one } else { many })
}

/// What is hidden from this role.
pub(super) fn hidden(what: &str) -> Markup {
    html! { p.hint.hidden-part { (what) " is hidden: scope read looks without payloads. Scope audit, operate or approve shows it." } }
}

pub(super) fn nothing(words: &str) -> Markup {
    html! { p.nothing { (words) } }
}

/// A value of an address.
pub(super) fn in_address(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// To the next page, and back to the first.
pub(super) fn pager(first: Option<&str>, next: Option<&str>) -> Markup {
    html! {
        @if first.is_some() || next.is_some() {
            nav.pager aria-label="More" {
                @if let Some(first) = first { a href=(first) { "← From the start" } }
                @if let Some(next) = next { a rel="next" href=(next) { "Next page →" } }
            }
        }
    }
}

/// A link to an act's form, for whoever may act.
pub(super) fn act_link(
    visit: &Visit,
    act: &str,
    arguments: &[(&str, &str)],
    words: &str,
) -> Markup {
    let mut address = format!("/console/act/{act}?back={}", in_address(&visit.path));
    for (name, value) in arguments {
        address.push_str(&format!("&{name}={}", in_address(value)));
    }
    html! {
        @if visit.may(crate::api::Scope::Operate) { a.button href=(address) { (words) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_sentences_are_as_people_write_them() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1\u{202f}000"),
            (-1_234_567, "−1\u{202f}234\u{202f}567"),
        ] {
            assert_eq!(figure(number), shown);
        }
        assert_eq!(sentence("there is none"), "There is none");
        assert_eq!(sentence(""), "");
    }

    #[test]
    fn stored_text_is_escaped_whatever_it_says() {
        let shown = badge("<script>\u{202e}").0;
        assert!(shown.contains("&lt;script&gt;") && !shown.contains('\u{202e}'), "{shown}");
    }
}
