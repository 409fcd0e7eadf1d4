//! `symphony approval`: acts that wait for a second person. And what every act does where one is needed: it asks.

use std::pin::Pin;
use std::process::ExitCode;

use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use symphony::db::{
    ActCall, Approval, ApprovalQuery, ApprovalRequest, Auditor, DbError, LetterLane, Operator, Role,
};
use symphony::domain::Act;

use super::acts::{self, Verb};
use super::suggested_command::symphony;
use crate::bounds::{ACTS_TOLD_MAX, APPROVAL_EXPIRES_SECONDS, EXIT_ASKED};
use crate::cli::{
    ApprovalList, ApprovalState, Approvals, Decide, Global, LaneName, RequireApproval,
};
use crate::output::{self, Failure};
use crate::server::Server;

/// What came of an act.
pub(super) enum Acted<T> {
    /// It was done, or would be.
    Done(T),
    /// A second person was asked.
    Asked(ApprovalRequest),
}

/// Do it; where a second person is needed, or wished for, ask for it instead.
pub(super) fn act_or_ask<'a, T: 'a>(
    operator: &'a Operator,
    wished: bool,
    act: &'a Act,
    call: &'a ActCall,
    doing: impl Future<Output = Result<T, DbError>> + 'a,
) -> Pin<Box<dyn Future<Output = Result<Acted<T>, DbError>> + 'a>> {
    Box::pin(async move {
        if !wished || act.dry_run {
            match doing.await {
                Err(DbError::ApprovalMissing { .. }) if !act.dry_run => {}
                other => return other.map(Acted::Done),
            }
        }
        ask(operator, call, act).await.map(Acted::Asked)
    })
}

/// Ask a second person.
pub(super) async fn ask(
    operator: &Operator,
    call: &ActCall,
    act: &Act,
) -> Result<ApprovalRequest, DbError> {
    operator.request_approval(call, act, APPROVAL_EXPIRES_SECONDS).await
}

/// Ask for many, as few times as possible. Nothing is asked for nothing.
pub(super) async fn ask_for_all(
    operator: &Operator,
    calls: &[ActCall],
    act: &Act,
) -> Result<Vec<ApprovalRequest>, DbError> {
    let mut requests = Vec::new();
    for calls in calls.chunks(ACTS_PER_REQUEST) {
        if let Some(call) = ActCall::many(calls) {
            requests.push(ask(operator, &call, act).await?);
        }
    }
    Ok(requests)
}

/// As many as the database takes.
const ACTS_PER_REQUEST: usize = 1_000;

/// Whether a lane wants a second person for its acts.
pub(super) async fn is_required(reader: &Auditor, lane: &str) -> Result<bool, DbError> {
    let lanes = reader.approval_required().await?;
    Ok(lanes.iter().any(|(name, required)| name == lane && *required))
}

/// What a dry run ends with, and nothing if it was none.
pub(super) async fn ending(
    operator: &Operator,
    lane: &str,
    act: &Act,
    asks: bool,
) -> Result<&'static str, DbError> {
    Ok(match act.dry_run {
        false => "",
        true if asks || is_required(&operator.reader(), lane).await? => REPEAT_TO_ASK,
        true => acts::REPEAT,
    })
}

/// What a dry run ends with where a second person must approve.
pub(super) const REPEAT_TO_ASK: &str =
    "Nothing was changed: repeat with --yes to ask a second person, who must approve it.\n";

/// Say that nothing was done yet, and what the second person types.
pub(super) fn tell_asked(
    global: &Global,
    verb: &Verb,
    target: &str,
    requests: &[ApprovalRequest],
) -> Result<ExitCode, Failure> {
    if global.json {
        let asked: Vec<Value> = requests.iter().map(in_json).collect();
        let asked = match asked.as_slice() {
            [one] => one.clone(),
            _ => Value::Array(asked),
        };
        output::json(&json!({"act": verb.would, "state": "WAITING", "approval": asked}))?;
    } else {
        output::print(&format!("asked a second person to {} {target}\n", verb.would))?;
        output::print(&to_approve(requests))?;
    }
    Ok(ExitCode::from(EXIT_ASKED))
}

fn in_json(request: &ApprovalRequest) -> Value {
    let ApprovalRequest { request_no, lane, act, expires_at, preview, .. } = request;
    json!({
        "request_no": request_no, "lane": lane, "function": act, "expires_at": expires_at,
        "preview": preview.0, "approve": request_no.map(approve_command),
    })
}

/// What the second person types.
pub(super) fn to_approve(requests: &[ApprovalRequest]) -> String {
    let mut text = "Nothing was done yet: a member of symphony_approver approves it, from a login of their own, with\n".to_owned();
    for request in requests {
        if let Some(number) = request.request_no {
            text.push_str(&output::copyable("  ", &approve_command(number)));
        }
    }
    if let Some(request) = requests.first() {
        let until = request.expires_at.to_rfc3339_opts(SecondsFormat::Secs, true);
        text.push_str(&format!("until {until}.\n"));
    }
    text
}

fn approve_command(number: i64) -> String {
    symphony(&format!("approval approve {number} --reason WHY --yes"))
}

pub(super) async fn run(global: &Global, what: &Approvals) -> Result<ExitCode, Failure> {
    match what {
        Approvals::List(options) => {
            acts::as_operator(global, async |operator| list(global, options, &operator).await).await
        }
        Approvals::Show { number } => {
            acts::as_operator(global, async |operator| {
                let request = one(&operator.reader(), *number).await?;
                if global.json {
                    output::json(&request)?;
                } else {
                    output::print(&in_full(&request))?;
                }
                Ok(ExitCode::SUCCESS)
            })
            .await
        }
        Approvals::Approve(options) => decide(global, options, Decision::Approve).await,
        Approvals::Reject(options) => decide(global, options, Decision::Reject).await,
        Approvals::Withdraw(options) => decide(global, options, Decision::Withdraw).await,
        Approvals::Require(options) => require(global, options).await,
    }
}

#[derive(Clone, Copy)]
enum Decision {
    Approve,
    Reject,
    Withdraw,
}

/// A decision in words.
#[derive(Serialize)]
struct Decided<'a, T> {
    decision: &'static str,
    #[serde(flatten)]
    answer: &'a T,
}

async fn decide(
    global: &Global,
    options: &Decide,
    decision: Decision,
) -> Result<ExitCode, Failure> {
    let act = acts::act_of(&options.act)?;
    let server = Server::open(global).await?;
    let decided = async {
        let database = server.database_as(Role::Auditor).await?;
        let request = one(&database.auditor(), options.number).await?;
        match decision {
            Decision::Approve => {
                let answer = database.approver().approve(options.number, &act).await;
                let answer = answer.map_err(acts::in_options)?;
                let refused = refusals(&answer.answer.0);
                let told = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
                let words = format!("{} → {}", in_short(&request), summary(&answer.answer.0));
                tell_decision(global, "approve", "approved", &act, &answer, &words)?;
                if !global.json {
                    output::print(&refused)?;
                }
                Ok(told)
            }
            Decision::Reject => {
                let answer = database.approver().reject(options.number, &act).await;
                let answer = answer.map_err(acts::in_options)?;
                let words = format!("{}: nothing is done", in_short(&request));
                tell_decision(global, "reject", "rejected", &act, &answer, &words)?;
                Ok(ExitCode::SUCCESS)
            }
            Decision::Withdraw => {
                let answer = database.operator().withdraw_request(options.number, &act).await;
                let answer = answer.map_err(acts::in_options)?;
                let words = format!("{}: nothing is done", in_short(&request));
                tell_decision(global, "withdraw", "withdrawn", &act, &answer, &words)?;
                Ok(ExitCode::SUCCESS)
            }
        }
    }
    .await;
    server.close().await?;
    decided
}

fn tell_decision<T: Serialize>(
    global: &Global,
    would: &'static str,
    done: &str,
    act: &Act,
    answer: &T,
    words: &str,
) -> Result<(), Failure> {
    if global.json {
        return output::json(&Decided { decision: would, answer });
    }
    output::print(&if act.dry_run {
        format!("would {would} {words}\n{}", acts::REPEAT)
    } else {
        format!("{done} {words}\n")
    })
}

/// The request, as one recognises it.
fn in_short(request: &Approval) -> String {
    format!("request {} of {} ({})", request.request_no, output::plain(&request.actor), request.act)
}

/// What an act's answer says of before and after.
fn summary(answer: &Value) -> String {
    if let Value::Array(answers) = answer {
        let done = answers.iter().filter(|one| one.get("refused").is_none()).count();
        return format!("{done} of {} acts", answers.len());
    }
    let text = |name: &str| answer.get(name).and_then(Value::as_str);
    match (text("state_before"), text("state_after")) {
        (Some(before), Some(after)) => format!("{before} → {after}"),
        _ => output::plain(&answer.to_string()),
    }
}

/// Of many at once, those that were refused.
fn refusals(answer: &Value) -> String {
    let mut text = String::new();
    for refused in answer.as_array().into_iter().flatten() {
        if let (Some(code), Some(message)) = (
            refused.get("refused").and_then(Value::as_str),
            refused.get("message").and_then(Value::as_str),
        ) {
            text.push_str(&format!("  refused, {code}: {}\n", output::plain(message)));
        }
    }
    text
}

async fn one(reader: &Auditor, number: i64) -> Result<Approval, Failure> {
    let query = ApprovalQuery { request_no: Some(number), limit: 1, ..ApprovalQuery::default() };
    reader.approvals(query).await?.pop().ok_or_else(|| {
        let list = symphony("approval list");
        Failure::new(format!("there is no request {number}: {list}")).with_code("P7007")
    })
}

async fn list(
    global: &Global,
    options: &ApprovalList,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let state = match options.state {
        ApprovalState::Waiting => Some("WAITING"),
        ApprovalState::Approved => Some("APPROVED"),
        ApprovalState::Rejected => Some("REJECTED"),
        ApprovalState::Withdrawn => Some("WITHDRAWN"),
        ApprovalState::Expired => Some("EXPIRED"),
        ApprovalState::All => None,
    };
    let query = ApprovalQuery {
        state,
        lane: options.lane.map(lane_name),
        before: options.before,
        limit: i64::from(options.limit),
        request_no: None,
    };
    let requests = operator.reader().approvals(query).await?;
    if global.json {
        output::json(&requests)?;
    } else if requests.is_empty() {
        output::print(if options.state == ApprovalState::Waiting {
            "nothing waits for a second person\n"
        } else {
            "there is no such request\n"
        })?;
    } else {
        output::print(&table(&requests))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(requests: &[Approval]) -> String {
    let now = Utc::now();
    output::table(
        [
            output::number("request"),
            output::states("state"),
            output::short("act"),
            output::short("by"),
            output::whole("age"),
            "why".into(),
            output::command("look"),
        ],
        requests.iter().map(|request| {
            [
                request.request_no.to_string(),
                request.state.clone(),
                request.act.clone(),
                request.actor.clone(),
                output::length((now - request.created_at).num_seconds()),
                request.reason.clone(),
                symphony(&format!("approval show {}", request.request_no)),
            ]
        }),
    )
}

fn in_full(request: &Approval) -> String {
    let at = |time: chrono::DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    let mut text = format!(
        "request {} is {}: {} in the {} lane\n",
        request.request_no, request.state, request.act, request.lane
    );
    text.push_str(&format!(
        "  asked by {} from login {} at {}: {}\n",
        output::plain(&request.actor),
        output::plain(&request.session_role),
        at(request.created_at),
        output::plain(&request.reason)
    ));
    if let (Some(arguments), Some(preview)) = (&request.arguments, &request.preview) {
        for line in told_acts(&arguments.0, &preview.0) {
            text.push_str(&format!("  {line}\n"));
        }
    }
    match (&request.decided_by, &request.decided_from_login, request.decided_at) {
        (Some(by), Some(login), Some(decided)) => text.push_str(&format!(
            "  {} by {} from login {} at {}: {}\n",
            request.state.to_lowercase(),
            output::plain(by),
            output::plain(login),
            at(decided),
            output::plain(request.decision_reason.as_deref().unwrap_or_default())
        )),
        _ => text.push_str(&format!("  expires at {}\n", at(request.expires_at))),
    }
    if let Some(answer) = &request.answer {
        text.push_str(&format!("  it did: {}\n", summary(&answer.0)));
        text.push_str(&refusals(&answer.0));
    }
    if request.state == "WAITING" {
        for decision in ["approve", "reject"] {
            let command =
                symphony(&format!("approval {decision} {} --reason WHY", request.request_no));
            text.push_str(&output::copyable("    ", &command));
        }
    }
    text
}

/// A line for each act: its arguments, and what it would have changed when it was asked for.
fn told_acts(arguments: &Value, preview: &Value) -> Vec<String> {
    match (arguments, preview) {
        (Value::Array(acts), Value::Array(previews)) => {
            let each = acts.iter().zip(previews).take(ACTS_TOLD_MAX);
            let mut lines: Vec<String> = each.map(|(act, would)| told_act(act, would)).collect();
            if acts.len() > ACTS_TOLD_MAX {
                lines.push(format!("… {} in all: --json has them", acts.len()));
            }
            lines
        }
        _ => vec![told_act(arguments, preview)],
    }
}

fn told_act(arguments: &Value, preview: &Value) -> String {
    let given = arguments.as_object().into_iter().flatten();
    let mut words: Vec<String> = given
        .filter(|(_, value)| !value.is_null() && **value != Value::Bool(false))
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name} {}", output::plain(text)),
            // A manifest is looked at where it is kept: --json has it.
            Value::Object(_) => format!("{name} {{…}}"),
            other => format!("{name} {other}"),
        })
        .collect();
    if words.is_empty() {
        words.push("no arguments".to_owned());
    }
    format!("{}: {}", words.join(", "), summary(preview))
}

const REQUIRE: Verb = Verb { would: "require approval of", done: "required approval of" };
const RELAX: Verb = Verb { would: "end the approval of", done: "ended the approval of" };

async fn require(global: &Global, options: &RequireApproval) -> Result<ExitCode, Failure> {
    let act = acts::act_of(&options.act)?;
    let (lane, verb) = (options.lane, if options.off { &RELAX } else { &REQUIRE });
    acts::as_operator(global, async |operator| {
        if is_required(&operator.reader(), lane_name(lane)).await? != options.off {
            let so = if options.off { "need no approval" } else { "need approval" };
            output::print(&format!("acts of the {} lane {so} already\n", lane_name(lane)))?;
            return Ok(ExitCode::SUCCESS);
        }
        let lane_of_letters = match lane {
            LaneName::Payments => LetterLane::Payments,
            LaneName::Events => LetterLane::Events,
            LaneName::Triggers => LetterLane::Triggers,
        };
        let call = ActCall::require_approval(lane_of_letters, !options.off);
        let request = ask(&operator, &call, &act).await.map_err(acts::in_options)?;
        let target = format!("acts of the {} lane", lane_name(lane));
        if act.dry_run {
            return acts::tell(
                global,
                verb,
                REPEAT_TO_ASK,
                &request,
                &target,
                "two people change it",
            );
        }
        tell_asked(global, verb, &target, &[request])
    })
    .await
}

fn lane_name(lane: LaneName) -> &'static str {
    match lane {
        LaneName::Payments => "payments",
        LaneName::Events => "events",
        LaneName::Triggers => "triggers",
    }
}
