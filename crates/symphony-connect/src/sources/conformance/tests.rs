//! The suite finds what is wrong: a broker in memory passes, and with each flaw fails the claim that is about it.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use symphony::consumer::{DeadLetterReason, Delivery, Source, SourceError, SourceTerms};
use tokio::time::Instant;

use super::{Condition, DeadLetter, Probe, Published, check};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    HandsOutTheLastFirst,
    AcknowledgesNothing,
    NeverDeliversAgain,
    ExtendsNothing,
    ForgetsDelays,
    LosesDeadLetters,
    IsEmptyWhenDown,
    MiscountsDeadLetters,
    ForgetsWhatIsHidden,
}

struct Stored {
    id: usize,
    message: Published,
    visible_at: Instant,
    receives: u32,
}

#[derive(Default)]
struct State {
    next_id: usize,
    stored: Vec<Stored>,
    dead: Vec<DeadLetter>,
    down: bool,
}

#[derive(Clone)]
struct Broker {
    flaw: Flaw,
    state: Arc<Mutex<State>>,
}

struct Memory {
    broker: Broker,
    terms: SourceTerms,
}

impl Memory {
    fn with(&self, delivery: &Delivery, change: impl FnOnce(&mut Stored)) {
        let mut state = self.broker.state.lock().unwrap();
        let found = |one: &&mut Stored| format!("{} {}", one.id, one.receives) == delivery.receipt;
        // An old receipt changes nothing.
        if let Some(one) = state.stored.iter_mut().find(found) {
            change(one);
        }
    }

    fn take(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        let mut state = self.broker.state.lock().unwrap();
        let flaw = self.broker.flaw;
        if state.down {
            let error = Err(SourceError::new("down"));
            return if flaw == Flaw::IsEmptyWhenDown { Ok(Vec::new()) } else { error };
        }
        let now = Instant::now();
        let mut waiting: Vec<_> =
            state.stored.iter_mut().filter(|one| one.visible_at <= now).collect();
        if flaw == Flaw::HandsOutTheLastFirst {
            waiting.reverse();
        }
        let visibility = self.terms.visibility;
        let hidden = if flaw == Flaw::NeverDeliversAgain { visibility * 1_000 } else { visibility };
        let hand_out = |one: &mut Stored| {
            one.receives += 1;
            one.visible_at = now + hidden;
            Delivery {
                receipt: format!("{} {}", one.id, one.receives),
                message_id: one.id.to_string(),
                group: Some(one.message.key.clone()),
                order: one.id as u128,
                receives: one.receives,
                position: Some(one.message.position),
                body: one.message.body.clone().into_bytes(),
                defect: None,
            }
        };
        Ok(waiting.into_iter().take(max).map(hand_out).collect())
    }
}

#[async_trait]
impl Source for Memory {
    fn terms(&self) -> &SourceTerms {
        &self.terms
    }

    async fn receive(&self, max: usize) -> Result<Vec<Delivery>, SourceError> {
        for _ in 0..10 {
            let found = self.take(max)?;
            if !found.is_empty() {
                return Ok(found);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(Vec::new())
    }

    async fn acknowledge(&self, delivery: &Delivery) -> Result<(), SourceError> {
        if self.broker.flaw != Flaw::AcknowledgesNothing {
            let mut state = self.broker.state.lock().unwrap();
            state.stored.retain(|one| one.id.to_string() != delivery.message_id);
        }
        Ok(())
    }

    async fn extend(&self, deliveries: &[Arc<Delivery>]) -> Result<(), SourceError> {
        for delivery in deliveries {
            if self.broker.flaw != Flaw::ExtendsNothing {
                self.with(delivery, |one| one.visible_at = Instant::now() + self.terms.visibility);
            }
        }
        Ok(())
    }

    async fn leave(&self, delivery: &Delivery, delay: Duration) -> Result<(), SourceError> {
        let delay = if self.broker.flaw == Flaw::ForgetsDelays { Duration::ZERO } else { delay };
        self.with(delivery, |one| one.visible_at = Instant::now() + delay);
        Ok(())
    }

    async fn dead_letter(
        &self,
        delivery: &Delivery,
        reason: &DeadLetterReason,
    ) -> Result<(), SourceError> {
        if self.broker.flaw != Flaw::LosesDeadLetters {
            let body = String::from_utf8(delivery.body.clone()).unwrap();
            let letter = DeadLetter { reason: reason.code.as_str().to_owned(), body };
            self.broker.state.lock().unwrap().dead.push(letter);
        }
        self.acknowledge(delivery).await
    }

    async fn unacknowledged(&self) -> Result<Option<u64>, SourceError> {
        let state = self.broker.state.lock().unwrap();
        let now = Instant::now();
        let seen =
            |one: &&Stored| self.broker.flaw != Flaw::ForgetsWhatIsHidden || one.visible_at <= now;
        Ok(Some(state.stored.iter().filter(seen).count() as u64))
    }

    async fn dead_letters_waiting(&self) -> Result<Option<u64>, SourceError> {
        let waiting = self.broker.state.lock().unwrap().dead.len() as u64;
        let off = u64::from(self.broker.flaw == Flaw::MiscountsDeadLetters);
        Ok(Some(waiting + off))
    }
}

#[async_trait]
impl Probe for Broker {
    async fn open(&self) -> Arc<dyn Source> {
        let terms = SourceTerms {
            visibility: Duration::from_millis(400),
            batch_max: 10,
            held_max: 100,
            held_time_max: None,
            keeps_group_order: false,
            broker_receives_max: None,
        };
        Arc::new(Memory { broker: self.clone(), terms })
    }

    async fn clear(&self) {
        let mut state = self.state.lock().unwrap();
        state.stored.clear();
        state.dead.clear();
    }

    async fn publish(&self, messages: &[Published]) {
        let mut state = self.state.lock().unwrap();
        for message in messages {
            state.next_id += 1;
            let (id, visible_at) = (state.next_id, Instant::now());
            state.stored.push(Stored { id, message: message.clone(), visible_at, receives: 0 });
        }
    }

    async fn dead_letters(&self) -> Vec<DeadLetter> {
        self.state.lock().unwrap().dead.clone()
    }

    async fn make(&self, condition: Condition) -> bool {
        self.state.lock().unwrap().down = condition == Condition::Down;
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_sound_source_passes_and_each_flaw_fails_the_claim_that_is_about_it() {
    let flaws = [
        (Flaw::None, None),
        (Flaw::HandsOutTheLastFirst, Some("messages of one key are delivered in their order")),
        (Flaw::AcknowledgesNothing, Some("what was acknowledged never comes again")),
        (Flaw::NeverDeliversAgain, Some("what a lost process held comes again")),
        (Flaw::ExtendsNothing, Some("what is extended stays hidden from others")),
        (Flaw::ForgetsDelays, Some("what was left with a delay does not come before")),
        (Flaw::LosesDeadLetters, Some("a dead letter is found with its reason and comes no more")),
        (Flaw::IsEmptyWhenDown, Some("a broker that is down is an error and not an empty source")),
        (
            Flaw::ForgetsWhatIsHidden,
            Some("what a lost process hides is not acknowledged, and counted"),
        ),
        (Flaw::MiscountsDeadLetters, Some("dead letters are counted, or said to be unknown")),
    ];
    let checked = flaws.map(async |(flaw, claim)| {
        let broker = Broker { flaw, state: Arc::default() };
        let report = check(&broker).await;
        match claim {
            None => assert!(report.passed(), "{report}"),
            Some(claim) => {
                let found = report.outcome(claim);
                assert!(
                    matches!(found, Some(super::ClaimOutcome::Failed(_))),
                    "{flaw:?}: {report}"
                );
            }
        }
    });
    futures_util::future::join_all(checked).await;
}
