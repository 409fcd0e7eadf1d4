//! Act and approve: the functions of the contract by their names, and requests for approval.

use axum::extract::Request;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use symphony::db::{Approval, ApprovalAnswer, ApprovalQuery, DbError, RequestEnd};
use symphony::domain::Act;
use utoipa::{IntoParams, ToSchema};

use super::caller::{Caller, Scope};
use super::extract::{Answer, Asked, Named, json_of, ok, text_of};
use super::many_acts::{self, ActedMany};
use super::operate::{Page, rows};
use super::problem::{Problem, Refusals};
use super::schemas;
use crate::bounds::{ACT_BYTES_MAX, APPROVAL_EXPIRES_SECONDS};

/// An act to do.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActBody {
    /// The function's arguments by name, without actor, reason, approver and dry run; or a list of up to 100 of them, each done as
    /// an act of its own.
    #[schema(value_type = schemas::ActArguments, example = json!({"p_outbox_id": "5f0c6f3e-8d1b-4c63-9a0e-2f1d7c3b5a91"}))]
    pub(crate) arguments: Box<RawValue>,
    /// Why; kept in the ledger, so no account numbers.
    #[schema(example = "the bank has confirmed it")]
    pub(crate) reason: String,
    /// Only answer what would change.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// Ask a second person, also where that is not required.
    #[serde(default)]
    pub(crate) request_approval: bool,
}

/// What came of an act, or of several.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum ActAnswer {
    /// Of one.
    One(Acted),
    /// Of several.
    Many(ActedMany),
}

/// What came of it.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Acted {
    /// DONE, DRY_RUN, or WAITING for a second person.
    pub(crate) state: &'static str,
    /// What the function answered, or would; of a request, what it would and until when it can be decided.
    #[schema(value_type = Object)]
    pub(crate) answer: Value,
    /// The request that waits.
    pub(crate) request_no: Option<i64>,
}

/// A second person is asked.
pub(super) const WAITING: &str = "WAITING";

/// Do an act of the SQL contract, or several of one kind. Where a second person must approve, it becomes a request (202).
#[utoipa::path(post, path = "/v1/acts/{act}", tag = "act", params(("act" = String, Path, description = "a function of the contract, such as resolve_outbox")),
    request_body(content = ActBody, content_type = "application/json"),
    responses((status = 200, description = "done, or what would be; of several, what became of each", body = ActAnswer),
              (status = 202, description = "a second person is asked, about some at least", body = ActAnswer), Refusals))]
pub(super) async fn act(
    caller: Caller,
    Named(name): Named<String>,
    request: Request,
) -> Result<Answer<ActAnswer>, Problem> {
    let text = text_of(request, ACT_BYTES_MAX).await?;
    let body: ActBody = serde_json::from_str(&text)
        .map_err(|error| Problem::invalid(format!("the body: {error}")))?;
    let (state, answer) = if body.arguments.get().starts_with('[') {
        let acted = many_acts::perform(&caller, &name, &body).await?;
        (acted.state, ActAnswer::Many(acted))
    } else {
        let acted = perform(&caller, &name, body).await?;
        (acted.state, ActAnswer::One(acted))
    };
    let status = if state == WAITING { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(Answer(status, answer))
}

/// Do an act, or ask a second person where one must approve: the one way of API and console.
pub(crate) async fn perform(caller: &Caller, name: &str, body: ActBody) -> Result<Acted, Problem> {
    caller.needs(Scope::Operate)?;
    let act = by(caller, body.reason, body.dry_run);
    let operator = caller.database.operator();
    if !body.request_approval || body.dry_run {
        match operator.act_by_name(name, &body.arguments, &act).await {
            Err(DbError::ApprovalMissing { .. }) if !body.dry_run => {}
            Err(error) => return Err(error.into()),
            Ok(answer) => {
                let state = if body.dry_run { "DRY_RUN" } else { "DONE" };
                return Ok(Acted { state, answer, request_no: None });
            }
        }
    }
    let asked = operator.request_act(name, &body.arguments, &act, APPROVAL_EXPIRES_SECONDS).await?;
    let answer = json!({"preview": asked.preview.0, "expires_at": asked.expires_at});
    Ok(Acted { state: WAITING, answer, request_no: asked.request_no })
}

/// The token's person acts: nobody can be named.
pub(crate) fn by(caller: &Caller, reason: String, dry_run: bool) -> Act {
    Act { actor: caller.token.person.clone(), reason, dry_run, despite_unknown: false }
}

/// Which requests for approval.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ApprovalFilter {
    /// WAITING, EXPIRED, APPROVED, REJECTED or WITHDRAWN.
    state: Option<String>,
    /// payments, events or triggers.
    lane: Option<String>,
    /// Only older ones than this number: `next` of the page before.
    #[param(minimum = 1)]
    before: Option<i64>,
    /// At most so many; 50 unless told.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Requests for approval, the newest first.
#[utoipa::path(get, path = "/v1/approvals", tag = "approve", params(ApprovalFilter),
    responses((status = 200, description = "a page", body = Page<schemas::ApprovalRequest>), Refusals))]
pub(super) async fn approvals(
    caller: Caller,
    Asked(filter): Asked<ApprovalFilter>,
) -> Result<Answer<Page<Approval>>, Problem> {
    caller.needs(Scope::Read)?;
    let limit = rows(filter.limit);
    let query = ApprovalQuery {
        state: filter.state.as_deref(),
        lane: filter.lane.as_deref(),
        request_no: None,
        before: filter.before,
        limit: limit + 1,
    };
    let found = caller.database.auditor().approvals(query).await?;
    Ok(ok(Page::of(found, limit, |one| one.request_no.to_string())))
}

/// One request for approval.
#[utoipa::path(get, path = "/v1/approvals/{number}", tag = "approve", params(("number" = i64, Path)),
    responses((status = 200, description = "what it asks for, and what became of it", body = schemas::ApprovalRequest), Refusals))]
pub(super) async fn approval(
    caller: Caller,
    Named(number): Named<i64>,
) -> Result<Answer<Approval>, Problem> {
    caller.needs(Scope::Read)?;
    let query = ApprovalQuery { request_no: Some(number), limit: 1, ..ApprovalQuery::default() };
    let found = caller.database.auditor().approvals(query).await?.pop();
    Ok(ok(found.ok_or_else(|| Problem::not_found("request"))?))
}

/// A decision.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DecisionBody {
    /// Why.
    reason: String,
    /// Only answer what would happen.
    #[serde(default)]
    dry_run: bool,
}

/// Approve a request: the act is done, once, under the checks of this moment. Never the token or person that asked.
#[utoipa::path(post, path = "/v1/approvals/{number}/approve", tag = "approve", params(("number" = i64, Path)),
    request_body(content = DecisionBody, content_type = "application/json"),
    responses((status = 200, description = "approved and done, or what would be", body = schemas::ApprovalAnswer), Refusals))]
pub(super) async fn approve(
    caller: Caller,
    Named(number): Named<i64>,
    request: Request,
) -> Result<Answer<ApprovalAnswer>, Problem> {
    caller.needs(Scope::Approve)?;
    let body: DecisionBody = json_of(request, ACT_BYTES_MAX).await?;
    let act = by(&caller, body.reason, body.dry_run);
    Ok(ok(caller.database.approver().approve(number, &act).await?))
}

/// Reject a request: nothing is done.
#[utoipa::path(post, path = "/v1/approvals/{number}/reject", tag = "approve", params(("number" = i64, Path)),
    request_body(content = DecisionBody, content_type = "application/json"),
    responses((status = 200, description = "rejected, or would be", body = schemas::RequestEnd), Refusals))]
pub(super) async fn reject(
    caller: Caller,
    Named(number): Named<i64>,
    request: Request,
) -> Result<Answer<RequestEnd>, Problem> {
    caller.needs(Scope::Approve)?;
    let body: DecisionBody = json_of(request, ACT_BYTES_MAX).await?;
    let act = by(&caller, body.reason, body.dry_run);
    Ok(ok(caller.database.approver().reject(number, &act).await?))
}

/// Withdraw a request that this token made.
#[utoipa::path(post, path = "/v1/approvals/{number}/withdraw", tag = "approve", params(("number" = i64, Path)),
    request_body(content = DecisionBody, content_type = "application/json"),
    responses((status = 200, description = "withdrawn, or would be", body = schemas::RequestEnd), Refusals))]
pub(super) async fn withdraw(
    caller: Caller,
    Named(number): Named<i64>,
    request: Request,
) -> Result<Answer<RequestEnd>, Problem> {
    caller.needs(Scope::Operate)?;
    let body: DecisionBody = json_of(request, ACT_BYTES_MAX).await?;
    let act = by(&caller, body.reason, body.dry_run);
    Ok(ok(caller.database.operator().withdraw_request(number, &act).await?))
}
