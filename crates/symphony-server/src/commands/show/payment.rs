//! The life of one payment as people read it: what was asked, everything that happened, what it waits for.

use std::fmt::Write as _;

use chrono::Utc;
use serde_json::value::RawValue;
use symphony::db::{AttemptRow, ItemLife, LiveItem, PaymentWaits};
use symphony::money;

use super::super::hints::symphony;
use super::{Story, in_order, moment, told};
use crate::output::{plain, state};

/// All of it.
pub(in super::super) fn render(life: &ItemLife) -> String {
    let asked = &life.instruction;
    let mut text = format!(
        "{}  {}\n  instruction {}, key {}\n  participant {}, number {}, rail {}\n",
        asked.outbox_id,
        state(&life.state),
        plain(&asked.instruction_id),
        plain(&asked.idempotency_key),
        plain(&asked.participant_id),
        asked.sequence_id,
        plain(&asked.rail_type)
    );
    if let Some(payload) = &asked.payload {
        let _infallible = writeln!(text, "  {}", amount(&payload.0));
    }
    if let Some(key) = life.rail_key {
        let _infallible = writeln!(text, "  the rail knows it as {key}");
    }
    if let Some(origin) = asked.redrive_of {
        let _infallible = writeln!(text, "  redrive {} of {origin}", asked.redrive_no);
    }
    if let Some(successor) = life.redriven_as {
        let _infallible = writeln!(text, "  redriven as {successor}");
    }
    let mut story: Story = vec![(asked.created_at, "ENQUEUED".to_owned())];
    story.extend(life.attempts.iter().map(|attempt| (attempt.completed_at, outcome(attempt))));
    story.extend(life.events.iter().map(|event| (event.created_at, told(event))));
    text.push_str(&in_order(story));
    if let Some(live) = &life.live {
        let _infallible = writeln!(
            text,
            "  now: {}, due {}{}{}",
            state(&live.state),
            moment(live.next_attempt_at),
            live.claimed_by
                .as_ref()
                .map(|worker| format!(", held by {}", plain(worker)))
                .unwrap_or_default(),
            if live.must_inquire { ", must inquire before sending" } else { "" },
        );
        for waits in waits_for(life, live) {
            let _infallible = writeln!(text, "  {waits}");
        }
    }
    text
}

/// How much, and where to, as far as that may be shown.
fn amount(payload: &RawValue) -> String {
    let to = money::masked_destination(payload);
    let to = to.map(|to| format!(" to {}", plain(&to))).unwrap_or_default();
    match money::read_amount(payload) {
        Ok(amount) => format!("{} {}{to}", amount.value, amount.currency),
        Err(defect) => format!("no amount: {defect}{to}"),
    }
}

fn outcome(attempt: &AttemptRow) -> String {
    let mut told = format!("attempt {}: {:?}", attempt.attempt_no, attempt.state);
    if attempt.outcome_unknown {
        told.push_str(" (outcome unknown)");
    }
    for (name, value) in [
        ("reference", &attempt.rail_reference),
        ("rail code", &attempt.rail_code),
        ("error", &attempt.error_code),
    ] {
        if let Some(value) = value {
            let _infallible = write!(told, ", {name} {}", plain(value));
        }
    }
    if let Some(message) = &attempt.error_message {
        let _infallible = write!(told, " ({})", plain(message));
    }
    let _infallible = write!(told, ", by {}", plain(&attempt.worker_id));
    told
}

/// What stands in its way, with what to type.
pub(in super::super) fn waits_for(life: &ItemLife, pending: &LiveItem) -> Vec<String> {
    let Some(waits) = &life.waits else { return Vec::new() };
    let id = life.instruction.outbox_id;
    let rail = plain(&life.instruction.rail_type);
    let participant = plain(&life.instruction.participant_id);
    let mut lines = Vec::new();
    let mut say = |applies: bool, line: String| {
        if applies {
            lines.push(line);
        }
    };
    if pending.state == "PARKED" {
        let ask = symphony(&format!("inquire {id} --reason WHY --yes"));
        let release = symphony(&format!("release {id} --reason WHY"));
        say(
            pending.must_inquire,
            format!(
                "waits for a person, because nobody knows whether the money moved; ask the rail: {ask}"
            ),
        );
        say(!pending.must_inquire, format!("waits for a person: {release}"));
    } else {
        in_the_way(waits, &rail, &participant, &mut say);
        let later = pending.state == "SCHEDULED" && pending.next_attempt_at > Utc::now();
        say(later, format!("waits for its next try, at {}", moment(pending.next_attempt_at)));
    }
    say(waits.behind > 0, format!("{} wait behind it in its FIFO lane", waits.behind));
    lines
}

fn in_the_way(
    waits: &PaymentWaits,
    rail: &str,
    participant: &str,
    say: &mut impl FnMut(bool, String),
) {
    if let Some(head) = waits.blocked_by {
        let redrive = symphony(&format!("redrive {head} --reason WHY"));
        let skip =
            symphony(&format!("skip --participant {participant} --rail {rail} --reason WHY"));
        say(
            true,
            format!("waits behind {head}, which FAILED and blocks its lane: {redrive} or {skip}"),
        );
    } else if let Some(head) = waits.head {
        let show = symphony(&format!("show {head}"));
        say(true, format!("waits behind {head} of its FIFO lane: {show}"));
    }
    let resume = |what: &str| symphony(&format!("resume {what} --reason WHY"));
    say(waits.lane_paused, format!("the payment lane is paused: {}", resume("lane")));
    say(waits.rail_paused, format!("rail {rail} is paused: {}", resume(&format!("rail {rail}"))));
    say(
        waits.participant_paused,
        format!(
            "participant {participant} is paused: {}",
            resume(&format!("participant {participant}"))
        ),
    );
    say(waits.workers == 0, format!("no live worker serves rail {rail}: {}", symphony("rail")));
    if let Some(since) = waits.open_since {
        let show = symphony(&format!("rail show {rail}"));
        say(
            true,
            format!("rail {rail} is in trouble and left alone since {}: {show}", moment(since)),
        );
    }
    say(waits.only_ask, "a person has it asked about; it is not sent".to_owned());
}
