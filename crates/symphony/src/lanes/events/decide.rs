//! What a bus's answer means: pure decisions, tested as tables.

use std::time::Duration;

use super::bus::{Cause, Publication, Trouble};
use super::routes::OnFailed;
use crate::db::EventState;
use crate::engine::Answered;

/// When to try again, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Seconds to wait after the first attempt, the second and so on; the last one is repeated.
    pub steps_seconds: Vec<u32>,
    /// After this many attempts an event is FAILED.
    pub attempts_max: u32,
    /// How long an event is tried while the bus is away, which counts as no attempt.
    pub give_up_after_seconds: u32,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            steps_seconds: vec![1, 5, 30, 120, 600, 3600],
            attempts_max: 10,
            give_up_after_seconds: 86_400,
        }
    }
}

/// The longest pause of an event whose bus is away.
const AWAY_PAUSE_SECONDS_MAX: i32 = 600;

/// What was tried before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// Those that count.
    pub(super) counted: i32,
    /// All of them.
    pub(super) outcomes: i32,
    /// For how long the bus has been away.
    pub(super) seconds: i32,
}

/// What becomes of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) state: EventState,
    pub(super) retry_delay_seconds: Option<i32>,
    pub(super) bus_reference: Option<String>,
    pub(super) trouble: Option<Trouble>,
    /// The next of its key may go.
    pub(super) key_goes_on: bool,
    /// It counts.
    pub(super) spends_attempt: bool,
    /// It waits only for its bus; this long at least.
    pub(super) hasten_after_seconds: Option<i32>,
    /// The bus was away by itself.
    pub(super) bus_away: bool,
}

impl Retry {
    /// What an answer means for an event that was tried before.
    pub(super) fn judge(&self, answer: Publication, tries: Tries, on_failed: OnFailed) -> Decision {
        match answer {
            Publication::Accepted { reference } => Decision {
                state: EventState::Dispatched,
                retry_delay_seconds: None,
                bus_reference: Some(reference),
                trouble: None,
                key_goes_on: true,
                spends_attempt: true,
                hasten_after_seconds: None,
                bus_away: false,
            },
            Publication::Refused(trouble) => failed(trouble, on_failed),
            // The destination is away and surely did not take it: that says nothing of the event.
            Publication::Again { trouble, unknown: false, cause: Cause::Destination, .. }
                if u32::try_from(tries.seconds).unwrap_or(0) >= self.give_up_after_seconds =>
            {
                let message = format!("the bus was away: {}: {}", trouble.code, trouble.message);
                failed(Trouble::new("GIVEN_UP", message), on_failed)
            }
            // An operator can mend it: it waits for that, however long.
            Publication::Again {
                trouble,
                unknown: false,
                cause: cause @ (Cause::Destination | Cause::Setup),
                retry_after,
            } => {
                let own = self.delay_seconds(tries.outcomes, None).min(AWAY_PAUSE_SECONDS_MAX);
                let asked = i32::try_from(asked_seconds(retry_after)).unwrap_or(i32::MAX);
                Decision {
                    state: EventState::Retryable { unknown: false },
                    retry_delay_seconds: Some(own.max(asked)),
                    bus_reference: None,
                    trouble: Some(trouble),
                    key_goes_on: false,
                    spends_attempt: false,
                    hasten_after_seconds: Some(asked),
                    bus_away: cause == Cause::Destination,
                }
            }
            Publication::Again { trouble, .. }
                if attempts(tries.counted).saturating_add(1) >= self.attempts_max =>
            {
                let message = format!("no more retries: {}: {}", trouble.code, trouble.message);
                failed(Trouble::new("RETRY_CEILING", message), on_failed)
            }
            Publication::Again { trouble, unknown, retry_after, .. } => Decision {
                state: EventState::Retryable { unknown },
                retry_delay_seconds: Some(self.delay_seconds(tries.counted, retry_after)),
                bus_reference: None,
                trouble: Some(trouble),
                key_goes_on: false,
                spends_attempt: true,
                hasten_after_seconds: None,
                bus_away: false,
            },
        }
    }

    fn delay_seconds(&self, attempt_count: i32, retry_after: Option<Duration>) -> i32 {
        let step = usize::try_from(attempt_count).unwrap_or(0);
        let own = self.steps_seconds.get(step).or(self.steps_seconds.last()).copied().unwrap_or(1);
        i32::try_from(u64::from(own).max(asked_seconds(retry_after))).unwrap_or(i32::MAX)
    }
}

fn asked_seconds(retry_after: Option<Duration>) -> u64 {
    retry_after.map_or(0, |after| after.as_secs().saturating_add(1))
}

/// How an answer is counted.
pub(super) fn counted(answer: &Publication) -> (Answered, Option<&str>) {
    match answer {
        Publication::Accepted { .. } => (Answered::Accepted, None),
        Publication::Refused(_) => (Answered::Refused, None),
        Publication::Again { trouble, unknown, cause, .. } => {
            let answered = if *unknown { Answered::Unknown } else { Answered::Retryable };
            (answered, (*cause != Cause::Message).then_some(trouble.code.as_str()))
        }
    }
}

pub(super) fn failed(trouble: Trouble, on_failed: OnFailed) -> Decision {
    let key_continues = on_failed == OnFailed::Continue;
    Decision {
        state: EventState::Failed { key_continues },
        retry_delay_seconds: None,
        bus_reference: None,
        trouble: Some(trouble),
        key_goes_on: key_continues,
        spends_attempt: true,
        hasten_after_seconds: None,
        bus_away: false,
    }
}

fn attempts(attempt_count: i32) -> u32 {
    u32::try_from(attempt_count).unwrap_or(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::OnFailed::{Block, Continue};
    use super::*;

    fn again(unknown: bool, retry_after: Option<u64>) -> Publication {
        Publication::Again {
            trouble: Trouble::new("TIMEOUT", "no answer"),
            unknown,
            cause: if unknown { Cause::Destination } else { Cause::Message },
            retry_after: retry_after.map(Duration::from_secs),
        }
    }

    #[test]
    fn what_becomes_of_an_event() {
        let retry = Retry::default();
        let accepted = Publication::Accepted { reference: "m-1".to_owned() };
        let refused = Publication::Refused(Trouble::new("OVERSIZE", "too large"));
        let retryable = |unknown| EventState::Retryable { unknown };
        let failed = |key_continues| EventState::Failed { key_continues };
        //  the answer, outcomes before, policy | state, delay, the key goes on
        for (answer, before, policy, state, delay, goes_on) in [
            (accepted.clone(), 0, Block, EventState::Dispatched, None, true),
            (accepted, 12, Block, EventState::Dispatched, None, true),
            (refused.clone(), 0, Block, failed(false), None, false),
            (refused, 0, Continue, failed(true), None, true),
            (again(true, None), 0, Block, retryable(true), Some(1), false),
            (again(false, None), 1, Continue, retryable(false), Some(5), false),
            (again(false, None), 5, Block, retryable(false), Some(3600), false),
            (again(false, None), 8, Block, retryable(false), Some(3600), false),
            (again(true, None), 9, Block, failed(false), None, false),
            (again(true, None), 9, Continue, failed(true), None, true),
            (again(false, Some(20)), 0, Block, retryable(false), Some(21), false),
            (again(false, Some(2)), 2, Block, retryable(false), Some(30), false),
        ] {
            let case = format!("{answer:?} after {before}, {policy:?}");
            let tries = Tries { counted: before, outcomes: before, seconds: 0 };
            let verdict = retry.judge(answer, tries, policy);
            assert_eq!(
                (verdict.state, verdict.retry_delay_seconds, verdict.key_goes_on),
                (state, delay, goes_on),
                "{case}"
            );
        }
    }

    #[test]
    fn a_bus_that_is_away_spends_no_attempt_until_it_is_given_up() {
        let away = |retry_after: Option<u64>| Publication::Again {
            trouble: Trouble::new("CONNECT_FAILED", "connection refused"),
            unknown: false,
            cause: Cause::Destination,
            retry_after: retry_after.map(Duration::from_secs),
        };
        //  asked for, outcomes, seconds since the first | delay, or given up
        for (asked, outcomes, seconds, delay) in [
            (None, 0, 0, Some(1)),
            (None, 3, 40, Some(120)),
            (None, 9, 4_000, Some(600)),
            (None, 500, 86_399, Some(600)),
            // What it asks for delays, and never hastens.
            (Some(1), 4, 300, Some(600)),
            (Some(3_000), 4, 300, Some(3_001)),
            (None, 500, 86_400, None),
        ] {
            let tries = Tries { counted: 9, outcomes, seconds };
            let verdict = Retry::default().judge(away(asked), tries, Block);
            assert_eq!(verdict.retry_delay_seconds, delay, "{asked:?} {outcomes} {seconds}");
            match delay {
                Some(_) => assert!(
                    verdict.state == EventState::Retryable { unknown: false }
                        && !verdict.spends_attempt
                ),
                None => assert_eq!(verdict.trouble.unwrap().code, "GIVEN_UP"),
            }
        }
    }

    #[test]
    fn what_an_operator_can_mend_never_fails_an_event() {
        let denied = Publication::Again {
            trouble: Trouble::new("NOT_AUTHORIZED", "no"),
            unknown: false,
            cause: Cause::Setup,
            retry_after: None,
        };
        for (counted, outcomes, seconds) in [(0, 0, 0), (9, 9, 10), (9, 5_000, 86_400 * 30)] {
            let tries = Tries { counted, outcomes, seconds };
            let verdict = Retry::default().judge(denied.clone(), tries, Block);
            assert_eq!(verdict.state, EventState::Retryable { unknown: false });
            assert!(!verdict.spends_attempt && verdict.retry_delay_seconds <= Some(600));
            assert_eq!(verdict.hasten_after_seconds, Some(0), "due once it is mended");
        }
    }

    #[test]
    fn the_last_error_is_told_at_the_ceiling() {
        let tries = Tries { counted: 9, outcomes: 9, seconds: 0 };
        let verdict = Retry::default().judge(again(true, None), tries, OnFailed::Block);
        let trouble = verdict.trouble.map(|trouble| (trouble.code, trouble.message));
        assert_eq!(
            trouble,
            Some(("RETRY_CEILING".to_owned(), "no more retries: TIMEOUT: no answer".to_owned()))
        );
    }
}
