//! `symphony rail`: what the database knows of rails, and changing it.

use std::process::ExitCode;

use serde_json::json;
use symphony::db::{Operator, RailSettings};
use symphony::domain::Act;

use super::acts;
use crate::cli::{Global, Rail};
use crate::output::{self, Failure};

pub(super) async fn run(global: &Global, options: &Rail) -> Result<ExitCode, Failure> {
    let changes = options.fifo.is_some()
        || options.on_failed.is_some()
        || options.marks_sending.is_some()
        || options.give_up_after_seconds.is_some();
    match (&options.name, &options.reason) {
        (Some(name), Some(reason)) if changes => {
            let act = Act {
                actor: acts::actor(options.actor.as_ref())?,
                reason: reason.clone(),
                approver: None,
                dry_run: !options.yes,
                despite_unknown: false,
            };
            acts::as_operator(global, async |operator| {
                change(global, options, name, &act, &operator).await
            })
            .await
        }
        _ => {
            acts::as_operator(global, async |operator| show(global, options, &operator).await).await
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

async fn show(global: &Global, options: &Rail, operator: &Operator) -> Result<ExitCode, Failure> {
    let mut rails = operator.reader().rails(options.name.as_deref()).await?;
    if let (Some(name), true) = (&options.name, rails.is_empty()) {
        if !global.json {
            output::print(
                "nobody has configured or used this rail yet; it would have the defaults\n",
            )?;
        }
        rails.push(unconfigured(name));
    }
    if global.json {
        output::json(&rails)?;
    } else if rails.is_empty() {
        output::print("no rail has been configured or used yet\n")?;
    } else {
        output::print(&output::table(
            ["rail", "fifo", "on failed", "marks sending", "give up after", ""],
            rails.iter().map(|rail| {
                [
                    output::plain(&rail.rail_type),
                    rail.fifo.to_string(),
                    rail.on_failed.clone(),
                    rail.marks_sending.to_string(),
                    format!("{} s", rail.give_up_after_seconds),
                    if rail.paused { "PAUSED".to_owned() } else { String::new() },
                ]
            }),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn change(
    global: &Global,
    options: &Rail,
    name: &str,
    act: &Act,
    operator: &Operator,
) -> Result<ExitCode, Failure> {
    let before =
        operator.reader().rails(Some(name)).await?.pop().unwrap_or_else(|| unconfigured(name));
    let after = operator
        .configure_rail(
            name,
            act,
            options.fifo,
            options.on_failed.as_deref(),
            options.marks_sending,
            options.give_up_after_seconds,
        )
        .await
        .map_err(acts::in_options)?;
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
        (false, true) => format!("would configure rail {rail}: {changed}\n{}", acts::REPEAT),
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
