//! The life of one payment as people read it: what was asked, everything that happened, what it waits for.

use std::fmt::Write as _;

use chrono::Utc;
use serde_json::value::RawValue;
use symphony::db::{LivePayment, PaymentAttemptRow, PaymentLife, PaymentWaits};
use symphony::money;

use super::super::suggested_command::{option, symphony, symphony_of};
use super::{Happened, Outcome, Timeline, enqueued, in_order, lines, moment, told};
use crate::output::{plain, state};

/// All of it.
pub(in super::super) fn render(life: &PaymentLife) -> String {
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
    text.push_str(&lines(&timeline(life)));
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
pub(crate) fn amount(payload: &RawValue) -> String {
    let to = money::masked_destination(payload);
    let to = to.map(|to| format!(" to {}", plain(&to))).unwrap_or_default();
    match money::read_amount(payload) {
        Ok(amount) => format!("{} {}{to}", amount.value, amount.currency),
        Err(defect) => format!("no amount: {defect}{to}"),
    }
}

/// What happened to it, in order.
pub(crate) fn timeline(life: &PaymentLife) -> Timeline {
    let mut timeline: Timeline = vec![enqueued(life.instruction.created_at)];
    timeline.extend(life.attempts.iter().map(outcome));
    timeline.extend(life.events.iter().map(told));
    in_order(timeline)
}

fn outcome(attempt: &PaymentAttemptRow) -> Happened {
    let outcome = Outcome {
        attempt_no: attempt.attempt_no,
        state: format!("{:?}", attempt.state),
        unknown: attempt.outcome_unknown,
        facts: &[
            ("reference", &attempt.rail_reference),
            ("rail code", &attempt.rail_code),
            ("error", &attempt.error_code),
        ],
        message: attempt.error_message.as_deref(),
        worker_id: &attempt.worker_id,
    };
    outcome.tell(attempt.completed_at)
}

/// What stands in its way, with what to type.
pub(in super::super) fn waits_for(life: &PaymentLife, pending: &LivePayment) -> Vec<String> {
    let Some(waits) = &life.waits else { return Vec::new() };
    let id = life.instruction.outbox_id;
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
        in_the_way(life, waits, &mut say);
        let later = pending.state == "SCHEDULED" && pending.next_attempt_at > Utc::now();
        say(later, format!("waits for its next try, at {}", moment(pending.next_attempt_at)));
    }
    say(waits.behind > 0, format!("{} wait behind it in its FIFO lane", waits.behind));
    lines
}

fn in_the_way(life: &PaymentLife, waits: &PaymentWaits, say: &mut impl FnMut(bool, String)) {
    let stored_rail = life.instruction.rail_type.as_str();
    let stored_participant = life.instruction.participant_id.as_str();
    let (rail, participant) = (plain(stored_rail), plain(stored_participant));
    if let Some(head) = waits.blocked_by {
        let redrive = symphony(&format!("redrive {head} --reason WHY"));
        let of_lane =
            [option("--participant", stored_participant), option("--rail", stored_rail)].join(" ");
        let skip = symphony(&format!("skip {of_lane} --reason WHY"));
        say(
            true,
            format!("waits behind {head}, which FAILED and blocks its lane: {redrive} or {skip}"),
        );
    } else if let Some(head) = waits.head {
        let show = symphony(&format!("show {head}"));
        say(true, format!("waits behind {head} of its FIFO lane: {show}"));
    }
    let resume = symphony("resume payments --reason WHY");
    say(waits.lane_paused, format!("the payment lane is paused: {resume}"));
    let resume = symphony_of("resume rail", stored_rail, "--reason WHY");
    say(waits.rail_paused, format!("rail {rail} is paused: {resume}"));
    let resume = symphony_of("resume participant", stored_participant, "--reason WHY");
    say(waits.participant_paused, format!("participant {participant} is paused: {resume}"));
    say(waits.workers == 0, format!("no live worker serves rail {rail}: {}", symphony("rail")));
    if let Some(since) = waits.open_since {
        let show = symphony_of("rail show", stored_rail, "");
        say(
            true,
            format!("rail {rail} is in trouble and left alone since {}: {show}", moment(since)),
        );
    }
    say(waits.only_ask, "a person has it asked about; it is not sent".to_owned());
}
