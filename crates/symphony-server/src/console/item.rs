//! The life of one payment or event, from the ledger: what `symphony show` tells, as a timeline.

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use symphony::db::{EventLife, EventWaits, PaymentLife, PaymentWaits};
use symphony::domain::OutboxId;
use uuid::Uuid;

use super::page::{
    act_link, badge, document, facts, hidden, in_address, moment, moment_or, plain, sentence,
};
use super::visit::{Named, Refused, Visit};
use crate::api::Problem;
use crate::commands::show::{self, Happened};

pub(super) async fn payment(visit: Visit, Named(id): Named<String>) -> Result<Response, Refused> {
    // The same lookup as the API's: an outbox id names its item, another id may name several.
    let Ok(item) = id.parse::<OutboxId>() else {
        let address = format!("/console/search?q={}", in_address(&id));
        return Ok(Redirect::to(&address).into_response());
    };
    let reader = visit.caller.database.auditor();
    let life = reader.payment_life(item).await?.ok_or_else(|| Problem::not_found("payment"))?;
    let asked = &life.instruction;
    let head = reader.lane_head(&asked.participant_id, &asked.rail_type).await?;
    Ok(visit.page("Payment", &payment_body(&visit, &life, head == Some(item))))
}

fn payment_body(visit: &Visit, life: &PaymentLife, leads_lane: bool) -> Markup {
    let asked = &life.instruction;
    let link = |id: &OutboxId| html! { a.id href={ "/console/payments/" (id) } { (id) } };
    let mut known: Vec<(&str, Markup)> = vec![
        ("outbox id", html! { code.id { (asked.outbox_id) } }),
        ("key", html! { code { (plain(&asked.idempotency_key)) } }),
        (
            "participant",
            html! {
                a href={ "/console/participants/" (in_address(&asked.participant_id)) } { (plain(&asked.participant_id)) }
                ", number " (asked.sequence_id)
            },
        ),
        ("rail", html! { (plain(&asked.rail_type)) }),
        ("asked for", moment(asked.created_at)),
    ];
    if let Some(key) = life.rail_key {
        known.push(("the rail knows it as", html! { code.id { (key) } }));
    }
    if let Some(origin) = &asked.redrive_of {
        known.push(("tries again", html! { (link(origin)) ", redrive " (asked.redrive_no) }));
    }
    if let Some(successor) = &life.redriven_as {
        known.push(("redriven as", link(successor)));
    }
    if let Some(pending) = &life.live {
        if pending.state != "PARKED" {
            known.push(("next attempt", moment(pending.next_attempt_at)));
        }
        if let Some(worker) = &pending.claimed_by {
            let until = moment_or(pending.lease_expires_at, "–");
            known.push(("held by", html! { (plain(worker)) " until " (until) }));
        }
    }
    html! {
        div.title {
            h1 { "Payment " span.name { (plain(&asked.instruction_id)) } }
            (badge(&life.state))
        }
        @if let Some(payload) = &asked.payload {
            p.amount { (sentence(&show::payment::amount(&payload.0))) }
        }
        (in_the_way(&payment_waits(life)))
        (actions(&payment_acts(visit, life, leads_lane)))
        div.columns {
            section.card aria-labelledby="life" {
                h2 #life { "Its life" }
                (timeline(&show::payment::timeline(life)))
            }
            div {
                section.card aria-labelledby="known" { h2 #known { "What was asked" } (facts(&known)) }
                section.card aria-labelledby="payload" {
                    h2 #payload { "Payload" }
                    @match &asked.payload {
                        Some(payload) => (document(&payload.0)),
                        None => (hidden("The payload")),
                    }
                }
            }
        }
    }
}

/// The acts that the present state allows; the database decides again. Skipped is what leads a FIFO lane, whichever item it is
/// asked from: so it is offered there only.
fn payment_acts(visit: &Visit, life: &PaymentLife, leads_lane: bool) -> Vec<Markup> {
    let id = life.instruction.outbox_id.to_string();
    let on = |act: &str, words: &str| act_link(visit, act, &[("p_outbox_id", &id)], words);
    let (participant, rail) = (&life.instruction.participant_id, &life.instruction.rail_type);
    let mut acts = match life.state.as_str() {
        "PARKED" => vec![
            on("resolve_outbox", "Resolve"),
            on("inquire_outbox", "Ask the rail"),
            on("release_outbox", "Release"),
        ],
        "FAILED" if life.redriven_as.is_none() => {
            vec![on("redrive_outbox", "Redrive"), on("close_payment_dead_letter", "Close")]
        }
        "DISPATCHED" | "FAILED" | "UNKNOWN" => Vec::new(),
        _ => vec![on("park_outbox", "Park"), on("inquire_outbox", "Ask the rail")],
    };
    if leads_lane {
        let lane = [("p_participant_id", participant.as_str()), ("p_rail_type", rail)];
        acts.push(act_link(visit, "skip_outbox_head", &lane, "Skip in its FIFO lane"));
    }
    acts
}

fn payment_waits(life: &PaymentLife) -> Vec<Markup> {
    let (Some(waits), Some(pending)) = (&life.waits, &life.live) else { return Vec::new() };
    let mut lines = Vec::new();
    if pending.state == "PARKED" {
        lines.push(if pending.must_inquire {
            html! { "Waits for a person, because nobody knows whether the money moved. Ask the rail, or look at the bank's own record, before you settle it." }
        } else {
            html! { "Waits for a person." }
        });
    } else {
        lines.extend(payment_obstacles(life, waits));
    }
    if waits.behind > 0 {
        lines.push(html! { (waits.behind) " wait behind it in its FIFO lane." });
    }
    lines
}

fn payment_obstacles(life: &PaymentLife, waits: &PaymentWaits) -> Vec<Markup> {
    let (rail, participant) = (&life.instruction.rail_type, &life.instruction.participant_id);
    let link = |id: &OutboxId| html! { a.id href={ "/console/payments/" (id) } { (id) } };
    let mut lines = Vec::new();
    if let Some(head) = &waits.blocked_by {
        lines.push(html! { "Waits behind " (link(head)) ", which FAILED and blocks its lane." });
    } else if let Some(head) = &waits.head {
        lines.push(html! { "Waits behind " (link(head)) " of its FIFO lane." });
    }
    for (applies, line) in [
        (waits.lane_paused, html! { "The payment lane is paused." }),
        (waits.rail_paused, html! { "Rail " (plain(rail)) " is paused." }),
        (waits.participant_paused, html! { "Participant " (plain(participant)) " is paused." }),
        (waits.workers == 0, html! { "No live worker serves rail " (plain(rail)) "." }),
        (waits.only_ask, html! { "A person has it asked about; it is not sent." }),
    ] {
        if applies {
            lines.push(line);
        }
    }
    if let Some(since) = waits.open_since {
        lines.push(html! { "Rail " (plain(rail)) " is in trouble and left alone since " (moment(since)) "." });
    }
    lines
}

pub(super) async fn event(visit: Visit, Named(id): Named<Uuid>) -> Result<Response, Refused> {
    let reader = visit.caller.database.auditor();
    let life = reader.event_life(id).await?.ok_or_else(|| Problem::not_found("event"))?;
    Ok(visit.page("Event", &event_body(&visit, &life)))
}

fn event_body(visit: &Visit, life: &EventLife) -> Markup {
    let record = &life.record;
    let known: Vec<(&str, Markup)> = vec![
        ("event id", html! { code.id { (record.event_id) } }),
        ("key", html! { code { (plain(&record.event_key)) } }),
        ("position in the log", html! { (record.log_position) }),
        ("told", moment(record.created_at)),
        ("attempts", html! { (record.attempts) }),
        ("next attempt", moment_or(record.next_attempt, "–")),
    ];
    let id = record.event_id.to_string();
    let on = |act: &str, words: &str| act_link(visit, act, &[("p_event_id", &id)], words);
    let blocks = record.blocked_by == Some(record.event_id);
    let acts = match record.state.as_str() {
        "FAILED" if blocks => {
            vec![on("redrive_event_outbox", "Redrive"), on("skip_event_outbox", "Skip")]
        }
        "FAILED" => {
            vec![on("redrive_event_outbox", "Redrive"), on("close_event_dead_letter", "Close")]
        }
        "SENT" => vec![on("redrive_event_outbox", "Publish again")],
        _ => Vec::new(),
    };
    html! {
        div.title {
            h1 { "Event " span.name { (plain(&record.event_type)) } }
            (badge(&record.state))
        }
        (in_the_way(&event_waits(life)))
        (actions(&acts))
        div.columns {
            section.card aria-labelledby="life" {
                h2 #life { "Its life" }
                (timeline(&show::event::timeline(life)))
            }
            div {
                section.card aria-labelledby="known" { h2 #known { "What was told" } (facts(&known)) }
                section.card aria-labelledby="payload" {
                    h2 #payload { "Event" }
                    @match &record.event {
                        Some(event) => (document(&event.0)),
                        None => (hidden("The event")),
                    }
                }
            }
        }
    }
}

fn event_waits(life: &EventLife) -> Vec<Markup> {
    let record = &life.record;
    let link = |id: &Uuid| html! { a.id href={ "/console/events/" (id) } { (id) } };
    let mut lines = Vec::new();
    match (record.state.as_str(), record.blocked_by) {
        ("FAILED", Some(head)) if head == record.event_id => {
            lines.push(html! { "Blocks its key: later events of it wait until this one is redriven or skipped." });
        }
        ("PENDING", Some(head)) => {
            lines.push(html! { "Waits behind " (link(&head)) ", which FAILED." });
        }
        _ => {}
    }
    let Some(waits) = &life.waits else { return lines };
    lines.extend(event_obstacles(waits));
    lines
}

fn event_obstacles(waits: &EventWaits) -> Vec<Markup> {
    let mut lines = Vec::new();
    if let Some(head) = &waits.behind {
        lines.push(html! { "Waits behind " a.id href={ "/console/events/" (head) } { (head) } ", an earlier event of its key." });
    }
    if waits.lane_paused {
        lines.push(html! { "The event lane is paused." });
    }
    if let Some(topic) = &waits.topic_paused {
        lines.push(html! { "Topic " (plain(topic)) " is paused since " (moment_or(waits.paused_since, "an unknown time")) "." });
    }
    if waits.workers == 0 {
        lines.push(html! { "No live worker serves events." });
    }
    if let (Some(bus), Some(since)) = (&waits.bus, waits.open_since) {
        lines.push(html! { "Bus " (plain(bus)) " is in trouble and left alone since " (moment(since)) "." });
    }
    lines
}

/// What stands in its way.
pub(super) fn in_the_way(lines: &[Markup]) -> Markup {
    html! {
        @if !lines.is_empty() {
            ul.in-the-way { @for line in lines { li { (line) } } }
        }
    }
}

pub(super) fn actions(acts: &[Markup]) -> Markup {
    html! { div.actions { @for act in acts { (act) } } }
}

pub(super) fn timeline(life: &[Happened]) -> Markup {
    html! {
        ol.timeline {
            @for happened in life {
                li class=(tone(&happened.what)) {
                    (moment(happened.at))
                    div {
                        b { (plain(&happened.what)) }
                        " " span { (happened.rest.trim_start_matches([',', ':', ' '])) }
                    }
                }
            }
        }
    }
}

/// How a line of the timeline is marked.
fn tone(what: &str) -> &'static str {
    let ends = |word: &str| what.to_uppercase().ends_with(word);
    if ends("DISPATCHED") || ends("APPROVAL_GIVEN") || ends("RESOLVED") {
        "good"
    } else if ends("FAILED") || ends("REQUEUE") || ends("LATE_OUTCOME") || ends("REFUSED") {
        "bad"
    } else if ends("RETRYABLE") || ends("PARKED") || ends("REQUESTED") || ends("REPAIRED") {
        "warn"
    } else {
        "dull"
    }
}

/// Nothing of this kind is there.
pub(super) fn unknown(what: &str) -> Refused {
    Refused(Problem::new(StatusCode::NOT_FOUND, "P7007", format!("there is no such {what}")))
}
