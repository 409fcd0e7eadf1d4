//! What people do to apps and executions. Replaying and deleting are a dry run until `--yes`.

use std::process::ExitCode;

use serde_json::json;
use symphony::db::TriggerChange;
use symphony::domain::Act;

use super::super::acts::{self, Verb, act_of, as_operator};
use super::{execution, in_words, script_of};
use crate::cli::{AppAct, AppSwitch, ExecutionAct, Global};
use crate::output::{self, Failure};

const REPLAY: Verb = Verb { would: "replay", done: "replayed" };
const DELETE: Verb = Verb { would: "delete", done: "deleted" };

pub(super) async fn replay(global: &Global, options: &ExecutionAct) -> Result<ExitCode, Failure> {
    let act = act_of(&options.act, options.approver.as_ref())?;
    as_operator(global, async |operator| {
        let ended = execution(&operator.reader(), options.id).await?;
        if ended.completed_at.is_none() {
            return Err(Failure::new(format!(
                "execution {} is PENDING: it will run without a replay",
                options.id
            ))
            .with_code("P7006"));
        }
        let answer = operator.replay_execution(options.id, &act).await.map_err(in_words)?;
        let target = format!(
            "{} (app {}, {}, script {})",
            options.id,
            output::plain(&ended.app_name),
            ended.source_kind,
            script_of(&ended)
        );
        let becomes = match answer.replay_id {
            Some(new) => format!("it stays {} and runs again as {new}", ended.state),
            None => format!(
                "it stays {}, and a new execution runs with its payload and the script as it is now",
                ended.state
            ),
        };
        acts::tell(global, &REPLAY, answer.dry_run, &answer, &target, &becomes)
    })
    .await
}

pub(super) async fn delete(global: &Global, options: &AppAct) -> Result<ExitCode, Failure> {
    let act = act_of(&options.act, options.approver.as_ref())?;
    as_operator(global, async |operator| {
        let answer = operator.delete_app(&options.name, &act).await.map_err(in_words)?;
        let ends = match answer.items {
            0 => "nothing of it is pending".to_owned(),
            1 => "1 pending execution ends FAILED".to_owned(),
            items => format!("{items} pending executions end FAILED"),
        };
        let becomes = format!("scripts, routes, triggers and entries go, {ends}, the ledger stays");
        let target = format!("app {}", output::plain(&options.name));
        acts::tell(global, &DELETE, answer.dry_run, &answer, &target, &becomes)
    })
    .await
}

pub(super) async fn switch(
    global: &Global,
    options: &AppSwitch,
    pause: bool,
) -> Result<ExitCode, Failure> {
    let act = Act {
        actor: acts::actor(options.actor.as_ref())?,
        reason: options.reason.clone(),
        approver: None,
        dry_run: false,
        despite_unknown: false,
    };
    let (verb, done) = if pause { ("pause", "paused") } else { ("resume", "resumed") };
    let name = |paused: bool| if paused { "PAUSED" } else { "RUNNING" };
    as_operator(global, async |operator| {
        let apps = operator.reader().apps().await?;
        let before = apps.iter().find(|app| app.name == options.name).map(|app| app.paused);
        // What is so already is no act.
        let after = if before == Some(pause) {
            pause
        } else {
            let change = TriggerChange {
                app: Some(&options.name),
                paused: Some(pause),
                ..TriggerChange::default()
            };
            operator.configure_triggers(&change, &act).await.map_err(in_words)?.paused
        };
        let before = before.unwrap_or(after);
        if global.json {
            output::json(&json!({
                "act": verb, "app": options.name, "state_before": name(before), "state_after": name(after),
            }))?;
        } else if before == after {
            output::print(&format!(
                "app {} is {} already: nothing to change\n",
                output::plain(&options.name),
                name(after)
            ))?;
        } else {
            output::print(&format!(
                "{done} app {}: {} → {}\n",
                output::plain(&options.name),
                name(before),
                name(after)
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    })
    .await
}
