//! `symphony dlq close`: a FAILED one needs nothing more, and this is why.

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{ActCall, ClosedLetter, LetterLane, Operator};
use uuid::Uuid;

use super::super::{acts, approval};
use crate::cli::{DlqClose, Global};
use crate::output::{self, Failure};

#[derive(Serialize)]
struct Report {
    act: &'static str,
    dry_run: bool,
    letters: Vec<ClosedLetter>,
}

pub(super) async fn run(
    global: &Global,
    options: &DlqClose,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let act = acts::approved_act(&options.act)?;
    let mut chosen = Vec::new();
    for id in &options.ids {
        chosen.push(find(operator, id).await?);
    }
    // What would be refused is said before anything is closed.
    let dry_run = symphony::domain::Act { dry_run: true, ..act.clone() };
    let mut letters = Vec::new();
    for (lane, id) in &chosen {
        letters.push(operator.close_letter(*lane, *id, &dry_run).await.map_err(acts::in_options)?);
    }
    let wished = options.act.request_approval;
    let mut asks = false;
    for lane in chosen.iter().map(|(lane, _)| lane_name(*lane)) {
        asks = asks || wished || approval::is_required(&operator.reader(), lane).await?;
    }
    if !act.dry_run && asks {
        let mut requests = Vec::new();
        for lane in [LetterLane::Payments, LetterLane::Events, LetterLane::Triggers] {
            let of_lane = chosen.iter().filter(|(its, _)| *its == lane);
            let calls: Vec<_> =
                of_lane.map(|(lane, id)| ActCall::close_letter(*lane, *id)).collect();
            let asked = approval::ask_for_all(operator, &calls, &act).await;
            requests.extend(asked.map_err(acts::in_options)?);
        }
        let target = match chosen.as_slice() {
            [(_, id)] => id.to_string(),
            many => format!("{} dead letters", many.len()),
        };
        return approval::tell_asked(global, &CLOSE, &target, &requests);
    }
    if !act.dry_run {
        letters.clear();
        for (lane, id) in &chosen {
            letters.push(operator.close_letter(*lane, *id, &act).await.map_err(acts::in_options)?);
        }
    }
    if global.json {
        output::json(&Report { act: "close", dry_run: act.dry_run, letters })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for letter in &letters {
        let code = letter.error_code.as_deref();
        let code = code.map(|code| format!(" ({})", output::plain(code))).unwrap_or_default();
        let verb = if act.dry_run { "would close" } else { "closed" };
        text.push_str(&format!(
            "{verb} {}{code}: it stays {}, and is not listed any more\n",
            letter.item_id, letter.state
        ));
    }
    if act.dry_run {
        text.push_str(if asks { approval::REPEAT_TO_ASK } else { acts::REPEAT });
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

const CLOSE: acts::Verb = acts::Verb { would: "close", done: "closed" };

fn lane_name(lane: LetterLane) -> &'static str {
    match lane {
        LetterLane::Payments => "payments",
        LetterLane::Events => "events",
        LetterLane::Triggers => "triggers",
    }
}

/// What an id names, whatever the lane.
async fn find(operator: &Operator, id: &str) -> Result<(LetterLane, Uuid), Failure> {
    let reader = operator.reader();
    let payment = acts::one_item(&reader, id).await;
    if let Ok(item) = &payment {
        return Ok((LetterLane::Payments, item.outbox_id.0));
    }
    if let Ok(uuid) = id.parse::<Uuid>() {
        if reader.event_life(uuid).await?.is_some() {
            return Ok((LetterLane::Events, uuid));
        }
        if reader.execution(uuid).await?.is_some() {
            return Ok((LetterLane::Triggers, uuid));
        }
    }
    payment.map(|item| (LetterLane::Payments, item.outbox_id.0))
}
