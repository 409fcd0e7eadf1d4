//! What `status` shows under the figures: what is paused, which rails and buses are in trouble, what nobody serves.

use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use symphony::db::{Auditor, DbError, DestinationStatus, LaneStatus, Paused, Unserved};

use super::suggested_command::{symphony, symphony_of};
use crate::bounds::ATTENTION_LISTED_MAX;
use crate::output;

/// What needs attention.
#[derive(Debug)]
pub(super) struct Attention {
    pub(super) paused: Vec<Paused>,
    /// Rails and buses in trouble.
    pub(super) left_alone: Vec<DestinationStatus>,
    pub(super) unserved: Vec<Unserved>,
}

impl Attention {
    pub(super) async fn look(auditor: &Auditor) -> Result<Self, DbError> {
        let mut left_alone = auditor.destinations(None).await?;
        left_alone.retain(|destination| destination.breaker != "CLOSED");
        Ok(Self {
            paused: auditor.paused().await?,
            left_alone,
            unserved: auditor.unserved().await?,
        })
    }

    /// What of it belongs to a lane, for scripts.
    pub(super) fn beside<'a>(&'a self, lane: &'a LaneStatus) -> LaneReport<'a> {
        let of_lane = |paused: &Paused| match paused.kind.as_str() {
            "lane" => false,
            "topic" => lane.lane == "events",
            "app" => lane.lane == "triggers",
            _ => lane.lane == "payments",
        };
        LaneReport {
            lane,
            paused_parts: self.paused.iter().filter(|paused| of_lane(paused)).collect(),
            left_alone: self.left_alone.iter().filter(|left| left.lane == lane.lane).collect(),
            unserved: self.unserved.iter().filter(|one| one.lane == lane.lane).collect(),
        }
    }

    /// For people, under the figures.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for line in self.lines() {
            text.push_str(&output::hanging("  ", &line));
        }
        text
    }

    /// One line each, with what to type.
    fn lines(&self) -> Vec<String> {
        let now = Utc::now();
        let mut lines: Vec<String> = Vec::new();
        for left in self.left_alone.iter().take(ATTENTION_LISTED_MAX) {
            let (kind, show) = match left.lane.as_str() {
                "events" => ("bus", symphony_of("bus show", &left.name, "")),
                "payments" => ("rail", symphony_of("rail show", &left.name, "")),
                _ => ("executor", symphony("app executions --state failed")),
            };
            let trouble = left.last_trouble.as_deref();
            let trouble =
                trouble.map(|what| format!(", {}", output::plain(what))).unwrap_or_default();
            let since = left.open_since.map_or(0, |since| (now - since).num_seconds());
            lines.push(format!(
                "{kind} {} is left alone for {}{trouble}: {show}",
                output::plain(&left.name),
                output::length(since)
            ));
        }
        let more = |found: usize| found.saturating_sub(ATTENTION_LISTED_MAX);
        if more(self.left_alone.len()) > 0 {
            lines.push(format!(
                "and {} more are left alone: {}, {}",
                more(self.left_alone.len()),
                symphony("rail"),
                symphony("bus")
            ));
        }
        lines.extend(self.unserved.iter().take(ATTENTION_LISTED_MAX).map(unserved));
        if more(self.unserved.len()) > 0 {
            lines.push(format!(
                "and {} more have no live worker: {}",
                more(self.unserved.len()),
                symphony("rail")
            ));
        }
        for paused in self.paused.iter().take(ATTENTION_LISTED_MAX) {
            let by = paused.actor.as_deref().map(output::plain).unwrap_or_default();
            let since = paused.since.map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true));
            lines.push(format!(
                "{} {} is paused since {} by {by}: {}",
                paused.kind,
                output::plain(&paused.name),
                since.unwrap_or_default(),
                output::plain(paused.reason.as_deref().unwrap_or_default())
            ));
        }
        if more(self.paused.len()) > 0 {
            lines.push(format!(
                "and {} more are paused: {}",
                more(self.paused.len()),
                symphony("pause list")
            ));
        }
        lines
    }
}

/// Everything that is paused, with who did it, why, and how to resume it.
pub(super) fn paused_table(paused: &[Paused]) -> String {
    output::table(
        [
            output::whole("what"),
            output::short("name"),
            output::whole("since"),
            output::short("by"),
            "why".into(),
            output::command("resume"),
        ],
        paused.iter().map(|one| {
            let resume = match one.kind.as_str() {
                "lane" => "resume".to_owned(),
                kind => format!("resume {kind}"),
            };
            [
                one.kind.clone(),
                one.name.clone(),
                one.since
                    .map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true))
                    .unwrap_or_default(),
                one.actor.clone().unwrap_or_default(),
                one.reason.clone().unwrap_or_default(),
                symphony_of(&resume, &one.name, "--reason WHY"),
            ]
        }),
    )
}

/// A lane's figures with what needs attention.
#[derive(Debug, Serialize)]
pub(super) struct LaneReport<'a> {
    #[serde(flatten)]
    lane: &'a LaneStatus,
    paused_parts: Vec<&'a Paused>,
    left_alone: Vec<&'a DestinationStatus>,
    unserved: Vec<&'a Unserved>,
}

/// Work that nobody serves, in words.
pub(super) fn unserved(unserved: &Unserved) -> String {
    let waits = match unserved.pending {
        Some(pending) => format!("{pending} wait, the oldest for"),
        None => "work waits,".to_owned(),
    };
    let age = output::length(unserved.oldest_seconds);
    if unserved.name == "*" {
        return format!("no live worker serves {}: {waits} {age}", unserved.lane);
    }
    format!(
        "no live worker serves rail {}: {waits} {age}; add [rails.{}] to a worker's symphony.toml",
        output::plain(&unserved.name),
        output::plain(&unserved.name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let left = DestinationStatus {
            lane: "payments".to_owned(),
            name: "sepa".to_owned(),
            workers: 1,
            workers_away: 1,
            breaker: "OPEN".to_owned(),
            open_since: None,
            next_probe_at: None,
            troubles: 1,
            last_trouble: None,
            last_trouble_at: None,
            calls_per_minute: 0,
            latency_ms: None,
            rate_per_second: None,
        };
        let one = Unserved {
            lane: "payments".to_owned(),
            name: "ach".to_owned(),
            pending: Some(1),
            oldest_seconds: 1,
        };
        let attention = Attention {
            paused: Vec::new(),
            left_alone: vec![left; ATTENTION_LISTED_MAX + 2],
            unserved: vec![one; ATTENTION_LISTED_MAX + 3],
        };
        let lines = attention.lines();
        assert_eq!(lines.len(), 2 * ATTENTION_LISTED_MAX + 2);
        for more in
            ["and 2 more are left alone: symphony", "and 3 more have no live worker: symphony"]
        {
            assert!(lines.iter().any(|line| line.starts_with(more)), "{more}: {lines:?}");
        }
    }
}
