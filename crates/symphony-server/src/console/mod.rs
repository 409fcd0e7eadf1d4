//! The console in a browser, for the person on call: pages made here, a style sheet and a little script, no build step.
//!
//! - `sessions`: from a token to a cookie; `visit`: whoever asks for a page, and what every request must prove.
//! - `page`: the frame of every page, and what pages are made of.
//! - `overview`, `live`: the lanes at a glance, and the stream that keeps them so.
//! - `search`, `item`, `waiting`, `incidents`, `approvals`, `participants`, `destinations`, `apps`, `workers`, `audit`: a page
//!   each.
//! - `acts`, `act_forms`: every act by its name, previewed and then done, by the functions that the API calls; `bulk`: one of
//!   them on many items.

mod act_forms;
mod acts;
mod approvals;
mod apps;
mod audit;
mod bulk;
mod destinations;
mod incidents;
mod item;
mod live;
mod overview;
mod page;
mod participants;
mod search;
mod sessions;
mod sign_in;
mod visit;
mod waiting;
mod workers;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use crate::api::Door;
pub(crate) use live::Live;
pub(crate) use sessions::Sessions;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// The three lanes.
const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 24 24\"><path d=\"M2 6h20M2 12h14M2 18h18\" \
                    fill=\"none\" stroke=\"#4f7fe8\" stroke-width=\"3\" stroke-linecap=\"round\"/></svg>";

/// What all pages share.
pub(crate) struct Console {
    door: Arc<Door>,
    sessions: Arc<Sessions>,
    live: Arc<Live>,
}

impl Console {
    pub(crate) fn new(door: Arc<Door>, sessions: Arc<Sessions>, live: Arc<Live>) -> Self {
        Self { door, sessions, live }
    }

    /// Every page, under `/console`.
    pub(crate) fn router(self) -> Router {
        let console = Arc::new(self);
        let signed_in = middleware::from_fn_with_state(console.clone(), visit::require_session);
        Router::new()
            .route("/console", get(overview::page))
            // `require_session` answers it.
            .route("/console/live", get(visit::no_such_page))
            .route("/console/contradictions", get(incidents::page))
            .route("/console/search", get(search::page))
            .route("/console/payments/{id}", get(item::payment))
            .route("/console/events/{id}", get(item::event))
            .route("/console/executions/{id}", get(apps::execution))
            .route("/console/waiting", get(waiting::overview))
            .route("/console/waiting/{lane}", get(waiting::page))
            .route("/console/act/{act}", get(acts::form).post(acts::submit))
            .route("/console/many/{lane}", post(bulk::submit))
            .route("/console/approvals", get(approvals::list))
            .route("/console/approvals/{number}", get(approvals::page))
            .route("/console/approvals/{number}/{decision}", post(approvals::decide))
            .route("/console/participants", get(participants::list))
            .route("/console/participants/{id}", get(participants::page))
            .route("/console/destinations", get(destinations::page))
            .route("/console/apps", get(apps::list))
            .route("/console/apps/{app}", get(apps::page))
            .route("/console/workers", get(workers::page))
            .route("/console/audit", get(audit::page))
            .route("/console/sign-out", post(sign_in::sign_out))
            .route("/console/{*rest}", get(visit::no_such_page))
            .route_layer(signed_in)
            .route("/console/sign-in", get(sign_in::form).post(sign_in::sign_in))
            .route("/console/style.css", get(|| async { asset("text/css; charset=utf-8", STYLE) }))
            .route(
                "/console/script.js",
                get(|| async { asset("text/javascript; charset=utf-8", SCRIPT) }),
            )
            .route("/console/icon.svg", get(|| async { asset("image/svg+xml", ICON) }))
            .route("/", get(|| async { Redirect::to("/console") }))
            .layer(middleware::from_fn(protect))
            .with_state(console)
    }
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// What a browser may do with a page of ours: nothing of another origin, no inline code, no frame, no copy on disk.
const PROTECTION: [(HeaderName, &str); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in PROTECTION {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
