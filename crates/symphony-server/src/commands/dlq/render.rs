//! The tables of what waits for a person.

use chrono::Utc;
use symphony::db::{FailedExecution, FoundEvent, LetterCount, WaitingItem};

use super::super::suggested_command::symphony;
use super::{Line, Page};
use crate::output;

/// The safe next step. Where the money may have moved that is to look, never to send.
pub(super) fn next_command(item: &WaitingItem) -> String {
    let id = item.outbox_id;
    match (item.state.as_str(), item.must_inquire || item.late_yes) {
        ("FAILED", false) => symphony(&format!("redrive {id} --reason WHY")),
        ("PARKED", false) => symphony(&format!("release {id} --reason WHY")),
        _ => symphony(&format!("show {id}")),
    }
}

pub(super) fn payments(page: &Page<WaitingItem>) -> String {
    let mut text = output::table(
        [
            output::id("id"),
            output::short("instruction"),
            output::short("participant"),
            output::short("rail"),
            output::states("state"),
            output::short("code"),
            output::whole("for"),
            output::command("next"),
        ],
        page.lines.iter().map(|Line { item, next_command, .. }| {
            [
                item.outbox_id.to_string(),
                item.instruction_id.clone(),
                item.participant_id.clone(),
                item.rail_type.clone(),
                state(item),
                codes(item),
                output::length(item.age_seconds),
                next_command.clone(),
            ]
        }),
    );
    let any = |of: fn(&WaitingItem) -> bool| page.lines.iter().any(|line| of(&line.item));
    advise(
        &mut text,
        &[
            (
                any(|item| item.state == "PARKED" && (item.must_inquire || item.late_yes)),
                format!(
                    "unknown: look, ask the rail ({}), then: {}, or --as failed, or --as retry",
                    symphony("inquire ID --reason WHY"),
                    symphony("resolve ID --as dispatched --reference REF --reason WHY")
                ),
            ),
            (
                any(|item| item.blocks_its_lane),
                format!(
                    "blocks its lane: redrive it, or let the lane go on: {}",
                    symphony("skip --participant NAME --rail NAME --reason WHY")
                ),
            ),
            (
                any(|item| item.late_yes),
                "late yes: a rail told a lost worker that it was executed; sending it again may pay twice".to_owned(),
            ),
        ],
    );
    more(&mut text, page);
    text
}

pub(super) fn events(page: &Page<FoundEvent>) -> String {
    let now = Utc::now();
    let mut text = output::table(
        [
            output::id("event"),
            output::short("type"),
            output::short("key"),
            output::states("state"),
            output::short("to"),
            output::short("code"),
            output::whole("for"),
            output::command("next"),
        ],
        page.lines.iter().map(|Line { item, next_command, .. }| {
            [
                item.event_id.to_string(),
                item.event_type.clone(),
                item.event_key.clone(),
                if item.blocks_its_key { "FAILED, blocks its key" } else { "FAILED" }.to_owned(),
                item.destination.clone().unwrap_or_default(),
                item.error_code.clone().unwrap_or_default(),
                output::length((now - item.ended_at).num_seconds()),
                next_command.clone(),
            ]
        }),
    );
    advise(
        &mut text,
        &[
            (
                page.lines.iter().any(|line| line.item.blocks_its_key),
                format!(
                    "blocks its key: redrive it, or let the key go on without it: {}",
                    symphony("skip --event-id ID --reason WHY")
                ),
            ),
            (
                page.lines.len() > 1,
                format!(
                    "many of one cause: {}",
                    symphony("redrive --error-code CODE --event-type TYPE --reason WHY")
                ),
            ),
        ],
    );
    more(&mut text, page);
    text
}

pub(super) fn executions(page: &Page<FailedExecution>) -> String {
    let now = Utc::now();
    let mut text = output::table(
        [
            output::id("execution"),
            output::short("app"),
            output::short("script"),
            output::short("source"),
            output::states("state"),
            output::short("code"),
            output::whole("for"),
            output::command("next"),
        ],
        page.lines.iter().map(|Line { item, next_command, .. }| {
            [
                item.id.to_string(),
                item.app_name.clone().unwrap_or_default(),
                item.script_name.clone().unwrap_or_default(),
                item.source_kind.clone(),
                "FAILED".to_owned(),
                item.error_code.clone().unwrap_or_default(),
                output::length((now - item.failed_at).num_seconds()),
                next_command.clone(),
            ]
        }),
    );
    advise(
        &mut text,
        &[(
            page.lines.len() > 1,
            format!(
                "many of one cause: {}",
                symphony("redrive --app NAME --error-code CODE --reason WHY")
            ),
        )],
    );
    more(&mut text, page);
    text
}

pub(super) fn counts(counts: &[LetterCount]) -> String {
    let now = Utc::now();
    output::table(
        [
            output::whole("lane"),
            output::states("state"),
            output::short("rail, topic or app"),
            output::short("code"),
            output::number("items"),
            output::number("longest"),
        ],
        counts.iter().map(|count| {
            [
                count.lane.clone(),
                count.state.clone(),
                count.place.clone().unwrap_or_default(),
                count.code.clone().unwrap_or_default(),
                count.items.to_string(),
                output::length((now - count.oldest).num_seconds()),
            ]
        }),
    )
}

fn more<T>(text: &mut String, page: &Page<T>) {
    if let Some(next) = &page.next {
        text.push_str(&format!(
            "  there are more: raise --limit, choose by a filter, or go on with\n  {next}\n"
        ));
    }
}

fn advise(text: &mut String, advice: &[(bool, String)]) {
    for (applies, advice) in advice {
        if *applies {
            text.push_str("  ");
            text.push_str(advice);
            text.push('\n');
        }
    }
}

fn state(item: &WaitingItem) -> String {
    let mut text = item.state.clone();
    for (applies, word) in [
        (item.must_inquire, ", unknown"),
        (item.blocks_its_lane, ", blocks its lane"),
        (item.late_yes, ", late yes"),
    ] {
        if applies {
            text.push_str(word);
        }
    }
    text
}

fn codes(item: &WaitingItem) -> String {
    let codes: Vec<&str> =
        [&item.error_code, &item.rail_code].into_iter().flatten().map(String::as_str).collect();
    codes.join(" / ")
}
