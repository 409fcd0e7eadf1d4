//! The life of one event as people read it.

use std::fmt::Write as _;

use symphony::db::EventLife;
use symphony::event::Event;

use super::super::suggested_command::{symphony, symphony_of};
use super::{Outcome, Timeline, enqueued, in_order, lines, moment, told};
use crate::output::{plain, state};

pub(super) fn render(life: &EventLife) -> String {
    let record = &life.record;
    let mut text = format!(
        "{}  {}\n  type {}",
        record.event_id,
        state(&record.state),
        plain(&record.event_type)
    );
    // Accepted once, so it is readable; should the rules have changed since, the rest is shown all the same.
    let event = record.event.as_ref().and_then(|event| Event::parse(event.0.get()).ok());
    if let Some(event) = event {
        let _infallible = write!(
            text,
            ", tenant {}\n  {} {}",
            plain(event.tenant_id()),
            plain(event.key_name()),
            plain(event.key())
        );
    } else {
        let _infallible = write!(text, "\n  key {}", plain(&record.event_key));
    }
    let _infallible = writeln!(text, ", position {} in the log", record.log_position);
    text.push_str(&lines(&timeline(life)));
    match (record.state.as_str(), record.next_attempt, record.blocked_by) {
        ("PENDING", Some(at), _) => {
            let _infallible = writeln!(text, "  now: PENDING, due {}", moment(at));
        }
        ("PENDING", None, Some(head)) => {
            let show = symphony(&format!("show {head}"));
            let _infallible = writeln!(text, "  now: waits behind {head}, which FAILED: {show}");
        }
        ("FAILED", _, Some(head)) if head == record.event_id => {
            let redrive = symphony(&format!("redrive --event-id {head} --reason WHY"));
            let skip = symphony(&format!("skip --event-id {head} --reason WHY"));
            let _infallible = writeln!(text, "  now: blocks its key: {redrive}, or {skip}");
        }
        _ => {}
    }
    if let Some(waits) = &life.waits {
        let mut say = |applies: bool, line: String| {
            if applies {
                let _infallible = writeln!(text, "  {line}");
            }
        };
        if let Some(head) = waits.behind {
            let show = symphony(&format!("show {head}"));
            say(true, format!("waits behind {head}, an earlier event of its key: {show}"));
        }
        let resume = symphony("resume events --reason WHY");
        say(waits.lane_paused, format!("the event lane is paused: {resume}"));
        if let Some(topic) = &waits.topic_paused {
            let resume = symphony_of("resume topic", topic, "--reason WHY");
            let since = waits.paused_since.map(moment).unwrap_or_default();
            let by = waits.paused_by.as_deref().map(plain).unwrap_or_default();
            say(true, format!("topic {} is paused since {since} by {by}: {resume}", plain(topic)));
        }
        say(waits.workers == 0, "no live worker serves events".to_owned());
        if let (Some(bus), Some(since)) = (&waits.bus, waits.open_since) {
            let show = symphony_of("bus show", bus, "");
            let bus = plain(bus);
            let since = moment(since);
            say(true, format!("bus {bus} is in trouble and left alone since {since}: {show}"));
        }
    }
    text
}

/// What happened to it, in order.
pub(crate) fn timeline(life: &EventLife) -> Timeline {
    let mut timeline: Timeline = vec![enqueued(life.record.created_at)];
    for attempt in &life.attempts {
        let outcome = Outcome {
            attempt_no: attempt.attempt_no,
            state: format!("{:?}", attempt.state),
            unknown: attempt.outcome_unknown,
            facts: &[
                ("to", &attempt.destination),
                ("reference", &attempt.bus_reference),
                ("error", &attempt.error_code),
            ],
            message: attempt.error_message.as_deref(),
            worker_id: &attempt.worker_id,
        };
        let mut told = outcome.tell(attempt.completed_at);
        if attempt.redrive_no > 0 {
            told.what.insert_str(0, &format!("redrive {}, ", attempt.redrive_no));
        }
        timeline.push(told);
    }
    timeline.extend(life.events.iter().map(told));
    in_order(timeline)
}
