//! Signing in with a token, or by a printed address that is good once; and out.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Extensions, HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use maud::{Markup, html};

use super::Console;
use super::page;
use super::visit::{Asked, Fields, is_ours, read_fields, require_same_origin};
use crate::api::{Problem, Scope, is_token};
use crate::http_server::Peer;

pub(super) async fn form(
    State(console): State<Arc<Console>>,
    asked: Asked,
    request: Request,
) -> Response {
    let headers = request.headers();
    let to = asked.get("to").filter(|to| is_ours(to)).unwrap_or("/console");
    let Some(code) = asked.get("code") else {
        if console.sessions.of(headers).is_some() {
            return Redirect::to(to).into_response();
        }
        return show(StatusCode::OK, to, None);
    };
    // Whoever only looks whether the address is there, such as a chat that shows links, does not use it up.
    if request.method() == Method::HEAD {
        return show(StatusCode::OK, to, None);
    }
    if let Some(secret) = console.sessions.use_link(code) {
        return enter(&console, secret, request.headers(), request.extensions(), to).await;
    }
    let told = "This address was used already, or is too old. Sign in with a token.";
    show(StatusCode::UNAUTHORIZED, to, Some(told))
}

pub(super) async fn sign_in(State(console): State<Arc<Console>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let fields = match require_same_origin(&parts.headers) {
        Ok(()) => read_fields(&parts.headers, body).await,
        Err(problem) => Err(problem),
    };
    let fields = match fields {
        Ok(fields) => fields.into_iter().collect::<BTreeMap<_, _>>(),
        Err(problem) => return page::refusal(&problem, None),
    };
    let to = fields.get("to").map(String::as_str).filter(|to| is_ours(to)).unwrap_or("/console");
    let secret = fields.get("token").map(|token| token.trim()).unwrap_or_default();
    if !is_token(secret) {
        let told = "That is no token: it begins with symphony_ and has 64 digits after it.";
        return show(StatusCode::UNAUTHORIZED, to, Some(told));
    }
    enter(&console, secret.to_owned(), &parts.headers, &parts.extensions, to).await
}

/// Begin a session, if the token is good and may look.
async fn enter(
    console: &Console,
    secret: String,
    headers: &HeaderMap,
    extensions: &Extensions,
    to: &str,
) -> Response {
    let caller = console.door.caller(&secret, Peer::of(extensions)).await;
    match caller.and_then(|caller| caller.needs(Scope::Read)) {
        Err(problem) if problem.status() == StatusCode::UNAUTHORIZED => {
            let told = "This token is unknown, has expired or was revoked.";
            show(StatusCode::UNAUTHORIZED, to, Some(told))
        }
        Err(problem) => page::refusal(&problem, None),
        Ok(()) => match console.sessions.begin(secret, headers) {
            Err(_) => page::refusal(&no_random_bits(), None),
            Ok(cookie) => with_cookie(page::html(StatusCode::OK, &onwards(to)), &cookie),
        },
    }
}

/// A page that goes on by itself: after a redirect from elsewhere a browser would not send the cookie yet.
fn onwards(to: &str) -> Markup {
    html! {
        (maud::DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content={ "0;url=" (to) };
                title { "Signed in · Symphony" }
                link rel="icon" type="image/svg+xml" href="/console/icon.svg";
                link rel="stylesheet" href="/console/style.css";
            }
            body { main.narrow { p { "Signed in. " a href=(to) { "Go on" } } } }
        }
    }
}

pub(super) async fn sign_out(
    State(console): State<Arc<Console>>,
    headers: HeaderMap,
    _of_this_session: Fields,
) -> Response {
    let cleared = console.sessions.end(&headers);
    with_cookie(Redirect::to("/console/sign-in").into_response(), &cleared)
}

fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn no_random_bits() -> Problem {
    let detail = "this machine has no random bits: nobody can sign in";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "SYM05", detail)
}

fn show(status: StatusCode, to: &str, told: Option<&str>) -> Response {
    let body = html! {
        section.card.sign-in {
            h1 { "Sign in" }
            @if let Some(told) = told { p.told role="alert" { (told) } }
            form method="post" action="/console/sign-in" {
                input type="hidden" name="to" value=(to);
                label for="token" { "Token" }
                input #token type="password" name="token" autocomplete="current-password" required autofocus
                    spellcheck="false" placeholder="symphony_…";
                button.primary type="submit" { "Sign in" }
            }
            p.hint {
                "A token comes from whoever hands them out: "
                code { "symphony token create --name console --person YOU --scope operate" }
                ". What you may see and do is what its scopes may: "
                code { "read" } ", " code { "audit" } ", " code { "operate" } ", " code { "approve" } "."
            }
        }
    };
    page::html(status, &page::frame("Sign in", None, None, &body))
}
