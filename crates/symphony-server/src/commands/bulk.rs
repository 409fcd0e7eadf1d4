//! Acts on many at once, chosen by a filter: a dry run says what each would become, and what a person must look at stays.
//!
//! What the rail never answered is left alone: passing over that needs `--despite-unknown`, one payment at a time.

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use serde::Serialize;
use symphony::db::{
    ActCall, ApprovalRequest, DbError, Known, LetterFilter, Operator, ReplayAnswer, WaitingItem,
    WaitingQuery,
};
use symphony::domain::{Act, Resolution, Switch};

use super::acts;
use super::approval;
use super::names;
use super::suggested_command::symphony;
use crate::bounds::EXIT_ASKED;
use crate::cli::{Global, Redrive, Resolve, ResolveAs};
use crate::output::{self, Failure};

/// What becomes, or became, of one.
#[derive(Serialize)]
struct Line {
    id: String,
    /// The instruction, or the script.
    name: String,
    place: String,
    code: String,
    /// `done`, `asked`, `would`, `left` or `refused`.
    result: &'static str,
    /// What it becomes, or why it does not.
    what: String,
}

#[derive(Serialize)]
struct Report {
    act: &'static str,
    dry_run: bool,
    /// There are more that the filter names.
    more: bool,
    done: usize,
    /// Wait for a second person.
    asked: usize,
    left: usize,
    refused: usize,
    /// The requests for approval.
    approvals: Vec<i64>,
    lines: Vec<Line>,
}

/// Redrive FAILED payments of a rail or a participant.
pub(super) async fn redrive(global: &Global, options: &Redrive) -> Result<ExitCode, Failure> {
    let act = acts::approved_act(&options.act)?;
    acts::as_operator(global, async |operator| {
        let query = WaitingQuery {
            parked: false,
            failed: true,
            rail_type: options.rail.as_deref(),
            participant_id: options.participant.as_deref(),
            filter: letters(
                options.error_code.as_deref(),
                options.since,
                options.until,
                options.limit,
            ),
        };
        let (items, more) = at_most(operator.reader().waiting(query).await?, options.limit);
        if items.is_empty() {
            let named = named(options.rail.as_ref(), options.participant.as_ref(), None);
            names::require_known(&operator.reader(), &named).await?;
        }
        let asking =
            Asking::find(&operator, "payments", &act, options.act.request_approval).await?;
        let (mut lines, mut calls) = (Vec::with_capacity(items.len()), Vec::new());
        for item in &items {
            let line = redrive_one(&operator, item, asking.first(&act)).await;
            if line.result == "would" {
                calls.push(ActCall::redrive(item.outbox_id, &act));
            }
            lines.push(line);
        }
        let requests = asking.ask(&operator, &calls, &act, &mut lines).await?;
        tell(global, "redrive", asking.ends, &act, more, lines, &requests)
    })
    .await
}

async fn redrive_one(operator: &Operator, item: &WaitingItem, act: &Act) -> Line {
    let dry_run = Act { dry_run: true, ..act.clone() };
    let looked = operator.redrive_payment(item.outbox_id, &dry_run).await;
    let left = match looked {
        Ok(answer) => left_alone(&answer.known),
        Err(error) => return refused(item, error),
    };
    if let Some(why) = left {
        return line(item, "left", why);
    }
    if act.dry_run {
        return line(item, "would", "goes on as a new item with a new key".to_owned());
    }
    match operator.redrive_payment(item.outbox_id, act).await {
        Ok(answer) => {
            let new = answer.redriven_as.map(|id| id.to_string()).unwrap_or_default();
            line(item, "done", format!("goes on as {new}"))
        }
        Err(error) => refused(item, error),
    }
}

/// Settle parked payments of a rail or a participant, all the same way.
pub(super) async fn resolve(global: &Global, options: &Resolve) -> Result<ExitCode, Failure> {
    let resolution = match options.outcome {
        Some(ResolveAs::Failed) => Resolution::Failed,
        Some(ResolveAs::Retry) => Resolution::Retry,
        Some(ResolveAs::Dispatched) | None => {
            return Err(Failure::new(
                "each payment that moved has a reference of its own: settle them by the bank's statement, with --statement FILE",
            ));
        }
    };
    let act = acts::approved_act(&options.act)?;
    acts::as_operator(global, async |operator| {
        let query = WaitingQuery {
            parked: true,
            failed: false,
            rail_type: options.rail.as_deref(),
            participant_id: options.participant.as_deref(),
            filter: letters(options.code.as_deref(), options.since, options.until, options.limit),
        };
        let (items, more) = at_most(operator.reader().waiting(query).await?, options.limit);
        if items.is_empty() {
            let named = named(options.rail.as_ref(), options.participant.as_ref(), None);
            names::require_known(&operator.reader(), &named).await?;
        }
        let asking =
            Asking::find(&operator, "payments", &act, options.act.request_approval).await?;
        let (mut lines, mut calls) = (Vec::with_capacity(items.len()), Vec::new());
        for item in &items {
            let line = resolve_one(&operator, item, &resolution, asking.first(&act)).await;
            if line.result == "would" {
                calls.push(ActCall::resolve(item.outbox_id, &resolution, &act));
            }
            lines.push(line);
        }
        let requests = asking.ask(&operator, &calls, &act, &mut lines).await?;
        tell(global, "resolve", asking.ends, &act, more, lines, &requests)
    })
    .await
}

async fn resolve_one(
    operator: &Operator,
    item: &WaitingItem,
    resolution: &Resolution,
    act: &Act,
) -> Line {
    let dry_run = Act { dry_run: true, ..act.clone() };
    let looked = match operator.resolve_payment(item.outbox_id, resolution, &dry_run).await {
        Ok(answer) => answer,
        Err(error) => return refused(item, error),
    };
    if let Some(why) = left_alone(&looked.known) {
        return line(item, "left", why);
    }
    let becomes = format!("{} → {}", looked.answer.state_before, looked.answer.state_after);
    if act.dry_run {
        return line(item, "would", becomes);
    }
    match operator.resolve_payment(item.outbox_id, resolution, act).await {
        Ok(_) => line(item, "done", becomes),
        Err(error) => refused(item, error),
    }
}

/// Replay FAILED executions of an app.
pub(super) async fn replay(global: &Global, options: &Redrive) -> Result<ExitCode, Failure> {
    let act = acts::approved_act(&options.act)?;
    acts::as_operator(global, async |operator| {
        let filter =
            letters(options.error_code.as_deref(), options.since, options.until, options.limit);
        let found = operator.reader().failed_executions(options.app.as_deref(), filter).await?;
        let (items, more) = at_most(found, options.limit);
        if items.is_empty() {
            let named = named(None, None, options.app.as_ref());
            names::require_known(&operator.reader(), &named).await?;
        }
        let asking =
            Asking::find(&operator, "triggers", &act, options.act.request_approval).await?;
        let (mut lines, mut calls) = (Vec::with_capacity(items.len()), Vec::new());
        for item in &items {
            let doing = operator.replay_execution(item.id, asking.first(&act));
            let (result, what) = match doing.await {
                Ok(ReplayAnswer { replay_id: Some(id), .. }) => {
                    ("done", format!("goes on as {id}"))
                }
                Ok(_) => {
                    calls.push(ActCall::replay(item.id));
                    ("would", "runs again, with the script as it is now".to_owned())
                }
                Err(error) => ("refused", Failure::from(error).to_string()),
            };
            lines.push(Line {
                id: item.id.to_string(),
                name: item.script_name.clone().unwrap_or_default(),
                place: item.app_name.clone().unwrap_or_default(),
                code: item.error_code.clone().unwrap_or_default(),
                result,
                what,
            });
        }
        let requests = asking.ask(&operator, &calls, &act, &mut lines).await?;
        tell(global, "replay", asking.ends, &act, more, lines, &requests)
    })
    .await
}

/// Whether a second person is asked first, for all of them at once.
struct Asking {
    asks: bool,
    /// A look at each, where nothing is done yet.
    look: Act,
    /// What a dry run ends with.
    ends: &'static str,
}

impl Asking {
    async fn find(
        operator: &Operator,
        lane: &str,
        act: &Act,
        wished: bool,
    ) -> Result<Self, DbError> {
        let asks =
            !act.dry_run && (wished || approval::is_required(&operator.reader(), lane).await?);
        let ends = approval::ending(operator, lane, act, wished).await?;
        Ok(Self { asks, look: Act { dry_run: true, ..act.clone() }, ends })
    }

    /// What is done to each at first.
    fn first<'a>(&'a self, act: &'a Act) -> &'a Act {
        if self.asks { &self.look } else { act }
    }

    /// Ask for those that would be done.
    async fn ask(
        &self,
        operator: &Operator,
        calls: &[ActCall],
        act: &Act,
        lines: &mut [Line],
    ) -> Result<Vec<ApprovalRequest>, Failure> {
        if !self.asks {
            return Ok(Vec::new());
        }
        let requests =
            approval::ask_for_all(operator, calls, act).await.map_err(acts::in_options)?;
        for line in lines.iter_mut().filter(|line| line.result == "would") {
            line.result = "asked";
        }
        Ok(requests)
    }
}

/// Why one is left to a person, if it is.
fn left_alone(known: &Known) -> Option<String> {
    if known.needs_despite_unknown {
        return Some("the rail never said what became of a try".to_owned());
    }
    known.needs_approver.then(|| {
        "a rail told a lost worker that it was executed: a second person must look at it".to_owned()
    })
}

fn line(item: &WaitingItem, result: &'static str, what: String) -> Line {
    Line {
        id: item.outbox_id.to_string(),
        name: item.instruction_id.clone(),
        place: item.rail_type.clone(),
        code: item.error_code.clone().unwrap_or_default(),
        result,
        what,
    }
}

fn refused(item: &WaitingItem, error: DbError) -> Line {
    let failure = acts::in_options(error);
    line(item, "refused", failure.to_string())
}

/// What the filters of a command name.
fn named(rail: Option<&String>, participant: Option<&String>, app: Option<&String>) -> Vec<Switch> {
    let rail = rail.cloned().map(Switch::Rail);
    let participant = participant.cloned().map(Switch::Participant);
    [rail, participant, app.cloned().map(Switch::App)].into_iter().flatten().collect()
}

/// What the filters of a command choose.
fn letters(
    code: Option<&str>,
    since: Option<DateTime<Utc>>,
    until: Option<DateTime<Utc>>,
    limit: u32,
) -> LetterFilter<'_> {
    // One more than asked for, to know whether there are more.
    let limit = i64::from(limit) + 1;
    LetterFilter { code, since, until, limit, ..LetterFilter::default() }
}

fn at_most<T>(mut items: Vec<T>, limit: u32) -> (Vec<T>, bool) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    (items, more)
}

fn tell(
    global: &Global,
    act_name: &'static str,
    ends: &str,
    act: &Act,
    more: bool,
    lines: Vec<Line>,
    requests: &[ApprovalRequest],
) -> Result<ExitCode, Failure> {
    let count = |result: &str| lines.iter().filter(|line| line.result == result).count();
    let (done, left, refused) = (count("done") + count("would"), count("left"), count("refused"));
    let told = Report {
        act: act_name,
        dry_run: act.dry_run,
        more,
        done,
        asked: count("asked"),
        left,
        refused,
        approvals: requests.iter().filter_map(|request| request.request_no).collect(),
        lines,
    };
    if global.json {
        output::json(&told)?;
    } else if told.lines.is_empty() {
        output::print(&format!("none is like that: nothing to {act_name}\n"))?;
    } else {
        output::print(&render(&told, ends))?;
        if !requests.is_empty() {
            output::print(&approval::to_approve(requests))?;
        }
    }
    Ok(match (told.refused, requests) {
        (0, []) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(EXIT_ASKED),
        _ => ExitCode::FAILURE,
    })
}

fn render(told: &Report, ends: &str) -> String {
    let mut text = output::table(
        [
            output::id("id"),
            output::short("name"),
            output::short("of"),
            output::short("code"),
            output::states("result"),
            "what".into(),
            output::command("look"),
        ],
        told.lines.iter().map(|line| {
            [
                line.id.clone(),
                line.name.clone(),
                line.place.clone(),
                line.code.clone(),
                line.result.to_owned(),
                line.what.clone(),
                symphony(&format!("show {}", line.id)),
            ]
        }),
    );
    let would = if told.dry_run { "would be done" } else { "done" };
    let asked = match told.asked {
        0 => String::new(),
        asked => format!("{asked} wait for a second person, "),
    };
    text.push_str(&format!(
        "{} {would}, {asked}{} left, {} refused\n",
        told.done, told.left, told.refused
    ));
    if told.left > 0 {
        text.push_str(
            "  left: look at each, ask its rail, and act on it alone; many at once never pass over an unknown outcome\n",
        );
    }
    if told.more {
        text.push_str("  there are more like that: raise --limit, or repeat it afterwards\n");
    }
    text.push_str(ends);
    text
}
