//! Acts on many at once, chosen by a filter: a dry run says what each would become, and what a person must look at stays.
//!
//! What the rail never answered is left alone: passing over that needs `--despite-unknown`, one payment at a time.

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{DbError, Known, LetterFilter, Operator, WaitingItem, WaitingQuery};
use symphony::domain::{Act, Resolution};

use super::acts::{self, REPEAT};
use super::hints::symphony;
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
    /// `done`, `would`, `left` or `refused`.
    result: &'static str,
    /// What it becomes, or why it does not.
    what: String,
}

#[derive(Serialize)]
struct Told {
    act: &'static str,
    dry_run: bool,
    /// There are more that the filter names.
    more: bool,
    done: usize,
    left: usize,
    refused: usize,
    lines: Vec<Line>,
}

/// Redrive FAILED payments of a rail or a participant.
pub(super) async fn redrive(global: &Global, options: &Redrive) -> Result<ExitCode, Failure> {
    let act = acts::act_of(&options.act, options.approver.as_ref())?;
    acts::as_operator(global, async |operator| {
        let query = WaitingQuery {
            parked: false,
            failed: true,
            rail_type: options.rail.as_deref(),
            participant_id: options.participant.as_deref(),
            filter: LetterFilter {
                code: options.error_code.as_deref(),
                since: options.since,
                until: options.until,
                // One more than asked for, to know whether there are more.
                limit: i64::from(options.limit) + 1,
                ..LetterFilter::default()
            },
        };
        let (items, more) = at_most(operator.reader().waiting(query).await?, options.limit);
        let mut lines = Vec::with_capacity(items.len());
        for item in &items {
            lines.push(redrive_one(&operator, item, &act).await);
        }
        tell(global, "redrive", &act, more, lines)
    })
    .await
}

async fn redrive_one(operator: &Operator, item: &WaitingItem, act: &Act) -> Line {
    let dry_run = Act { dry_run: true, ..act.clone() };
    let looked = operator.redrive(item.outbox_id, &dry_run).await;
    let left = match looked {
        Ok(answer) => left_alone(&answer.known, act),
        Err(error) => return refused(item, error),
    };
    if let Some(why) = left {
        return line(item, "left", why);
    }
    if act.dry_run {
        return line(item, "would", "goes on as a new item with a new key".to_owned());
    }
    match operator.redrive(item.outbox_id, act).await {
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
    let act = acts::act_of(&options.act, options.approver.as_ref())?;
    acts::as_operator(global, async |operator| {
        let query = WaitingQuery {
            parked: true,
            failed: false,
            rail_type: options.rail.as_deref(),
            participant_id: options.participant.as_deref(),
            filter: LetterFilter {
                code: options.code.as_deref(),
                since: options.since,
                until: options.until,
                limit: i64::from(options.limit) + 1,
                ..LetterFilter::default()
            },
        };
        let (items, more) = at_most(operator.reader().waiting(query).await?, options.limit);
        let mut lines = Vec::with_capacity(items.len());
        for item in &items {
            lines.push(resolve_one(&operator, item, &resolution, &act).await);
        }
        tell(global, "resolve", &act, more, lines)
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
    let looked = match operator.resolve(item.outbox_id, resolution, &dry_run).await {
        Ok(answer) => answer,
        Err(error) => return refused(item, error),
    };
    if let Some(why) = left_alone(&looked.known, act) {
        return line(item, "left", why);
    }
    let becomes = format!("{} → {}", looked.answer.state_before, looked.answer.state_after);
    if act.dry_run {
        return line(item, "would", becomes);
    }
    match operator.resolve(item.outbox_id, resolution, act).await {
        Ok(_) => line(item, "done", becomes),
        Err(error) => refused(item, error),
    }
}

/// Replay FAILED executions of an app.
pub(super) async fn replay(global: &Global, options: &Redrive) -> Result<ExitCode, Failure> {
    let act = acts::act_of(&options.act, options.approver.as_ref())?;
    acts::as_operator(global, async |operator| {
        let filter = LetterFilter {
            code: options.error_code.as_deref(),
            since: options.since,
            until: options.until,
            limit: i64::from(options.limit) + 1,
            ..LetterFilter::default()
        };
        let found = operator.reader().failed_executions(options.app.as_deref(), filter).await?;
        let (items, more) = at_most(found, options.limit);
        let mut lines = Vec::with_capacity(items.len());
        for item in &items {
            let (result, what) = match operator.replay_execution(item.id, &act).await {
                Ok(answer) => match answer.replay_id {
                    Some(id) => ("done", format!("goes on as {id}")),
                    None => ("would", "runs again, with the script as it is now".to_owned()),
                },
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
        tell(global, "replay", &act, more, lines)
    })
    .await
}

/// Why one is left to a person, if it is.
fn left_alone(known: &Known, act: &Act) -> Option<String> {
    if known.needs_despite_unknown {
        return Some("the rail never said what became of a try".to_owned());
    }
    (known.needs_approver && act.approver.is_none())
        .then(|| "a rail told a lost worker that it was executed: needs --approver".to_owned())
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

fn at_most<T>(mut items: Vec<T>, limit: u32) -> (Vec<T>, bool) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    (items, more)
}

fn tell(
    global: &Global,
    act_name: &'static str,
    act: &Act,
    more: bool,
    lines: Vec<Line>,
) -> Result<ExitCode, Failure> {
    let count = |result: &str| lines.iter().filter(|line| line.result == result).count();
    let (done, left, refused) = (count("done") + count("would"), count("left"), count("refused"));
    let told = Told { act: act_name, dry_run: act.dry_run, more, done, left, refused, lines };
    if global.json {
        output::json(&told)?;
    } else if told.lines.is_empty() {
        output::print(&format!("none is like that: nothing to {act_name}\n"))?;
    } else {
        output::print(&render(&told))?;
    }
    Ok(if told.refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn render(told: &Told) -> String {
    let mut text = output::table(
        [
            output::short("id"),
            output::short("name"),
            output::short("of"),
            output::short("code"),
            output::states("result"),
            "what".into(),
        ],
        told.lines.iter().map(|line| {
            [
                line.id.clone(),
                line.name.clone(),
                line.place.clone(),
                line.code.clone(),
                line.result.to_owned(),
                line.what.clone(),
            ]
        }),
    );
    let would = if told.dry_run { "would be done" } else { "done" };
    text.push_str(&format!(
        "{} {would}, {} left, {} refused\n",
        told.done, told.left, told.refused
    ));
    if told.left > 0 {
        let show = symphony("show ID");
        text.push_str(&format!(
            "  left: look at each ({show}), ask its rail, and act on it alone; many at once never pass over an unknown outcome\n"
        ));
    }
    if told.more {
        text.push_str("  there are more like that: raise --limit, or repeat it afterwards\n");
    }
    if told.dry_run {
        text.push_str(REPEAT);
    }
    text
}
