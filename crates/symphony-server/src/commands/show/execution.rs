//! The life of one execution as people read it; `symphony app logs` has payload, result and logs.

use std::fmt::Write as _;

use serde::Serialize;
use symphony::db::{
    Auditor, DbError, ExecutionAttemptRow, ExecutionRow, PaymentHistoryRow, TriggerWaits,
};
use uuid::Uuid;

use super::super::app::who;
use super::super::suggested_command::{symphony, symphony_of};
use super::{Outcome, Timeline, enqueued, in_order, lines, moment, told};
use crate::output::{plain, state};

/// An execution with everything that happened to it.
#[derive(Serialize)]
pub(crate) struct ExecutionLife {
    pub(crate) execution: ExecutionRow,
    attempts: Vec<ExecutionAttemptRow>,
    events: Vec<PaymentHistoryRow>,
    pub(crate) waits: Option<TriggerWaits>,
}

pub(crate) async fn read(auditor: &Auditor, id: Uuid) -> Result<Option<ExecutionLife>, DbError> {
    let Some(execution) = auditor.execution(id).await? else { return Ok(None) };
    let attempts = auditor.execution_attempts(id).await?;
    let (events, waits) = auditor.execution_story(id).await?;
    Ok(Some(ExecutionLife { execution, attempts, events, waits }))
}

pub(super) fn render(life: &ExecutionLife) -> String {
    let execution = &life.execution;
    let mut text = format!(
        "{}  {}\n  app {}, {}, script {}\n",
        execution.id,
        state(&execution.state),
        plain(&execution.app_name),
        plain(&execution.source_kind),
        plain(execution.script_name.as_deref().unwrap_or("none: mail to be sent"))
    );
    if let Some(parent) = execution.parent_execution_id {
        let _infallible = writeln!(text, "  fired by {parent}, depth {}", execution.trigger_depth);
    }
    text.push_str(&who(execution));
    text.push_str(&lines(&timeline(life)));
    if let Some(waits) = &life.waits {
        let held = waits.claimed_by.as_deref();
        let held = held.map(|worker| format!(", held by {}", plain(worker))).unwrap_or_default();
        let _infallible =
            writeln!(text, "  now: PENDING, due {}{held}", moment(waits.next_attempt_at));
        let app = plain(&execution.app_name);
        let resume = symphony("resume triggers --reason WHY");
        let resume_app = symphony_of("resume app", &execution.app_name, "--reason WHY");
        for (applies, line) in [
            (waits.lane_paused, format!("the trigger lane is paused: {resume}")),
            (waits.app_paused, format!("app {app} is paused: {resume_app}")),
            (waits.workers == 0, "no live worker serves triggers".to_owned()),
        ] {
            if applies {
                let _infallible = writeln!(text, "  {line}");
            }
        }
    }
    let _infallible = writeln!(
        text,
        "  payload, result and logs: {}",
        symphony(&format!("app logs {}", execution.id))
    );
    text
}

/// What happened to it, in order.
pub(crate) fn timeline(life: &ExecutionLife) -> Timeline {
    let mut timeline: Timeline = vec![enqueued(life.execution.created_at)];
    for attempt in &life.attempts {
        let outcome = Outcome {
            attempt_no: attempt.attempt_no,
            state: attempt.state.clone(),
            unknown: false,
            facts: &[("error", &attempt.error_code)],
            message: attempt.error_message.as_deref(),
            worker_id: &attempt.worker_id,
        };
        timeline.push(outcome.tell(attempt.completed_at));
    }
    timeline.extend(life.events.iter().map(told));
    in_order(timeline)
}
