//! The management API of apps: what `symphony app` does, over HTTP. Served beside `/metrics`, on loopback only.
//!
//! Whoever changes something says who they are in `X-Symphony-Actor`. That is a name and no proof, as on the command line;
//! but no page of a browser can send it to another origin unasked, and a `Host` that is not this machine is refused.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use symphony::db::{Database, DbError, TriggerChange};
use symphony::domain::Act;
use symphony::lanes::triggers::Schedule;
use uuid::Uuid;

use crate::http_server::{BodyProblem, read_body};

/// The largest manifest with its sources.
const MANIFEST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The most executions in one answer.
const EXECUTIONS_MAX: i64 = 1_000;
const ACTOR: &str = "x-symphony-actor";

/// `/manage/…`.
pub fn router(database: Database) -> Router {
    Router::new()
        .route("/manage/apps", get(apps))
        .route("/manage/apps/{app}", put(push).delete(delete))
        .route("/manage/apps/{app}/pause", post(pause))
        .route("/manage/apps/{app}/resume", post(resume))
        .route("/manage/executions", get(executions))
        .route("/manage/executions/{id}", get(execution))
        .route("/manage/executions/{id}/tree", get(tree))
        .route("/manage/executions/{id}/replay", post(replay))
        .layer(middleware::from_fn(this_machine_only))
        .with_state(database)
}

/// A name that leads here but is not ours may be somebody's page, pointed at this machine.
async fn this_machine_only(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let name = host.unwrap_or_default();
    let name = name.rsplit_once(':').map_or(name, |(name, port)| {
        if port.chars().all(|digit| digit.is_ascii_digit()) {
            name
        } else {
            host.unwrap_or_default()
        }
    });
    if ["localhost", "127.0.0.1", "[::1]"].contains(&name) {
        next.run(request).await
    } else {
        problem(
            StatusCode::FORBIDDEN,
            "FORBIDDEN",
            "Host must be localhost: this is served to this machine only",
        )
    }
}

/// What an act is asked with; all of it optional in JSON, because `reason` has a clear error of its own.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Asked {
    reason: Option<String>,
    approver: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    app: Option<String>,
    state: Option<String>,
    limit: Option<i64>,
}

async fn apps(State(database): State<Database>) -> Response {
    answer(database.operator().reader().apps().await)
}

async fn push(
    State(database): State<Database>,
    Path(app): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let actor = match actor(&headers) {
        Ok(actor) => actor,
        Err(response) => return *response,
    };
    let bytes = match read_body(body, MANIFEST_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(reason) => return no_body(reason, "the manifest is larger than 16 MiB"),
    };
    let manifest: Box<RawValue> = match serde_json::from_slice(&bytes) {
        Ok(manifest) => manifest,
        Err(error) => {
            return problem(
                StatusCode::UNPROCESSABLE_ENTITY,
                "P7005",
                &format!("the manifest is not JSON: {error}"),
            );
        }
    };
    if let Some(defect) = bad_schedule(&manifest) {
        return problem(StatusCode::UNPROCESSABLE_ENTITY, "P7005", &defect);
    }
    answer(database.operator().push_app(&app, &manifest, &actor, None).await)
}

/// The database does not read cron expressions.
fn bad_schedule(manifest: &RawValue) -> Option<String> {
    let manifest: Value = serde_json::from_str(manifest.get()).ok()?;
    let triggers = manifest.get("triggers")?.as_array()?;
    triggers.iter().enumerate().find_map(|(index, trigger)| {
        let text = |field: &str| trigger.get(field).and_then(Value::as_str);
        if text("kind") != Some("cron") {
            return None;
        }
        let zone = text("timeZone").unwrap_or("UTC");
        let error = Schedule::parse(text("filter")?, zone).err()?;
        Some(format!("triggers[{index}].{error}"))
    })
}

async fn delete(
    State(database): State<Database>,
    Path(app): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match asked(&headers, body).await {
        Ok(act) => answer(database.operator().delete_app(&app, &act).await),
        Err(response) => *response,
    }
}

async fn pause(
    state: State<Database>,
    path: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    switch(state, path, headers, body, true).await
}

async fn resume(
    state: State<Database>,
    path: Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    switch(state, path, headers, body, false).await
}

async fn switch(
    State(database): State<Database>,
    Path(app): Path<String>,
    headers: HeaderMap,
    body: Body,
    paused: bool,
) -> Response {
    let change =
        TriggerChange { app: Some(&app), paused: Some(paused), ..TriggerChange::default() };
    match asked(&headers, body).await {
        Ok(act) => answer(database.operator().configure_triggers(&change, &act).await),
        Err(response) => *response,
    }
}

async fn executions(State(database): State<Database>, which: Query<Which>) -> Response {
    let limit = which.limit.unwrap_or(100).clamp(1, EXECUTIONS_MAX);
    let reader = database.operator().reader();
    answer(reader.executions(which.app.as_deref(), which.state.as_deref(), limit).await)
}

async fn execution(State(database): State<Database>, Path(id): Path<Uuid>) -> Response {
    match database.operator().reader().execution(id).await {
        Ok(None) => problem(StatusCode::NOT_FOUND, "P7007", "there is no such execution"),
        found => answer(found),
    }
}

async fn tree(State(database): State<Database>, Path(id): Path<Uuid>) -> Response {
    let reader = database.operator().reader();
    match reader.execution(id).await {
        Ok(Some(execution)) => answer(reader.execution_tree(execution.root_execution_id).await),
        Ok(None) => problem(StatusCode::NOT_FOUND, "P7007", "there is no such execution"),
        Err(error) => refusal(&error),
    }
}

async fn replay(
    State(database): State<Database>,
    Path(id): Path<Uuid>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match asked(&headers, body).await {
        Ok(act) => answer(database.operator().replay_execution(id, &act).await),
        Err(response) => *response,
    }
}

fn actor(headers: &HeaderMap) -> Result<String, Box<Response>> {
    let actor = headers.get(ACTOR).and_then(|actor| actor.to_str().ok()).map(str::trim);
    actor.filter(|actor| !actor.is_empty()).map(str::to_owned).ok_or_else(|| {
        Box::new(problem(
            StatusCode::BAD_REQUEST,
            "P7005",
            "X-Symphony-Actor is missing: say who you are",
        ))
    })
}

async fn asked(headers: &HeaderMap, body: Body) -> Result<Act, Box<Response>> {
    let actor = actor(headers)?;
    let refuse =
        |message: &str| Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "P7005", message));
    let bytes = read_body(body, 64 * 1024).await.map_err(|reason| match reason {
        BodyProblem::TooLarge => refuse("the body is larger than 64 KiB"),
        other => Box::new(no_body(other, "")),
    })?;
    let asked: Asked = if bytes.is_empty() {
        Asked::default()
    } else {
        serde_json::from_slice(&bytes).map_err(|error| {
            refuse(&format!("the body must be {{reason, approver, dryRun}}: {error}"))
        })?
    };
    let Some(reason) = asked.reason else { return Err(refuse("reason is missing: say why")) };
    Ok(Act {
        actor,
        reason,
        approver: asked.approver,
        dry_run: asked.dry_run,
        despite_unknown: false,
    })
}

fn answer<T: Serialize>(result: Result<T, DbError>) -> Response {
    match result {
        Ok(value) => with_json(StatusCode::OK, &json!(value)),
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &DbError) -> Response {
    let status = match error {
        DbError::InvalidArgument { .. } | DbError::NulCharacter => StatusCode::UNPROCESSABLE_ENTITY,
        DbError::NoSuchItem { .. } => StatusCode::NOT_FOUND,
        DbError::ActRefused { .. } | DbError::KeyReused { .. } => StatusCode::CONFLICT,
        DbError::ApprovalMissing { .. }
        | DbError::MissingPrivilege { .. }
        | DbError::MissingRole { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    problem(status, error.code(), &error.to_string())
}

fn no_body(reason: BodyProblem, too_large: &str) -> Response {
    let message = match reason {
        BodyProblem::TooLarge => too_large,
        BodyProblem::TooSlow => "the body was not whole in time (http_server.body_timeout_ms)",
        BodyProblem::Broken => "the body is not whole",
    };
    problem(reason.answer().0, "P7005", message)
}

fn problem(status: StatusCode, code: &str, message: &str) -> Response {
    with_json(status, &json!({ "error": code, "message": message }))
}

fn with_json(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
