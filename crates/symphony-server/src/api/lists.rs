//! What waits: the lanes at a glance, and dead letters by pages.

use std::sync::Arc;

use axum::Extension;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use symphony::db::{
    FailedExecution, FoundEvent, LaneStatus, LetterFilter, WaitingItem, WaitingQuery,
};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::caller::{Caller, Scope};
use super::extract::{Answer, Asked, Named, ok};
use super::operate::rows;
use super::problem::{Problem, Refusals};
use super::schemas;
use crate::console::Live;

/// Every lane at a glance, as it was at most two seconds ago.
#[utoipa::path(get, path = "/v1/status", tag = "look up",
    responses((status = 200, description = "a row per lane", body = Vec<schemas::Lane>), Refusals))]
pub(super) async fn status(
    caller: Caller,
    Extension(live): Extension<Arc<Live>>,
) -> Result<Answer<Vec<LaneStatus>>, Problem> {
    caller.needs(Scope::Read)?;
    Ok(ok(live.status(&caller.database.auditor()).await?))
}

/// Which dead letters.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LetterQuery {
    /// `next` of the page before.
    after: Option<String>,
    /// Only with this code: ours, or the rail's.
    code: Option<String>,
    /// Payments: PARKED or FAILED; both unless told.
    state: Option<String>,
    /// Payments: only of this rail.
    rail: Option<String>,
    /// Payments: only of this participant.
    participant: Option<String>,
    /// Events: only of this topic of any bus, or of `bus/topic`.
    topic: Option<String>,
    /// Executions: only of this app.
    app: Option<String>,
    /// Only what has waited since then or later.
    since: Option<DateTime<Utc>>,
    /// Only what has waited since before.
    until: Option<DateTime<Utc>>,
    /// The newest first; otherwise those that wait longest.
    #[serde(default)]
    newest: bool,
    /// At most so many; 50 unless told.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl LetterQuery {
    /// Refuses a filter that the lane's letters do not have, instead of ignoring it.
    fn fits(&self, lane: &str) -> Result<(), Problem> {
        for (name, of, given) in [
            ("state", "payments", self.state.is_some()),
            ("rail", "payments", self.rail.is_some()),
            ("participant", "payments", self.participant.is_some()),
            ("topic", "events", self.topic.is_some()),
            ("app", "triggers", self.app.is_some()),
        ] {
            if given && of != lane {
                return Err(Problem::invalid(format!("{name} is a filter of {of}: leave it out")));
            }
        }
        match self.state.as_deref() {
            None | Some("PARKED" | "FAILED") => Ok(()),
            Some(_) => Err(Problem::invalid("state must be PARKED or FAILED")),
        }
    }
}

/// A page of what waits for a person.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LetterPage {
    /// Payments, events or executions, as the lane has.
    #[schema(value_type = Vec<schemas::Letter>)]
    letters: Letters,
    /// For `after` of the next page; null if this is the last.
    next: Option<String>,
}

/// Of one lane.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Letters {
    /// Parked and failed payments.
    Payments(Vec<WaitingItem>),
    /// Failed events.
    Events(Vec<FoundEvent>),
    /// Failed executions.
    Triggers(Vec<FailedExecution>),
}

/// What waits for a person in a lane: parked and failed payments, failed events, failed executions; the oldest first.
#[utoipa::path(get, path = "/v1/dead-letters/{lane}", tag = "look up", params(("lane" = String, Path, pattern = "^(payments|events|triggers)$", description = "payments, events or triggers"), LetterQuery),
    responses((status = 200, description = "a page", body = LetterPage), Refusals))]
pub(super) async fn dead_letters(
    caller: Caller,
    Named(lane): Named<String>,
    Asked(query): Asked<LetterQuery>,
) -> Result<Answer<LetterPage>, Problem> {
    caller.needs(Scope::Read)?;
    let limit = rows(query.limit);
    let filter = LetterFilter {
        code: query.code.as_deref(),
        since: query.since,
        until: query.until,
        newest: query.newest,
        after: query.after.as_deref().map(cursor).transpose()?,
        // One more, to know whether there is another page.
        limit: limit + 1,
    };
    let reader = caller.database.auditor();
    let (letters, next) = match lane.as_str() {
        "payments" => {
            query.fits(&lane)?;
            let state = query.state.as_deref();
            let waiting = WaitingQuery {
                parked: state != Some("FAILED"),
                failed: state != Some("PARKED"),
                rail_type: query.rail.as_deref(),
                participant_id: query.participant.as_deref(),
                filter,
            };
            let mut items = reader.waiting(waiting).await?;
            let next = cut(&mut items, limit, |item| (item.since, item.outbox_id.0));
            (Letters::Payments(items), next)
        }
        "events" => {
            query.fits(&lane)?;
            let mut events = reader.failed_events(query.topic.as_deref(), filter).await?;
            let next = cut(&mut events, limit, |event| (event.ended_at, event.event_id));
            (Letters::Events(events), next)
        }
        "triggers" => {
            query.fits(&lane)?;
            let mut executions = reader.failed_executions(query.app.as_deref(), filter).await?;
            let next = cut(&mut executions, limit, |execution| (execution.failed_at, execution.id));
            (Letters::Triggers(executions), next)
        }
        _ => return Err(Problem::not_found("lane: payments, events or triggers")),
    };
    Ok(ok(LetterPage { letters, next }))
}

/// Leaves a page's rows, and says where the next begins.
fn cut<T>(
    rows: &mut Vec<T>,
    limit: i64,
    placed: impl Fn(&T) -> (DateTime<Utc>, Uuid),
) -> Option<String> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    let (since, id) = rows.last().filter(|_| more).map(placed)?;
    Some(place(since, id))
}

/// A place in a list, for `after`.
pub(crate) fn place(since: DateTime<Utc>, id: Uuid) -> String {
    format!("{}~{id}", since.to_rfc3339_opts(SecondsFormat::AutoSi, true))
}

pub(crate) fn cursor(text: &str) -> Result<(DateTime<Utc>, Uuid), Problem> {
    let parts = text.split_once('~').and_then(|(since, id)| {
        let since = DateTime::parse_from_rfc3339(since).ok()?.to_utc();
        Some((since, id.parse().ok()?))
    });
    parts.ok_or_else(|| Problem::invalid("after must be `next` of the page before"))
}
