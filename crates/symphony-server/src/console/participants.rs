//! Participants: their streams of payments, and the proof that no number is missing.

use axum::response::Response;
use maud::{Markup, html};
use symphony::db::{NumberedPayment, ParticipantRow, SequenceProof};

use super::item::unknown;
use super::page::{act_link, badge, figure, in_address, moment, nothing, pager, plain};
use super::visit::{Asked, Named, Refused, Visit};
use crate::bounds::{CONSOLE_ROWS, EVERYTHING_TIME_MAX, PROVED_NUMBERS_MAX};

pub(super) async fn list(visit: Visit, asked: Asked) -> Result<Response, Refused> {
    let reader = visit.caller.database.auditor();
    let rows = reader.participants(asked.get("after"), CONSOLE_ROWS).await?;
    let full = i64::try_from(rows.len()).unwrap_or_default() == CONSOLE_ROWS;
    let next = rows
        .last()
        .filter(|_| full)
        .map(|last| format!("/console/participants?after={}", in_address(&last.participant_id)));
    let first = asked.get("after").map(|_| "/console/participants");
    let body = html! {
        h1 { "Participants" }
        @if rows.is_empty() { (nothing("No payment was asked for yet.")) }
        @else { (table(&rows)) }
        (pager(first, next.as_deref()))
    };
    Ok(visit.page("Participants", &body))
}

fn table(rows: &[ParticipantRow]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th { "Participant" } th.number { "Last number" } th { "Last payment" } th { "" } } }
                tbody {
                    @for row in rows {
                        tr {
                            td { a href={ "/console/participants/" (in_address(&row.participant_id)) } { (plain(&row.participant_id)) } }
                            td.number { (figure(row.last_number)) }
                            td { (moment(row.last_at)) }
                            td { @if row.paused { (badge("PAUSED")) } }
                        }
                    }
                }
            }
        }
    }
}

pub(super) async fn page(
    visit: Visit,
    Named(id): Named<String>,
    asked: Asked,
) -> Result<Response, Refused> {
    let reader = visit.caller.database.auditor();
    let row = reader.participant(&id).await?.ok_or_else(|| unknown("participant"))?;
    let whole = asked.get("proof") == Some("whole");
    let after = if whole { 0 } else { (row.last_number - PROVED_NUMBERS_MAX).max(0) };
    let proof = if whole {
        let (reader, id) = (reader.clone(), id.clone());
        let asked = async move { reader.sequence_proof_within(&id, 0, EVERYTHING_TIME_MAX).await };
        visit.caller.everything.look(asked).await?
    } else {
        reader.sequence_proof(&id, after).await?
    };
    let payments = reader.payments_of(&id, asked.number("before")?, CONSOLE_ROWS).await?;
    let here = format!("/console/participants/{}", in_address(&id));
    let full = i64::try_from(payments.len()).unwrap_or_default() == CONSOLE_ROWS;
    let next = payments.last().filter(|_| full);
    let next = next.map(|last| format!("{here}?before={}", last.sequence_id));
    let body = html! {
        div.title {
            h1 { "Participant " span.name { (plain(&row.participant_id)) } }
            @if row.paused {
                (badge("PAUSED"))
                (act_link(&visit, "resume_payment_participant", &[("p_participant_id", &id)], "Resume"))
            } @else {
                (act_link(&visit, "pause_payment_participant", &[("p_participant_id", &id)], "Pause"))
            }
        }
        (proved(&here, &proof, after))
        section.card aria-labelledby="stream" {
            h2 #stream { "Its stream, the newest first" }
            (stream(&payments))
        }
        (pager(asked.get("before").map(|_| here.as_str()), next.as_deref()))
    };
    Ok(visit.page("Participant", &body))
}

fn proved(here: &str, proof: &SequenceProof, after: i64) -> Markup {
    html! {
        section.card aria-labelledby="proof" {
            h2 #proof { "The proof of its numbers" }
            @if proof.gaps.is_empty() {
                p { span.badge.good { "whole" } " Numbers " (figure(after + 1)) " to " (figure(proof.last)) ": " b { (figure(proof.counted)) } " payments, none missing, none twice." }
            } @else {
                p { span.badge.bad { "broken" } " Numbers are missing:" }
                ul { @for gap in &proof.gaps { li { (figure(gap.missing_from)) " to " (figure(gap.missing_to)) } } }
            }
            @if after > 0 {
                p.hint { "These are the newest. " a href={ (here) "?proof=whole" } { "Prove all of them" } ", which reads the whole stream." }
            }
        }
    }
}

fn stream(payments: &[NumberedPayment]) -> Markup {
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr { th.number { "Number" } th { "Payment" } th { "State" } th { "Rail" } th { "Asked for" } } }
                tbody {
                    @for payment in payments {
                        tr {
                            td.number { (figure(payment.sequence_id)) }
                            td { a href={ "/console/payments/" (payment.outbox_id) } { (plain(&payment.instruction_id)) } }
                            td { (badge(&payment.state)) }
                            td { (plain(&payment.rail_type)) }
                            td { (moment(payment.created_at)) }
                        }
                    }
                }
            }
        }
    }
}
