//! Apps over HTTP: `/apps/{app}/…` serves their routes, `/executions/{id}` tells how one stands, `/mail/{recipient}` takes
//! a raw message for email triggers, from whatever receives mail already.
//!
//! Every request becomes a row of the trigger outbox. A synchronous one waits for the answer, which may come from any
//! process; an asynchronous one is answered 202 with where to look.

pub mod adapters;
mod answers;
mod callers;
mod cors;
mod leased_writer;
pub mod manifest;
pub(crate) mod payload;
pub mod principals;
mod request_writer;
mod routes;
pub mod secrets;
pub mod sources;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::ORIGIN;
use axum::http::{HeaderMap, HeaderName, Method, Request, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get, post};
use serde_json::value::to_raw_value;
use sqlx::postgres::PgConnectOptions;
use symphony::db::{Database, DbError, ExpiredReply};
use symphony::lanes::triggers::{Expiry, LeasedRequests, Replies, Reply};
use symphony_connect::email::{DeliveryError, Mailbox as _};
use symphony_connect::webhook_schemes::WebhookScheme;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::api::Scope;
use crate::bounds::{
    APP_BODY_BYTES_MAX, BODY_ROOM_WAIT_MAX, COMMIT_WAIT_MAX, REPLY_DEADLINE_GRACE,
    SMALL_BODY_BYTES_MAX,
};
use crate::http_server::{self, BodyProblem, HttpServerSettings, Peer, read_body, traceparent};
use crate::output::Failure;
use adapters::MailRates;
pub use callers::WebhookSecrets;
use callers::{Callers, Refusal};
use payload::{RoutePayload, query, readable};
use request_writer::{Accepted, RequestWriter, RouteRequest};
use routes::{Found, RouteTable, Routes};

/// How apps are served.
#[derive(Debug, Clone)]
pub struct AppsSettings {
    /// The listener's bounds.
    pub http_server: HttpServerSettings,
    /// Whose word about a mail's sender is taken.
    pub authserv_id: Option<String>,
    /// Mail to one address.
    pub mail_rates: MailRates,
    /// A proxy in front speaks TLS, and nobody else reaches the listener.
    pub behind_proxy: bool,
    /// `/executions` needs a token.
    pub status_needs_token: bool,
    /// `/mail` needs a token.
    pub mail_needs_token: bool,
    /// Requests of one token.
    pub token_rate_per_second: u32,
    /// Headers that are not stored, besides those of credentials.
    pub headers_not_stored: Vec<HeaderName>,
    /// What signed routes are verified with.
    pub secrets: WebhookSecrets,
    /// What opens the secrets of apps, which signed routes may name, too.
    pub secret_keys: secrets::SecretKeys,
    /// Bodies that are being read, written or answered, all together.
    pub body_bytes_in_flight_max: usize,
}

impl Default for AppsSettings {
    fn default() -> Self {
        Self {
            http_server: HttpServerSettings::default(),
            authserv_id: None,
            behind_proxy: false,
            mail_rates: MailRates {
                automatic_per_hour_max: 60,
                per_hour_max: 600,
                address_per_hour_max: 10_000,
            },
            status_needs_token: true,
            mail_needs_token: true,
            token_rate_per_second: 1_000,
            headers_not_stored: Vec::new(),
            secrets: WebhookSecrets::default(),
            secret_keys: secrets::SecretKeys::default(),
            body_bytes_in_flight_max: 64 * 1024 * 1024,
        }
    }
}

/// A running server of apps.
#[derive(Debug)]
pub struct Apps {
    address: SocketAddr,
    tasks: Vec<JoinHandle<()>>,
}

struct Served {
    database: Database,
    routes: Routes,
    writer: RequestWriter,
    replies: Replies,
    inbox: adapters::MailInbox,
    callers: Callers,
    /// Room for bodies, in KiB.
    room: Arc<Semaphore>,
    headers_not_stored: Vec<HeaderName>,
    status_needs_token: bool,
    mail_needs_token: bool,
}

impl Apps {
    /// Serve at an address. Answers of this process's own worker come through `replies`, and its requests go to it by
    /// `leased`; where there is none, other processes run them.
    pub async fn start(
        listen: &str,
        database: Database,
        hints: PgConnectOptions,
        replies: Replies,
        leased: Option<LeasedRequests>,
        settings: AppsSettings,
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
        let filling = replies.fill(database.worker(), hints);
        let (writer, writing) = RequestWriter::new(database.producer(), leased);
        let inbox = adapters::MailInbox::new(&database, settings.authserv_id, settings.mail_rates);
        let takes_tokens = settings.behind_proxy || address.ip().is_loopback();
        let callers = Callers::new(
            &database,
            settings.token_rate_per_second,
            settings.secrets,
            takes_tokens,
            settings.secret_keys,
        );
        let served = Arc::new(Served {
            routes: Routes::new(database.worker()),
            database,
            writer,
            replies,
            inbox,
            callers,
            room: Arc::new(Semaphore::new(settings.body_bytes_in_flight_max / 1024)),
            headers_not_stored: settings.headers_not_stored,
            status_needs_token: settings.status_needs_token,
            mail_needs_token: settings.mail_needs_token,
        });
        let mut router = Router::new()
            .route("/apps/{app}/{*path}", any(serve))
            .route("/apps/{app}/", any(serve_root))
            .route("/executions/{id}", get(status))
            .route("/mail/{recipient}", post(mail))
            .with_state(served);
        if settings.behind_proxy {
            router = router.layer(middleware::from_fn(http_server::believe_the_proxy));
        }
        let serving = http_server::serve(listener, router, settings.http_server);
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
    let away = |error: &DbError| {
        tracing::warn!(lane = "triggers", code = error.code(), %error, "a request could not be taken");
        answers::problem(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY", None)
    };
    let routes = match served.routes.of(app).await {
        Ok(Some(routes)) => routes,
        Ok(None) => return answers::problem(StatusCode::NOT_FOUND, "NO_APP", None),
        Err(error) => return away(&error),
    };
    let origin = request.headers().get(ORIGIN).cloned();
    let fired = fire(served, app, &routes, request).await;
    let mut response = fired.unwrap_or_else(|error| away(&error));
    // Also an error: the page that asked should be able to read it.
    if let Some(cors) = &routes.cors {
        cors.allow_origin(origin.as_ref(), &mut response);
    }
    response
}

async fn fire(
    served: &Served,
    app: &str,
    routes: &RouteTable,
    request: Request<Body>,
) -> Result<Response, Arc<DbError>> {
    let (parts, body) = request.into_parts();
    // As it was sent: the pattern decides what is decoded.
    let path = parts.uri.path().splitn(4, '/').nth(3).unwrap_or_default();
    let path = format!("/{path}");
    if let Some(cors) = &routes.cors
        && cors::is_preflight(&parts.method, &parts.headers)
    {
        let methods = routes.methods(&path);
        if methods.is_empty() {
            return Ok(answers::problem(StatusCode::NOT_FOUND, "NO_ROUTE", None));
        }
        let mut response = answers::options(&methods);
        cors.allow_asking(parts.headers.get(ORIGIN), &methods, &mut response);
        return Ok(response);
    }
    let (route, params) = match routes.find(parts.method.as_str(), &path) {
        Found::Route(matched) => *matched,
        Found::OtherMethods(methods) if parts.method == Method::OPTIONS => {
            return Ok(answers::options(&methods));
        }
        Found::OtherMethods(methods) => return Ok(answers::other_methods(&methods)),
        Found::Nothing => return Ok(answers::problem(StatusCode::NOT_FOUND, "NO_ROUTE", None)),
    };
    let mut caller = match route.auth.as_str() {
        "token" => {
            let peer = Peer::of(&parts.extensions);
            match served.callers.holder_of(&parts.headers, peer, Scope::Call).await {
                Ok(known) => Some(known),
                Err(refusal) => return Ok(refusal.answer()),
            }
        }
        _ => None,
    };
    // Held until the answer: the request is in memory as long.
    let (body, _room) = match whole_body(served, &parts.headers, body).await {
        Ok(read) => read,
        Err(response) => return Ok(response),
    };
    let mut left_out: Option<&'static str> = None;
    if route.auth == "hmac" {
        match served.callers.signer(app, &route, &parts.headers, &body).await {
            Ok(known) => caller = Some(known),
            Err(refusal) => return Ok(refusal.answer()),
        }
        // Whoever reads it could send the same once more.
        left_out = callers::scheme(&route).map(WebhookScheme::signature_header);
    }
    let Some((body, body_base64)) = readable(&parts.headers, &body, route.raw_body) else {
        return Ok(answers::problem(StatusCode::BAD_REQUEST, "BODY_NOT_READABLE", None));
    };
    let is_configured = |name: &HeaderName| served.headers_not_stored.contains(name);
    let (headers, unstored) = payload::headers(&parts.headers, &route, left_out, is_configured);
    let payload = RoutePayload {
        method: parts.method.as_str(),
        path: &path,
        params: &params,
        query: query(parts.uri.query().unwrap_or_default()),
        query_string: parts.uri.query().filter(|text| !text.is_empty()),
        headers,
        headers_not_stored: unstored.names().map(str::to_owned).collect(),
        body,
        body_base64,
        caller: caller.as_ref(),
    };
    let Ok(payload) = to_raw_value(&payload) else {
        return Ok(answers::problem(StatusCode::BAD_REQUEST, "BODY_NOT_READABLE", None));
    };
    let since = Instant::now();
    let (app, app_id, route_id) = (app.to_owned(), route.app_id, route.id);
    let traceparent = traceparent(&parts.headers);
    let origin_principal = caller.map(|known| known.principal);
    let mut request = RouteRequest {
        app,
        app_id,
        route_id,
        script_id: route.script_id,
        principal: route.principal,
        payload,
        reply: None,
        since,
        origin_principal,
        traceparent,
    };
    if !route.synchronous {
        return match served.writer.write(request).await {
            Ok(accepted) if accepted.is_unconfirmed => {
                Ok(answers::reply(&failed(accepted.id, "OUTCOME_UNKNOWN")))
            }
            Ok(accepted) => Ok(answers::accepted(accepted.id)),
            Err(error) => refused(error),
        };
    }
    let awaited = served.replies.expect(unstored);
    let wait = Duration::from_millis(u64::try_from(route.wait_ms).unwrap_or(0));
    request.reply = Some((awaited.name, wait));
    let Accepted { id, unwritten, is_unconfirmed } = match served.writer.write(request).await {
        Ok(accepted) => accepted,
        Err(error) => return refused(error),
    };
    let wait = (wait + REPLY_DEADLINE_GRACE).saturating_sub(since.elapsed());
    let mut awaited = awaited;
    let reply = match awaited.within(wait).await {
        Some(reply) => reply,
        None => match unwritten.as_ref().map_or(Expiry::Written, |unwritten| unwritten.expire()) {
            Expiry::Expired => failed(id, "REPLY_DEADLINE"),
            // It says whether it was in time.
            Expiry::Completing => match awaited.within(COMMIT_WAIT_MAX).await {
                Some(reply) => reply,
                None => failed(id, "OUTCOME_UNKNOWN"),
            },
            Expiry::Written => {
                let is_unconfirmed =
                    is_unconfirmed || unwritten.is_some_and(|unwritten| unwritten.is_unconfirmed());
                expired(&served.database, id, is_unconfirmed).await
            }
        },
    };
    Ok(answers::reply(&reply))
}

fn failed(execution_id: Uuid, code: &str) -> Reply {
    Reply { execution_id, answer: Err(code.to_owned()) }
}

/// No answer came in time. Before the client hears that nothing was applied, the database makes sure of it; a completion
/// that is being committed is waited for, and its answer is the answer. A row that is not there may still come where its
/// own COMMIT was not confirmed.
async fn expired(database: &Database, id: Uuid, is_unconfirmed: bool) -> Reply {
    let answer = match database.worker().expire_reply(id, COMMIT_WAIT_MAX).await {
        Ok(ExpiredReply { dispatched: true, result: Some(result), .. }) => Ok(result.0),
        Ok(ExpiredReply { error_code: Some(code), .. })
            if is_unconfirmed && code == "REQUEST_LOST" =>
        {
            Err("OUTCOME_UNKNOWN".to_owned())
        }
        Ok(ExpiredReply { error_code, .. }) => {
            Err(error_code.unwrap_or_else(|| "REPLY_DEADLINE".to_owned()))
        }
        // Nobody can say whether it was committed.
        Err(error) => {
            tracing::warn!(lane = "triggers", code = error.code(), %error, "what became of a request is not known");
            Err("OUTCOME_UNKNOWN".to_owned())
        }
    };
    Reply { execution_id: id, answer }
}

/// A refusal of the database is a client error; anything else is a server error.
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

/// How an execution stands. A token that may read sees all of them, one that may call those that it caused.
async fn status(
    State(served): State<Arc<Served>>,
    Path(id): Path<Uuid>,
    peer: Peer,
    headers: HeaderMap,
) -> Response {
    let only_of = match status_reader(&served, &headers, peer).await {
        Ok(only_of) => only_of,
        Err(refusal) => return refusal.answer(),
    };
    match served.database.auditor().execution(id).await {
        Ok(Some(found)) if only_of.is_some() && found.origin_principal != only_of => {
            answers::problem(StatusCode::NOT_FOUND, "NO_EXECUTION", Some(id))
        }
        Ok(Some(execution)) => answers::status(&execution),
        Ok(None) => answers::problem(StatusCode::NOT_FOUND, "NO_EXECUTION", Some(id)),
        Err(_) => answers::problem(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY", Some(id)),
    }
}

/// Raw MIME for one recipient; answered once it is committed.
async fn mail(
    State(served): State<Arc<Served>>,
    Path(recipient): Path<String>,
    peer: Peer,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let handed_in_by = if served.mail_needs_token {
        match served.callers.holder_of(&headers, peer, Scope::Ingest).await {
            Ok(known) => Some(known.principal),
            Err(refusal) => return refusal.answer(),
        }
    } else {
        None
    };
    let (raw, _room) = match whole_body(&served, &headers, body).await {
        Ok(read) => read,
        Err(response) => return response,
    };
    match served.inbox.knows(&recipient).await {
        Ok(true) => {}
        Ok(false) => return answers::problem(StatusCode::NOT_FOUND, "NO_RECIPIENT", None),
        Err(_) => return answers::problem(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY", None),
    }
    match served.inbox.hand_in(&raw, &recipient, handed_in_by).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(DeliveryError::Temporary(code)) if code == "P7012" => {
            answers::problem(StatusCode::SERVICE_UNAVAILABLE, "TOO_MUCH_MAIL", None)
        }
        Err(DeliveryError::Temporary(_)) => {
            answers::problem(StatusCode::SERVICE_UNAVAILABLE, "DATABASE_AWAY", None)
        }
        Err(_) => answers::problem(StatusCode::BAD_REQUEST, "BODY_NOT_READABLE", None),
    }
}

/// Whose executions may be looked at: `None` for all.
async fn status_reader(
    served: &Served,
    headers: &HeaderMap,
    peer: Peer,
) -> Result<Option<Uuid>, Refusal> {
    if !served.status_needs_token {
        return Ok(None);
    }
    let (caller, known) = served.callers.holder(headers, peer).await?;
    Ok((!caller.may(Scope::Read)).then_some(known.principal))
}

/// The body, with the room it takes: bodies wait outside until there is some. Small ones need none, so that nobody who
/// sends large ones slowly keeps them waiting; connections bound those.
async fn whole_body(
    served: &Served,
    headers: &HeaderMap,
    body: Body,
) -> Result<(axum::body::Bytes, Option<OwnedSemaphorePermit>), Response> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|text| text.parse::<usize>().ok());
    let is_empty = axum::body::HttpBody::is_end_stream(&body);
    let bytes = if is_empty { 0 } else { length.unwrap_or(APP_BODY_BYTES_MAX) };
    if bytes > APP_BODY_BYTES_MAX {
        return Err(no_body(BodyProblem::TooLarge));
    }
    let mut room = None;
    if bytes > SMALL_BODY_BYTES_MAX {
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX);
        let wait = served.room.clone().acquire_many_owned(kibibytes);
        let Ok(Ok(permit)) = tokio::time::timeout(BODY_ROOM_WAIT_MAX, wait).await else {
            let busy = StatusCode::SERVICE_UNAVAILABLE;
            return Err(answers::problem(busy, "TOO_MANY_BODIES", None));
        };
        room = Some(permit);
    }
    match read_body(body, bytes).await {
        Ok(body) => Ok((body, room)),
        Err(problem) => Err(no_body(problem)),
    }
}

fn no_body(problem: BodyProblem) -> Response {
    let (status, code) = problem.answer();
    answers::problem(status, code, None)
}
