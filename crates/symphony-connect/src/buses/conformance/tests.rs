#![allow(clippy::unwrap_used, clippy::panic)]

//! Who watches the suite: buses that lie, each in one way, and the claim that must catch it.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use symphony::lanes::events::bus::{Bus, Message, Publication, Terms};
use uuid::Uuid;

use super::super::{FailureKind, again, refused};
use super::{Arrival, ClaimOutcome, Condition, Probe, check};

const MESSAGE_BYTES_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    AcceptsAndLoses,
    TurnsOrderRound,
    AnswersBackwards,
    AnswersTheFirstOnly,
    DoesNotDeduplicate,
    SendsWhatItRefuses,
    RefusesTheWholeBatch,
    OutageIsRefusal,
    LostAnswerIsNotTaken,
    NeverGivesUp,
    NeverComesBack,
    SlowIsAcceptedUnseen,
    MissingTopicIsRefusal,
    RepeatsThePayload,
    ForgetsThePosition,
}

/// A broker and its bus in one.
struct Memory {
    lie: Lie,
    terms: Terms,
    state: Mutex<State>,
}

struct State {
    condition: Condition,
    seen: HashSet<Uuid>,
    arrived: Vec<Arrival>,
    broken: bool,
}

impl Memory {
    fn new(lie: Lie) -> Self {
        let terms = Terms {
            timeout: Duration::from_millis(200),
            batch_max: 5,
            dedup_window: Duration::from_mins(5),
            ..Terms::default()
        };
        let state = State {
            condition: Condition::Well,
            seen: HashSet::new(),
            arrived: Vec::new(),
            broken: false,
        };
        Self { lie, terms, state: Mutex::new(state) }
    }

    fn store(&self, message: &Message) {
        let mut state = self.state.lock().unwrap();
        let new = state.seen.insert(message.event_id) || self.lie == Lie::DoesNotDeduplicate;
        if !new || self.lie == Lie::AcceptsAndLoses {
            return;
        }
        let forgets = self.lie == Lie::ForgetsThePosition;
        let arrival = Arrival {
            event_id: message.event_id,
            position: if forgets { 0 } else { message.position },
            event_type: message.event_type.clone(),
            body: message.body.clone(),
        };
        if self.lie == Lie::TurnsOrderRound {
            state.arrived.insert(0, arrival);
        } else {
            state.arrived.push(arrival);
        }
    }

    fn take(&self, message: &Message) -> Publication {
        if message.body.len() > MESSAGE_BYTES_MAX {
            if self.lie == Lie::SendsWhatItRefuses {
                self.store(message);
            }
            let body = message.body.as_str();
            let why = if self.lie == Lie::RepeatsThePayload { body } else { "too large" };
            return refused("OVERSIZE", why);
        }
        self.store(message);
        Publication::Accepted { reference: "memory".to_owned() }
    }
}

#[async_trait]
impl Bus for Memory {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    async fn publish(&self, topic: &str, batch: &[&Message]) -> Vec<Publication> {
        let every = |publication: Publication| vec![publication; batch.len()];
        if topic != self.topic() {
            return every(if self.lie == Lie::MissingTopicIsRefusal {
                refused("NO_SUCH_TOPIC", "no")
            } else {
                again("NO_SUCH_TOPIC", "no", FailureKind::NotTakenUntilMended)
            });
        }
        let (condition, broken) = {
            let state = self.state.lock().unwrap();
            (state.condition, state.broken)
        };
        if broken && self.lie == Lie::NeverComesBack {
            return every(again("UNREACHABLE", "still", FailureKind::NotTakenUnwell));
        }
        match condition {
            Condition::Well => {}
            Condition::Down if self.lie == Lie::OutageIsRefusal => return every(refused("X", "x")),
            Condition::Down => {
                return every(again("UNREACHABLE", "down", FailureKind::NotTakenUnwell));
            }
            Condition::AnswersLost => {
                for message in batch {
                    self.store(message);
                }
                let lies = self.lie == Lie::LostAnswerIsNotTaken;
                let kind = if lies { FailureKind::NotTakenUnwell } else { FailureKind::Unknown };
                return every(again("CONNECTION_LOST", "lost", kind));
            }
            Condition::Hanging if self.lie == Lie::NeverGivesUp => {
                std::future::pending::<()>().await;
            }
            Condition::Hanging => {
                tokio::time::sleep(self.terms.timeout).await;
                return every(again("TIMEOUT", "late", FailureKind::Unknown));
            }
            Condition::Slow(_) if self.lie == Lie::SlowIsAcceptedUnseen => {
                return every(Publication::Accepted { reference: String::new() });
            }
            Condition::Slow(delay) => tokio::time::sleep(delay).await,
        }
        let too_large = batch.iter().any(|message| message.body.len() > MESSAGE_BYTES_MAX);
        if too_large && self.lie == Lie::RefusesTheWholeBatch {
            return every(refused("OVERSIZE", "one of them"));
        }
        let mut answers: Vec<_> = batch.iter().map(|message| self.take(message)).collect();
        match self.lie {
            Lie::AnswersBackwards => {
                answers.sort_by_key(|answer| matches!(answer, Publication::Refused(_)));
            }
            Lie::AnswersTheFirstOnly => answers.truncate(1),
            _ => {}
        }
        answers
    }
}

#[async_trait]
impl Probe for Memory {
    fn topic(&self) -> &'static str {
        "memory"
    }

    fn missing_topic(&self) -> Option<String> {
        Some("missing".to_owned())
    }

    async fn received(&self, _: usize) -> Vec<Arrival> {
        std::mem::take(&mut self.state.lock().unwrap().arrived)
    }

    async fn make(&self, condition: Condition) -> bool {
        let mut state = self.state.lock().unwrap();
        state.broken |= condition != Condition::Well;
        state.condition = condition;
        true
    }

    fn oversize_bytes(&self) -> Option<usize> {
        Some(MESSAGE_BYTES_MAX)
    }
}

#[tokio::test(start_paused = true)]
async fn an_honest_bus_passes() {
    let memory = Memory::new(Lie::None);
    let report = check(&memory, &memory).await;
    assert!(report.passed(), "{report}");
    let skipped = |outcome: &ClaimOutcome| matches!(outcome, ClaimOutcome::NotApplicable(_));
    assert_eq!(report.claims.iter().filter(|claim| skipped(&claim.outcome)).count(), 1, "{report}");
}

#[tokio::test(start_paused = true)]
async fn every_lie_is_caught_by_the_claim_that_names_it() {
    let lies = [
        (Lie::AcceptsAndLoses, "an accepted message arrives as it was published"),
        (Lie::ForgetsThePosition, "an accepted message arrives as it was published"),
        (Lie::TurnsOrderRound, "messages of one key arrive in the order they were published"),
        (Lie::AnswersBackwards, "an oversize message is refused and the rest of its batch arrives"),
        (Lie::AnswersTheFirstOnly, "a full batch is answered one by one and arrives whole"),
        (
            Lie::DoesNotDeduplicate,
            "the same event id twice is accepted twice and deduplicated if promised",
        ),
        (
            Lie::SendsWhatItRefuses,
            "an oversize message is refused and the rest of its batch arrives",
        ),
        (
            Lie::RefusesTheWholeBatch,
            "an oversize message is refused and the rest of its batch arrives",
        ),
        (Lie::OutageIsRefusal, "a broker that is down is unwell, not a refusal"),
        (Lie::LostAnswerIsNotTaken, "a lost answer is unknown, and publishing again is safe"),
        (Lie::NeverGivesUp, "a broker that hangs is unknown within the timeout"),
        (Lie::NeverComesBack, "the bus works again when the broker is back"),
        (Lie::SlowIsAcceptedUnseen, "a slow broker within the timeout is waited for"),
        (Lie::MissingTopicIsRefusal, "a topic that does not exist is tried again later"),
        (Lie::RepeatsThePayload, "no answer repeats the payload"),
    ];
    for (lie, claim) in lies {
        let memory = Memory::new(lie);
        let report = check(&memory, &memory).await;
        let outcome = report.outcome(claim).unwrap_or_else(|| panic!("no claim {claim:?}"));
        assert!(matches!(outcome, ClaimOutcome::Failed(_)), "{lie:?} was not caught:\n{report}");
    }
}
