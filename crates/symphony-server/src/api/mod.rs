//! What a process serves over HTTP: `/metrics`, `/healthz`, `/readyz`, the console, and the API for programs (`/v1`), whose
//! OpenAPI document is made from its handlers.
//!
//! - `caller`: bearer tokens and scopes; each scope acts as its database role. `turns`: rates. `everything`: what looks at all
//!   there is.
//! - `produce`, `lists`, `operate`, `acts` and `many_acts`, `apps`: the handlers. `extract`, `problem`: what they read, and how
//!   they refuse. `schemas`: what they answer, for the document.

mod acts;
mod apps;
mod caller;
mod everything;
mod extract;
mod lists;
mod many_acts;
mod operate;
mod problem;
mod produce;
mod schemas;
mod tls;
mod turns;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::Value;
use symphony::db::Database;
use symphony::engine::LaneMetrics;
use symphony::event::JSON_SCHEMA;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::apps::manifest;
use crate::config::{ApiSection, listen_address};
use crate::console::{Console, Live, Sessions};
use crate::http_server::{self, HttpServerSettings};
use crate::metrics::{self, Figures};
use crate::output::Failure;
use problem::Refusals;

pub(crate) use acts::{ActBody, Acted, by, perform};
pub(crate) use caller::{Caller, Door, Scope, bearer, is_token, new_secret, random_digits};
pub(crate) use lists::{cursor, place};
pub(crate) use operate::{act_cursor, place_of_act};
pub(crate) use problem::Problem;

/// As Prometheus reads it.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A running server.
#[derive(Debug)]
pub struct Api {
    address: SocketAddr,
    task: JoinHandle<()>,
    /// What the console's charts begin with.
    looking: Option<JoinHandle<()>>,
    scheme: &'static str,
    /// Of the console; none where only figures are served.
    sessions: Option<Arc<Sessions>>,
}

struct Served {
    database: Database,
    lanes: Vec<(&'static str, Arc<LaneMetrics>)>,
    figures: Figures,
}

/// The OpenAPI document, but for its paths.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Symphony",
        description = "Payments, events and apps: enqueue, look up, act, approve. docs/API.md",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(healthz, ready, metrics_page, openapi, app_schema),
    components(schemas(Problem)),
    modifiers(&Bearer),
    security(("bearer" = []))
)]
struct Document;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("a token of `symphony token create`"))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// `/v1`, and the document that describes it.
fn v1() -> (Router, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(produce::enqueue_payment))
        .routes(routes!(produce::payment))
        .routes(routes!(produce::enqueue_event))
        .routes(routes!(produce::event))
        .routes(routes!(lists::status))
        .routes(routes!(lists::dead_letters))
        .routes(routes!(operate::incidents))
        .routes(routes!(operate::pauses))
        .routes(routes!(operate::destinations))
        .routes(routes!(operate::rails))
        .routes(routes!(operate::topics))
        .routes(routes!(operate::workers))
        .routes(routes!(operate::leases))
        .routes(routes!(operate::participants))
        .routes(routes!(operate::participant))
        .routes(routes!(operate::stream))
        .routes(routes!(operate::audit))
        .routes(routes!(acts::act))
        .routes(routes!(acts::approvals))
        .routes(routes!(acts::approval))
        .routes(routes!(acts::approve))
        .routes(routes!(acts::reject))
        .routes(routes!(acts::withdraw))
        .routes(routes!(apps::apps))
        .routes(routes!(apps::app))
        .routes(routes!(apps::push))
        .routes(routes!(apps::executions))
        .routes(routes!(apps::execution))
        .routes(routes!(apps::tree))
        .split_for_parts()
}

impl Api {
    /// Serve as the configuration says. Whatever is not `/metrics`, `/healthz`, `/readyz` or a document needs a token;
    /// beyond this machine `/metrics` does too.
    pub async fn start(
        section: &ApiSection,
        database: Database,
        lanes: Vec<(&'static str, Arc<LaneMetrics>)>,
        bounds: HttpServerSettings,
    ) -> Result<Self, Failure> {
        let tls = tls::acceptor(section)?;
        let listener = bind(section, tls.is_some() || section.behind_proxy).await?;
        let loopback = listener.local_addr()?.ip().is_loopback();
        // Others than this machine's reach a loopback address through a proxy.
        let exposed = !loopback || section.behind_proxy;
        // Whoever reads must not take the workers' connections.
        let callers = database.with_own_pool(section.database_connections_max);
        let door = Arc::new(Door::new(callers.clone(), section.rate_per_second));
        let figures = Figures::new(database.clone());
        let secure = tls.is_some() || section.behind_proxy;
        let sessions = Arc::new(Sessions::new(listener.local_addr()?.port(), secure));
        let live = Arc::new(Live::new(callers));
        let watched = live.clone();
        let console = Console::new(door.clone(), sessions.clone(), live.clone()).router();
        let served = Arc::new(Served { database, lanes, figures });
        let (v1, document) = v1();
        let document = described(&document)?;
        let authenticated = middleware::from_fn_with_state(door, caller::authenticate);
        let mut metrics =
            Router::new().route("/metrics", get(metrics_page)).with_state(served.clone());
        if exposed {
            metrics = metrics.route_layer(middleware::from_fn(readers_only));
            metrics = metrics.route_layer(authenticated.clone());
        }
        let api = v1
            .route_layer(authenticated)
            .layer(Extension(live))
            .layer(middleware::from_fn(no_page));
        let documents = Router::new()
            .route("/openapi.json", get(openapi))
            .layer(Extension(document))
            .route("/schemas/app.json", get(app_schema));
        let mut guarded = documents.merge(metrics).merge(api).merge(console);
        if !exposed {
            guarded = guarded.route_layer(middleware::from_fn(this_machine_only));
        }
        let mut router = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(ready))
            .with_state(served)
            .merge(guarded)
            .fallback(|| async { Problem::not_found("address: /openapi.json names them") })
            .method_not_allowed_fallback(|| async {
                let detail = "this address has other methods, as Allow says";
                Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", detail)
            });
        if section.behind_proxy {
            router = router.layer(middleware::from_fn(http_server::believe_the_proxy));
        }
        let address = listener.local_addr()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let task = http_server::serve_with(listener, router, bounds, tls);
        let looking = Some(watched.keep_looking());
        Ok(Self { address, task, looking, scheme, sessions: Some(sessions) })
    }

    /// Serve figures that need no database.
    pub async fn start_with_page(
        listen: &str,
        page: impl Fn() -> String + Clone + Send + Sync + 'static,
        bounds: HttpServerSettings,
    ) -> Result<Self, Failure> {
        let listener = bind(&ApiSection::at(listen), false).await?;
        let router = Router::new()
            .route(
                "/metrics",
                get(|| async move { ([(header::CONTENT_TYPE, METRICS_TYPE)], page()) }),
            )
            .route_layer(middleware::from_fn(this_machine_only))
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(|| async { "ready\n" }));
        let address = listener.local_addr()?;
        let task = http_server::serve(listener, router, bounds);
        Ok(Self { address, task, looking: None, scheme: "http", sessions: None })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The console's address.
    pub fn console(&self) -> String {
        format!("{}/console", self.url())
    }

    /// An address of the console that signs in whoever opens it, once, with this token.
    pub fn sign_in_link(&self, token: &str) -> Result<String, Failure> {
        let sessions = self.sessions.as_ref();
        let sessions = sessions.ok_or_else(|| Failure::new("the console is not served here"))?;
        Ok(format!("{}/sign-in?code={}", self.console(), sessions.new_link(token)?))
    }

    /// `http`, or `https` with TLS, and where it listens.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// Stop serving.
    pub fn stop(self) {
        self.task.abort();
        if let Some(looking) = self.looking {
            looking.abort();
        }
    }
}

/// Stuck threads are said; a process that runs no more scripts, though it is to, is not ready.
fn ready_scripts(lanes: &[(&'static str, Arc<LaneMetrics>)]) -> (StatusCode, String) {
    let Some(scripts) = lanes.iter().find_map(|(_, metrics)| metrics.scripts.get()) else {
        return (StatusCode::OK, "ready\n".to_owned());
    };
    let said = format!("{} threads of scripts do not come back\n", scripts.stuck());
    match (scripts.has_ended(), scripts.stuck()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: SCRIPTS_ENDED: {said}")),
        (false, 0) => (StatusCode::OK, "ready\n".to_owned()),
        (false, _) => (StatusCode::OK, format!("ready, but {said}")),
    }
}

/// Listen; beyond loopback only where what travels is protected.
async fn bind(section: &ApiSection, protected: bool) -> Result<TcpListener, Failure> {
    let listen = section.listen.as_str();
    // `consume` has no plan that would have checked it.
    let refused = |problem: String| Failure::new(format!("the address of /metrics {problem}"));
    let address = listen_address(listen, "127.0.0.1:9464").map_err(refused)?;
    let Some(address) = address.filter(|address| protected || address.ip().is_loopback()) else {
        return Err(refused(format!(
            "is {listen}: beyond loopback tokens would travel in the clear; name api.tls_certificate_file and \
             api.tls_key_file, or say api.behind_proxy = true"
        )));
    };
    TcpListener::bind(address).await.map_err(|error| {
        Failure::new(format!("cannot listen on {listen}: {error}; choose another with --api or api.listen, or \"off\""))
    })
}

/// What is answered is for a program: a browser shall neither take it for a page nor keep it.
async fn no_page(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Refuses a `Host` that is not this machine: a web page may resolve its own name to 127.0.0.1 (DNS rebinding).
async fn this_machine_only(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    if ["localhost", "127.0.0.1", "[::1]"].contains(&name) {
        return next.run(request).await;
    }
    let detail = "Host must be localhost: this is served to this machine only";
    Problem::new(StatusCode::FORBIDDEN, "HOST", detail).into_response()
}

async fn readers_only(caller: Caller, request: Request, next: Next) -> Response {
    match caller.needs(Scope::Read) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// The document as it is served, with the schema of events that every producer and consumer has.
fn described(document: &utoipa::openapi::OpenApi) -> Result<Arc<str>, Failure> {
    let failed = |error: serde_json::Error| Failure::new(error.to_string());
    let mut document = serde_json::to_value(document).map_err(failed)?;
    // Its definitions are found where they stand in this document.
    let event = JSON_SCHEMA.replace("\"#/$defs/", "\"#/components/schemas/EventBody/$defs/");
    let event: Value = serde_json::from_str(&event).map_err(failed)?;
    if let Some(schemas) =
        document.pointer_mut("/components/schemas").and_then(Value::as_object_mut)
    {
        schemas.insert("EventBody".to_owned(), event);
    }
    Ok(document.to_string().into())
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", tag = "serve", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = Object)))]
async fn openapi(Extension(document): Extension<Arc<str>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], document.to_string())
}

/// The JSON Schema of an app's manifest.
#[utoipa::path(get, path = "/schemas/app.json", tag = "serve", security(()),
    responses((status = 200, description = "JSON Schema", body = Object, content_type = "application/schema+json")))]
async fn app_schema() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/schema+json")], manifest::SCHEMA)
}

/// The process answers.
#[utoipa::path(get, path = "/healthz", tag = "serve", security(()),
    responses((status = 200, description = "ok", body = String, content_type = "text/plain")))]
async fn healthz() -> &'static str {
    "ok\n"
}

/// Every figure, as Prometheus reads it. On this machine, without a proxy in front, it needs no token.
#[utoipa::path(get, path = "/metrics", tag = "serve",
    responses((status = 200, description = "figures", body = String, content_type = "text/plain"), Refusals))]
async fn metrics_page(State(served): State<Arc<Served>>) -> impl IntoResponse {
    let page = metrics::render(&served.lanes, &served.figures.known().await);
    ([(header::CONTENT_TYPE, METRICS_TYPE)], page)
}

/// The database answers, to the role that a worker has.
#[utoipa::path(get, path = "/readyz", tag = "serve", security(()),
    responses((status = 200, description = "ready", body = String, content_type = "text/plain"),
              (status = 503, description = "not ready, and the code why", body = String, content_type = "text/plain")))]
async fn ready(State(served): State<Arc<Served>>) -> impl IntoResponse {
    // As the role a worker has: the login may have no other.
    match served.database.worker().rails_that_mark_sending().await {
        Ok(_) => ready_scripts(&served.lanes),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", error.code())),
    }
}
