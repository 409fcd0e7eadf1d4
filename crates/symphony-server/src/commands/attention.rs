//! What stands beside the figures: what is paused, which rails and buses are left alone, and what nobody serves.

use chrono::{SecondsFormat, Utc};
use serde::Serialize;
use symphony::db::{Auditor, DbError, DestinationStatus, LaneStatus, Paused, Unserved};

use crate::output;

/// How many of each are named.
const NAMED_MAX: usize = 10;

/// Everything of it.
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
    pub(super) fn beside<'a>(&'a self, lane: &'a LaneStatus) -> Beside<'a> {
        let of_lane = |paused: &Paused| match paused.kind.as_str() {
            "lane" => false,
            "app" => lane.lane == "triggers",
            _ => lane.lane == "payments",
        };
        Beside {
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
        for left in self.left_alone.iter().take(NAMED_MAX) {
            let kind = if left.lane == "events" { "bus" } else { "rail" };
            let trouble = left.last_trouble.as_deref();
            let trouble =
                trouble.map(|what| format!(", {}", output::plain(what))).unwrap_or_default();
            let since = left.open_since.map_or(0, |since| (now - since).num_seconds());
            lines.push(format!(
                "{kind} {} is left alone for {}{trouble}: symphony {kind} show {}",
                output::plain(&left.name),
                output::length(since),
                output::plain(&left.name)
            ));
        }
        lines.extend(self.unserved.iter().take(NAMED_MAX).map(unserved));
        for paused in self.paused.iter().take(NAMED_MAX) {
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
        if self.paused.len() > NAMED_MAX {
            lines.push("more is paused: symphony pause list".to_owned());
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
            let name = super::hints::quoted(&one.name);
            let resume = match (one.kind.as_str(), one.name.as_str()) {
                ("lane", "payments") => "resume payments".to_owned(),
                ("lane", "events") => "resume events".to_owned(),
                ("app", _) => format!("app resume {name}"),
                (kind, _) => format!("resume {kind} {name}"),
            };
            [
                one.kind.clone(),
                one.name.clone(),
                one.since
                    .map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true))
                    .unwrap_or_default(),
                one.actor.clone().unwrap_or_default(),
                one.reason.clone().unwrap_or_default(),
                super::hints::symphony(&format!("{resume} --reason WHY")),
            ]
        }),
    )
}

/// A lane's figures with what stands beside them.
#[derive(Debug, Serialize)]
pub(super) struct Beside<'a> {
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
