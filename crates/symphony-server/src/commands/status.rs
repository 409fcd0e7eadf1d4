//! `symphony status`: lanes at a glance.

use std::process::ExitCode;
use std::time::Duration;

use symphony::db::{Auditor, LaneStatus, Role};

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
        if global.json {
            output::json(&lanes)?;
        } else {
            // Home and clear, so that the table stays in place.
            output::print(&format!(
                "{}{}",
                if watch { format!("\x1b[H\x1b[2J{}\n", whose()) } else { String::new() },
                render(&lanes)
            ))?;
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

fn render(lanes: &[LaneStatus]) -> String {
    output::table(
        [
            "lane",
            "pending",
            "due",
            "in flight",
            "expired",
            "scheduled",
            "waiting",
            "parked",
            "dead letters",
            "incidents",
            "oldest",
            "",
        ],
        lanes.iter().map(|lane| {
            [
                lane.lane.clone(),
                lane.pending.to_string(),
                lane.due_unleased_count.to_string(),
                lane.leased_count.to_string(),
                lane.expired_lease_count.to_string(),
                lane.scheduled_count.to_string(),
                lane.waiting_count.to_string(),
                lane.parked_count.to_string(),
                lane.dlq_count.to_string(),
                lane.incident_count.to_string(),
                format!("{} s", lane.oldest_pending_age_seconds),
                if lane.paused { "PAUSED".to_owned() } else { String::new() },
            ]
        }),
    )
}
