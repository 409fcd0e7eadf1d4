//! How long an app's runs calculate beside everybody else's. Whoever calculates for long does not slow down neighbours who do
//! not: the rest of such a run takes turns with all others of its kind, on half of the machine's cores.
//!
//! A lower priority of its thread would not do: the kernel lets whatever runs finish its slice of some milliseconds before
//! somebody who wakes up, and between a request and its answer a dozen wake up after one another. A core that is
//! free is what they need.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::shared::Shared;

const MOST_MICROS: u32 = 10_000;
/// A few times what a short run takes.
const LEAST_MICROS: u32 = 1_250;
/// How long a turn lasts, if the engine asks.
const TURN: Duration = Duration::from_millis(5);
/// So long after the last short run, long ones need not make room for others.
const QUIET: Duration = Duration::from_millis(20);
/// A turn that lasts longer counts as over.
const TURN_MAX: Duration = Duration::from_millis(100);
/// How often whoever waits for a turn asks whether anybody still wants to know.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// One app's. Halved by every run that uses it up, doubled by every run that does not. Down to the least, a run begins
/// with waiting for its turn: a crowd of loops and memory bombs is soon there, and the first short run ends that.
#[derive(Debug)]
pub(super) struct Patience(AtomicU32);

impl Default for Patience {
    fn default() -> Self {
        Self(AtomicU32::new(MOST_MICROS))
    }
}

impl Patience {
    fn micros(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Two runs that end at the same time may count as one: it is a measure, not an account.
    fn change(&self, next: impl Fn(u32) -> u32) {
        let next = next(self.micros()).clamp(LEAST_MICROS, MOST_MICROS);
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
    fn take(&self, is_wanted: impl Fn() -> bool) -> Option<u64> {
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
            let pause = if pause.is_zero() { ASK_EVERY } else { pause.min(ASK_EVERY) };
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// While short runs come, a turn is followed by a pause, twice as long as itself.
    fn give(&self, own: u64) {
        let mut state = self.state();
        let now = Instant::now();
        let since = state.taken.iter().find(|(number, _)| *number == own).map(|(_, since)| *since);
        state.taken.retain(|(number, _)| *number != own);
        let short_runs_come =
            state.last_short_run.is_some_and(|at| now.saturating_duration_since(at) < QUIET);
        if let Some(since) = since.filter(|_| short_runs_come) {
            state.closed_until = now + now.saturating_duration_since(since) * 2;
        }
        self.changed.notify_all();
    }

    fn saw_a_short_run(&self) {
        self.state().last_short_run = Some(Instant::now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A run on this thread. It is in the foreground while its app's patience lasts.
pub(super) struct Calculation {
    patience: Arc<Patience>,
    turns: Arc<Turns>,
    deadline: Instant,
    shared: Arc<Shared>,
    /// What may be calculated before it is looked at again.
    until: Cell<Duration>,
    is_long: Cell<bool>,
    turn: Cell<Option<u64>>,
}

impl Calculation {
    /// From here on. `None` if it has waited for its turn until its time was up, or until nobody wanted to know.
    pub(super) fn start(
        patience: Arc<Patience>,
        turns: Arc<Turns>,
        deadline: Instant,
        shared: Arc<Shared>,
    ) -> Option<Self> {
        let micros = patience.micros();
        let turn = if micros == LEAST_MICROS {
            Some(turns.take(|| is_wanted(deadline, &shared))?)
        } else {
            None
        };
        Some(Self {
            until: Cell::new(calculated() + Duration::from_micros(micros.into())),
            is_long: Cell::new(false),
            turn: Cell::new(turn),
            patience,
            turns,
            deadline,
            shared,
        })
    }

    /// To be called now and then: a long run waits here for its turn. What its thread has waited for does not count.
    pub(super) fn go_on(&self) {
        if calculated() < self.until.get() {
            return;
        }
        if !self.is_long.replace(true) {
            self.patience.change(|micros| micros / 2);
        }
        self.rest();
        self.turn.set(self.turns.take(|| is_wanted(self.deadline, &self.shared)));
        self.until.set(calculated() + TURN);
    }

    /// To be called once everything is told: what is left is to free the memory, and a large heap waits for its turn too,
    /// though nobody waits for it.
    pub(super) fn clean_up(&self) {
        let was_long = self.is_long.get() || calculated() >= self.until.get();
        if was_long && self.turn.get().is_none() {
            self.turn.set(self.turns.take(|| true));
        }
    }

    /// To be called before the thread waits for something else: others may calculate meanwhile.
    pub(super) fn rest(&self) {
        if let Some(turn) = self.turn.take() {
            self.turns.give(turn);
        }
    }
}

impl Drop for Calculation {
    fn drop(&mut self) {
        self.rest();
        if !self.is_long.get() {
            // Much of what the engine does for a script, it does without asking.
            let was_long = calculated() >= self.until.get();
            if !was_long {
                self.turns.saw_a_short_run();
            }
            self.patience.change(|micros| if was_long { micros / 2 } else { micros * 2 });
        }
    }
}

fn is_wanted(deadline: Instant, shared: &Shared) -> bool {
    Instant::now() < deadline && !shared.is_given_up()
}

/// What this thread has calculated so far.
fn calculated() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::executors::output::OutputLimits;

    fn start(patience: &Arc<Patience>, turns: &Arc<Turns>) -> Calculation {
        start_until(Instant::now() + Duration::from_mins(1), patience, turns).unwrap()
    }

    fn start_until(
        deadline: Instant,
        patience: &Arc<Patience>,
        turns: &Arc<Turns>,
    ) -> Option<Calculation> {
        let shared = Arc::new(Shared::new(&OutputLimits::default()));
        Calculation::start(Arc::clone(patience), Arc::clone(turns), deadline, shared)
    }

    fn calculate(length: Duration) {
        let until = calculated() + length;
        while calculated() < until {}
    }

    const LONG: Duration = Duration::from_millis(11);

    #[test]
    fn long_runs_cost_an_app_its_foreground_and_a_short_one_brings_it_back() {
        let (patience, turns) = (Arc::default(), Arc::new(Turns::new(1)));
        let run = |length| {
            let run = start(&patience, &turns);
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
        let (patience, turns) = (Arc::default(), Arc::new(Turns::new(1)));
        let first = start(&patience, &turns);
        calculate(LONG);
        first.go_on();
        assert!(first.turn.get().is_some());
        let (sender, told) = mpsc::channel();
        let others: Vec<_> = (1..=2)
            .map(|number| {
                let (own, sender) = (Arc::clone(&turns), sender.clone());
                let other = thread::spawn(move || {
                    let turn = own.take(|| true);
                    sender.send(number).unwrap_or_default();
                    own.give(turn.unwrap_or_default());
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
        first.go_on();
        assert!(first.turn.get().is_some(), "its turn again");
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2], "after everybody who waited");
        for other in others {
            assert!(other.join().is_ok());
        }
    }

    #[test]
    fn whoever_waits_for_a_turn_in_vain_leaves_the_queue() {
        let turns = Turns::new(1);
        let turn = turns.take(|| true);
        assert_eq!((turn, turns.take(|| false)), (Some(0), None));
        assert!(turns.state().queue.is_empty());
        turns.give(0);
        assert_eq!(turns.take(|| false), Some(2), "there is one: nobody asks");
    }

    #[test]
    fn whoever_has_waited_in_vain_neither_runs_nor_counts_as_short() {
        let (patience, turns) = (Arc::<Patience>::default(), Arc::new(Turns::new(1)));
        patience.change(|_| LEAST_MICROS);
        let _has_it = start(&patience, &turns);
        assert!(start_until(Instant::now(), &patience, &turns).is_none());
        assert_eq!(patience.micros(), LEAST_MICROS);
    }

    #[test]
    fn a_turn_that_never_ends_does_not_keep_the_others_waiting() {
        let turns = Turns::new(1);
        assert_eq!(turns.take(|| true), Some(0));
        assert_eq!(turns.take(|| true), Some(1), "after a while");
        turns.give(0);
        assert_eq!(turns.state().taken.len(), 1, "it has none to give");
    }

    #[test]
    fn waiting_uses_no_patience_up() {
        let (patience, turns) = (Arc::<Patience>::default(), Arc::new(Turns::new(1)));
        let run = start(&patience, &turns);
        assert!(thread::spawn(|| calculate(2 * LONG)).join().is_ok());
        run.go_on();
        assert!(!run.is_long.get() && run.turn.get().is_none());
    }
}
