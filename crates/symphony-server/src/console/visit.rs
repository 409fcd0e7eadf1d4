//! Whoever asks for a page: their session, their token's roles, and what a request that changes something must prove.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use maud::Markup;
use serde::de::DeserializeOwned;

use super::sessions::Session;
use super::{Console, live, page};
use crate::api::{Caller, Problem, Scope};
use crate::bounds::ACT_BYTES_MAX;
use crate::http_server::{Peer, read_body};

/// One request of somebody who is signed in.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    pub(super) caller: Caller,
    pub(super) session: Arc<Session>,
    /// The address asked for, for the way back.
    pub(super) path: String,
}

impl Visit {
    /// A whole page.
    pub(super) fn page(&self, title: &str, body: &Markup) -> Response {
        let notice = self.session.take_notice();
        page::html(StatusCode::OK, &page::frame(title, Some(self), notice.as_deref(), body))
    }

    /// Whether its token may.
    pub(super) fn may(&self, scope: Scope) -> bool {
        self.caller.may(scope)
    }

    /// Whether it may see payloads: every scope that looks but `read`.
    pub(super) fn sees_payloads(&self) -> bool {
        let scopes = &self.caller.token.scopes;
        scopes.iter().any(|scope| ["audit", "operate", "approve"].contains(&scope.as_str()))
    }
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let found = parts.extensions.get::<Self>().cloned();
        found.ok_or_else(|| Refused(Problem::unauthenticated("sign in first")))
    }
}

/// A refusal that becomes a page, in the frame of whoever asked.
#[derive(Debug, Clone)]
pub(super) struct Refused(pub(super) Problem);

impl<E: Into<Problem>> From<E> for Refused {
    fn from(problem: E) -> Self {
        Self(problem.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = self.0.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Lets somebody through who is signed in and whose token may look, and shows refusals as pages.
pub(super) async fn require_session(
    State(console): State<Arc<Console>>,
    mut request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path_and_query().map_or("/console", |path| path.as_str()).to_owned();
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let is_stream = path == "/console/live";
    if changes && let Err(problem) = require_same_origin(request.headers()) {
        return page::refusal(&problem, None);
    }
    let Some(session) = console.sessions.of(request.headers()) else {
        if changes || is_stream {
            let problem = Problem::unauthenticated("the session is over, or never was: sign in");
            return page::refusal(&problem, None);
        }
        return sign_in_first(&path, None);
    };
    let peer = Peer::of(request.extensions());
    if is_stream {
        // It asks by itself, again and again: while the database is away it says so.
        return live::stream(console, session, peer).await;
    }
    let caller = match console.door.caller(&session.secret, peer).await {
        Ok(caller) => caller,
        Err(problem) if problem.status() == StatusCode::UNAUTHORIZED => {
            let cleared = console.sessions.end(request.headers());
            if changes {
                return page::refusal(&problem, None);
            }
            return sign_in_first(&path, Some(&cleared));
        }
        Err(problem) => return page::refusal(&problem, None),
    };
    let visit = Visit { caller, session, path };
    let leaves = visit.path.starts_with("/console/sign-out");
    if !leaves && let Err(problem) = visit.caller.needs(Scope::Read) {
        return page::refusal(&problem, Some(&visit));
    }
    request.extensions_mut().insert(visit.clone());
    let response = next.run(request).await;
    match response.extensions().get::<Refused>() {
        Some(Refused(problem)) => page::refusal(problem, Some(&visit)),
        None => response,
    }
}

fn sign_in_first(path: &str, cleared: Option<&str>) -> Response {
    let to = percent_encoding::utf8_percent_encode(path, percent_encoding::NON_ALPHANUMERIC);
    let mut response = Redirect::to(&format!("/console/sign-in?to={to}")).into_response();
    if let Some(cookie) = cleared.and_then(|cookie| HeaderValue::from_str(cookie).ok()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Refuses what another site's page makes a browser send. Where a browser says nothing of the origin, the form's token decides.
pub(super) fn require_same_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let same = match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => {
            let host = text("host").unwrap_or("");
            origin.split_once("://").is_some_and(|(_, of)| of == host)
        }
        (None, None) => true,
    };
    if same {
        return Ok(());
    }
    let detail = "this came from a page of another site: nothing was done";
    Err(Problem::new(StatusCode::FORBIDDEN, "CROSS_SITE", detail))
}

/// The fields of a form of ours, once its token was right.
pub(super) struct Fields(Vec<(String, String)>);

impl Fields {
    /// A field; empty ones are not there.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).last().filter(|value| !value.trim().is_empty())
    }

    /// Every value of a field that a form may have more than once.
    pub(super) fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &str> {
        let found = self.0.iter().filter(move |(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A field that must be there, by the name a person knows it by.
    pub(super) fn needs(&self, name: &str) -> Result<String, Problem> {
        let missing = || Problem::invalid(format!("{name} is missing"));
        self.get(name).map(str::to_owned).ok_or_else(missing)
    }

    /// Where to go afterwards: a page of ours, whatever the form says.
    pub(super) fn back(&self) -> &str {
        self.get("back").filter(|path| is_ours(path)).unwrap_or("/console")
    }
}

/// Whether an address is one of our pages.
pub(super) fn is_ours(path: &str) -> bool {
    let rest = path.strip_prefix("/console");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']))
        && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Refused;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refused> {
        let (parts, body) = request.into_parts();
        let fields = read_fields(&parts.headers, body).await?;
        let visit = parts.extensions.get::<Visit>();
        let expected = visit.map(|visit| visit.session.form_token.as_str());
        let fields = Self(fields);
        let given = fields.get("form_token");
        // Both are 256 random bits: how long a wrong guess takes tells nothing.
        if expected.is_none() || expected != given {
            let detail = "the form is not of this session: open the page again";
            return Err(Problem::new(StatusCode::FORBIDDEN, "FORM_TOKEN", detail).into());
        }
        Ok(fields)
    }
}

/// What a form sent.
pub(super) async fn read_fields(
    headers: &HeaderMap,
    body: axum::body::Body,
) -> Result<Vec<(String, String)>, Problem> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.and_then(|kind| kind.split(';').next()) != Some("application/x-www-form-urlencoded") {
        let detail = "Content-Type must be application/x-www-form-urlencoded";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "CONTENT_TYPE", detail));
    }
    let bytes = read_body(body, ACT_BYTES_MAX).await?;
    Ok(url::form_urlencoded::parse(&bytes).into_owned().collect())
}

/// What the path names; refused as a page.
pub(super) struct Named<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Named<T> {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Refused> {
        let named = Path::<T>::from_request_parts(parts, state).await;
        named
            .map(|Path(value)| Self(value))
            .map_err(|error| Problem::invalid(error.body_text()).into())
    }
}

/// What the address asks for.
pub(super) struct Asked(BTreeMap<String, String>);

impl Asked {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Problem> {
        let number = self.get(name).map(str::parse).transpose();
        number.map_err(|_| Problem::invalid(format!("{name} must be a number")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Asked {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refused> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}

pub(super) async fn no_such_page() -> Refused {
    Refused(Problem::not_found("page"))
}
