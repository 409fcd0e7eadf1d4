//! Rails and buses as live workers see them, for people; and having one tried at once.

use std::process::ExitCode;

use chrono::{DateTime, SecondsFormat, Utc};
use symphony::db::{DestinationStatus, Operator};

use super::acts::{self, Verb};
use super::nearest;
use super::suggested_command::symphony;
use crate::cli::{Global, Reset};
use crate::output::{self, Failure};

const RESET: Verb = Verb { would: "reset", done: "reset" };

/// A rail or a bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Rail,
    Bus,
}

impl Kind {
    pub(super) fn lane(self) -> &'static str {
        match self {
            Self::Rail => "payments",
            Self::Bus => "events",
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Rail => "rail",
            Self::Bus => "bus",
        }
    }
}

pub(super) async fn reset(
    global: &Global,
    kind: Kind,
    options: &Reset,
) -> Result<ExitCode, Failure> {
    let act = acts::act_of(&options.act)?;
    acts::as_operator(global, async |operator| {
        let answer = operator.reset_destination(kind.lane(), &options.name, &act).await;
        let answer = match answer {
            Err(error) if error.code() == "P7007" => {
                return Err(not_served(&operator, kind, &options.name).await?);
            }
            answer => answer.map_err(acts::in_options)?,
        };
        let target = format!("{} {}", kind.word(), output::plain(&options.name));
        if !global.json && answer.state_before == "CLOSED" {
            output::print(&format!("{target} is CLOSED: nobody leaves it alone\n"))?;
            return Ok(ExitCode::SUCCESS);
        }
        let becomes = format!(
            "{} → {}, by each worker within three seconds; if it is still in trouble it is left alone again",
            answer.state_before, answer.state_after
        );
        let ends = if answer.dry_run { acts::REPEAT } else { "" };
        acts::tell(global, &RESET, ends, &answer, &target, &becomes)
    })
    .await
}

/// No live worker serves it: the names that are meant, perhaps.
pub(super) async fn not_served(
    operator: &Operator,
    kind: Kind,
    name: &str,
) -> Result<Failure, Failure> {
    let served = operator.reader().destinations(Some(kind.lane())).await?;
    let names: Vec<String> = served.into_iter().map(|served| served.name).collect();
    let what = kind.word();
    Ok(Failure::new(format!(
        "no live worker serves a {what} {name:?}{}",
        nearest::hint(name, &names, &symphony(what))
    ))
    .with_code("P7007"))
}

/// In a few words, for a table.
pub(super) fn in_short(status: &DestinationStatus, now: DateTime<Utc>) -> String {
    match status.open_since {
        None => status.breaker.clone(),
        Some(since) => {
            let trouble = status.last_trouble.as_deref().map(output::plain).unwrap_or_default();
            format!("OPEN {}, {trouble}", output::length((now - since).num_seconds()))
        }
    }
}

/// How many calls, and how long they take.
pub(super) fn calls(status: &DestinationStatus) -> (String, String) {
    let latency = status.latency_ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms} ms"));
    (status.calls_per_minute.to_string(), latency)
}

/// All there is to say, one thing a line.
pub(super) fn lines(status: &DestinationStatus, now: DateTime<Utc>) -> Vec<(&'static str, String)> {
    let ago = |at: DateTime<Utc>| output::length((now - at).num_seconds().max(0));
    let mut lines = Vec::new();
    lines.push(match status.open_since {
        None if status.breaker == "CLOSED" => ("state", "CLOSED: everything flows".to_owned()),
        None => ("state", status.breaker.clone()),
        Some(since) => (
            "state",
            format!(
                "OPEN since {} ({}): left alone by {} of {} workers",
                since.to_rfc3339_opts(SecondsFormat::Secs, true),
                ago(since),
                status.workers_away,
                status.workers
            ),
        ),
    });
    if let Some(at) = status.next_probe_at {
        let wait = (at - now).num_seconds();
        let when = if wait > 0 { format!("in {wait} s") } else { "now".to_owned() };
        lines.push(("next probe", when));
    }
    if let (Some(trouble), Some(at)) = (&status.last_trouble, status.last_trouble_at) {
        let row = match status.troubles {
            0 => String::new(),
            count => format!(", {count} in a row"),
        };
        lines.push(("trouble", format!("{}, {} ago{row}", output::plain(trouble), ago(at))));
    }
    let (per_minute, latency) = calls(status);
    let limit =
        status.rate_per_second.map(|rate| format!(", at most {rate} a second")).unwrap_or_default();
    lines.push(("calls", format!("{per_minute} a minute, {latency} on average{limit}")));
    lines.push(("workers", status.workers.to_string()));
    lines
}

/// Named things, one a line, under a title.
pub(super) fn listed(title: &str, lines: &[(&'static str, String)]) -> String {
    let mut text = format!("{title}\n");
    for (name, value) in lines {
        text.push_str(&format!("  {name:<14} {value}\n"));
    }
    text
}
