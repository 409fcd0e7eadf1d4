//! The life of one event as people read it.

use std::fmt::Write as _;

use symphony::db::EventLife;
use symphony::event::Event;

use super::super::hints::symphony;
use super::{Story, in_order, moment, told};
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
    let mut story: Story = vec![(record.created_at, "ENQUEUED".to_owned())];
    for attempt in &life.attempts {
        let mut told = String::new();
        if attempt.redrive_no > 0 {
            let _infallible = write!(told, "redrive {}, ", attempt.redrive_no);
        }
        let _infallible = write!(told, "attempt {}: {:?}", attempt.attempt_no, attempt.state);
        if attempt.outcome_unknown {
            told.push_str(" (outcome unknown)");
        }
        for (name, value) in [
            ("to", &attempt.destination),
            ("reference", &attempt.bus_reference),
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
        story.push((attempt.completed_at, told));
    }
    story.extend(life.events.iter().map(|event| (event.created_at, told(event))));
    text.push_str(&in_order(story));
    match (record.state.as_str(), record.next_attempt, record.blocked_by) {
        ("PENDING", Some(at), _) => {
            let _infallible = writeln!(text, "  now: PENDING, due {}", moment(at));
        }
        ("PENDING", None, Some(head)) => {
            let _infallible =
                writeln!(text, "  now: waits behind {head}, which FAILED: see that one");
        }
        ("FAILED", _, Some(head)) if head == record.event_id => {
            let redrive = symphony(&format!("redrive --event-id {head}"));
            let skip = symphony(&format!("skip --event-id {head}"));
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
        say(waits.workers == 0, "no live worker serves events".to_owned());
        if let (Some(bus), Some(since)) = (&waits.bus, waits.open_since) {
            let bus = plain(bus);
            let show = symphony(&format!("bus show {bus}"));
            let since = moment(since);
            say(true, format!("bus {bus} is in trouble and left alone since {since}: {show}"));
        }
    }
    text
}
