//! How outcomes are written down: in sets; each by itself where one of a set is not right or something is locked; and by
//! itself later, where somebody holds what its effects need.

use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::sets::{Ended, sets};
use super::slots::Slot;
use super::{TriggerLane, account};
use crate::db::{DbError, EndedRequest, TriggerOutcome, TriggerRecorded, TriggerState};
use crate::engine::Completed;

/// How often a run is run again because what it had read has changed, before that is its outcome.
const RERUNS_MAX: u32 = 100;
/// How long a set of one app may take before what else of the app has effects leaves the batch: others wait behind it.
const SET_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a set waits for a lock: others wait behind it.
const SET_LOCK_WAIT: Duration = Duration::from_millis(100);
/// The same for each of a set that has waited in vain.
const MEMBER_LOCK_WAIT: Duration = Duration::from_millis(10);
/// The same for an outcome that nobody waits behind.
const ALONE_LOCK_WAIT: Duration = Duration::from_secs(1);

/// What became of one outcome.
enum Written {
    Recorded(TriggerRecorded),
    /// Somebody holds what it needs. Nothing was done.
    HeldUp,
}

/// A batch of outcomes while it is written.
struct Batch<'a> {
    done: &'a [Ended],
    /// What is in no set yet is left for the next batch.
    answers: Vec<Completed>,
    /// What else of these apps has effects is written beside this batch: one of theirs is held up, or takes long.
    beside: HashSet<Uuid>,
    /// The apps of those that this batch has found to be held up.
    held_up: Vec<Uuid>,
}

impl TriggerLane {
    /// Those without effects all at once, those with effects in sets. A repeated call finds what the first has written.
    pub(super) async fn complete_all(&self, done: &[Ended]) -> Result<Vec<Completed>, DbError> {
        let mut batch = Batch {
            done,
            answers: vec![Completed::NextBatch; done.len()],
            beside: self.held_up.apps(),
            held_up: Vec::new(),
        };
        match self.complete_sets(&mut batch).await {
            Ok(()) => {
                let all = batch.answers.iter().zip(done);
                let left = all.filter(|(answer, _)| **answer == Completed::NextBatch);
                left.for_each(|(_, ended)| {
                    ended.slot().get_or_insert_with(|| self.slots.retake(ended.app_id));
                });
                Ok(batch.answers)
            }
            Err(error) => {
                // The whole batch is repeated, and finds them again.
                batch.held_up.into_iter().for_each(|app_id| self.held_up.remove(app_id));
                Err(error)
            }
        }
    }

    async fn complete_sets(&self, batch: &mut Batch<'_>) -> Result<(), DbError> {
        let done = batch.done;
        let all: Vec<usize> = (0..done.len()).collect();
        self.pass_by(batch, all);
        let beside = batch.beside.clone();
        let waits = |ended: &Ended| ended.is_one_of(&beside);
        let unwritten = |ended: &Ended| ended.is_unwritten();
        // In this order: what it costs to write both kinds is not paid for most.
        let written_before = sets(done, |ended| !waits(ended) && !unwritten(ended));
        let unwritten = sets(done, |ended| !waits(ended) && unwritten(ended));
        for places in written_before.into_iter().chain(unwritten) {
            let places = self.pass_by(batch, places);
            let members: Vec<&Ended> = places.iter().filter_map(|place| done.get(*place)).collect();
            if members.is_empty() {
                continue;
            }
            let began = Instant::now();
            let mut written = self.write_set(&members).await?.into_iter();
            for (place, ended) in places.into_iter().zip(&members) {
                let answer = match written.next() {
                    Some(written) => self.answer_for(ended, written).await?,
                    None => Completed::Late,
                };
                self.note(batch, place, ended, answer);
            }
            let took_long = began.elapsed() >= SET_TIME_MAX;
            if let Some(app_id) = only_app(&members).filter(|_| took_long) {
                batch.beside.insert(app_id);
            }
        }
        Ok(())
    }

    /// Those of a set that are still to be written in it. The others are written beside the batch, at once: none of them waits
    /// for the same lock as one before it, nor does any other app's outcome behind them.
    fn pass_by(&self, batch: &mut Batch<'_>, places: Vec<usize>) -> Vec<usize> {
        let done = batch.done;
        let (passed, left): (Vec<_>, Vec<_>) = places.into_iter().partition(|place| {
            done.get(*place).is_some_and(|ended| ended.is_one_of(&batch.beside))
        });
        for place in passed {
            if let Some(ended) = done.get(place) {
                self.note(batch, place, ended, Completed::Later);
            }
        }
        left
    }

    fn note(&self, batch: &mut Batch<'_>, place: usize, ended: &Ended, answer: Completed) {
        if answer == Completed::Later {
            let slot = ended.slot().take();
            let slot = slot.unwrap_or_else(|| self.slots.retake(ended.app_id));
            self.held_up.add(ended.app_id, slot);
            batch.held_up.push(ended.app_id);
            batch.beside.insert(ended.app_id);
        }
        if let Some(found) = batch.answers.get_mut(place) {
            *found = answer;
        }
    }

    /// One that is held up: in its app's turn, so that one app does not take every connection.
    pub(super) async fn complete_one_held_up(&self, ended: &Ended) -> Result<Completed, DbError> {
        let _turn = self.held_up.turn(ended.app_id).await;
        let written = self.record(&[ended], ALONE_LOCK_WAIT).await;
        let answer = match written {
            Ok(mut recorded) => match recorded.pop() {
                Some(recorded) => self.answer_for(ended, Written::Recorded(recorded)).await,
                None => Ok(Completed::Late),
            },
            Err(error) if error.is_lock_timeout() => return Ok(Completed::Later),
            Err(error) => Err(error),
        };
        let is_repeated = match &answer {
            Ok(answer) => *answer == Completed::Later,
            Err(error) => error.is_transient() || error.needs_operator(),
        };
        if !is_repeated {
            self.held_up.remove(ended.app_id);
        }
        answer
    }

    /// Write a set. If one of its effects is not right, or something is locked, each is written by itself, and that one
    /// fails or waits. If all of it takes longer than a call may, each is written by itself later.
    async fn write_set(&self, members: &[&Ended]) -> Result<Vec<Written>, DbError> {
        let began = Instant::now();
        let written = self.record(members, SET_LOCK_WAIT).await;
        // A request brings its payload, which may not be right either.
        let may_be_wrong =
            members.iter().any(|ended| ended.outcome.effects.is_some() || ended.is_unwritten());
        match written {
            Ok(recorded) => return Ok(recorded.into_iter().map(Written::Recorded).collect()),
            Err(error) if error.is_lock_timeout() => {}
            // It would take as long every time. What was written after all is found then.
            Err(error)
                if members.len() > 1
                    && error.is_transient()
                    && (error.is_time_out() || began.elapsed() >= self.worker.call_limit()) =>
            {
                return Ok(members.iter().map(|_| Written::HeldUp).collect());
            }
            Err(error)
                if members.len() > 1
                    && may_be_wrong
                    && !error.is_transient()
                    && !error.needs_operator() => {}
            Err(error) => return Err(error),
        }
        if members.len() == 1 {
            return Ok(vec![Written::HeldUp]);
        }
        let mut held_up = HashSet::new();
        let mut all = Vec::with_capacity(members.len());
        for ended in members {
            if held_up.contains(&ended.app_id) {
                all.push(Written::HeldUp);
                continue;
            }
            match self.record(&[ended], MEMBER_LOCK_WAIT).await {
                Ok(recorded) => all.extend(recorded.into_iter().map(Written::Recorded)),
                Err(error) if error.is_lock_timeout() => {
                    held_up.insert(ended.app_id);
                    all.push(Written::HeldUp);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    async fn answer_for(&self, ended: &Ended, written: Written) -> Result<Completed, DbError> {
        let recorded = match written {
            Written::HeldUp => return Ok(Completed::Later),
            Written::Recorded(TriggerRecorded::ReadsChanged) => {
                if !ended.has_left && ended.reruns < RERUNS_MAX {
                    return Ok(Completed::Again);
                }
                match self.write_contention(ended).await {
                    Ok(recorded) => recorded,
                    Err(error) if error.is_lock_timeout() => return Ok(Completed::Later),
                    Err(error) => return Err(error),
                }
            }
            Written::Recorded(TriggerRecorded::Stale) => {
                self.run_first.suspend_app(ended.app_id, Instant::now());
                if let Some(unwritten) = &ended.unwritten {
                    self.write_for_others(unwritten, &ended.item).await;
                }
                TriggerRecorded::Stale
            }
            Written::Recorded(recorded) => recorded,
        };
        self.answer(&ended.outcome, &recorded);
        Ok(account(&recorded))
    }

    /// It is not run again by itself: its trigger's policy says what is next.
    async fn write_contention(&self, ended: &Ended) -> Result<TriggerRecorded, DbError> {
        let why = if ended.has_left {
            "what it had read was changed by others, and it has fetched already: nothing of it was applied"
        } else {
            "what it had read was changed by others each time it ran: nothing of it was applied"
        };
        let outcome = TriggerOutcome {
            state: TriggerState::Retryable,
            result: None,
            effects: None,
            reads: None,
            error_code: Some("CONTENTION".to_owned()),
            error_message: Some(why.to_owned()),
            ..ended.outcome.clone()
        };
        let written = self.record_outcomes(&[(ended, &outcome)], MEMBER_LOCK_WAIT).await;
        Ok(written?.pop().unwrap_or(TriggerRecorded::NotHeld))
    }

    async fn record(
        &self,
        members: &[&Ended],
        lock_wait: Duration,
    ) -> Result<Vec<TriggerRecorded>, DbError> {
        let members: Vec<_> = members.iter().map(|ended| (*ended, &ended.outcome)).collect();
        self.record_outcomes(&members, lock_wait).await
    }

    /// Write outcomes in one transaction: all of items that are written, or all of requests that are not.
    async fn record_outcomes(
        &self,
        members: &[(&Ended, &TriggerOutcome)],
        lock_wait: Duration,
    ) -> Result<Vec<TriggerRecorded>, DbError> {
        let requests: Vec<EndedRequest<'_>> = members
            .iter()
            .filter_map(|(ended, outcome)| {
                let unwritten = ended.unwritten.as_ref().filter(|_| ended.is_unwritten())?;
                let (wait_ms, waited_ms) = (unwritten.wait_ms(), unwritten.waited_ms());
                Some(EndedRequest { item: &ended.item, outcome, wait_ms, waited_ms })
            })
            .collect();
        if requests.is_empty() {
            let outcomes: Vec<_> = members.iter().map(|(_, outcome)| *outcome).collect();
            return self.worker.complete_triggers(&self.worker_id, &outcomes, lock_wait).await;
        }
        let complete = async || {
            self.worker.complete_trigger_requests(&self.worker_id, &requests, lock_wait).await
        };
        let written = match complete().await {
            // An earlier call whose answer was lost has written them by now: this one finds what it wrote.
            Err(DbError::TerminalBlocked | DbError::Integrity { .. }) => complete().await,
            written => written,
        };
        match written {
            Err(error) if requests.len() == 1 || matches!(error, DbError::OtherServer { .. }) => {
                self.refuse_requests(&requests, error)
            }
            recorded => recorded,
        }
    }

    /// Nothing was written of these. Whoever waits is told so, unless it is to be tried again.
    fn refuse_requests(
        &self,
        requests: &[EndedRequest<'_>],
        error: DbError,
    ) -> Result<Vec<TriggerRecorded>, DbError> {
        let code = match &error {
            DbError::OtherServer { .. } => {
                self.run_first.suspend(Instant::now());
                "DATABASE_AWAY"
            }
            // JSON that JSONB cannot hold.
            DbError::NulCharacter => "BODY_NOT_READABLE",
            DbError::Refused { sqlstate, .. } if sqlstate.starts_with("22") => "BODY_NOT_READABLE",
            _ => return Err(error),
        };
        for request in requests {
            self.fail_reply(request.item, code);
        }
        Ok(vec![TriggerRecorded::Refused; requests.len()])
    }
}

/// The app that all of them are of.
fn only_app(members: &[&Ended]) -> Option<Uuid> {
    let app_id = members.first()?.app_id;
    members.iter().all(|ended| ended.app_id == app_id).then_some(app_id)
}

impl Ended {
    fn slot(&self) -> MutexGuard<'_, Option<Slot>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It has effects, and is of one of these apps.
    fn is_one_of(&self, apps: &HashSet<Uuid>) -> bool {
        self.outcome.effects.is_some() && apps.contains(&self.app_id)
    }

    /// It is written with its completion.
    fn is_unwritten(&self) -> bool {
        self.unwritten.as_ref().is_some_and(|unwritten| unwritten.begin_completing())
    }
}
