//! How much CPU time an app's runs may use at once with all others. A run that uses more takes turns with the other long
//! runs, on half of the machine's cores, so that short runs of other apps always find a free core.
//!
//! A lower thread priority would not do: the kernel lets a running thread finish its slice of some milliseconds, and a
//! request wakes up about a dozen threads one after another.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::shared::Shared;
use crate::bounds::scripts::{
    CPU_BUDGET_MICROS_MAX, CPU_BUDGET_MICROS_MIN, SHORT_RUNS_GONE_AFTER, TURN_LENGTH, TURN_MAX,
    WANTED_CHECK_INTERVAL,
};

/// The CPU time that one app's next run has before it must take turns. A run that uses it up halves it, any other doubles
/// it. At the minimum a run begins by waiting for its turn; the first short run ends that.
#[derive(Debug)]
pub(super) struct CpuBudget(AtomicU32);

impl Default for CpuBudget {
    fn default() -> Self {
        Self(AtomicU32::new(CPU_BUDGET_MICROS_MAX))
    }
}

impl CpuBudget {
    fn micros(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Two runs that end at the same time may count as one; the budget need not be exact.
    fn change(&self, next: impl Fn(u32) -> u32) {
        let next = next(self.micros()).clamp(CPU_BUDGET_MICROS_MIN, CPU_BUDGET_MICROS_MAX);
        self.0.store(next, Ordering::Relaxed);
    }
}

/// The turns of long runs: first come, first served, and again at the end of the queue.
#[derive(Debug)]
pub(super) struct Turns {
    at_once: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    next: u64,
    queue: VecDeque<u64>,
    /// Who has a turn, and since when.
    taken: Vec<(u64, Instant)>,
    /// A pause after somebody's turn.
    closed_until: Instant,
    last_short_run: Option<Instant>,
}

impl Turns {
    /// So many at once.
    pub(super) fn new(at_once: usize) -> Self {
        let state = State {
            next: 0,
            queue: VecDeque::new(),
            taken: Vec::new(),
            closed_until: Instant::now(),
            last_short_run: None,
        };
        Self { at_once, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Wait for a turn, as long as it is wanted. Answers its number.
    fn acquire(&self, is_wanted: impl Fn() -> bool) -> Option<u64> {
        let mut state = self.state();
        let own = state.next;
        state.next += 1;
        state.queue.push_back(own);
        loop {
            let now = Instant::now();
            // Some of the engine's functions do not ask for a long time: others go on without waiting for them.
            state.taken.retain(|(_, since)| now.saturating_duration_since(*since) < TURN_MAX);
            let is_next = state.queue.front() == Some(&own) && now >= state.closed_until;
            if is_next && state.taken.len() < self.at_once {
                state.queue.pop_front();
                state.taken.push((own, now));
                // There may be another one for the next.
                self.changed.notify_all();
                return Some(own);
            }
            if !is_wanted() {
                state.queue.retain(|waiting| *waiting != own);
                self.changed.notify_all();
                return None;
            }
            let pause = state.closed_until.saturating_duration_since(now);
            let pause = if pause.is_zero() {
                WANTED_CHECK_INTERVAL
            } else {
                pause.min(WANTED_CHECK_INTERVAL)
            };
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// While short runs come, a turn is followed by a pause, twice as long as itself.
    fn release(&self, own: u64) {
        let mut state = self.state();
        let now = Instant::now();
        let since = state.taken.iter().find(|(number, _)| *number == own).map(|(_, since)| *since);
        state.taken.retain(|(number, _)| *number != own);
        let short_runs_are_about = state
            .last_short_run
            .is_some_and(|at| now.saturating_duration_since(at) < SHORT_RUNS_GONE_AFTER);
        if let Some(since) = since.filter(|_| short_runs_are_about) {
            state.closed_until = now + now.saturating_duration_since(since) * 2;
        }
        self.changed.notify_all();
    }

    fn note_short_run(&self) {
        self.state().last_short_run = Some(Instant::now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run on this thread, which takes no turns until its app's budget is used up.
pub(super) struct BudgetedRun {
    cpu_budget: Arc<CpuBudget>,
    turns: Arc<Turns>,
    deadline: Instant,
    shared: Arc<Shared>,
    /// What may be cpu_time before it is looked at again.
    until: Cell<Duration>,
    is_over_budget: Cell<bool>,
    turn: Cell<Option<u64>>,
}

impl BudgetedRun {
    /// From here on. `None` if it has waited for its turn until its time was up, or until nobody wanted to know.
    pub(super) fn start(
        cpu_budget: Arc<CpuBudget>,
        turns: Arc<Turns>,
        deadline: Instant,
        shared: Arc<Shared>,
    ) -> Option<Self> {
        let micros = cpu_budget.micros();
        let turn = if micros == CPU_BUDGET_MICROS_MIN {
            Some(turns.acquire(|| is_wanted(deadline, &shared))?)
        } else {
            None
        };
        Some(Self {
            until: Cell::new(cpu_time() + Duration::from_micros(micros.into())),
            is_over_budget: Cell::new(false),
            turn: Cell::new(turn),
            cpu_budget,
            turns,
            deadline,
            shared,
        })
    }

    /// To be called now and then: a run that is over its budget waits here for its turn. Only CPU time counts.
    pub(super) fn wait_if_over_budget(&self) {
        if cpu_time() < self.until.get() {
            return;
        }
        if !self.is_over_budget.replace(true) {
            self.cpu_budget.change(|micros| micros / 2);
        }
        self.release_turn();
        self.turn.set(self.turns.acquire(|| is_wanted(self.deadline, &self.shared)));
        self.until.set(cpu_time() + TURN_LENGTH);
    }

    /// To be called after the answer: freeing a large heap takes CPU time too, so a long run waits for its turn first.
    pub(super) fn wait_to_free_memory(&self) {
        let was_over_budget = self.is_over_budget.get() || cpu_time() >= self.until.get();
        if was_over_budget && self.turn.get().is_none() {
            self.turn.set(self.turns.acquire(|| true));
        }
    }

    /// To be called before the thread waits for something else, so that others can run.
    pub(super) fn release_turn(&self) {
        if let Some(turn) = self.turn.take() {
            self.turns.release(turn);
        }
    }
}

impl Drop for BudgetedRun {
    fn drop(&mut self) {
        self.release_turn();
        if !self.is_over_budget.get() {
            // Much of what the engine does for a script, it does without asking.
            let was_over_budget = cpu_time() >= self.until.get();
            if !was_over_budget {
                self.turns.note_short_run();
            }
            self.cpu_budget.change(|micros| if was_over_budget { micros / 2 } else { micros * 2 });
        }
    }
}

fn is_wanted(deadline: Instant, shared: &Shared) -> bool {
    Instant::now() < deadline && !shared.is_given_up()
}

/// What this thread has cpu_time so far.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use symphony::lanes::triggers::executor::Slot;

    use crate::executors::output::OutputLimits;

    fn start(cpu_budget: &Arc<CpuBudget>, turns: &Arc<Turns>) -> BudgetedRun {
        start_until(Instant::now() + Duration::from_mins(1), cpu_budget, turns).unwrap()
    }

    fn start_until(
        deadline: Instant,
        cpu_budget: &Arc<CpuBudget>,
        turns: &Arc<Turns>,
    ) -> Option<BudgetedRun> {
        let shared =
            Arc::new(Shared::new(&OutputLimits::default(), uuid::Uuid::nil(), Slot::default()));
        BudgetedRun::start(Arc::clone(cpu_budget), Arc::clone(turns), deadline, shared)
    }

    fn calculate(length: Duration) {
        let until = cpu_time() + length;
        while cpu_time() < until {}
    }

    const LONG: Duration = Duration::from_millis(11);

    #[test]
    fn long_runs_cost_an_app_its_foreground_and_a_short_one_brings_it_back() {
        let (cpu_budget, turns) = (Arc::default(), Arc::new(Turns::new(1)));
        let run = |length| {
            let run = start(&cpu_budget, &turns);
            let began_with_a_turn = run.turn.get().is_some();
            calculate(length);
            began_with_a_turn
        };
        assert!(!run(Duration::ZERO));
        assert!(!run(LONG) && !run(LONG) && !run(LONG));
        assert!(run(Duration::ZERO), "in the background");
        assert!(!run(Duration::ZERO), "no more");
    }

    #[test]
    fn long_runs_take_turns_in_the_order_in_which_they_came() {
        let (cpu_budget, turns) = (Arc::default(), Arc::new(Turns::new(1)));
        let first = start(&cpu_budget, &turns);
        calculate(LONG);
        first.wait_if_over_budget();
        assert!(first.turn.get().is_some());
        let (sender, told) = mpsc::channel();
        let others: Vec<_> = (1..=2)
            .map(|number| {
                let (own, sender) = (Arc::clone(&turns), sender.clone());
                let other = thread::spawn(move || {
                    let turn = own.acquire(|| true);
                    sender.send(number).unwrap_or_default();
                    own.release(turn.unwrap_or_default());
                });
                // Each in its place before the next comes.
                while turns.state().queue.len() < number {
                    thread::yield_now();
                }
                other
            })
            .collect();
        assert!(told.try_recv().is_err(), "nobody else while the first has its turn");
        calculate(LONG);
        first.wait_if_over_budget();
        assert!(first.turn.get().is_some(), "its turn again");
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2], "after everybody who waited");
        for other in others {
            assert!(other.join().is_ok());
        }
    }

    #[test]
    fn whoever_waits_for_a_turn_in_vain_leaves_the_queue() {
        let turns = Turns::new(1);
        let turn = turns.acquire(|| true);
        assert_eq!((turn, turns.acquire(|| false)), (Some(0), None));
        assert!(turns.state().queue.is_empty());
        turns.release(0);
        assert_eq!(turns.acquire(|| false), Some(2), "there is one: nobody asks");
    }

    #[test]
    fn whoever_has_waited_in_vain_neither_runs_nor_counts_as_short() {
        let (cpu_budget, turns) = (Arc::<CpuBudget>::default(), Arc::new(Turns::new(1)));
        cpu_budget.change(|_| CPU_BUDGET_MICROS_MIN);
        let _has_it = start(&cpu_budget, &turns);
        assert!(start_until(Instant::now(), &cpu_budget, &turns).is_none());
        assert_eq!(cpu_budget.micros(), CPU_BUDGET_MICROS_MIN);
    }

    #[test]
    fn a_turn_that_never_ends_does_not_keep_the_others_waiting() {
        let turns = Turns::new(1);
        assert_eq!(turns.acquire(|| true), Some(0));
        assert_eq!(turns.acquire(|| true), Some(1), "after a while");
        turns.release(0);
        assert_eq!(turns.state().taken.len(), 1, "it has none to release");
    }

    #[test]
    fn waiting_uses_no_budget_up() {
        let (cpu_budget, turns) = (Arc::<CpuBudget>::default(), Arc::new(Turns::new(1)));
        let run = start(&cpu_budget, &turns);
        assert!(thread::spawn(|| calculate(2 * LONG)).join().is_ok());
        run.wait_if_over_budget();
        assert!(!run.is_over_budget.get() && run.turn.get().is_none());
    }
}
