//! A run's end as the ledger writes it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::value::{RawValue, to_raw_value};

use super::Underway;
use super::answer::{AnswerDefect, ScriptAnswer};
use super::executor::{Execution, RunOutcome};
use super::sets::{Ended, Entries};
use crate::db::{TriggerOutcome, TriggerState};

impl Ended {
    pub(super) fn new(work: &Underway, outcome: TriggerOutcome) -> Self {
        Self {
            outcome,
            app_id: work.item.app_id,
            entries: Entries::default(),
            is_request: !work.is_durable,
            unwritten: work.unwritten.clone(),
            item: work.item.clone(),
            reruns: work.reruns,
            has_left: false,
            turn: work.turn.lock().unwrap_or_else(PoisonError::into_inner).take(),
            slot: Mutex::default(),
            trace_id: work.item.trace_id(),
            trace: None,
        }
    }
}

/// A run's end as the ledger writes it.
pub(super) fn ended(work: &Underway, execution: Execution, took: Duration) -> Ended {
    let item = &work.item;
    let Execution { outcome, logs, effects, reads, has_left } = execution;
    let entries = Entries::new(&effects, &reads);
    let spends_attempt = !matches!(outcome, RunOutcome::Away { .. });
    let (state, result, error_code, error_message) = match outcome {
        RunOutcome::Value(value) => {
            let defect = item.reply_to.and_then(|_| ScriptAnswer::read(&value).err());
            match defect {
                None => (TriggerState::Dispatched, Some(value), None, None),
                // An error means that nothing was applied.
                Some(AnswerDefect { code, problem }) => {
                    (TriggerState::Failed, None, Some(code.to_owned()), Some(problem))
                }
            }
        }
        RunOutcome::Failed { code, message, retryable } => {
            let state = if retryable { TriggerState::Retryable } else { TriggerState::Failed };
            (state, None, Some(code.to_owned()), Some(message))
        }
        RunOutcome::Away { code, message } => {
            (TriggerState::Retryable, None, Some(code.to_owned()), Some(message))
        }
        RunOutcome::TimedOut => (
            TriggerState::Retryable,
            None,
            Some("TIMEOUT".to_owned()),
            Some("it took longer than its script's timeoutMs".to_owned()),
        ),
    };
    let as_json = |value: serde_json::Result<Box<RawValue>>| value.ok();
    let outcome = TriggerOutcome {
        lease: item.lease(),
        reply_to: item.reply_to,
        state,
        result,
        logs: (!logs.is_empty()).then(|| as_json(to_raw_value(&logs))).flatten(),
        effects: (state == TriggerState::Dispatched && !effects.is_empty())
            .then(|| as_json(to_raw_value(&effects)))
            .flatten(),
        reads: (state == TriggerState::Dispatched && !reads.is_empty())
            .then(|| as_json(to_raw_value(&reads)))
            .flatten(),
        error_code,
        error_message,
        latency_ms: Some(i32::try_from(took.as_millis()).unwrap_or(i32::MAX)),
        spends_attempt,
        reply_here: false,
    };
    Ended { entries, has_left, ..Ended::new(work, outcome) }
}
