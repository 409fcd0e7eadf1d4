//! `symphony status`: lanes at a glance.

use std::process::ExitCode;
use std::time::Duration;

use symphony::db::{Auditor, LaneStatus, Role};

use super::attention::Attention;
use crate::cli::Global;
use crate::output::{self, Failure};
use crate::server::Server;

const REFRESH: Duration = Duration::from_secs(1);

pub(super) async fn run(global: &Global, watch: bool) -> Result<ExitCode, Failure> {
    let server = Server::open(global).await?;
    let result = match server.database_as(Role::Auditor).await {
        Ok(database) => show(global, watch, &database.auditor()).await,
        Err(failure) => Err(failure),
    };
    server.close().await?;
    result
}

async fn show(global: &Global, watch: bool, auditor: &Auditor) -> Result<ExitCode, Failure> {
    loop {
        let lanes = auditor.status().await?;
        let attention = Attention::look(auditor).await?;
        if global.json {
            let beside: Vec<_> = lanes.iter().map(|lane| attention.beside(lane)).collect();
            output::json(&beside)?;
        } else {
            // Home and clear, so that the table stays in place.
            let place = if watch { format!("\x1b[H\x1b[2J{}\n", whose()) } else { String::new() };
            output::print_verbatim(&(place + &render(&lanes) + &attention.text()))?;
        }
        if !watch {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            result = super::database::wait_for_signal() => {
                result?;
                return Ok(ExitCode::SUCCESS);
            }
            () = tokio::time::sleep(REFRESH) => {}
        }
    }
}

/// Said again with each refresh, which clears the screen.
fn whose() -> String {
    output::asked().map(output::Asked::text).unwrap_or_default()
}

/// A figure of a lane: its name, what it counts, and how to read it.
type Figure = (&'static str, &'static str, fn(&LaneStatus) -> String);

const FIGURES: [Figure; 11] = [
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
    ("oldest", "since it was asked for", |lane| output::length(lane.oldest_pending_age_seconds)),
];

/// A line for each figure and a column for each lane: eighty columns have room for what a figure means.
fn render(lanes: &[LaneStatus]) -> String {
    let names = lanes.iter().map(|lane| output::number(&lane.lane));
    let columns: Vec<_> =
        std::iter::once(output::whole("")).chain(names).chain(["".into()]).collect();
    let rows = FIGURES.map(|(name, meaning, figure)| {
        let figures = lanes.iter().map(figure);
        let cells = std::iter::once(name.to_owned()).chain(figures).chain([meaning.to_owned()]);
        cells.collect::<Vec<_>>()
    });
    output::table_of(&columns, rows)
}
