//! `symphony status`: lanes at a glance.

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use chrono::{SecondsFormat, Utc};
use serde_json::json;
use symphony::db::{Auditor, DbError, LaneStatus, Role};

use super::attention::Attention;
use super::database::{Away, StopSignals};
use super::suggested_command::symphony;
use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;

pub(super) async fn run(global: &Global, watch: Option<u32>) -> Result<ExitCode, Failure> {
    let server = Server::open(global).await?;
    let result = match (server.database_as(Role::Auditor).await, watch) {
        (Ok(database), None) => once(global, &database.auditor()).await,
        (Ok(database), Some(seconds)) => {
            let every = Duration::from_secs(u64::from(seconds));
            keep_watching(global, every, &database.auditor()).await
        }
        (Err(failure), _) => Err(failure),
    };
    server.close().await?;
    result
}

/// The figures, and what needs attention.
struct Look {
    lanes: Vec<LaneStatus>,
    attention: Attention,
}

impl Look {
    async fn at(auditor: &Auditor) -> Result<Self, DbError> {
        let lanes = auditor.status().await?;
        Ok(Self { lanes, attention: Attention::look(auditor).await? })
    }

    fn text(&self) -> String {
        render(&self.lanes) + &self.attention.text()
    }
}

async fn once(global: &Global, auditor: &Auditor) -> Result<ExitCode, Failure> {
    let look = Look::at(auditor).await?;
    if global.json {
        let beside: Vec<_> = look.lanes.iter().map(|lane| look.attention.beside(lane)).collect();
        output::json(&beside)?;
    } else {
        output::print_verbatim(&look.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Until Ctrl-C, however long the database is away meanwhile.
async fn keep_watching(
    global: &Global,
    every: Duration,
    auditor: &Auditor,
) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::new()?;
    let in_place = io::stdout().is_terminal();
    let mut away = Away::default();
    loop {
        let looked = tokio::select! {
            () = signals.received() => return Ok(ExitCode::SUCCESS),
            looked = Look::at(auditor) => looked,
        };
        if let Some(look) = away.unless(looked)? {
            print(global, in_place, &look)?;
        }
        tokio::select! {
            () = signals.received() => return Ok(ExitCode::SUCCESS),
            () = tokio::time::sleep(every) => {}
        }
    }
}

/// One line of JSON; in place where a person looks; else a block with its time.
fn print(global: &Global, in_place: bool, look: &Look) -> Result<(), Failure> {
    let at = Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true);
    if global.json {
        let lanes: Vec<_> = look.lanes.iter().map(|lane| look.attention.beside(lane)).collect();
        let database = output::asked().map(output::AskedDatabase::document);
        return output::json_line(&json!({ "database": database, "at": at, "answer": lanes }));
    }
    if !in_place {
        return output::print_verbatim(&format!("{at}\n{}\n", look.text()));
    }
    let whose = output::asked().map(output::AskedDatabase::text).unwrap_or_default();
    // Home and clear, so that the table stays in place.
    output::print_verbatim(&format!("\x1b[H\x1b[2J{whose}, {at}\n{}", look.text()))
}

/// A figure of a lane: its name, what it counts, and how to read it.
type Figure = (&'static str, &'static str, fn(&LaneStatus) -> String);

const FIGURES: [Figure; 12] = [
    ("state", "", |lane| if lane.paused { "PAUSED" } else { "running" }.to_owned()),
    ("pending", "not ended yet", |lane| lane.pending.to_string()),
    ("due", "could go out now", |lane| lane.due_unleased_count.to_string()),
    ("in flight", "held by a worker", |lane| lane.leased_count.to_string()),
    ("expired", "held by one that did not report", |lane| lane.expired_lease_count.to_string()),
    ("scheduled", "wait for their retry", |lane| lane.scheduled_count.to_string()),
    ("waiting", "behind another one, or a pause", |lane| lane.waiting_count.to_string()),
    ("parked", "wait for a person", |lane| lane.parked_count.to_string()),
    ("dead letters", "FAILED: symphony dlq list", |lane| lane.dlq_count.to_string()),
    ("incidents", "symphony incident list", |lane| lane.incident_count.to_string()),
    ("approvals", "symphony approval list", |lane| lane.approval_waiting_count.to_string()),
    ("oldest", "since it was asked for", |lane| output::length(lane.oldest_pending_age_seconds)),
];

/// A line for each figure and a column for each lane: eighty columns have room for what a figure means.
fn render(lanes: &[LaneStatus]) -> String {
    let names = lanes.iter().map(|lane| output::number(&lane.lane));
    let columns: Vec<_> =
        std::iter::once(output::whole("")).chain(names).chain(["".into()]).collect();
    let rows = FIGURES.map(|(name, meaning, figure)| {
        let figures = lanes.iter().map(figure);
        let cells = std::iter::once(name.to_owned())
            .chain(figures)
            .chain([meaning.replace("symphony ", &symphony(""))]);
        cells.collect::<Vec<_>>()
    });
    output::table_of(&columns, rows)
}
