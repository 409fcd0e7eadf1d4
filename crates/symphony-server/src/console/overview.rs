//! The lanes at a glance, and what needs a person.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use symphony::db::{Approval, ApprovalQuery, LaneStatus};

use super::live::{Attention, LaneSample};
use super::page::{
    act_link, age, badge, count, figure, in_address, moment, moment_or, nothing, plain,
};
use super::visit::{Refused, Visit};
use super::{Console, incidents};
use crate::bounds::{ATTENTION_SHOWN_MAX, PAUSED_COUNTED_MAX};

/// What is drawn of each lane: the chart's name, and its title.
const CHARTS: [(&str, &str); 5] = [
    ("pending", "Depth"),
    ("oldest_pending_age_seconds", "Oldest, s"),
    ("calls_per_minute", "Calls a minute"),
    ("latency_ms", "Latency, ms"),
    ("outcomes", "Outcomes a second"),
];

pub(super) async fn page(
    State(console): State<Arc<Console>>,
    visit: Visit,
) -> Result<Response, Refused> {
    let reader = visit.caller.database.auditor();
    let sample = console.live.now().await?;
    let attention = console.live.attention(&reader).await?;
    let waiting = ApprovalQuery {
        state: Some("WAITING"),
        limit: ATTENTION_SHOWN_MAX,
        ..ApprovalQuery::default()
    };
    let approvals = reader.approvals(waiting).await?;
    let lanes = sample.as_ref().map(|sample| sample.lanes.as_slice()).unwrap_or_default();
    let body = html! {
        div.title {
            h1 { "Overview" }
            p.live data-live="/console/live" role="status" {
                @match &sample {
                    Some(sample) => { "as of " (moment(sample.at)) },
                    None => "another process is counting: look again in a moment",
                }
            }
        }
        div.lanes {
            @for lane in lanes { (lane_card(&visit, lane)) }
        }
        (needs_attention(&visit, lanes, &approvals, &attention))
    };
    Ok(visit.page("Overview", &body))
}

fn lane_card(visit: &Visit, lane: &LaneSample) -> Markup {
    let status = &lane.status;
    let name = status.lane.as_str();
    let switch = match name {
        "payments" => ["pause_payment_lane", "resume_payment_lane"],
        "events" => ["pause_event_lane", "resume_event_lane"],
        _ => ["pause_trigger_lane", "resume_trigger_lane"],
    };
    let [pause, resume] = switch;
    html! {
        section.card.lane data-lane=(name) aria-label=(name) {
            div.lane-head {
                h2 { (name) }
                (badge(if status.paused { "PAUSED" } else { "RUNNING" }))
                @if status.paused { (act_link(visit, resume, &[], "Resume")) }
                @else { (act_link(visit, pause, &[], "Pause")) }
            }
            dl.figures {
                @for (key, title, value) in lane_figures(status) {
                    div { dt { (title) } dd data-figure=(key) { (value) } }
                }
                div { dt { "workers" } dd data-figure="live_worker_count" { (figure(status.live_worker_count)) } }
            }
            div.charts {
                @for (key, title) in CHARTS {
                    figure.chart data-chart=(key) {
                        figcaption { (title) }
                        span.latest data-latest {}
                        span.axis aria-hidden="true" { span data-from {} span data-to {} }
                    }
                }
            }
            p.links {
                a href={ "/console/waiting/" (name) } {
                    (figure(status.parked_count + status.dlq_count)) " waiting for a person"
                }
            }
        }
    }
}

fn lane_figures(status: &LaneStatus) -> [(&'static str, &'static str, String); 7] {
    [
        ("pending", "pending", figure(status.pending)),
        ("oldest_pending_age_seconds", "oldest", age(status.oldest_pending_age_seconds)),
        ("due_unleased_count", "due", figure(status.due_unleased_count)),
        ("leased_count", "in flight", figure(status.leased_count)),
        ("scheduled_count", "scheduled", figure(status.scheduled_count)),
        ("parked_count", "parked", figure(status.parked_count)),
        ("dlq_count", "dead letters", figure(status.dlq_count)),
    ]
}

fn needs_attention(
    visit: &Visit,
    lanes: &[LaneSample],
    approvals: &[Approval],
    attention: &Attention,
) -> Markup {
    let Attention { incidents, unserved, paused } = attention;
    let [shown_max, counted_max] = [ATTENTION_SHOWN_MAX, PAUSED_COUNTED_MAX]
        .map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    let late: Vec<&LaneSample> =
        lanes.iter().filter(|lane| lane.status.expired_lease_count > 0).collect();
    let open: Vec<&LaneSample> =
        lanes.iter().filter(|lane| lane.activity.breakers_open > 0).collect();
    let quiet = approvals.is_empty()
        && paused.is_empty()
        && unserved.is_empty()
        && incidents.is_empty()
        && late.is_empty()
        && open.is_empty();
    html! {
        section.card aria-labelledby="attention" {
            h2 #attention { "Needs attention" }
            @if quiet { (nothing("Nothing: no contradiction, nothing left alone, paused or unserved, no request waiting.")) }
            ul.attention {
                @for incident in incidents.iter().take(shown_max) {
                    li {
                        span.badge.bad { "contradiction" }
                        span {
                            "The ledger says " (plain(&incident.recorded_state)) " of "
                            a href={ "/console/search?q=" (incident.item_id) } { (incident.item_id) }
                            ", a late outcome says " (plain(&incident.late_state)) "."
                        }
                        (incidents::close(visit, incident))
                    }
                }
                @if incidents.len() > shown_max {
                    li { span.badge.bad { "contradiction" } span { "There are more: " a href="/console/contradictions" { "all contradictions" } } }
                }
                @for one in unserved.iter().take(shown_max) {
                    li {
                        span.badge.bad { "unserved" }
                        span {
                            @if one.name == "*" { "No live worker serves " (plain(&one.lane)) }
                            @else { "No live worker serves rail " b { (plain(&one.name)) } }
                            ": the oldest has waited for " (age(one.oldest_seconds)) "."
                        }
                    }
                }
                @if unserved.len() > shown_max {
                    li { span.badge.bad { "unserved" } span { "And " (unserved.len() - shown_max) " more." } }
                }
                @for lane in late {
                    li {
                        (badge("LEASE_EXPIRED"))
                        span { (count(lane.status.expired_lease_count, "lease", "leases")) " of " (lane.status.lane) " expired and not taken over yet: " a href="/console/workers" { "workers" } }
                    }
                }
                @for lane in open {
                    li {
                        span.badge.bad { "left alone" }
                        span { (count(lane.activity.breakers_open, "destination", "destinations")) " of " (lane.status.lane) " in trouble and left alone: " a href="/console/destinations" { "rails & buses" } }
                    }
                }
                @for request in approvals {
                    li {
                        (badge("WAITING"))
                        span {
                            a href={ "/console/approvals/" (request.request_no) } { "Request " (request.request_no) }
                            ": " (super::act_forms::title(&request.act)) ", asked by " (plain(&request.actor)) ", until " (moment(request.expires_at))
                        }
                    }
                }
                @for one in paused.iter().take(shown_max) {
                    li {
                        (badge("PAUSED"))
                        span {
                            (plain(&one.kind)) " "
                            @if one.kind == "participant" { a href={ "/console/participants/" (in_address(&one.name)) } { (plain(&one.name)) } }
                            @else { b { (plain(&one.name)) } }
                            " is paused since " (moment_or(one.since, "an unknown time"))
                            @if let Some(actor) = &one.actor { " by " (plain(actor)) }
                            @if let Some(reason) = &one.reason { ": " (plain(reason)) }
                        }
                    }
                }
                @if paused.len() > counted_max {
                    li { (badge("PAUSED")) span { "And more than " (counted_max - shown_max) " more." } }
                } @else if paused.len() > shown_max {
                    li { (badge("PAUSED")) span { "And " (paused.len() - shown_max) " more." } }
                }
            }
        }
    }
}
