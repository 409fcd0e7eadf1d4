//! What is operated, by pages: contradictions, pauses, destinations, workers and leases, participants with their proof, acts.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use symphony::db::{
    ActCursor, ActRow, ActsQuery, DestinationStatus, IncidentPlace, LeasePlace, LeaseRow,
    NumberedPayment, ParticipantRow, Paused, RailSettings, SequenceProof, TopicRow, WorkerRow,
    place_of_lease,
};
use utoipa::{IntoParams, ToSchema};

use super::caller::{Caller, Scope};
use super::extract::{Answer, Asked, Named, ok};
use super::problem::{Problem, Refusals};
use super::schemas;
use crate::bounds::{EVERYTHING_TIME_MAX, PAGE_ROWS_MAX, PROVED_NUMBERS_MAX};

/// The lanes, as they are named everywhere.
const LANES: [&str; 3] = ["payments", "events", "triggers"];

/// A page of a list.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Page<T> {
    /// Its rows.
    items: Vec<T>,
    /// Where the next page begins: `after`, or `before` where the newest come first; null if this is the last.
    next: Option<String>,
}

impl<T> Page<T> {
    /// Of rows of which one more was asked for than are shown.
    pub(super) fn of(mut items: Vec<T>, limit: i64, place: impl Fn(&T) -> String) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(place);
        Self { items, next }
    }
}

/// A page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// `next` of the page before.
    pub(super) after: Option<String>,
    /// At most so many; 50 unless told.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

impl PageQuery {
    pub(super) fn limit(&self) -> i64 {
        rows(self.limit)
    }

    /// Two names: the first has no `~`.
    fn pair(&self) -> Result<Option<(&str, &str)>, Problem> {
        let after = self.after.as_deref();
        after.map(|after| after.split_once('~').ok_or_else(not_a_place)).transpose()
    }
}

/// How many rows a page has.
pub(super) fn rows(limit: Option<u32>) -> i64 {
    i64::from(limit.unwrap_or(50).clamp(1, PAGE_ROWS_MAX))
}

fn not_a_place() -> Problem {
    Problem::invalid("after and before must be `next` of the page before")
}

fn moment(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// A time, a lane, and which one there.
fn timed(after: &str) -> Result<(DateTime<Utc>, String, String), Problem> {
    let mut parts = after.splitn(3, '~');
    let (Some(at), Some(lane), Some(which)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(not_a_place());
    };
    let at = DateTime::parse_from_rfc3339(at).map_err(|_| not_a_place())?.to_utc();
    Ok((at, lane.to_owned(), which.to_owned()))
}

fn known_lane(lane: Option<&str>) -> Result<Option<&str>, Problem> {
    match lane {
        Some(lane) if !LANES.contains(&lane) => {
            Err(Problem::invalid("lane must be payments, events or triggers"))
        }
        lane => Ok(lane),
    }
}

/// Which of a lane's.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct IncidentQuery {
    /// payments, events or triggers.
    lane: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// At most so many; 50 unless told.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Late outcomes that contradict the ledger and that nobody has closed, the oldest first.
#[utoipa::path(get, path = "/v1/incidents", tag = "look up", params(IncidentQuery),
    responses((status = 200, description = "a page", body = Page<schemas::Incident>), Refusals))]
pub(super) async fn incidents(
    caller: Caller,
    Asked(query): Asked<IncidentQuery>,
) -> Result<Answer<Page<symphony::db::Incident>>, Problem> {
    caller.needs(Scope::Read)?;
    let lane = known_lane(query.lane.as_deref())?;
    let after: Option<IncidentPlace> = query
        .after
        .as_deref()
        .map(|after| {
            let (at, lane, number) = timed(after)?;
            Ok::<_, Problem>((at, lane, number.parse().map_err(|_| not_a_place())?))
        })
        .transpose()?;
    let limit = rows(query.limit);
    let found = caller.database.auditor().incidents_after(lane, after.as_ref(), limit + 1).await?;
    Ok(ok(Page::of(found, limit, |one| {
        format!("{}~{}~{}", moment(one.opened_at), one.lane, one.incident_no)
    })))
}

/// What is paused: lanes, rails, participants, topics, apps; who did it, and why.
#[utoipa::path(get, path = "/v1/pauses", tag = "look up", params(PageQuery),
    responses((status = 200, description = "a page", body = Page<schemas::Pause>), Refusals))]
pub(super) async fn pauses(
    caller: Caller,
    Asked(query): Asked<PageQuery>,
) -> Result<Answer<Page<Paused>>, Problem> {
    caller.needs(Scope::Read)?;
    let found = caller.database.auditor().paused_after(query.pair()?, query.limit() + 1).await?;
    Ok(ok(Page::of(found, query.limit(), |one| format!("{}~{}", one.kind, one.name))))
}

/// Rails, topics of buses and runners of scripts as the live workers see them: breakers, probes, latency, limits.
#[utoipa::path(get, path = "/v1/destinations", tag = "look up", params(PageQuery),
    responses((status = 200, description = "a page", body = Page<schemas::Destination>), Refusals))]
pub(super) async fn destinations(
    caller: Caller,
    Asked(query): Asked<PageQuery>,
) -> Result<Answer<Page<DestinationStatus>>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.destinations_after(query.pair()?, query.limit() + 1).await?;
    Ok(ok(Page::of(found, query.limit(), |one| format!("{}~{}", one.lane, one.name))))
}

/// What the database knows of rails: order, pauses, limits. A rail that is not here has the defaults.
#[utoipa::path(get, path = "/v1/rails", tag = "look up", params(PageQuery),
    responses((status = 200, description = "a page", body = Page<schemas::Rail>), Refusals))]
pub(super) async fn rails(
    caller: Caller,
    Asked(query): Asked<PageQuery>,
) -> Result<Answer<Page<RailSettings>>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.rails_after(query.after.as_deref(), query.limit() + 1).await?;
    Ok(ok(Page::of(found, query.limit(), |one| one.rail_type.clone())))
}

/// Topics of buses that a worker has had a route to.
#[utoipa::path(get, path = "/v1/topics", tag = "look up", params(PageQuery),
    responses((status = 200, description = "a page", body = Page<schemas::Topic>), Refusals))]
pub(super) async fn topics(
    caller: Caller,
    Asked(query): Asked<PageQuery>,
) -> Result<Answer<Page<TopicRow>>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.topics_after(query.after.as_deref(), query.limit() + 1).await?;
    Ok(ok(Page::of(found, query.limit(), |one| one.topic.clone())))
}

/// Workers as they last reported.
#[utoipa::path(get, path = "/v1/workers", tag = "look up", params(PageQuery),
    responses((status = 200, description = "a page", body = Page<schemas::WorkerLine>), Refusals))]
pub(super) async fn workers(
    caller: Caller,
    Asked(query): Asked<PageQuery>,
) -> Result<Answer<Page<WorkerRow>>, Problem> {
    caller.needs(Scope::Read)?;
    // Lanes have no `~`, names may: the lane comes first in the place, and last in the order.
    let after = query.pair()?.map(|(lane, worker)| (worker, lane));
    let found = caller.database.auditor().workers_after(after, query.limit() + 1).await?;
    Ok(ok(Page::of(found, query.limit(), |one| format!("{}~{}", one.lane, one.worker_id))))
}

/// Which leases.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LeaseQuery {
    /// Only of this worker.
    worker: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// At most so many; 50 unless told.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What workers hold, those leases that expire first.
#[utoipa::path(get, path = "/v1/leases", tag = "look up", params(LeaseQuery),
    responses((status = 200, description = "a page", body = Page<schemas::Lease>), Refusals))]
pub(super) async fn leases(
    caller: Caller,
    Asked(query): Asked<LeaseQuery>,
) -> Result<Answer<Page<LeaseRow>>, Problem> {
    caller.needs(Scope::Read)?;
    let after: Option<LeasePlace> = query.after.as_deref().map(timed).transpose()?;
    let limit = rows(query.limit);
    let reader = caller.database.auditor();
    let found = reader.leases_after(query.worker.as_deref(), after.as_ref(), limit + 1).await?;
    Ok(ok(Page::of(found, limit, |one| {
        let (until, lane, which) = place_of_lease(one);
        format!("{}~{lane}~{which}", moment(until))
    })))
}

/// Participants by name.
#[utoipa::path(get, path = "/v1/participants", tag = "look up", params(PageQuery),
    responses((status = 200, description = "a page", body = Page<schemas::Participant>), Refusals))]
pub(super) async fn participants(
    caller: Caller,
    Asked(query): Asked<PageQuery>,
) -> Result<Answer<Page<ParticipantRow>>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.participants(query.after.as_deref(), query.limit() + 1).await?;
    Ok(ok(Page::of(found, query.limit(), |one| one.participant_id.clone())))
}

/// How much is proved.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ProofQuery {
    /// All of its numbers, and not the newest 10,000: one such request at a time.
    #[serde(default)]
    whole: bool,
}

/// A participant with the proof of its numbers.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProvedParticipant {
    /// It.
    #[schema(value_type = schemas::Participant)]
    participant: ParticipantRow,
    /// The proof begins after this number.
    proved_after: i64,
    /// Whether its numbers are whole from there on.
    #[schema(value_type = schemas::SequenceProof)]
    proof: SequenceProof,
}

/// One participant, and the proof that none of its numbers is missing.
#[utoipa::path(get, path = "/v1/participants/{id}", tag = "look up", params(("id" = String, Path), ProofQuery),
    responses((status = 200, description = "it, and the proof", body = ProvedParticipant), Refusals))]
pub(super) async fn participant(
    caller: Caller,
    Named(id): Named<String>,
    Asked(query): Asked<ProofQuery>,
) -> Result<Answer<ProvedParticipant>, Problem> {
    caller.needs(Scope::Read)?;
    let reader = caller.database.auditor();
    let found = reader.participant(&id).await?;
    let participant = found.ok_or_else(|| Problem::not_found("participant"))?;
    let newest = (participant.last_number - PROVED_NUMBERS_MAX).max(0);
    let proved_after = if query.whole { 0 } else { newest };
    let proof = if query.whole {
        let proving =
            async move { reader.sequence_proof_within(&id, 0, EVERYTHING_TIME_MAX).await };
        caller.everything.look(proving).await?
    } else {
        reader.sequence_proof(&id, newest).await?
    };
    Ok(ok(ProvedParticipant { participant, proved_after, proof }))
}

/// A page of which the newest come first.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct StreamQuery {
    /// Only smaller numbers than this: `next` of the page before.
    before: Option<i64>,
    /// At most so many; 50 unless told.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// The payments of a participant, the newest first.
#[utoipa::path(get, path = "/v1/participants/{id}/payments", tag = "look up", params(("id" = String, Path), StreamQuery),
    responses((status = 200, description = "a page", body = Page<schemas::NumberedPayment>), Refusals))]
pub(super) async fn stream(
    caller: Caller,
    Named(id): Named<String>,
    Asked(query): Asked<StreamQuery>,
) -> Result<Answer<Page<NumberedPayment>>, Problem> {
    caller.needs(Scope::Read)?;
    let limit = rows(query.limit);
    let found = caller.database.auditor().payments_of(&id, query.before, limit + 1).await?;
    Ok(ok(Page::of(found, limit, |one| one.sequence_id.to_string())))
}

/// Which acts.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AuditQuery {
    /// payments, events or triggers.
    lane: Option<String>,
    /// `next` of the page before.
    before: Option<String>,
    /// At most so many; 50 unless told.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What people did, asked for and decided, the newest first: who, with which token, why, and who approved it.
#[utoipa::path(get, path = "/v1/audit", tag = "look up", params(AuditQuery),
    responses((status = 200, description = "a page", body = Page<schemas::AuditLine>), Refusals))]
pub(super) async fn audit(
    caller: Caller,
    Asked(query): Asked<AuditQuery>,
) -> Result<Answer<Page<ActRow>>, Problem> {
    caller.needs(Scope::Read)?;
    let lane = known_lane(query.lane.as_deref())?;
    let before = query.before.as_deref().map(act_cursor).transpose()?.unwrap_or_default();
    let limit = rows(query.limit);
    let acts = ActsQuery { lane, before, limit: limit + 1 };
    let mut items = caller.database.auditor().acts(acts).await?;
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = items.len() > shown;
    items.truncate(shown);
    let next = more.then(|| place_of_act(before.after(&items)));
    Ok(ok(Page { items, next }))
}

/// The place among acts, for an address: each lane counts its own.
pub(crate) fn place_of_act(cursor: ActCursor) -> String {
    let ActCursor { payments, events, triggers } = cursor;
    [payments, events, triggers].map(|number| number.to_string()).join("~")
}

/// The last of each lane on the page before.
pub(crate) fn act_cursor(text: &str) -> Result<ActCursor, Problem> {
    let mut numbers = text.split('~').map(str::parse::<i64>);
    match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(payments)), Some(Ok(events)), Some(Ok(triggers)), None) => {
            Ok(ActCursor { payments, events, triggers })
        }
        _ => Err(not_a_place()),
    }
}
