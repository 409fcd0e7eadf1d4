//! Several acts of one kind in one request: each is done, refused or left alone by itself, as the command line does it.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use symphony::db::{DbError, Operator};
use symphony::domain::Act;
use utoipa::ToSchema;

use super::acts::{ActBody, WAITING, by};
use super::caller::{Caller, Scope};
use super::problem::Problem;
use crate::bounds::{ACTS_AT_ONCE_MAX, APPROVAL_EXPIRES_SECONDS};

/// What came of several acts.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ActedMany {
    /// DONE, DRY_RUN, or WAITING if a second person is asked about some of them.
    pub(super) state: &'static str,
    /// One for each, in the order of the request.
    items: Vec<ActedOne>,
    /// The request that waits, for all that are WAITING.
    request_no: Option<i64>,
}

/// What came of one of them.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ActedOne {
    /// Its arguments.
    #[schema(value_type = Object)]
    arguments: Box<RawValue>,
    /// DONE, DRY_RUN, WAITING for a second person, REFUSED, or LEFT to a person who looks at it alone.
    state: &'static str,
    /// What the function answered, or would.
    #[schema(value_type = Option<Object>)]
    answer: Option<Value>,
    /// Why it was refused: a stable code.
    code: Option<String>,
    /// The same in words.
    detail: Option<String>,
}

impl ActedOne {
    fn answered(arguments: &RawValue, state: &'static str, answer: Value) -> Self {
        Self {
            arguments: arguments.to_owned(),
            state,
            answer: Some(answer),
            code: None,
            detail: None,
        }
    }

    fn refused(arguments: &RawValue, error: DbError) -> Self {
        let problem = Problem::from(error);
        Self {
            arguments: arguments.to_owned(),
            state: "REFUSED",
            answer: None,
            code: Some(problem.code().to_owned()),
            detail: Some(problem.detail().to_owned()),
        }
    }

    /// Many at once never pass over what a rail may have done: a person looks at such a payment alone.
    fn left(arguments: &RawValue, answer: Value) -> Self {
        let detail = "a rail may have executed it: look at it, and act on it alone";
        Self { detail: Some(detail.to_owned()), ..Self::answered(arguments, "LEFT", answer) }
    }
}

pub(super) async fn perform(
    caller: &Caller,
    name: &str,
    body: &ActBody,
) -> Result<ActedMany, Problem> {
    caller.needs(Scope::Operate)?;
    let several = read(&body.arguments)?;
    let act = by(caller, body.reason.clone(), body.dry_run);
    let look = Act { dry_run: true, ..act.clone() };
    let operator = caller.database.operator();
    let mut items = Vec::with_capacity(several.len());
    for arguments in &several {
        items.push(one(&operator, name, arguments, &act, &look, body.request_approval).await);
    }
    let asked: Vec<&RawValue> =
        items.iter().filter(|item| item.state == WAITING).map(|item| &*item.arguments).collect();
    if asked.is_empty() {
        let state = if body.dry_run { "DRY_RUN" } else { "DONE" };
        return Ok(ActedMany { state, items, request_no: None });
    }
    let all = to_raw_value(&asked).map_err(|error| Problem::invalid(error.to_string()))?;
    let request = operator.request_act(name, &all, &act, APPROVAL_EXPIRES_SECONDS).await;
    match request {
        Ok(request) => Ok(ActedMany { state: WAITING, items, request_no: request.request_no }),
        // Some may be done already: what could not be asked for is told with each, and not instead of them.
        Err(error) => {
            let problem = Problem::from(error);
            for item in items.iter_mut().filter(|item| item.state == WAITING) {
                item.state = "REFUSED";
                item.code = Some(problem.code().to_owned());
                item.detail = Some(problem.detail().to_owned());
            }
            Ok(ActedMany { state: "DONE", items, request_no: None })
        }
    }
}

/// The arguments of each; what passes over unknown outcomes is no act for many at once.
fn read(text: &RawValue) -> Result<Vec<Box<RawValue>>, Problem> {
    let several: Vec<Box<RawValue>> = serde_json::from_str(text.get())
        .map_err(|error| Problem::invalid(format!("arguments: {error}")))?;
    if several.is_empty() || several.len() > ACTS_AT_ONCE_MAX {
        let detail =
            format!("arguments must be an object, or a list of 1 to {ACTS_AT_ONCE_MAX} of them");
        return Err(Problem::invalid(detail));
    }
    for arguments in &several {
        let read: Value = serde_json::from_str(arguments.get())
            .map_err(|error| Problem::invalid(format!("arguments: {error}")))?;
        if !read.is_object() {
            return Err(Problem::invalid("arguments: each of the list must be an object"));
        }
        if read.get("p_despite_unknown").is_some_and(|given| given != &Value::Bool(false)) {
            let detail = "arguments: p_despite_unknown is for one payment at a time, after its rail was asked";
            return Err(Problem::invalid(detail));
        }
    }
    Ok(several)
}

async fn one(
    operator: &Operator,
    name: &str,
    arguments: &RawValue,
    act: &Act,
    look: &Act,
    asks: bool,
) -> ActedOne {
    let seen = match operator.act_by_name(name, arguments, look).await {
        Ok(seen) => seen,
        Err(error) => return ActedOne::refused(arguments, error),
    };
    if seen.get("needs_approver") == Some(&Value::Bool(true)) {
        return ActedOne::left(arguments, seen);
    }
    if act.dry_run {
        return ActedOne::answered(arguments, "DRY_RUN", seen);
    }
    if asks {
        return ActedOne::answered(arguments, WAITING, seen);
    }
    match operator.act_by_name(name, arguments, act).await {
        Ok(answer) => ActedOne::answered(arguments, "DONE", answer),
        Err(DbError::ApprovalMissing { .. }) => ActedOne::answered(arguments, WAITING, seen),
        Err(error) => ActedOne::refused(arguments, error),
    }
}
