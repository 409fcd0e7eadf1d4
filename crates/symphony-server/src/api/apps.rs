//! Apps and their executions: what `symphony app` does, over HTTP. Pausing, replaying and deleting are acts.

use axum::extract::Request;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use symphony::db::{
    ActCall, AppPart, AppRow, AppVersion, DbError, ExecutionQuery, ExecutionRow, ExecutionTree,
    PushAnswer,
};
use symphony::domain::Act;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::caller::{Caller, Scope};
use super::extract::{Answer, Asked, Named, ok, text_of};
use super::operate::{Page, PageQuery, rows};
use super::problem::{Problem, Refusals};
use super::schemas;
use crate::apps::{manifest, sources};
use crate::bounds::{APPROVAL_EXPIRES_SECONDS, MANIFEST_BYTES_MAX, TREE_ROWS_MAX};

/// Apps at a glance, by name.
#[utoipa::path(get, path = "/v1/apps", tag = "apps", params(PageQuery),
    responses((status = 200, description = "a page", body = Page<schemas::App>), Refusals))]
pub(super) async fn apps(
    caller: Caller,
    Asked(query): Asked<PageQuery>,
) -> Result<Answer<Page<AppRow>>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.apps(query.after.as_deref(), query.limit() + 1).await?;
    Ok(ok(Page::of(found, query.limit(), |one| one.name.clone())))
}

/// An app with what it is made of.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShownApp {
    /// At a glance.
    #[schema(value_type = schemas::App)]
    app: AppRow,
    /// Its scripts, routes, triggers, topics and queues.
    parts: Vec<ShownPart>,
    /// What pushes and rollbacks have made of it, the newest first; the last 20 are kept.
    #[schema(value_type = Vec<schemas::AppVersion>)]
    versions: Vec<AppVersion>,
}

/// A part of an app.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShownPart {
    /// script, route, trigger, topic or queue.
    kind: String,
    /// Its name; a route's is its method and path.
    name: String,
    /// A script's newest version.
    version: Option<i32>,
}

impl From<AppPart> for ShownPart {
    fn from(part: AppPart) -> Self {
        let AppPart { kind, name, version, .. } = part;
        Self { kind, name, version }
    }
}

/// One app: its parts, and its versions.
#[utoipa::path(get, path = "/v1/apps/{app}", tag = "apps", params(("app" = String, Path)),
    responses((status = 200, description = "it", body = ShownApp), Refusals))]
pub(super) async fn app(
    caller: Caller,
    Named(app): Named<String>,
) -> Result<Answer<ShownApp>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.app(&app).await?.ok_or_else(|| Problem::not_found("app"))?;
    let parts = reader.app_parts(&app).await?.into_iter().map(ShownPart::from).collect();
    let versions = reader.app_versions(&app).await?;
    Ok(ok(ShownApp { app: found, parts, versions }))
}

/// Why an app is pushed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PushQuery {
    /// Why; needed where a second person must approve.
    reason: Option<String>,
}

/// A push that a second person is asked about.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PushWaits {
    /// WAITING.
    state: &'static str,
    /// The request that waits.
    request_no: Option<i64>,
}

/// What came of a push.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Pushed {
    Done(PushAnswer),
    Waits(PushWaits),
}

/// Create an app, or make it what its manifest says. Where a second person must approve, it becomes a request (202).
#[utoipa::path(put, path = "/v1/apps/{app}", tag = "apps", params(("app" = String, Path), PushQuery),
    request_body(content = Object, content_type = "application/json", description = "a manifest with its sources, as docs/APPS.md has it"),
    responses((status = 200, description = "what changed", body = schemas::PushAnswer),
              (status = 202, description = "a second person is asked: nothing is done yet", body = PushWaits), Refusals))]
pub(super) async fn push(
    caller: Caller,
    Named(app): Named<String>,
    Asked(query): Asked<PushQuery>,
    request: Request,
) -> Result<Answer<Pushed>, Problem> {
    caller.needs(Scope::Operate)?;
    let text = text_of(request, MANIFEST_BYTES_MAX).await?;
    let manifest: &RawValue = serde_json::from_str(&text)
        .map_err(|error| Problem::invalid(format!("the manifest is not JSON: {error}")))?;
    if let Some(defect) = manifest::defect(manifest) {
        return Err(Problem::invalid(defect));
    }
    let owned = manifest.to_owned();
    let compiled = tokio::task::spawn_blocking(move || sources::compiled_manifest(&owned)).await;
    let manifest = &*compiled
        .map_err(|_| Problem::invalid("the scripts cannot be compiled"))?
        .map_err(Problem::invalid)?;
    let (operator, actor) = (caller.database.operator(), caller.token.person.clone());
    match operator.push_app(&app, manifest, &actor).await {
        Ok(pushed) => Ok(ok(Pushed::Done(pushed))),
        Err(DbError::ApprovalMissing { .. }) => {
            let reason = query.reason.ok_or_else(|| {
                Problem::new(
                    StatusCode::FORBIDDEN,
                    "P7008",
                    "a second person must approve this push: add ?reason=",
                )
            })?;
            let act = Act { actor, reason, dry_run: false, despite_unknown: false };
            let call = ActCall::push_app(&app, manifest);
            let asked = operator.request_approval(&call, &act, APPROVAL_EXPIRES_SECONDS).await?;
            Ok(Answer(
                StatusCode::ACCEPTED,
                Pushed::Waits(PushWaits { state: "WAITING", request_no: asked.request_no }),
            ))
        }
        Err(error) => Err(error.into()),
    }
}

const STATES: [&str; 3] = ["PENDING", "DISPATCHED", "FAILED"];

/// Which executions.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionFilter {
    /// Only of this app.
    app: Option<String>,
    /// PENDING, DISPATCHED or FAILED.
    state: Option<String>,
    /// Only older ones than this id: `next` of the page before.
    before: Option<Uuid>,
    /// At most so many; 50 unless told.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Executions, ended or not.
#[utoipa::path(get, path = "/v1/executions", tag = "apps", params(ExecutionFilter),
    responses((status = 200, description = "a page, the newest first, without payload, result and logs", body = Page<schemas::Execution>), Refusals))]
pub(super) async fn executions(
    caller: Caller,
    Asked(filter): Asked<ExecutionFilter>,
) -> Result<Answer<Page<ExecutionRow>>, Problem> {
    caller.needs(Scope::Read)?;
    if filter.state.as_deref().is_some_and(|state| !STATES.contains(&state)) {
        return Err(Problem::invalid("state must be PENDING, DISPATCHED or FAILED"));
    }
    let limit = rows(filter.limit);
    let query = ExecutionQuery {
        app: filter.app.as_deref(),
        state: filter.state.as_deref(),
        before: filter.before,
        limit: limit + 1,
    };
    let found = caller.database.auditor().executions(query).await?;
    Ok(ok(Page::of(found, limit, |one| one.id.to_string())))
}

/// One execution whole.
#[utoipa::path(get, path = "/v1/executions/{id}", tag = "apps", params(("id" = Uuid, Path)),
    responses((status = 200, description = "payload, result, error, logs", body = schemas::Execution), Refusals))]
pub(super) async fn execution(
    caller: Caller,
    Named(id): Named<Uuid>,
) -> Result<Answer<ExecutionRow>, Problem> {
    caller.needs(Scope::Read)?;
    let found = caller.database.auditor().execution(id).await?;
    Ok(ok(found.ok_or_else(|| Problem::not_found("execution"))?))
}

/// What fired what: the tree of an execution, or the first 500 of it, without payloads, results and logs.
#[utoipa::path(get, path = "/v1/executions/{id}/tree", tag = "apps", params(("id" = Uuid, Path)),
    responses((status = 200, description = "the tree", body = schemas::TreeAnswer), Refusals))]
pub(super) async fn tree(
    caller: Caller,
    Named(id): Named<Uuid>,
) -> Result<Answer<ExecutionTree>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.execution(id).await?.ok_or_else(|| Problem::not_found("execution"))?;
    Ok(ok(reader.execution_tree(found.root_execution_id, TREE_ROWS_MAX).await?))
}
