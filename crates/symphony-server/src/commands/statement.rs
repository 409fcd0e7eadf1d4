//! `symphony resolve --statement FILE`: what a bank's statement says of parked payments, key by key.
//!
//! A dry run says what each line would do. A line that contradicts the ledger stops everything, unless it is told to be left out:
//! the statement may be another bank's, or money moved that the ledger calls FAILED.

mod compare;
mod csv;

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use symphony::db::{ActCall, ApprovalRequest, Operator, StatedItem};
use symphony::domain::{Act, OutboxId, Resolution};
use uuid::Uuid;

use super::{acts, approval};
use crate::bounds::{EXIT_ASKED, STATEMENT_BYTES_MAX, STATEMENT_KEYS_MAX};
use crate::cli::{Global, Resolve};
use crate::output::{self, Failure};
use compare::{Entry, Finding, compare};

/// A line with what it would do, or did.
#[derive(Serialize)]
struct Comparison {
    line: usize,
    key: String,
    item: Option<OutboxId>,
    instruction: Option<String>,
    /// `settles`, `agrees`, `waits`, `unknown`, `contradicts`, `unreadable`, `done`, `asked` or `refused`.
    result: &'static str,
    what: String,
    #[serde(skip)]
    resolution: Option<Resolution>,
}

#[derive(Serialize)]
struct Report {
    act: &'static str,
    dry_run: bool,
    counts: HashMap<&'static str, usize>,
    /// The requests for approval.
    approvals: Vec<i64>,
    lines: Vec<Comparison>,
}

pub(super) async fn run(
    global: &Global,
    options: &Resolve,
    file: &Path,
) -> Result<ExitCode, Failure> {
    let act = acts::approved_act(&options.act)?;
    let entries = csv::entries(&read(file)?).map_err(Failure::new)?;
    acts::as_operator(global, async |operator| {
        let mut lines = look(&operator, &entries).await?;
        let stops =
            lines.iter().filter(|line| matches!(line.result, "contradicts" | "unreadable")).count();
        let stopped = stops > 0 && !options.skip_contradictions;
        let wished = options.act.request_approval;
        let asks = wished || approval::is_required(&operator.reader(), "payments").await?;
        let mut requests = Vec::new();
        if !act.dry_run && !stopped && asks {
            requests = ask(&operator, &mut lines, &act, file).await?;
        } else if !act.dry_run && !stopped {
            settle(&operator, &mut lines, &act, file).await;
        }
        let refused = lines.iter().any(|line| line.result == "refused");
        let ends = approval::ending(&operator, "payments", &act, wished).await?;
        tell(global, &act, stopped, lines, ends, &requests)?;
        if !act.dry_run && stopped {
            return Err(Failure::new(format!(
                "nothing was changed: {stops} lines contradict the ledger or cannot be read; look into them, then leave them out with --skip-contradictions"
            )));
        }
        Ok(match (refused || stops > 0, requests.is_empty()) {
            (true, _) => ExitCode::FAILURE,
            (false, false) => ExitCode::from(EXIT_ASKED),
            (false, true) => ExitCode::SUCCESS,
        })
    })
    .await
}

fn read(file: &Path) -> Result<String, Failure> {
    let name = file.display();
    let refused = |error: std::io::Error| Failure::new(format!("{name}: {error}"));
    let mut text = String::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().lock().take(STATEMENT_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(file)
            .map_err(refused)?
            .take(STATEMENT_BYTES_MAX + 1)
            .read_to_string(&mut text)
    };
    let bytes = read.map_err(refused)?;
    if u64::try_from(bytes).unwrap_or(u64::MAX) > STATEMENT_BYTES_MAX {
        return Err(Failure::new(format!("{name} is larger than 64 MiB: settle it in parts")));
    }
    Ok(text)
}

/// What every line would do.
async fn look(operator: &Operator, entries: &[Entry]) -> Result<Vec<Comparison>, Failure> {
    let mut keys: Vec<Uuid> = entries.iter().filter_map(|entry| entry.key.parse().ok()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut known: HashMap<Uuid, StatedItem> = HashMap::new();
    for keys in keys.chunks(STATEMENT_KEYS_MAX) {
        let found = operator.reader().stated(keys).await?;
        known.extend(found.into_iter().map(|item| (item.rail_key, item)));
    }
    let findings = compare(entries, &known);
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
        Comparison {
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
async fn settle(operator: &Operator, lines: &mut [Comparison], act: &Act, file: &Path) {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for line in lines {
        let (Some(resolution), Some(item)) = (line.resolution.take(), line.item) else { continue };
        let act = Act {
            reason: format!("{} (statement {name}, line {})", act.reason, line.line),
            // The statement is the bank's own word about this key: that is how we know.
            despite_unknown: true,
            ..act.clone()
        };
        match operator.resolve_payment(item, &resolution, &act).await {
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

/// Ask a second person to settle what the statement settles.
async fn ask(
    operator: &Operator,
    lines: &mut [Comparison],
    act: &Act,
    file: &Path,
) -> Result<Vec<ApprovalRequest>, Failure> {
    let act = Act {
        reason: format!("{} (statement {})", act.reason, file.display()),
        // As in settle.
        despite_unknown: true,
        ..act.clone()
    };
    let mut calls = Vec::new();
    for line in lines {
        if let (Some(resolution), Some(item)) = (&line.resolution, line.item) {
            calls.push(ActCall::resolve(item, resolution, &act));
            line.result = "asked";
        }
    }
    approval::ask_for_all(operator, &calls, &act).await.map_err(acts::in_options)
}

/// In the order a person must look at them.
const RESULTS: [(&str, &str); 9] = [
    ("contradicts", "contradict the ledger"),
    ("unreadable", "cannot be read"),
    ("refused", "were refused"),
    ("done", "settled"),
    ("asked", "wait for a second person"),
    ("settles", "would settle"),
    ("waits", "are not parked: the machine has them still"),
    ("agrees", "agree with the ledger already"),
    ("unknown", "are no payments of this installation"),
];

fn tell(
    global: &Global,
    act: &Act,
    stopped: bool,
    lines: Vec<Comparison>,
    ends: &str,
    requests: &[ApprovalRequest],
) -> Result<(), Failure> {
    let mut counts = HashMap::new();
    for line in &lines {
        *counts.entry(line.result).or_insert(0_usize) += 1;
    }
    if global.json {
        let approvals = requests.iter().filter_map(|request| request.request_no).collect();
        return output::json(&Report {
            act: "resolve",
            dry_run: act.dry_run,
            counts,
            approvals,
            lines,
        });
    }
    let mut text = String::new();
    // What agrees, and what is not ours, is only counted: a statement has thousands of those.
    let mut shown: Vec<&Comparison> =
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
    text.push_str(ends);
    if !requests.is_empty() {
        text.push_str(&approval::to_approve(requests));
    }
    if act.dry_run && stopped {
        text.push_str("  with contradictions or unreadable lines it would do nothing, unless --skip-contradictions leaves them out\n");
    }
    output::print(&text)
}
