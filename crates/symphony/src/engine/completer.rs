//! Gathers outcomes and writes them in batches. A batch is repeated until the database has answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify, mpsc};

use super::puller::WeakOutlet;
use super::{Completed, Lane, Point, RefusedSince, Shared, Stage, puller};
use crate::db::DbError;

/// The pause before the first repetition; doubled each time, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_LONGEST: Duration = Duration::from_secs(2);
/// The longest for an outcome that somebody's lock holds up: it waits for the lock as well.
const PAUSE_LATER_LONGEST: Duration = Duration::from_millis(400);

/// While more than this many are running, they are not waited for one by one: each would wake the writer.
const GATHER_SINGLY_MAX: usize = 64;
/// How many times as long is gathered where more waits than can begin.
const GATHER_CROWDED_TIMES: u32 = 4;

/// What to do after a failed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The database was away, did not answer, or needs its operator (a missing privilege, a migration): repeat the
    /// batch. If it was written after all, the lane finds its own rows.
    Repeat,
    /// One outcome is refused and fails the batch: halve the batch until that one is alone.
    Halve,
    /// A single outcome is refused: let its lease expire, and raise an alarm.
    GiveUp,
}

fn after_failure(error: &DbError, items: usize) -> Next {
    if error.is_transient() || error.needs_operator() {
        Next::Repeat
    } else if items > 1 {
        Next::Halve
    } else {
        Next::GiveUp
    }
}

/// Outcomes to come, shared by the writers.
pub(super) type Outcomes<L> = Arc<Mutex<mpsc::UnboundedReceiver<(usize, <L as Lane>::Done)>>>;

/// Write outcomes until there are no more to come. Two of these take turns: one gathers while the other waits for the
/// database.
pub(super) async fn complete<L: Lane>(
    shared: Arc<Shared<L>>,
    done: Outcomes<L>,
    let_go: Arc<Notify>,
    outlet: WeakOutlet<L>,
) {
    let items_max = shared.settings.batch_items_max;
    let mut gathered = Vec::with_capacity(items_max);
    while top_up(&done, &mut gathered, items_max) || gather(&shared, &done, &mut gathered).await {
        shared.points.reach(Point::BeforeComplete);
        let (groups, outcomes): (Vec<_>, Vec<_>) = gathered.drain(..).unzip();
        shared.metrics.completion_batches.add(1);
        shared.being_written.fetch_add(outcomes.len(), Ordering::AcqRel);
        let answers = write(&shared, &outcomes).await;
        shared.being_written.fetch_sub(outcomes.len(), Ordering::AcqRel);
        let mut ended = Vec::with_capacity(outcomes.len());
        for ((answer, group), outcome) in answers.into_iter().zip(groups).zip(outcomes) {
            let lease = L::lease_of(&outcome);
            match answer {
                Completed::Again => run_again(&shared, group, outcome, &outlet, &let_go).await,
                Completed::Later => {
                    let later = complete_later(
                        shared.clone(),
                        group,
                        outcome,
                        outlet.clone(),
                        let_go.clone(),
                    );
                    tokio::spawn(later);
                }
                Completed::NextBatch => gathered.push((group, outcome)),
                answer => {
                    account(&shared, group, answer, &outcome).await;
                    ended.push((group, lease));
                }
            }
        }
        let (groups, leases): (Vec<_>, Vec<_>) = ended.into_iter().unzip();
        let_go_of(&shared, &groups, &leases, &let_go);
    }
}

/// Carry it out once more, unless the engine ends: then it is given back.
async fn run_again<L: Lane>(
    shared: &Arc<Shared<L>>,
    group: usize,
    outcome: L::Done,
    outlet: &WeakOutlet<L>,
    let_go: &Notify,
) {
    let lease = L::lease_of(&outcome);
    let work = shared.lane.again(outcome);
    if work.is_some_and(|work| puller::carry_again(shared, group, work, outlet)) {
        return;
    }
    if let Err(error) = shared.worker.return_unsent(shared.lane.worker_id(), &[lease]).await {
        // Its lease runs out by itself.
        shared.metrics.database_errors.add(1);
        tracing::warn!(lane = shared.lane.name(), code = error.code(), %error, "an item to be run again was not given back");
    }
    let_go_of(shared, &[group], &[lease], let_go);
}

/// Write one outcome by itself until somebody lets go of what it needs, or the engine's time is up. Nobody waits behind it,
/// and it takes nobody's place: it is held on, but others are claimed meanwhile.
async fn complete_later<L: Lane>(
    shared: Arc<Shared<L>>,
    group: usize,
    outcome: L::Done,
    outlet: WeakOutlet<L>,
    let_go: Arc<Notify>,
) {
    let lease = L::lease_of(&outcome);
    let mut stage = shared.stage.clone();
    let mut pause = PAUSE_FIRST;
    puller::release(&shared, group, 1);
    loop {
        tokio::select! {
            biased;
            // Its lease runs out.
            _ = stage.wait_for(|stage| *stage >= Stage::Stopping) => break,
            () = tokio::time::sleep(pause) => {}
        }
        match shared.lane.complete_later(&outcome).await {
            Ok(Completed::Later | Completed::NextBatch) => {}
            Ok(Completed::Again) => {
                puller::take_back(&shared, group);
                return run_again(&shared, group, outcome, &outlet, &let_go).await;
            }
            Ok(answer) => {
                account(&shared, group, answer, &outcome).await;
                break;
            }
            Err(error) if after_failure(&error, 1) == Next::Repeat => {
                shared.metrics.database_errors.add(1);
            }
            Err(error) => {
                tracing::warn!(lane = shared.lane.name(), code = error.code(), %error, "an outcome was not written");
                account(&shared, group, Completed::Alarm, &outcome).await;
                break;
            }
        }
        pause = (pause * 2).min(PAUSE_LATER_LONGEST);
    }
    puller::take_back(&shared, group);
    let_go_of(&shared, &[group], &[lease], &let_go);
}

/// Add what has come to what was left for this batch; `false` if nothing was left.
fn top_up<T>(
    done: &Mutex<mpsc::UnboundedReceiver<T>>,
    gathered: &mut Vec<T>,
    items_max: usize,
) -> bool {
    if gathered.is_empty() {
        return false;
    }
    // Whoever gathers at present sees to them.
    if let Ok(mut done) = done.try_lock() {
        while gathered.len() < items_max
            && let Ok(one) = done.try_recv()
        {
            gathered.push(one);
        }
    }
    true
}

/// Take what there is, up to a batch. `false` if there is nothing more to come.
async fn gather<L: Lane>(
    shared: &Shared<L>,
    done: &Outcomes<L>,
    gathered: &mut Vec<(usize, L::Done)>,
) -> bool {
    let items_max = shared.settings.batch_items_max;
    let mut done = done.lock().await;
    if done.recv_many(gathered, items_max).await == 0 {
        return false;
    }
    // While dispatches are running, a short wait makes one batch of several.
    let is_crowded = shared.lane.is_crowded(gathered.iter().map(|(_, done)| done));
    let times = if is_crowded { GATHER_CROWDED_TIMES } else { 1 };
    let ends = Instant::now() + shared.settings.gather * times;
    while gathered.len() < items_max {
        match shared.running_besides(gathered.len()) {
            0 => break,
            1..=GATHER_SINGLY_MAX => {
                // Over as soon as none is running: a timer alone would take up to a millisecond more.
                tokio::select! {
                    biased;
                    more = done.recv_many(gathered, items_max - gathered.len()) => {
                        if more == 0 {
                            break;
                        }
                    }
                    () = tokio::time::sleep_until(ends.into()) => break,
                }
            }
            _ => {
                tokio::time::sleep_until(ends.into()).await;
                while gathered.len() < items_max
                    && let Ok(one) = done.try_recv()
                {
                    gathered.push(one);
                }
                break;
            }
        }
    }
    true
}

/// Write a batch, repeated as often as needed. One answer for each outcome.
async fn write<L: Lane>(shared: &Shared<L>, outcomes: &[L::Done]) -> Vec<Completed> {
    let mut pause = PAUSE_FIRST;
    let mut answers = Vec::with_capacity(outcomes.len());
    // Parts still to be written, the next one last.
    let mut parts = vec![outcomes];
    let mut refused = RefusedSince::default();
    while let Some(part) = parts.pop() {
        let error = match shared.lane.complete(part).await {
            Ok(part_answers) => {
                shared.unwritten.store(false, Ordering::Release);
                refused.ended();
                answers.extend(part_answers);
                continue;
            }
            Err(error) => error,
        };
        shared.metrics.database_errors.add(1);
        tracing::warn!(lane = shared.lane.name(), code = error.code(), %error, outcomes = part.len(), "outcomes were not written");
        match after_failure(&error, part.len()) {
            Next::Repeat => {
                shared.unwritten.store(true, Ordering::Release);
                if let Some(since) = refused.failed(&error, Instant::now()) {
                    // Writing goes on until the process ends, so that outcomes are not dropped.
                    shared.end_if_refused_for_long("write of outcomes", since, &error);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_LONGEST);
                parts.push(part);
            }
            Next::Halve => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Next::GiveUp => {
                shared.unwritten.store(false, Ordering::Release);
                answers.push(match error {
                    DbError::TerminalBlocked => Completed::Blocked,
                    _ => Completed::Alarm,
                });
            }
        }
    }
    answers
}

async fn account<L: Lane>(shared: &Shared<L>, group: usize, answer: Completed, outcome: &L::Done) {
    let metrics = &shared.metrics;
    match answer {
        Completed::Recorded { tallies, successor } => {
            metrics.dispatched.add(tallies.dispatched);
            metrics.retryable.add(tallies.retryable + tallies.unknown + tallies.parked);
            metrics.failed.add(tallies.failed);
            metrics.unknown.add(tallies.unknown);
            metrics.parked.add(tallies.parked);
            if successor && let Some(group) = shared.groups.get(group) {
                group.successor.notify_one();
            }
        }
        // Whoever writes sees to these.
        Completed::Again | Completed::Later | Completed::NextBatch => {}
        Completed::Late => {
            metrics.leases_lost.add(1);
            keep_evidence(shared, outcome).await;
        }
        Completed::Blocked => {
            metrics.terminal_blocked.add(1);
            keep_evidence(shared, outcome).await;
        }
        Completed::Alarm => {
            metrics.integrity_alarms.add(1);
            // The ledger refused it, but it may have been carried out. Keep that, before it is sent again.
            keep_evidence(shared, outcome).await;
        }
    }
}

/// An outcome that came too late is kept beside the ledger, as evidence.
async fn keep_evidence<L: Lane>(shared: &Shared<L>, outcome: &L::Done) {
    let mut pause = PAUSE_FIRST;
    loop {
        match shared.lane.keep_evidence(outcome).await {
            Ok(conflict) => {
                shared.metrics.late_outcomes.add(1);
                shared.metrics.late_conflicts.add(usize::from(conflict));
                return;
            }
            Err(error) if after_failure(&error, 1) == Next::Repeat => {
                shared.metrics.database_errors.add(1);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_LONGEST);
            }
            Err(error) => {
                shared.metrics.integrity_alarms.add(1);
                tracing::error!(lane = shared.lane.name(), code = error.code(), %error, "a late outcome could not be kept");
                return;
            }
        }
    }
}

/// Give back what was never sent.
pub(super) async fn give_back<L: Lane>(
    shared: Arc<Shared<L>>,
    mut unsent: mpsc::UnboundedReceiver<(usize, L::Lease)>,
    let_go: Arc<Notify>,
) {
    let items_max = shared.settings.batch_items_max;
    let mut gathered = Vec::with_capacity(items_max);
    while unsent.recv_many(&mut gathered, items_max).await > 0 {
        let (groups, leases): (Vec<_>, Vec<_>) = gathered.drain(..).unzip();
        match shared.worker.return_unsent(shared.lane.worker_id(), &leases).await {
            Ok(_) => shared.metrics.returned_unsent.add(leases.len()),
            Err(error) => {
                // Not repeated: their leases run out by themselves.
                shared.metrics.database_errors.add(1);
                tracing::warn!(lane = shared.lane.name(), code = error.code(), %error, "unsent items were not given back");
            }
        }
        let_go_of(&shared, &groups, &leases, &let_go);
    }
}

fn let_go_of<L: Lane>(shared: &Shared<L>, groups: &[usize], leases: &[L::Lease], let_go: &Notify) {
    shared.holds.remove(leases.iter());
    for index in 0..shared.groups.len() {
        puller::release(shared, index, groups.iter().filter(|group| **group == index).count());
    }
    let_go.notify_one();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_database_that_did_not_answer_is_asked_the_same_again() {
        let text = String::new;
        for (error, items, next) in [
            (DbError::Unreachable { message: text() }, 500, Next::Repeat),
            (DbError::NotCommitted, 1, Next::Repeat),
            (DbError::CommitUnknown { xid: text() }, 500, Next::Repeat),
            (DbError::Retry { sqlstate: text() }, 500, Next::Repeat),
            (DbError::Refused { sqlstate: "53100".into(), message: text() }, 1, Next::Repeat),
            (DbError::Refused { sqlstate: "25006".into(), message: text() }, 1, Next::Repeat),
            (DbError::Refused { sqlstate: "22000".into(), message: text() }, 1, Next::GiveUp),
            (DbError::InvalidArgument { message: text() }, 500, Next::Halve),
            (DbError::InvalidArgument { message: text() }, 1, Next::GiveUp),
            (DbError::LeaseLost { message: text() }, 1, Next::GiveUp),
            (DbError::NulCharacter, 2, Next::Halve),
            // An outcome is not thrown away because somebody forgot a grant or is half way through an upgrade.
            (DbError::MissingPrivilege { message: text() }, 1, Next::Repeat),
            (DbError::NotMigrated { message: text() }, 1, Next::Repeat),
            (DbError::Refused { sqlstate: "0A000".into(), message: text() }, 1, Next::Repeat),
        ] {
            assert_eq!(after_failure(&error, items), next, "{error:?} of {items}");
        }
    }
}
