//! What people do to apps and executions. Replaying and deleting are a dry run until `--yes`.

use std::process::ExitCode;

use symphony::db::{ActCall, Operator};
use symphony::domain::Act;

use super::super::acts::{self, Verb, approved_act, as_operator};
use super::super::approval::{self, Acted};
use super::change::Change;
use super::{execution, in_words, script_of};
use crate::cli::{AppAct, ExecutionAct, Global};
use crate::output::{self, Failure};

const REPLAY: Verb = Verb { would: "replay", done: "replayed" };
const DELETE: Verb = Verb { would: "delete", done: "deleted" };

pub(super) async fn replay(global: &Global, options: &ExecutionAct) -> Result<ExitCode, Failure> {
    let act = approved_act(&options.act)?;
    as_operator(global, async |operator| {
        let ended = execution(&operator.reader(), options.id).await?;
        if ended.completed_at.is_none() {
            return Err(Failure::new(format!(
                "execution {} is PENDING: it will run without a replay",
                options.id
            ))
            .with_code("P7006"));
        }
        let target = format!(
            "{} (app {}, {}, script {})",
            options.id,
            output::plain(&ended.app_name),
            ended.source_kind,
            script_of(&ended)
        );
        let wished = options.act.request_approval;
        let call = ActCall::replay(options.id);
        let doing = operator.replay_execution(options.id, &act);
        let answer = match approval::act_or_ask(&operator, wished, &act, &call, doing).await {
            Ok(Acted::Done(answer)) => answer,
            Ok(Acted::Asked(request)) => {
                return approval::tell_asked(global, &REPLAY, &target, &[request]);
            }
            Err(error) => return Err(in_words(error)),
        };
        let becomes = match answer.replay_id {
            Some(new) => format!("it stays {} and runs again as {new}", ended.state),
            None => format!(
                "it stays {}, and a new execution runs with its payload and the script as it is now",
                ended.state
            ),
        };
        let ends = approval::ending(&operator, "triggers", &act, wished).await?;
        acts::tell(global, &REPLAY, ends, &answer, &target, &becomes)
    })
    .await
}

pub(super) async fn delete(global: &Global, options: &AppAct) -> Result<ExitCode, Failure> {
    let change = Change {
        target: format!("app {}", output::plain(&options.name)),
        call: ActCall::delete_app(&options.name),
        options: &options.act,
        verb: &DELETE,
    };
    let doing =
        async |operator: &Operator, act: &Act| operator.delete_app(&options.name, act).await;
    change
        .run(global, doing, |answer| {
            let ends = match answer.items {
                0 => "nothing of it is pending".to_owned(),
                1 => "1 pending execution ends FAILED".to_owned(),
                items => format!("{items} pending executions end FAILED"),
            };
            format!("scripts, routes, triggers and entries go, {ends}, the ledger stays")
        })
        .await
}
