//! Apps over HTTP: `/apps/{app}/…` serves their routes, `/executions/{id}` tells how one stands, `/mail/{recipient}` takes
//! a raw message for email triggers, from whatever receives mail already.
//!
//! Every request becomes a row of the trigger outbox. A synchronous one waits for the answer, which may come from any
//! process; an asynchronous one is answered 202 with where to look.

pub mod adapters;
mod answers;
mod entrance;
mod routes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Request, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, DbError};
use symphony::lanes::triggers::Replies;
use symphony_connect::email::{DeliveryError, Mailbox as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::http_server::{self, BodyProblem, HttpServerSettings, read_body};
use crate::output::Failure;
use entrance::{Entering, Entrance};
use routes::{Found, Routes};

/// The largest body.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// A waiting client hears of the deadline from here and not from a database that is busy: this much later.
const DEADLINE_GRACE: Duration = Duration::from_millis(250);
/// Headers that belong to one hop, or that a script has no business with.
const HEADERS_LEFT_OUT: [&str; 6] =
    ["connection", "keep-alive", "proxy-authorization", "te", "transfer-encoding", "upgrade"];

/// A running server of apps.
#[derive(Debug)]
pub struct Apps {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

struct Served {
    database: Database,
    routes: Routes,
    entrance: Entrance,
    replies: Replies,
}

impl Apps {
    /// Serve at an address. Answers of this process's own worker come through `replies`.
    pub async fn start(
        listen: &str,
        database: Database,
        hints: PgConnectOptions,
        replies: Replies,
        bounds: HttpServerSettings,
    ) -> Result<Self, Failure> {
        let address: SocketAddr = listen.parse().map_err(|_| {
            Failure::new(format!(
                "triggers.http_listen is {listen}: it must look like 127.0.0.1:8080, or be \"off\""
            ))
        })?;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::new(format!(
                "cannot listen on {listen}: {error}; choose another with triggers.http_listen"
            ))
        })?;
        let address = listener.local_addr()?;
        let filling = replies.fill(database.executor(), hints);
        let (entrance, writing) = Entrance::new(database.ingest());
        let served = Arc::new(Served {
            routes: Routes::new(database.executor()),
            database,
            entrance,
            replies,
        });
        let router = Router::new()
            .route("/apps/{app}/{*path}", any(serve))
            .route("/apps/{app}/", any(serve_root))
            .route("/executions/{id}", get(status))
            .route("/mail/{recipient}", post(mail))
            .with_state(served);
        let serving = http_server::serve(listener, router, bounds);
        let tasks = vec![serving, tokio::spawn(filling), tokio::spawn(writing)];
        Ok(Self { address, tasks })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stop serving.
    pub fn stop(self) {
        for task in self.tasks {
            task.abort();
        }
    }
}

async fn serve_root(
    state: State<Arc<Served>>,
    Path(app): Path<String>,
    request: Request<Body>,
) -> Response {
    answer(&state, &app, request).await
}

async fn serve(
    state: State<Arc<Served>>,
    Path((app, _)): Path<(String, String)>,
    request: Request<Body>,
) -> Response {
    answer(&state, &app, request).await
}

async fn answer(served: &Served, app: &str, request: Request<Body>) -> Response {
    match fire(served, app, request).await {
        Ok(response) => response,
        Err(error) => {
            tracing::warn!(lane = "triggers", code = error.code(), %error, "a request could not be taken");
            answers::problem(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY", None)
        }
    }
}

async fn fire(
    served: &Served,
    app: &str,
    request: Request<Body>,
) -> Result<Response, Arc<DbError>> {
    let (parts, body) = request.into_parts();
    // As it was sent: the pattern decides what is decoded.
    let path = parts.uri.path().splitn(4, '/').nth(3).unwrap_or_default();
    let path = format!("/{path}");
    let (route, params) =
        match served.routes.find(app, parts.method.as_str(), &path).await.map_err(Arc::new)? {
            Some(Found::Route(matched)) => *matched,
            Some(Found::OtherMethods(methods)) => return Ok(answers::other_methods(&methods)),
            Some(Found::Nothing) => {
                return Ok(answers::problem(StatusCode::NOT_FOUND, "NO_ROUTE", None));
            }
            None => return Ok(answers::problem(StatusCode::NOT_FOUND, "NO_APP", None)),
        };
    let body = match read_body(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(problem) => return Ok(no_body(problem)),
    };
    let Some(body) = readable(&parts.headers, &body) else {
        return Ok(answers::problem(StatusCode::BAD_REQUEST, "BODY_NOT_READABLE", None));
    };
    let payload = json!({
        "method": parts.method.as_str(),
        "path": path,
        "params": params,
        "query": query(parts.uri.query().unwrap_or_default()),
        "headers": headers(&parts.headers),
        "body": body,
    });
    let Ok(payload) = to_raw_value(&payload) else {
        return Ok(answers::problem(StatusCode::BAD_REQUEST, "BODY_NOT_READABLE", None));
    };
    let mut entering = Entering { app: app.to_owned(), route_id: route.id, payload, reply: None };
    if !route.synchronous {
        return match served.entrance.write(entering).await {
            Ok(fired) => Ok(answers::accepted(fired.id)),
            Err(error) => refused(error),
        };
    }
    let awaited = served.replies.expect();
    entering.reply = Some((awaited.name, route.wait_ms));
    let fired = match served.entrance.write(entering).await {
        Ok(fired) => fired,
        Err(error) => return refused(error),
    };
    let wait = Duration::from_millis(u64::try_from(route.wait_ms).unwrap_or(0)) + DEADLINE_GRACE;
    Ok(match awaited.within(wait).await {
        Some(reply) => answers::reply(&reply),
        None => answers::problem(StatusCode::GATEWAY_TIMEOUT, "REPLY_DEADLINE", Some(fired.id)),
    })
}

/// What the database refuses is the request's fault; anything else is not.
fn refused(error: Arc<DbError>) -> Result<Response, Arc<DbError>> {
    match &*error {
        DbError::InvalidArgument { .. } | DbError::NulCharacter => {
            Ok(answers::problem(StatusCode::BAD_REQUEST, "BODY_NOT_READABLE", None))
        }
        // JSON that JSONB cannot hold.
        DbError::Refused { sqlstate, .. } if sqlstate.starts_with("22") => {
            Ok(answers::problem(StatusCode::BAD_REQUEST, "BODY_NOT_READABLE", None))
        }
        DbError::NoSuchItem { .. } => Ok(answers::problem(StatusCode::NOT_FOUND, "NO_ROUTE", None)),
        _ => Err(error),
    }
}

async fn status(State(served): State<Arc<Served>>, Path(id): Path<Uuid>) -> Response {
    match served.database.auditor().execution(id).await {
        Ok(Some(execution)) => answers::status(&execution),
        Ok(None) => answers::problem(StatusCode::NOT_FOUND, "NO_EXECUTION", Some(id)),
        Err(_) => answers::problem(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY", Some(id)),
    }
}

/// Raw MIME for one recipient; answered once it is committed.
async fn mail(
    State(served): State<Arc<Served>>,
    Path(recipient): Path<String>,
    body: Body,
) -> Response {
    let raw = match read_body(body, BODY_BYTES_MAX).await {
        Ok(raw) => raw,
        Err(problem) => return no_body(problem),
    };
    let inbox = adapters::Inbox(served.database.ingest());
    match inbox.knows(&recipient).await {
        Ok(true) => {}
        Ok(false) => return answers::problem(StatusCode::NOT_FOUND, "NO_RECIPIENT", None),
        Err(_) => return answers::problem(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY", None),
    }
    match inbox.keep(&raw, None, &[recipient]).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(DeliveryError::Temporary(_)) => {
            answers::problem(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY", None)
        }
        Err(_) => answers::problem(StatusCode::BAD_REQUEST, "BODY_NOT_READABLE", None),
    }
}

fn no_body(problem: BodyProblem) -> Response {
    let (status, code) = problem.answer();
    answers::problem(status, code, None)
}

/// JSON where it says so, else text; `None` if it is neither.
fn readable(headers: &HeaderMap, body: &[u8]) -> Option<Value> {
    if body.is_empty() {
        return Some(Value::Null);
    }
    let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
    let is_json = content_type.is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json") || kind.ends_with("+json")
    });
    if is_json {
        return serde_json::from_slice(body).ok();
    }
    let text = std::str::from_utf8(body).ok()?;
    // PostgreSQL's JSON has no NUL.
    (!text.contains('\0')).then(|| Value::String(text.to_owned()))
}

fn query(text: &str) -> serde_json::Map<String, Value> {
    url::form_urlencoded::parse(text.as_bytes())
        .map(|(name, value)| (name.replace('\0', ""), Value::String(value.replace('\0', ""))))
        .collect()
}

fn headers(headers: &HeaderMap) -> serde_json::Map<String, Value> {
    headers
        .iter()
        .filter(|(name, _)| !HEADERS_LEFT_OUT.contains(&name.as_str()))
        .filter_map(|(name, value)| {
            Some((name.as_str().to_owned(), Value::String(value.to_str().ok()?.to_owned())))
        })
        .collect()
}
