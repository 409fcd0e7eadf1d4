#![allow(clippy::unwrap_used, clippy::panic)]

//! Who watches the suite: rails that lie, each in one way, and the claim that must catch it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::value::RawValue;
use symphony::domain::{OutboxId, RailKey};
use symphony::lanes::payments::rail::{
    Answer, Endpoint, Inquiry, InquiryTerms, Payment, Rail, Terms, Verdict,
};
use symphony::money::{Amount, Defect};

use super::{ClaimOutcome, Misbehaviour, Provider, Sample, check};

/// How a rail in these tests lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    RetriesByItself,
    TimeoutIsFailure,
    NonsenseIsSuccess,
    ResetIsRetryable,
    ErrorIsRefusal,
    InquiryFromMemory,
    RefusalIsTrouble,
    NeverGivesUp,
    RepeatsThePayload,
    ValidatesNothing,
    NotFoundForEverything,
}

struct Bank {
    lie: Lie,
    terms: Terms,
    armed: Mutex<HashMap<RailKey, Misbehaviour>>,
    known: Mutex<HashMap<RailKey, bool>>,
    executions: Mutex<HashMap<RailKey, u64>>,
    remembered: Mutex<HashMap<RailKey, bool>>,
    requests: AtomicU64,
}

impl Bank {
    fn new(lie: Lie) -> Self {
        Self {
            lie,
            terms: Terms {
                endpoint: Endpoint::new("test", "bank", "", ""),
                timeout: Duration::from_millis(20),
                inquiry_timeout: Duration::from_millis(20),
                key_lifetime: Some(Duration::from_hours(1)),
                inquiry: InquiryTerms::NotFoundProvesNothing,
            },
            armed: Mutex::default(),
            known: Mutex::default(),
            executions: Mutex::default(),
            remembered: Mutex::default(),
            requests: AtomicU64::new(0),
        }
    }

    fn execute(&self, key: RailKey) {
        if self.known.lock().unwrap().insert(key, true).is_none()
            || self.lie == Lie::RetriesByItself
        {
            *self.executions.lock().unwrap().entry(key).or_default() += 1;
        }
    }
}

#[async_trait]
impl Rail for Bank {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn validate(&self, payment: &Payment) -> Result<(), Defect> {
        if payment.payload.get().contains("nowhere") && self.lie != Lie::ValidatesNothing {
            let problem = "must be an account".to_owned();
            return Err(Defect::new("INVALID_DESTINATION", "destination", problem));
        }
        Ok(())
    }

    async fn dispatch(&self, payment: &Payment) -> Answer {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let key = payment.key;
        let armed = self.armed.lock().unwrap().remove(&key);
        let trouble = |verdict| Answer::trouble(verdict, "TROUBLE", "trouble");
        match armed {
            None | Some(Misbehaviour::AnswerTwice) => {
                self.execute(key);
                self.remembered.lock().unwrap().insert(key, true);
                let message = (self.lie == Lie::RepeatsThePayload)
                    .then(|| format!("sent {}", payment.payload.get()));
                Answer { message, ..Answer::accepted("R") }
            }
            Some(Misbehaviour::Refuse) => Answer {
                trouble: self.lie == Lie::RefusalIsTrouble,
                ..Answer::new(Verdict::Refused)
            },
            Some(Misbehaviour::Busy) => Answer::new(Verdict::Retryable),
            Some(Misbehaviour::ErrorAfter) => {
                self.execute(key);
                trouble(if self.lie == Lie::ErrorIsRefusal {
                    Verdict::Refused
                } else {
                    Verdict::Unknown
                })
            }
            Some(Misbehaviour::ErrorBefore | Misbehaviour::ResetBefore) => {
                trouble(Verdict::Unknown)
            }
            Some(Misbehaviour::ResetAfter) => {
                self.execute(key);
                if self.lie == Lie::RetriesByItself {
                    self.execute(key);
                }
                let retryable = self.lie == Lie::ResetIsRetryable;
                trouble(if retryable { Verdict::Retryable } else { Verdict::Unknown })
            }
            Some(Misbehaviour::Hang | Misbehaviour::SlowDrip) => {
                if self.lie == Lie::NeverGivesUp {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(self.terms.timeout).await;
                let failure = self.lie == Lie::TimeoutIsFailure;
                trouble(if failure { Verdict::Refused } else { Verdict::Unknown })
            }
            Some(Misbehaviour::Garbage) => {
                let success = self.lie == Lie::NonsenseIsSuccess;
                trouble(if success { Verdict::Accepted } else { Verdict::Unknown })
            }
        }
    }

    async fn inquire(&self, payment: &Payment) -> Inquiry {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let from = match self.lie {
            Lie::InquiryFromMemory => &self.remembered,
            Lie::NotFoundForEverything => return Inquiry::NotFound,
            _ => &self.known,
        };
        match from.lock().unwrap().get(&payment.key) {
            Some(_) => Inquiry::Found(Answer::accepted("R")),
            None => Inquiry::NotFound,
        }
    }
}

#[async_trait]
impl Provider for Bank {
    async fn misbehave(&self, key: RailKey, misbehaviour: Misbehaviour) -> bool {
        self.armed.lock().unwrap().insert(key, misbehaviour);
        true
    }

    async fn executions(&self, key: RailKey) -> u64 {
        self.executions.lock().unwrap().get(&key).copied().unwrap_or(0)
    }

    async fn forget(&self, key: RailKey) -> bool {
        self.known.lock().unwrap().remove(&key);
        true
    }

    async fn requests(&self) -> Option<u64> {
        Some(self.requests.load(Ordering::SeqCst))
    }
}

pub(crate) fn sample() -> Sample {
    let payload = |account: &str| {
        let text = format!(
            r#"{{"amount": {{"value": "10.00", "currency": "EUR"}}, "destination": {{"iban": "{account}"}}}}"#
        );
        RawValue::from_string(text).unwrap()
    };
    Sample {
        payment: Payment {
            key: RailKey(uuid::Uuid::nil()),
            outbox_id: OutboxId(uuid::Uuid::nil()),
            instruction_id: "instruction".to_owned(),
            participant_id: "participant".to_owned(),
            sequence_id: 1,
            rail_type: "bank".to_owned(),
            amount: Amount {
                value: "10.00".to_owned(),
                currency: "EUR".to_owned(),
                minor_units: 1_000,
            },
            payload: payload("DE89370400440532013000"),
            traceparent: None,
        },
        wrong_destination: Some(payload("nowhere")),
    }
}

#[tokio::test(start_paused = true)]
async fn an_honest_rail_passes_every_claim() {
    let bank = Bank::new(Lie::None);
    let report = check(&bank, &bank, &sample()).await;
    assert!(report.claims.iter().all(|claim| claim.outcome == ClaimOutcome::Passed), "{report}");
    assert!(report.to_string().ends_with("24 passed, 0 failed, 0 not applicable"), "{report}");
}

#[tokio::test(start_paused = true)]
async fn every_lie_is_caught_by_its_claim() {
    for (lie, claim) in [
        (Lie::RetriesByItself, "the same key twice executes once"),
        (Lie::RetriesByItself, "a reset after executing is unknown"),
        (Lie::TimeoutIsFailure, "a provider that hangs is unknown within the timeout"),
        (Lie::NeverGivesUp, "a provider that hangs is unknown within the timeout"),
        (Lie::NeverGivesUp, "an answer that drips is bounded by the timeout"),
        (Lie::NonsenseIsSuccess, "nonsense is unknown"),
        (Lie::ResetIsRetryable, "a reset after executing is unknown"),
        (Lie::ErrorIsRefusal, "an error after executing is never failed or retried"),
        (Lie::InquiryFromMemory, "after a reset the inquiry finds what was executed"),
        (Lie::InquiryFromMemory, "an inquiry asks the provider and not its own memory"),
        (Lie::RefusalIsTrouble, "a refusal is refused and nothing is executed"),
        (Lie::RepeatsThePayload, "no answer repeats the payload"),
        (Lie::ValidatesNothing, "a wrong destination is refused without any request"),
        (Lie::NotFoundForEverything, "an inquiry finds an accepted payment"),
    ] {
        let bank = Bank::new(lie);
        let report = check(&bank, &bank, &sample()).await;
        assert!(!report.passed(), "{lie:?}");
        let outcome = report.outcome(claim);
        assert!(matches!(outcome, Some(ClaimOutcome::Failed(_))), "{lie:?}: {claim}\n{report}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_rail_does_not_promise_is_not_asked_of_it() {
    let mut bank = Bank::new(Lie::None);
    bank.terms.key_lifetime = None;
    bank.terms.inquiry = InquiryTerms::Impossible;
    let report = check(&bank, &bank, &sample()).await;
    assert!(report.passed(), "{report}");
    for claim in [
        "the same key twice executes once",
        "after a reset sending again executes once",
        "after a reset the inquiry finds what was executed",
        "a key never sent is not found",
    ] {
        let outcome = report.outcome(claim);
        assert!(matches!(outcome, Some(ClaimOutcome::NotApplicable(_))), "{claim}\n{report}");
    }
}
