//! `symphony rail`: how rails are, what the database knows of them, and changing it.

use std::process::ExitCode;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use symphony::db::{ActCall, DbError, DestinationStatus, Operator, RailSettings, Unserved};
use symphony::domain::{Act, Switch};

use super::destination::{self, Kind};
use super::suggested_command::symphony_of;
use super::{acts, approval, names};
use crate::cli::{Global, Rail, RailAct};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, options: &Rail) -> Result<ExitCode, Failure> {
    match &options.what {
        Some(RailAct::Reset(options)) => {
            return destination::reset(global, Kind::Rail, options).await;
        }
        Some(RailAct::Show { name }) => {
            return acts::as_operator(global, async |operator| {
                show(global, Some(name), &operator).await
            })
            .await;
        }
        Some(RailAct::List) | None => {}
    }
    let changes = options.fifo.is_some()
        || options.on_failed.is_some()
        || options.marks_sending.is_some()
        || options.give_up_after_seconds.is_some();
    match (&options.name, &options.reason) {
        (Some(name), Some(reason)) if changes => {
            let act = Act {
                actor: acts::actor(options.actor.as_ref())?,
                reason: reason.clone(),
                dry_run: !options.yes,
                despite_unknown: false,
            };
            acts::as_operator(global, async |operator| {
                change(global, options, name, &act, &operator).await
            })
            .await
        }
        _ => {
            acts::as_operator(global, async |operator| {
                show(global, options.name.as_ref(), &operator).await
            })
            .await
        }
    }
}

/// A rail without a row is unordered and running.
fn unconfigured(name: &str) -> RailSettings {
    RailSettings {
        rail_type: name.to_owned(),
        fifo: false,
        on_failed: "block".to_owned(),
        marks_sending: false,
        paused: false,
        give_up_after_seconds: 86_400,
    }
}

/// A rail with how it is.
#[derive(Serialize)]
struct RailReport {
    #[serde(flatten)]
    settings: RailSettings,
    /// As live workers see it; none if nobody serves it.
    status: Option<DestinationStatus>,
    /// It has work and nobody serves it.
    unserved: Option<Unserved>,
}

async fn show(
    global: &Global,
    name: Option<&String>,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let reader = operator.reader();
    let mut settings = reader.rails(name.map(String::as_str)).await?;
    let served = reader.destinations(Some("payments")).await?;
    let unserved = reader.unserved().await?;
    let wanted = |known: &str| name.is_none_or(|name| name == known);
    let names = served.iter().map(|served| &served.name).chain(
        unserved.iter().filter(|unserved| unserved.lane == "payments").map(|rail| &rail.name),
    );
    for known in names.filter(|known| wanted(known)) {
        if !settings.iter().any(|rail| rail.rail_type == *known) {
            settings.push(unconfigured(known));
        }
    }
    if let (Some(name), true) = (name, settings.is_empty()) {
        names::require_known(&reader, &[Switch::Rail(name.clone())]).await?;
        settings.push(unconfigured(name));
    }
    settings.sort_by(|one, other| one.rail_type.cmp(&other.rail_type));
    let rails: Vec<RailReport> = settings
        .into_iter()
        .map(|settings| RailReport {
            status: served.iter().find(|served| served.name == settings.rail_type).cloned(),
            unserved: unserved
                .iter()
                .find(|one| one.lane == "payments" && one.name == settings.rail_type)
                .cloned(),
            settings,
        })
        .collect();
    if global.json {
        output::json(&rails)?;
    } else if rails.is_empty() {
        output::print("no rail has been configured or used yet\n")?;
    } else if let (Some(_), [rail]) = (name, rails.as_slice()) {
        output::print(&in_full(rail))?;
    } else {
        output::print(&table(&rails))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn table(rails: &[RailReport]) -> String {
    let now = Utc::now();
    let mut text = output::table(
        [
            output::whole("rail"),
            output::states("state"),
            output::number("workers"),
            output::number("calls/min"),
            output::number("latency"),
            "order".into(),
        ],
        rails.iter().map(|rail| {
            let (per_minute, latency) =
                rail.status.as_ref().map(destination::calls).unwrap_or_default();
            [
                output::plain(&rail.settings.rail_type),
                state(rail, now),
                rail.status.as_ref().map_or(0, |status| status.workers).to_string(),
                per_minute,
                latency,
                order(&rail.settings),
            ]
        }),
    );
    if rails.iter().any(|rail| rail.status.as_ref().is_some_and(|s| s.open_since.is_some())) {
        text.push_str("  OPEN: in trouble and left alone; it is probed every few seconds\n");
    }
    text
}

fn state(rail: &RailReport, now: DateTime<Utc>) -> String {
    let mut words = Vec::new();
    if rail.settings.paused {
        words.push("PAUSED".to_owned());
    }
    match (&rail.status, &rail.unserved) {
        (Some(status), _) => words.push(destination::in_short(status, now)),
        (None, Some(unserved)) => {
            words.push(format!("UNSERVED, {} wait", unserved.pending.unwrap_or(0)));
        }
        (None, None) => words.push("no worker".to_owned()),
    }
    words.join(", ")
}

fn order(settings: &RailSettings) -> String {
    if settings.fifo { format!("fifo, {}", settings.on_failed) } else { "–".to_owned() }
}

fn in_full(rail: &RailReport) -> String {
    let now = Utc::now();
    let name = output::plain(&rail.settings.rail_type);
    let mut lines = match (&rail.status, &rail.unserved) {
        (Some(status), _) => destination::lines(status, now),
        (None, Some(unserved)) => vec![(
            "state",
            format!(
                "UNSERVED: {} payments wait, the oldest for {}, and no live worker serves it",
                unserved.pending.unwrap_or(0),
                output::length(unserved.oldest_seconds)
            ),
        )],
        (None, None) => vec![("state", "no live worker serves it, and nothing waits".to_owned())],
    };
    if rail.settings.paused {
        let resume = symphony_of("resume rail", &rail.settings.rail_type, "--reason WHY");
        lines.push(("paused", format!("yes: {resume}")));
    }
    lines.push(("fifo", rail.settings.fifo.to_string()));
    lines.push(("on failed", rail.settings.on_failed.clone()));
    lines.push(("marks sending", rail.settings.marks_sending.to_string()));
    lines.push(("give up after", format!("{} s", rail.settings.give_up_after_seconds)));
    destination::listed(&format!("rail {name}"), &lines)
}

const CONFIGURE: acts::Verb = acts::Verb { would: "configure", done: "configured" };

async fn change(
    global: &Global,
    options: &Rail,
    name: &str,
    act: &Act,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let before =
        operator.reader().rails(Some(name)).await?.pop().unwrap_or_else(|| unconfigured(name));
    let configuring = operator.configure_rail(
        name,
        act,
        options.fifo,
        options.on_failed.as_deref(),
        options.marks_sending,
        options.give_up_after_seconds,
    );
    let (after, ends) = match configuring.await {
        Ok(after) => (after, acts::REPEAT),
        Err(DbError::ApprovalMissing { .. }) => {
            let call = ActCall::configure_rail(
                name,
                options.fifo,
                options.on_failed.as_deref(),
                options.marks_sending,
                options.give_up_after_seconds,
            );
            let request = approval::ask(operator, &call, act).await.map_err(acts::in_options)?;
            if !act.dry_run {
                let target = format!("rail {}", output::plain(name));
                return approval::tell_asked(global, &CONFIGURE, &target, &[request]);
            }
            let after = serde_json::from_value(request.preview.0)
                .map_err(|error| Failure::new(format!("an answer of another shape: {error}")))?;
            (after, approval::REPEAT_TO_ASK)
        }
        Err(error) => return Err(acts::in_options(error)),
    };
    if global.json {
        output::json(&json!({
            "act": "configure", "before": before, "after": after, "dry_run": act.dry_run,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let changed = differences(&before, &after);
    let rail = output::plain(name);
    output::print(&match (changed.is_empty(), act.dry_run) {
        (true, _) => format!("rail {rail} is so already: nothing to change\n"),
        (false, true) => format!("would configure rail {rail}: {changed}\n{ends}"),
        (false, false) => format!("configured rail {rail}: {changed}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn differences(before: &RailSettings, after: &RailSettings) -> String {
    let all = [
        ("fifo", before.fifo.to_string(), after.fifo.to_string()),
        ("on failed", before.on_failed.clone(), after.on_failed.clone()),
        ("marks sending", before.marks_sending.to_string(), after.marks_sending.to_string()),
        (
            "give up after",
            format!("{} s", before.give_up_after_seconds),
            format!("{} s", after.give_up_after_seconds),
        ),
    ];
    let changed: Vec<String> = all
        .iter()
        .filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| format!("{name} {before} → {after}"))
        .collect();
    changed.join(", ")
}
