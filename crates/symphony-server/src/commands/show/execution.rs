//! The life of one execution as people read it; `symphony app logs` has payload, result and logs.

use std::fmt::Write as _;

use serde::Serialize;
use symphony::db::{Auditor, DbError, EventRow, ExecutionAttemptRow, ExecutionRow, TriggerWaits};
use uuid::Uuid;

use super::super::hints::symphony;
use super::{Story, in_order, moment, told};
use crate::output::{plain, state};

/// An execution with everything that happened to it.
#[derive(Serialize)]
pub(super) struct ExecutionLife {
    execution: ExecutionRow,
    attempts: Vec<ExecutionAttemptRow>,
    events: Vec<EventRow>,
    waits: Option<TriggerWaits>,
}

pub(super) async fn read(auditor: &Auditor, id: Uuid) -> Result<Option<ExecutionLife>, DbError> {
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
    let mut story: Story = vec![(execution.created_at, "ENQUEUED".to_owned())];
    for attempt in &life.attempts {
        let mut told = format!("attempt {}: {}", attempt.attempt_no, attempt.state);
        if let Some(code) = &attempt.error_code {
            let _infallible = write!(told, ", error {}", plain(code));
        }
        if let Some(message) = &attempt.error_message {
            let _infallible = write!(told, " ({})", plain(message));
        }
        let _infallible = write!(told, ", by {}", plain(&attempt.worker_id));
        story.push((attempt.completed_at, told));
    }
    story.extend(life.events.iter().map(|event| (event.created_at, told(event))));
    text.push_str(&in_order(story));
    if let Some(waits) = &life.waits {
        let held = waits.claimed_by.as_deref();
        let held = held.map(|worker| format!(", held by {}", plain(worker))).unwrap_or_default();
        let _infallible =
            writeln!(text, "  now: PENDING, due {}{held}", moment(waits.next_attempt_at));
        let app = plain(&execution.app_name);
        let resume = symphony(&format!("app resume {app} --reason WHY"));
        for (applies, line) in [
            (waits.lane_paused, "the trigger lane is paused".to_owned()),
            (waits.app_paused, format!("app {app} is paused: {resume}")),
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
