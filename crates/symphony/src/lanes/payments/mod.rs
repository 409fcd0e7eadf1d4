//! The payment lane: items go to rails, and unknown outcomes are asked about before anything else.
//!
//! - [`rail`]: the contract between this lane and whatever moves the money.
//! - `decide.rs`: what to do with a payment, as pure functions.
//! - `answers.rs`: asking a rail, and answers that no rail gave.
//! - `first_byte.rs`: the last check before it is sent.
//! - `setup.rs`: a rail with its bounds.
//! - `traced.rs`: what is told of a payment in its trace.

mod answers;
mod decide;
mod first_byte;
pub mod rail;
mod setup;
mod traced;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::db::{
    ClaimedPayment, DbError, PaymentClaim, PaymentLease, PaymentOutcome, PaymentRecorded,
    PaymentsClaimed, Worker,
};
use crate::domain::{Outcome, limits};
use crate::engine::{
    Ask, BreakerState, Claimed, Completed, Destination, Dispatched, Group, Hold, Interruption,
    Lane, Moment, Point, Tally, Unsent,
};
use crate::money::{self, Defect};
use crate::trace::{ItemTrace, TraceId, Traces};
use answers::{cannot_tell, inquire, invalid, settle_elsewhere, tally};
pub use decide::needs_marks;
use decide::{Ages, Step, Then};
use first_byte::{FirstByte, Refusal};
use rail::{Answer, Inquiry, Payment, Rail, Verdict};
pub use setup::RailSetup;
use traced::tell_completed;

/// The longest pause a rail may ask for; the database takes no longer one.
const RETRY_AFTER_MAX: Duration = Duration::from_hours(7 * 24);

/// The pause after turns could not be had.
const PERMITS_PAUSE: Duration = Duration::from_secs(1);

/// Works payments on behalf of one worker: what an [`Engine`](crate::engine::Engine) is started with, see there.
#[derive(Debug)]
pub struct PaymentLane {
    worker: Worker,
    worker_id: String,
    rails: BTreeMap<String, RailSetup>,
    /// Where each rail sends to, as claims are told.
    endpoints: BTreeMap<String, [String; 1]>,
    destinations: BTreeMap<String, Arc<Destination>>,
    traces: Traces,
}

/// How one dispatch ended.
#[derive(Debug)]
pub struct Done {
    completion: PaymentOutcome,
    /// Leave it to a person.
    park: bool,
    ordered: bool,
    trace_id: TraceId,
    trace: Option<Arc<ItemTrace>>,
}

impl PaymentLane {
    /// Work these rails, as this worker.
    pub fn new(worker: Worker, worker_id: String, rails: Vec<RailSetup>) -> Self {
        let fingerprint = |rail: &RailSetup| rail.rail.terms().endpoint.fingerprint().to_owned();
        let endpoints = rails.iter().map(|rail| (rail.name.clone(), [fingerprint(rail)])).collect();
        let destinations = rails.iter().map(|rail| (rail.name.clone(), rail.destination()));
        let destinations = destinations.collect();
        let rails = rails.into_iter().map(|rail| (rail.name.clone(), rail)).collect();
        Self { worker, worker_id, rails, endpoints, destinations, traces: Traces::default() }
    }

    /// What waits only for a rail that was in trouble is due as soon as that is well again.
    async fn hasten(&self, rail: &str, items_max: usize) -> Result<i32, DbError> {
        let items_max = items_max.clamp(1, limits::BATCH_ITEMS_MAX);
        self.worker.hasten_payments(rail, i32::try_from(items_max).unwrap_or(i32::MAX)).await
    }

    async fn lease_due(&self, ask: &Ask<'_>) -> Result<PaymentsClaimed, DbError> {
        let rails = [ask.group.to_owned()];
        let request = PaymentClaim {
            worker_id: &self.worker_id,
            batch_size: i32::try_from(ask.items_max).unwrap_or(i32::MAX),
            lease_seconds: i32::try_from(ask.lease.as_secs()).unwrap_or(i32::MAX),
            rails: Some(&rails),
            due_from: ask.due_from,
            endpoints: self.endpoints.get(ask.group).map(<[String; 1]>::as_slice),
        };
        self.worker.claim_payments(&request).await
    }

    /// Ask a rail, and count how long that took.
    async fn ask(&self, item: &ClaimedPayment, rail: &dyn Rail, payment: &Payment) -> Inquiry {
        let started = Instant::now();
        let inquiry = inquire(rail, payment).await;
        self.observe(item, started);
        inquiry
    }

    fn observe(&self, item: &ClaimedPayment, started: Instant) {
        if let Some(destination) = self.destinations.get(&item.rail_type) {
            destination.latency.observe(started.elapsed());
        }
    }

    /// Carry one out; the answer, and what comes after it.
    async fn carry_out(
        &self,
        item: &ClaimedPayment,
        setup: &RailSetup,
        hold: &Hold,
        trace: Option<&ItemTrace>,
    ) -> Result<(Answer, Then), Unsent> {
        let rail = setup.rail.as_ref();
        let terms = rail.terms();
        let payment = match payment(item, trace) {
            Ok(payment) => payment,
            Err(defect) => return Ok(invalid(&defect, item.must_inquire)),
        };
        // Since a loss of data nobody knows where else it was sent: then every endpoint its rail has had is asked.
        let (nowhere, sent_to) = match item.endpoint.as_deref() {
            None => (item.must_inquire, None),
            Some(endpoint) => match endpoint.strip_prefix('?') {
                Some(endpoint) => (item.must_inquire, Some(endpoint)),
                None => (false, Some(endpoint)),
            },
        };
        let elsewhere =
            sent_to.filter(|sent_to| item.must_inquire && *sent_to != terms.endpoint.fingerprint());
        if let Some(sent_to) = elsewhere {
            self.turn(item, hold).await?;
            return Ok(settle_elsewhere(setup.previous_at(sent_to), &payment).await);
        }
        let ages_at = hold.now();
        let ages = if item.must_inquire { self.ages(item).await? } else { Ages::unsent() };
        let mut step = decide::first_step(item.must_inquire, item.asked_again, terms, ages);
        if step == Step::Inquire {
            self.turn(item, hold).await?;
            let inquiry = self.ask(item, rail, &payment).await;
            step = decide::after_inquiry(inquiry, terms, ages);
        }
        if nowhere && !item.asked_again && matches!(step, Step::Send | Step::Resend) {
            for earlier in &setup.previous {
                self.turn(item, hold).await?;
                let inquiry = self.ask(item, earlier.as_ref(), &payment).await;
                if let Some(answer) = decide::known_elsewhere(inquiry) {
                    return Ok((answer, Then::Settle));
                }
            }
        }
        if item.only_ask {
            return Ok(decide::told_only(step));
        }
        match step {
            Step::Send => self.send(item, rail, &payment, hold, None).await,
            Step::Resend => {
                let until = decide::resend_within(terms, ages).map(|left| ages_at.after(left));
                let (answer, then) = self.send(item, rail, &payment, hold, until).await?;
                Ok((decide::after_resend(answer, terms), then))
            }
            Step::Settle(answer) => Ok((answer, Then::Settle)),
            Step::Wait(left, reason) => {
                let answer = Answer {
                    error_code: Some("NOT_SETTLED_YET".to_owned()),
                    message: Some(reason.to_owned()),
                    ..Answer::new(Verdict::Unknown)
                };
                Ok((answer, Then::Wait(left)))
            }
            // The rail was asked once already. It is not asked in a loop: a person decides.
            Step::Park(reason) => Ok((cannot_tell(reason), Then::Park)),
            Step::Inquire => {
                Ok((cannot_tell("the rail was asked and must be asked again"), Then::Park))
            }
        }
    }

    async fn send(
        &self,
        item: &ClaimedPayment,
        rail: &dyn Rail,
        payment: &Payment,
        hold: &Hold,
        until: Option<Moment>,
    ) -> Result<(Answer, Then), Unsent> {
        let terms = rail.terms();
        if let Err(defect) = rail.validate(payment) {
            return Ok(invalid(&defect, item.must_inquire));
        }
        self.turn(item, hold).await?;
        let check = FirstByte::new(&self.worker, &self.worker_id, item, terms, hold, until);
        let started = Instant::now();
        let sent = tokio::time::timeout(terms.timeout, rail.dispatch_when(payment, &check)).await;
        self.observe(item, started);
        match check.refusal() {
            None => {}
            Some(Refusal::Unmarked(unsent)) => return Err(unsent),
            // Marked, so it cannot be given back as unsent; but this worker knows that it was not.
            Some(Refusal::Marked) => {
                let answer = Answer {
                    error_code: Some("NOT_SENT".to_owned()),
                    message: Some("the lease would not have outlived the call".to_owned()),
                    ..Answer::new(Verdict::Retryable)
                };
                return Ok((answer, Then::Wait(Duration::ZERO)));
            }
        }
        let answer = match sent {
            Ok(answer) => answer,
            Err(_) if !hold.was_sent() => Answer::trouble(
                Verdict::Retryable,
                "NOT_SENT",
                format!("not ready to send within {} ms", terms.timeout.as_millis()),
            ),
            Err(_) => Answer::trouble(
                Verdict::Unknown,
                "TIMEOUT",
                format!("no answer within {} ms", terms.timeout.as_millis()),
            ),
        };
        hold.at(Point::AfterSend);
        let then =
            if decide::parks_at_once(answer.verdict, terms) { Then::Park } else { Then::Settle };
        Ok((answer, then))
    }

    /// Wait for a turn at the rail, which every call needs.
    async fn turn(&self, item: &ClaimedPayment, hold: &Hold) -> Result<(), Unsent> {
        let permits =
            async |rate, wanted| self.worker.take_rail_permits(&item.rail_type, rate, wanted).await;
        match hold.turn(permits).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::warn!(lane = "payments", outbox_id = %item.outbox_id, trace_id = %item.trace_id(), rail = item.rail_type,
                    code = error.code(), %error, "no turn could be had");
                // It is due again at once: pause, so that this does not become a busy loop.
                tokio::time::sleep(PERMITS_PAUSE).await;
                Err(Unsent::Undecided)
            }
        }
    }

    /// When this item may have been sent so far, by the database's clock.
    async fn ages(&self, item: &ClaimedPayment) -> Result<Ages, Unsent> {
        match self.worker.send_history(item.outbox_id).await {
            Ok(Some(history)) => Ok(Ages {
                key_at_most: seconds(history.first_claim_age_seconds),
                quiet_at_least: seconds(history.last_send_age_seconds),
                outcomes: history.outcomes > 0,
            }),
            // Nothing on record: the most careful assumption.
            Ok(None) => Ok(Ages {
                key_at_most: Duration::MAX / 2,
                quiet_at_least: Duration::ZERO,
                outcomes: true,
            }),
            Err(error) => {
                tracing::warn!(outbox_id = %item.outbox_id, trace_id = %item.trace_id(), code = error.code(), %error, "its history could not be read");
                Err(Unsent::Undecided)
            }
        }
    }
}

impl Ages {
    fn unsent() -> Self {
        Self { key_at_most: Duration::ZERO, quiet_at_least: Duration::ZERO, outcomes: false }
    }
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

fn payment(item: &ClaimedPayment, trace: Option<&ItemTrace>) -> Result<Payment, Defect> {
    Ok(Payment {
        key: item.rail_key,
        outbox_id: item.outbox_id,
        instruction_id: item.instruction_id.clone(),
        participant_id: item.participant_id.clone(),
        sequence_id: item.sequence_id,
        rail_type: item.rail_type.clone(),
        amount: money::read_amount(&item.payload.0)?,
        payload: item.payload.0.clone(),
        traceparent: trace.map(ItemTrace::outgoing).or_else(|| item.traceparent.clone()),
    })
}

fn done(
    item: &ClaimedPayment,
    answer: Answer,
    then: Then,
    asked_only: bool,
    took: Duration,
) -> Done {
    let wait = if let Then::Wait(left) = then { Some(left) } else { None };
    Done {
        completion: PaymentOutcome {
            lease: item.lease(),
            outcome: decide::outcome(answer.verdict),
            rail_reference: answer.reference.map(storable),
            rail_code: answer.code.map(storable),
            error_code: answer.error_code.map(storable),
            error_message: answer.message.map(storable),
            latency_ms: i32::try_from(took.as_millis()).ok(),
            retry_delay_seconds: wait.map(whole_seconds),
            retry_after_seconds: answer.retry_after.map(whole_seconds),
            spends_attempt: decide::spends_attempt(
                answer.verdict,
                answer.trouble,
                asked_only,
                wait.is_some(),
            ),
            asked_only,
        },
        park: then == Then::Park,
        ordered: item.ordered,
        trace_id: item.trace_id(),
        trace: None,
    }
}

/// Rounded up, and no longer than the database takes.
fn whole_seconds(pause: Duration) -> i32 {
    let pause = pause.min(RETRY_AFTER_MAX);
    i32::try_from(pause.as_secs() + u64::from(pause.subsec_nanos() > 0)).unwrap_or(i32::MAX)
}

/// PostgreSQL cannot store NUL; whatever a rail said, its outcome must be writable.
fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

impl Lane for PaymentLane {
    type Work = ClaimedPayment;
    type Lease = PaymentLease;
    type Done = Done;

    fn name(&self) -> &'static str {
        "payments"
    }

    fn worker_id(&self) -> &str {
        &self.worker_id
    }

    fn channel(&self) -> &'static str {
        "outbox_pending"
    }

    fn groups(&self) -> Vec<Group> {
        self.rails.values().map(RailSetup::group).collect()
    }

    fn destinations(&self) -> Vec<Arc<Destination>> {
        self.destinations.values().cloned().collect()
    }

    fn gate(&self, group: &str) -> Option<Arc<Destination>> {
        self.destinations.get(group).cloned()
    }

    fn lease(work: &ClaimedPayment) -> PaymentLease {
        work.lease()
    }

    fn lease_of(done: &Done) -> PaymentLease {
        done.completion.lease
    }

    fn trace_id(work: &ClaimedPayment) -> Option<TraceId> {
        Some(work.trace_id())
    }

    async fn claim(&self, ask: &Ask<'_>) -> Result<Claimed<ClaimedPayment>, DbError> {
        let asked_at = self.traces.now();
        let destination = self.destinations.get(ask.group);
        if let Some(destination) = destination.filter(|destination| destination.take_recovered()) {
            // All of them, and whatever concurrency and rate let through at once.
            let all = limits::BATCH_ITEMS_MAX;
            match self.hasten(ask.group, all).await {
                Ok(moved) if usize::try_from(moved).unwrap_or(0) >= all => {
                    destination.still_recovered();
                }
                Ok(_) => {}
                Err(error) => {
                    destination.still_recovered();
                    return Err(error);
                }
            }
        }
        let PaymentsClaimed { items: mut works, mut ended } = self.lease_due(ask).await?;
        let probes = |destination: &Arc<Destination>| destination.state() == BreakerState::HalfOpen;
        if works.is_empty() && destination.is_some_and(probes) {
            // Do not wait for an item's own pause to find out that the rail works again.
            if self.hasten(ask.group, 1).await? > 0 {
                let again = self.lease_due(ask).await?;
                works = again.items;
                ended += again.ended;
            }
        }
        self.tell_claimed(asked_at, &works);
        let through = works.last().map(|item| item.next_attempt_at);
        Ok(Claimed { works, through, more_soon: false, ended })
    }

    async fn dispatch(&self, item: &ClaimedPayment, hold: &Arc<Hold>) -> Dispatched<Done> {
        let Some(setup) = self.rails.get(&item.rail_type) else {
            return Dispatched::Unsent(Unsent::Undecided);
        };
        let started = Instant::now();
        let trace = self.trace(item);
        match self.carry_out(item, setup, hold, trace.as_deref()).await {
            Ok((answer, then)) => {
                let trouble = answer.trouble;
                if let Some(destination) = self.destinations.get(&item.rail_type) {
                    let troubled =
                        trouble.then(|| answer.error_code.as_deref().unwrap_or("TROUBLE"));
                    destination.answered(decide::answered(answer.verdict), troubled);
                }
                if answer.verdict == Verdict::Unknown {
                    tracing::warn!(lane = "payments", outbox_id = %item.outbox_id, trace_id = %item.trace_id(), rail = item.rail_type,
                        rail_code = answer.code.as_deref(), error_code = answer.error_code.as_deref(), park = then == Then::Park, "the outcome is unknown");
                }
                let asked_only = item.must_inquire && !hold.was_sent();
                let took = started.elapsed();
                let done = done(item, answer, then, asked_only, took).traced(trace, took, item);
                Dispatched::Done { done, trouble }
            }
            Err(unsent) => Dispatched::Unsent(unsent),
        }
    }

    fn interrupted(&self, item: &ClaimedPayment, why: Interruption) -> Done {
        let (error_code, message) = match why {
            Interruption::Panicked => {
                ("PANIC", "the rail's code panicked; the request may have left")
            }
            Interruption::Shutdown => (
                "SHUTDOWN",
                "the worker had to stop before the rail answered; the request may have left",
            ),
        };
        let answer = Answer::trouble(Verdict::Unknown, error_code, message);
        let parks = self
            .rails
            .get(&item.rail_type)
            .is_some_and(|setup| decide::parks_at_once(Verdict::Unknown, setup.rail.terms()));
        let then = if parks { Then::Park } else { Then::Settle };
        let done = done(item, answer, then, false, Duration::ZERO);
        done.traced(self.trace(item), Duration::ZERO, item)
    }

    async fn complete(&self, outcomes: &[Done]) -> Result<Vec<Completed>, DbError> {
        let asked_at = self.traces.now();
        let batch: Vec<PaymentOutcome> =
            outcomes.iter().filter(|done| !done.park).map(|done| done.completion.clone()).collect();
        let mut batch_answers = if batch.is_empty() {
            Vec::new().into_iter()
        } else {
            self.worker.complete_payments(&self.worker_id, &batch).await?.into_iter()
        };
        let mut answers = Vec::with_capacity(outcomes.len());
        for done in outcomes {
            let result = if done.park {
                match self.worker.park_unknown_payment(&self.worker_id, &done.completion).await {
                    Ok(settled) => Some(PaymentRecorded::Recorded(settled)),
                    Err(DbError::LeaseLost { .. }) => Some(PaymentRecorded::LeaseLost),
                    Err(DbError::TerminalExists { .. }) => Some(PaymentRecorded::TerminalExists),
                    Err(error) => return Err(error),
                }
            } else {
                batch_answers.next().map(|answer| answer.result)
            };
            answers.push(match result {
                Some(PaymentRecorded::Recorded(settled)) => Completed::Recorded {
                    tallies: tally(done.completion.outcome, settled.state, settled.parked).into(),
                    successor: done.ordered,
                },
                Some(PaymentRecorded::TerminalExists | PaymentRecorded::LeaseLost) => Completed::Late,
                Some(PaymentRecorded::TerminalBlocked) => {
                    tracing::warn!(lane = "payments", outbox_id = %done.completion.lease.outbox_id, trace_id = %done.trace_id, event = "TERMINAL_BLOCKED",
                        "a second terminal outcome was refused by the unique index; it is kept as evidence");
                    Completed::Blocked
                }
                refused @ (Some(PaymentRecorded::InvalidState | PaymentRecorded::Integrity) | None) => {
                    tracing::error!(lane = "payments", outbox_id = %done.completion.lease.outbox_id, trace_id = %done.trace_id,
                        result = ?refused, event = "INTEGRITY_ALARM", "the database refused an outcome");
                    Completed::Alarm
                }
            });
        }
        self.recognise_own(outcomes, &mut answers).await?;
        tell_completed(asked_at, outcomes, &answers);
        Ok(answers)
    }

    async fn keep_evidence(&self, done: &Done) -> Result<bool, DbError> {
        let late = self.worker.record_late_payment(&self.worker_id, &done.completion).await?;
        let (outbox_id, trace_id) = (done.completion.lease.outbox_id, done.trace_id);
        if late.conflict {
            tracing::error!(lane = "payments", %outbox_id, %trace_id, event = "LATE_OUTCOME_CONFLICT",
                "a late outcome contradicts the ledger: money may have moved twice, or although FAILED says it did not");
        } else {
            tracing::warn!(lane = "payments", %outbox_id, %trace_id, event = "CONCURRENCY_EVENT",
                "the lease was lost before the outcome was written; it is kept as evidence");
        }
        Ok(late.conflict)
    }
}

impl PaymentLane {
    /// An outcome refused as late may be our own, written by a COMMIT whose answer was lost.
    async fn recognise_own(
        &self,
        outcomes: &[Done],
        answers: &mut [Completed],
    ) -> Result<(), DbError> {
        let late: Vec<PaymentLease> = outcomes
            .iter()
            .zip(answers.iter())
            .filter(|(_, answer)| **answer == Completed::Late)
            .map(|(done, _)| done.completion.lease)
            .collect();
        if late.is_empty() {
            return Ok(());
        }
        let own = self.worker.payments_recorded_under(&late).await?;
        for (done, answer) in outcomes.iter().zip(answers) {
            if *answer == Completed::Late && own.contains(&done.completion.lease.outbox_id) {
                let tally = match done.completion.outcome {
                    Outcome::Dispatched => Tally::Dispatched,
                    Outcome::Failed => Tally::Failed,
                    Outcome::Retryable => Tally::Retryable,
                    Outcome::Unknown if done.park => Tally::Parked,
                    Outcome::Unknown => Tally::Unknown,
                };
                *answer = Completed::Recorded { tallies: tally.into(), successor: done.ordered };
            }
        }
        Ok(())
    }
}
