//! `symphony incident`: late outcomes that contradict the ledger, until a person says what became of them.

use std::process::ExitCode;

use chrono::{SecondsFormat, Utc};
use symphony::db::{ActCall, Incident, IncidentLane, Operator};

use super::acts::{self, Verb};
use super::approval::{self, Acted};
use super::suggested_command::symphony;
use crate::bounds::INCIDENTS_LISTED_MAX;
use crate::cli::{self, Global, Incidents};
use crate::output::{self, Failure};

const CLOSE: Verb = Verb { would: "close", done: "closed" };

pub(super) async fn run(global: &Global, what: &Incidents) -> Result<ExitCode, Failure> {
    acts::as_operator(global, async |operator| match what {
        Incidents::List => list(global, &operator).await,
        Incidents::Close { number, lane, act } => {
            let (act, wished) = (acts::approved_act(act)?, act.request_approval);
            let lane_name = match lane {
                cli::IncidentLane::Payments => "payments",
                cli::IncidentLane::Events => "events",
                cli::IncidentLane::Triggers => "triggers",
            };
            let lane = match lane {
                cli::IncidentLane::Payments => IncidentLane::Payments,
                cli::IncidentLane::Events => IncidentLane::Events,
                cli::IncidentLane::Triggers => IncidentLane::Triggers,
            };
            let call = ActCall::close_incident(lane, *number);
            let doing = operator.close_incident(lane, *number, &act);
            let closed = match approval::act_or_ask(&operator, wished, &act, &call, doing).await {
                Ok(Acted::Done(closed)) => closed,
                Ok(Acted::Asked(request)) => {
                    let target = format!("incident {number}");
                    return approval::tell_asked(global, &CLOSE, &target, &[request]);
                }
                Err(error) => return Err(acts::in_options(error)),
            };
            let told = format!(
                "the ledger says {}, a lost worker heard {}",
                with_reference(&closed.recorded_state, closed.recorded_reference.as_deref()),
                with_reference(&closed.late_state, closed.late_reference.as_deref()),
            );
            let target = format!("incident {number} of {}", closed.item_id);
            let ends = approval::ending(&operator, lane_name, &act, wished).await?;
            acts::tell(global, &CLOSE, ends, &closed, &target, &told)
        }
    })
    .await
}

async fn list(global: &Global, operator: &Operator) -> Result<ExitCode, Failure> {
    let incidents = operator.reader().incidents(INCIDENTS_LISTED_MAX).await?;
    if global.json {
        output::json(&incidents)?;
    } else if incidents.is_empty() {
        output::print("no late outcome contradicts the ledger\n")?;
    } else {
        output::print(&render(&incidents))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// As a table, with what to type next.
pub(super) fn render(incidents: &[Incident]) -> String {
    let now = Utc::now();
    let mut text = output::table(
        [
            output::number("incident"),
            output::whole("lane"),
            output::states("the ledger says"),
            output::states("a lost worker heard"),
            output::whole("since"),
            output::whole("for"),
            output::command("next"),
        ],
        incidents.iter().map(|incident| {
            let Incident { lane, incident_no, item_id, .. } = incident;
            [
                incident_no.to_string(),
                lane.clone(),
                with_reference(&incident.recorded_state, incident.recorded_reference.as_deref()),
                with_reference(&incident.late_state, incident.late_reference.as_deref()),
                incident.opened_at.to_rfc3339_opts(SecondsFormat::Secs, true),
                output::length((now - incident.opened_at).num_seconds()),
                symphony(&format!("show {item_id}")),
            ]
        }),
    );
    text.push_str(&format!(
        "  once it is settled with the rail: {}\n",
        symphony("incident close NUMBER --lane LANE --reason WHAT-WAS-FOUND")
    ));
    text
}

fn with_reference(state: &str, reference: Option<&str>) -> String {
    reference.map_or_else(
        || state.to_owned(),
        |reference| format!("{state} {}", output::plain(reference)),
    )
}
