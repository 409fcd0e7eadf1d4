//! Scripts: JavaScript in QuickJS, in this process, one fresh runtime and context per run.
//!
//! - [`settings`]: the limits.
//! - `prelude.js` with `host.js`, and `host`: the two sides of the host API; only strings pass between them.
//! - `compile`: a script and what it imports, compiled without being run.
//! - `modules`: which file of the app an import means.
//! - `typescript`: types replaced by spaces, behind the feature of that name.
//! - `web`: globals of the web, such as `crypto` and `URL`, made when a script first asks for one.
//! - `mail`: what `email.send` takes.
//! - `reads`: what a run has read of its app's entries.
//! - `run`: one run, from source to answer.
//! - `secrets`: what a run has read of its app's secrets, to be left out of what it says.
//! - `cpu_budget`: runs that use much CPU time take turns, so that short ones do not wait for them.
//! - `shared`: what a run's thread and whoever waits for it both see.
//! - `threads`: where runs run.
//!
//! **Time.** The engine asks every few thousand steps, also within regular expressions, whether the time is up. Some of
//! its own functions do not ask (a search for a very long text in a very long text, for one).
//! So whoever waits does not wait for the thread: at the deadline the answer is `TimedOut`, and the thread is given up.
//! If it has not ended a second later, it is stuck: its slot goes to others, it goes on at the lowest priority, and an app
//! with several of those gets no more threads until some end. No thread can be ended from outside, only the process
//! can: with too many stuck threads, [`ScriptExecutor::exhausted`] says that another process must take over. How many runs
//! there are at once, in all and of one app, is the lane's business.
//!
//! **Threads.** Each run has a thread to itself and not one of tokio's: a runtime that is shut down waits for its
//! blocking threads, and a given-up script would keep the process from ending. It also sizes its own stack. It is used
//! again for the next run.

pub mod compile;
mod cpu_budget;
mod host;
mod mail;
mod modules;
mod prelude;
mod reads;
mod run;
mod secrets;
pub mod settings;
mod shared;
mod threads;
#[cfg(feature = "typescript")]
mod typescript;
mod web;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use symphony::FieldErrors;
use symphony::lanes::triggers::executor::{
    Execution, Executor, Request, RunOutcome, ScriptStore, Slot,
};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use self::cpu_budget::{CpuBudget, Turns};
use self::run::Job;
use self::shared::Shared;
use self::threads::Threads;
use super::{Fetcher, failed};

pub use self::compile::{Compiled, ReadFile, ScriptDefect, compile};
pub use self::host::KEYS_LISTED_MAX;
pub use self::settings::ScriptSettings;
use crate::bounds::scripts::{
    APPS_REMEMBERED_MAX, STACK_BESIDES_BYTES, STUCK_AFTER, STUCK_PER_APP_MAX,
};

/// Runs scripts in this process.
pub struct ScriptExecutor {
    settings: ScriptSettings,
    store: Arc<dyn ScriptStore>,
    fetcher: Arc<Fetcher>,
    threads: Threads,
    turns: Arc<Turns>,
    apps: Mutex<HashMap<Uuid, Arc<CpuBudget>>>,
    /// Runs nobody waits for any more; their threads hold them.
    given_up: Arc<Mutex<Vec<Weak<Shared>>>>,
    exhausted: Arc<watch::Sender<bool>>,
}

impl ScriptExecutor {
    /// An executor with these limits. Scripts read entries from `store`, and `fetch` through `fetcher`.
    pub fn new(
        settings: ScriptSettings,
        store: Arc<dyn ScriptStore>,
        fetcher: Arc<Fetcher>,
    ) -> Result<Self, FieldErrors> {
        settings.check()?;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let stack_bytes = settings.stack_max_bytes.saturating_add(STACK_BESIDES_BYTES);
        Ok(Self {
            threads: Threads::new(stack_bytes),
            turns: Arc::new(Turns::new(cores.div_ceil(2))),
            apps: Mutex::new(HashMap::new()),
            given_up: Arc::default(),
            exhausted: Arc::new(watch::Sender::new(false)),
            settings,
            store,
            fetcher,
        })
    }

    /// Threads whose time is up and that still run: something in the engine does not ask for the time.
    pub fn overdue(&self) -> usize {
        given_up(&self.given_up, |_| true)
    }

    /// Those of them that have lost their slots.
    pub fn stuck(&self) -> usize {
        given_up(&self.given_up, Shared::was_stuck)
    }

    /// Ends when so many threads are stuck that this process should end: only that ends them.
    pub async fn exhausted(&self) {
        // The sender is the executor's own.
        drop(self.exhausted.subscribe().wait_for(|is_exhausted| *is_exhausted).await);
    }

    /// Look after a second whether a run that was given up has ended.
    fn watch(&self, request: &Request, run: &Arc<Shared>) {
        let (run, given_up) = (Arc::downgrade(run), Arc::clone(&self.given_up));
        let (exhausted, app) = (Arc::clone(&self.exhausted), request.app.clone());
        let threads_max = self.settings.threads_stuck_max;
        tokio::spawn(async move {
            tokio::time::sleep(STUCK_AFTER).await;
            let Some(run) = run.upgrade() else { return };
            run.is_stuck();
            drop(run);
            let threads = self::given_up(&given_up, Shared::was_stuck);
            tracing::warn!(
                lane = "triggers",
                group = app,
                found = threads,
                event = "SCRIPT_THREAD_STUCK",
                "a script's thread does not come back: its slot goes to others, and it goes on at the lowest priority"
            );
            if threads >= threads_max {
                exhausted.send_replace(true);
            }
        });
    }

    fn cpu_budget(&self, app_id: Uuid) -> Arc<CpuBudget> {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        if apps.len() >= APPS_REMEMBERED_MAX && !apps.contains_key(&app_id) {
            // A run holds it too.
            apps.retain(|_, budget| Arc::strong_count(budget) > 1);
        }
        Arc::clone(apps.entry(app_id).or_default())
    }
}

#[async_trait]
impl Executor for ScriptExecutor {
    async fn run(&self, request: &Request) -> Execution {
        // Also those that are not stuck yet: a second is long enough to begin as many again.
        if given_up(&self.given_up, |run| run.app_id == request.app_id) >= STUCK_PER_APP_MAX {
            let problem = "runs of this app do not come back from the engine's own functions: look for huge texts or lists";
            return Execution::new(failed("EXECUTOR_STUCK", problem, true));
        }
        let deadline = Instant::now() + request.timeout;
        // The slot goes with the run, not with its request: a run that is stuck loses it.
        let slot = request.slot.clone();
        let shared = Arc::new(Shared::new(&self.settings.output, request.app_id, slot));
        let mut waiting = Waiting { shared: &shared, given_up: &self.given_up, is_answered: false };
        let job = Job {
            request: Request { slot: Slot::default(), ..request.clone() },
            settings: self.settings.clone(),
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            runtime: Handle::current(),
            deadline,
            shared: Arc::clone(&shared),
            cpu_budget: self.cpu_budget(request.app_id),
            turns: Arc::clone(&self.turns),
        };
        let (sender, receiver) = oneshot::channel();
        let started = self.threads.start(Box::new(move || {
            job.shared.runs_here();
            // Nobody there any more: then nobody wants to know.
            run::run(&job, |ending| drop(sender.send(ending)));
            // The runtime is gone by now, and with it the memory: the slot is free.
            job.shared.has_ended()
        }));
        if started.is_err() {
            return Execution::new(failed("EXECUTOR_BUSY", "no thread could be started", true));
        }
        let answer = timeout_at(deadline, receiver).await;
        waiting.is_answered = answer.is_ok();
        let ended = match answer {
            Ok(Ok(ended)) => ended,
            Ok(Err(_panicked)) => {
                let problem = "the run broke off: see the log of the process";
                Execution::new(failed("EXECUTOR_ERROR", problem, true))
            }
            Err(_elapsed) => {
                self.watch(request, &shared);
                Execution::new(RunOutcome::TimedOut)
            }
        };
        Execution { logs: shared.take_logs(), ..ended }
    }
}

/// How many of these still run.
fn given_up(runs: &Mutex<Vec<Weak<Shared>>>, counts: impl Fn(&Shared) -> bool) -> usize {
    let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
    runs.iter().filter_map(Weak::upgrade).filter(|run| counts(run)).count()
}

/// Somebody waits for a run: until it is answered, its time is up, or the waiting itself was dropped.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    given_up: &'a Mutex<Vec<Weak<Shared>>>,
    is_answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.shared.give_up();
            let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
            given_up.retain(|run| run.strong_count() > 0);
            given_up.push(Arc::downgrade(self.shared));
        }
    }
}

impl fmt::Debug for ScriptExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptExecutor").field("settings", &self.settings).finish_non_exhaustive()
    }
}
