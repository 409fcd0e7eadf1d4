//! `symphony dlq close`: a FAILED one needs nothing more, and this is why.

use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{ClosedLetter, LetterLane, Operator};
use uuid::Uuid;

use super::super::acts;
use crate::cli::{DlqClose, Global};
use crate::output::{self, Failure};

#[derive(Serialize)]
struct Told {
    act: &'static str,
    dry_run: bool,
    letters: Vec<ClosedLetter>,
}

pub(super) async fn run(
    global: &Global,
    options: &DlqClose,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let act = acts::act_of(&options.act, options.approver.as_ref())?;
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
    if !act.dry_run {
        letters.clear();
        for (lane, id) in &chosen {
            letters.push(operator.close_letter(*lane, *id, &act).await.map_err(acts::in_options)?);
        }
    }
    if global.json {
        output::json(&Told { act: "close", dry_run: act.dry_run, letters })?;
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
        text.push_str(acts::REPEAT);
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
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
