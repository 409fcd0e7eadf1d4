//! `symphony resolve --statement FILE`: what a bank's statement says of parked payments, key by key.
//!
//! A dry run says what each line would do. A line that contradicts the ledger stops everything, unless it is told to be left out:
//! the statement may be another bank's, or money moved that the ledger calls FAILED.

mod csv;
mod judge;

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{Operator, StatedItem};
use symphony::domain::{Act, OutboxId, Resolution};
use uuid::Uuid;

use super::acts::{self, REPEAT};
use crate::cli::{Global, Resolve};
use crate::output::{self, Failure};
use judge::{Entry, Finding, judge};

/// A statement is read whole.
const BYTES_MAX: u64 = 64 << 20;
/// Keys looked up at once.
const KEYS_MAX: usize = 10_000;

/// A line with what it would do, or did.
#[derive(Serialize)]
struct Judged {
    line: usize,
    key: String,
    item: Option<OutboxId>,
    instruction: Option<String>,
    /// `settles`, `agrees`, `waits`, `unknown`, `contradicts`, `unreadable`, `done` or `refused`.
    result: &'static str,
    what: String,
    #[serde(skip)]
    resolution: Option<Resolution>,
}

#[derive(Serialize)]
struct Told {
    act: &'static str,
    dry_run: bool,
    counts: HashMap<&'static str, usize>,
    lines: Vec<Judged>,
}

pub(super) async fn run(
    global: &Global,
    options: &Resolve,
    file: &Path,
) -> Result<ExitCode, Failure> {
    let act = acts::act_of(&options.act, options.approver.as_ref())?;
    let entries = csv::entries(&read(file)?).map_err(Failure::new)?;
    acts::as_operator(global, async |operator| {
        let mut lines = look(&operator, &entries).await?;
        let stops =
            lines.iter().filter(|line| matches!(line.result, "contradicts" | "unreadable")).count();
        let stopped = stops > 0 && !options.skip_contradictions;
        if !act.dry_run && !stopped {
            settle(&operator, &mut lines, &act, file).await;
        }
        let refused = lines.iter().any(|line| line.result == "refused");
        tell(global, &act, stopped, lines)?;
        if !act.dry_run && stopped {
            return Err(Failure::new(format!(
                "nothing was changed: {stops} lines contradict the ledger or cannot be read; look into them, then leave them out with --skip-contradictions"
            )));
        }
        Ok(if refused || stops > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
    .await
}

fn read(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    let refused = |error: std::io::Error| Failure::new(format!("{name}: {error}"));
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(file).map_err(refused)?.take(BYTES_MAX + 1).read_to_string(&mut text)
    };
    let bytes = read.map_err(refused)?;
    if u64::try_from(bytes).unwrap_or(u64::MAX) > BYTES_MAX {
        return Err(Failure::new(format!("{name} is larger than 64 MiB: settle it in parts")));
    }
    Ok(text)
}

/// What every line would do.
async fn look(operator: &Operator, entries: &[Entry]) -> Result<Vec<Judged>, Failure> {
    let mut keys: Vec<Uuid> = entries.iter().filter_map(|entry| entry.key.parse().ok()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut known: HashMap<Uuid, StatedItem> = HashMap::new();
    for keys in keys.chunks(KEYS_MAX) {
        let found = operator.reader().stated(keys).await?;
        known.extend(found.into_iter().map(|item| (item.rail_key, item)));
    }
    let findings = judge(entries, &known);
    let lines = entries.iter().zip(findings).map(|(entry, finding)| {
        let item = entry.key.parse().ok().and_then(|key: Uuid| known.get(&key));
        let (result, what, resolution) = match finding {
            Finding::Settles(resolution) => ("settles", in_words(&resolution), Some(resolution)),
            Finding::Agrees => ("agrees", "the ledger says so already".to_owned(), None),
            Finding::Waits(why) => ("waits", why.to_owned(), None),
            Finding::Unknown => ("unknown", "no payment of this installation".to_owned(), None),
            Finding::Contradicts(why) => ("contradicts", why, None),
            Finding::Unreadable(why) => ("unreadable", why, None),
        };
        Judged {
            line: entry.line,
            key: entry.key.clone(),
            item: item.map(|item| item.outbox_id),
            instruction: item.map(|item| item.instruction_id.clone()),
            result,
            what,
            resolution,
        }
    });
    Ok(lines.collect())
}

fn in_words(resolution: &Resolution) -> String {
    match resolution {
        Resolution::Dispatched { rail_reference } => {
            format!("PARKED → DISPATCHED, reference {rail_reference}")
        }
        Resolution::Failed => "PARKED → FAILED: the bank refused it".to_owned(),
        Resolution::Retry => "PARKED → PENDING".to_owned(),
    }
}

/// One line after the other, each in a transaction of its own: what is done can be repeated, and then agrees.
async fn settle(operator: &Operator, lines: &mut [Judged], act: &Act, file: &Path) {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for line in lines {
        let (Some(resolution), Some(item)) = (line.resolution.take(), line.item) else { continue };
        let act = Act {
            reason: format!("{} (statement {name}, line {})", act.reason, line.line),
            // The statement is the bank's own word about this key: that is how we know.
            despite_unknown: true,
            ..act.clone()
        };
        match operator.resolve(item, &resolution, &act).await {
            Ok(answer) => {
                line.result = "done";
                line.what =
                    format!("{} → {}", answer.answer.state_before, answer.answer.state_after);
            }
            Err(error) => {
                line.result = "refused";
                line.what = acts::in_options(error).to_string();
            }
        }
    }
}

/// In the order a person must look at them.
const RESULTS: [(&str, &str); 8] = [
    ("contradicts", "contradict the ledger"),
    ("unreadable", "cannot be read"),
    ("refused", "were refused"),
    ("done", "settled"),
    ("settles", "would settle"),
    ("waits", "are not parked: the machine has them still"),
    ("agrees", "agree with the ledger already"),
    ("unknown", "are no payments of this installation"),
];

fn tell(global: &Global, act: &Act, stopped: bool, lines: Vec<Judged>) -> Result<(), Failure> {
    let mut counts = HashMap::new();
    for line in &lines {
        *counts.entry(line.result).or_insert(0_usize) += 1;
    }
    if global.json {
        return output::json(&Told { act: "resolve", dry_run: act.dry_run, counts, lines });
    }
    let mut text = String::new();
    // What agrees, and what is not ours, is only counted: a statement has thousands of those.
    let mut shown: Vec<&Judged> =
        lines.iter().filter(|line| !matches!(line.result, "agrees" | "unknown")).collect();
    shown.sort_by_key(|line| {
        (RESULTS.iter().position(|(result, _)| *result == line.result), line.line)
    });
    if !shown.is_empty() {
        text.push_str(&output::table(
            [
                output::number("line"),
                output::short("key"),
                output::short("instruction"),
                output::states("result"),
                "what".into(),
            ],
            shown.iter().map(|line| {
                [
                    line.line.to_string(),
                    line.key.clone(),
                    line.instruction.clone().unwrap_or_default(),
                    line.result.to_owned(),
                    line.what.clone(),
                ]
            }),
        ));
    }
    let told: Vec<String> = RESULTS
        .iter()
        .filter_map(|(result, words)| Some(format!("{} {words}", counts.get(result)?)))
        .collect();
    text.push_str(&format!("{} lines: {}\n", lines.len(), told.join(", ")));
    if act.dry_run {
        text.push_str(REPEAT);
        if stopped {
            text.push_str("  with contradictions or unreadable lines it would do nothing, unless --skip-contradictions leaves them out\n");
        }
    }
    output::print(&text)
}
