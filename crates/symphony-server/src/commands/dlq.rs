//! `symphony dlq list`: what waits for a person, and what to type next.

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{Operator, WaitingItem, WaitingQuery};

use crate::cli::{DlqList, Global};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, options: &DlqList) -> Result<ExitCode, Failure> {
    super::acts::as_operator(global, async |operator| list(global, options, &operator).await).await
}

#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    item: WaitingItem,
    next_command: String,
}

async fn list(
    global: &Global,
    options: &DlqList,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let query = WaitingQuery {
        parked: !options.failed,
        failed: !options.parked,
        rail_type: options.rail.as_deref(),
        // One more than asked for, to know whether there are more.
        limit: i64::from(options.limit) + 1,
    };
    let mut items = operator.reader().waiting(query).await?;
    let limit = usize::try_from(options.limit).unwrap_or(usize::MAX);
    let more = items.len() > limit;
    items.truncate(limit);
    let lines: Vec<Line> =
        items.into_iter().map(|item| Line { next_command: next_command(&item), item }).collect();
    if global.json {
        output::json(&lines)?;
    } else {
        output::print(&render(&lines, more))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The safe next step. Where the money may have moved that is to look, never to send.
fn next_command(item: &WaitingItem) -> String {
    let id = item.outbox_id;
    match (item.state.as_str(), item.must_inquire || item.late_yes) {
        ("FAILED", false) => format!("symphony redrive {id} --reason WHY"),
        ("PARKED", false) => format!("symphony release {id} --reason WHY"),
        _ => format!("symphony show {id}"),
    }
}

fn render(lines: &[Line], more: bool) -> String {
    if lines.is_empty() {
        return "nothing waits for a person\n".to_owned();
    }
    let mut text = output::table(
        ["id", "instruction", "participant", "rail", "state", "code", "for", "next"],
        lines.iter().map(|Line { item, next_command }| {
            [
                item.outbox_id.to_string(),
                output::plain(&item.instruction_id),
                output::plain(&item.participant_id),
                output::plain(&item.rail_type),
                state(item),
                codes(item),
                age(item.age_seconds),
                next_command.clone(),
            ]
        }),
    );
    let any = |of: fn(&WaitingItem) -> bool| lines.iter().any(|line| of(&line.item));
    for (applies, advice) in [
        (
            any(|item| item.state == "PARKED" && (item.must_inquire || item.late_yes)),
            "unknown: look, ask the rail, then: symphony resolve ID --as dispatched --reference REF | --as failed | --as retry",
        ),
        (
            any(|item| item.blocks_its_lane),
            "blocks its lane: redrive it, or let the lane go on: symphony skip --participant ID --rail NAME",
        ),
        (
            any(|item| item.late_yes),
            "late yes: a rail told a lost worker that it was executed; sending it again may pay twice",
        ),
        (more, "there are more: raise --limit, or choose by --rail, --parked or --failed"),
    ] {
        if applies {
            text.push_str("  ");
            text.push_str(advice);
            text.push('\n');
        }
    }
    text
}

fn state(item: &WaitingItem) -> String {
    let mut text = item.state.clone();
    for (applies, word) in [
        (item.must_inquire, ", unknown"),
        (item.blocks_its_lane, ", blocks its lane"),
        (item.late_yes, ", late yes"),
    ] {
        if applies {
            text.push_str(word);
        }
    }
    text
}

fn codes(item: &WaitingItem) -> String {
    let codes: Vec<String> = [&item.error_code, &item.rail_code]
        .into_iter()
        .flatten()
        .map(|c| output::plain(c))
        .collect();
    codes.join(" / ")
}

fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
