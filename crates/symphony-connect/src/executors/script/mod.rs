//! Scripts: JavaScript in QuickJS, in this process, one fresh runtime and context per run.
//!
//! - [`settings`]: the limits.
//! - `prelude.js` and `host`: the two sides of the host API; only strings pass between them.
//! - `run`: one run, from source to answer.
//! - `patience`: long runs take turns, so that short ones do not wait for them.
//! - `shared`: what a run's thread and whoever waits for it both see.
//! - `threads`: where runs run.
//!
//! **Time.** The engine asks every few thousand steps, also within regular expressions, whether the time is up. Some of
//! its own functions do not ask (a search for a very long text in a very long text, for one).
//! So whoever waits does not wait for the thread: at the deadline the answer is `TimedOut`, and the thread is given up.
//! It keeps its slot until it ends, an app has only so many slots, and [`ScriptExecutor::overdue`] counts such threads.
//!
//! **Threads.** Each run has a thread to itself and not one of tokio's: a runtime that is shut down waits for its
//! blocking threads, and a given-up script would keep the process from ending. It also sizes its own stack. It is used
//! again for the next run.

mod host;
mod patience;
mod prelude;
mod run;
pub mod settings;
mod shared;
mod threads;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use symphony::lanes::triggers::executor::{Execution, Executor, Outcome, Request, ScriptStore};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use self::patience::{Patience, Turns};
use self::run::Job;
use self::shared::Shared;
use self::threads::Threads;
use super::{Fetcher, SettingsError, failed};

pub use self::host::KEYS_LISTED_MAX;
pub use self::settings::ScriptSettings;

/// What a thread's stack has besides the script's share: for the engine beyond its own check, and the host's calls.
const STACK_BESIDES_BYTES: usize = 1 << 20;
/// Apps remembered before those without a run are forgotten.
const APPS_REMEMBERED_MAX: usize = 1_024;

/// Runs scripts in this process.
pub struct ScriptExecutor {
    settings: ScriptSettings,
    store: Arc<dyn ScriptStore>,
    fetcher: Arc<Fetcher>,
    threads: Threads,
    turns: Arc<Turns>,
    slots: Arc<Semaphore>,
    apps: Mutex<HashMap<Uuid, Arc<App>>>,
    /// Runs nobody waits for any more; their threads hold them.
    given_up: Mutex<Vec<Weak<Shared>>>,
}

/// What is counted of one app.
struct App {
    slots: Arc<Semaphore>,
    patience: Arc<Patience>,
}

/// A run's right to a thread.
struct Slot {
    _of_the_app: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl ScriptExecutor {
    /// An executor with these limits. Scripts read entries from `store`, and `fetch` through `fetcher`.
    pub fn new(
        settings: ScriptSettings,
        store: Arc<dyn ScriptStore>,
        fetcher: Arc<Fetcher>,
    ) -> Result<Self, SettingsError> {
        settings.check()?;
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let stack_bytes = settings.stack_max_bytes.saturating_add(STACK_BESIDES_BYTES);
        Ok(Self {
            threads: Threads::new(stack_bytes),
            turns: Arc::new(Turns::new(cores.div_ceil(2))),
            slots: Arc::new(Semaphore::new(settings.concurrency_max)),
            apps: Mutex::new(HashMap::new()),
            given_up: Mutex::new(Vec::new()),
            settings,
            store,
            fetcher,
        })
    }

    /// Threads whose time is up and that still run, each in its slot: something in the engine does not ask for the time.
    pub fn overdue(&self) -> usize {
        let given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        given_up.iter().filter(|run| run.strong_count() > 0).count()
    }

    /// The app's share first: while it waits for that, it takes nothing from others.
    async fn slot(&self, app: &App) -> Option<Slot> {
        let of_the_app = Arc::clone(&app.slots).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        Some(Slot { _of_the_app: of_the_app, _of_all: of_all })
    }

    fn app(&self, app_id: Uuid) -> Arc<App> {
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        if apps.len() >= APPS_REMEMBERED_MAX && !apps.contains_key(&app_id) {
            // A permit and whoever waits for one hold the semaphore too.
            apps.retain(|_, app| Arc::strong_count(&app.slots) > 1);
        }
        let new = || {
            Arc::new(App {
                slots: Arc::new(Semaphore::new(self.settings.concurrency_max_per_app)),
                patience: Arc::default(),
            })
        };
        Arc::clone(apps.entry(app_id).or_insert_with(new))
    }
}

#[async_trait]
impl Executor for ScriptExecutor {
    async fn run(&self, request: &Request) -> Execution {
        let deadline = Instant::now() + request.timeout;
        let app = self.app(request.app_id);
        let Ok(Some(slot)) = timeout_at(deadline, self.slot(&app)).await else {
            return without_a_run("EXECUTOR_BUSY", "no slot was free: too many runs at once");
        };
        let shared = Arc::new(Shared::new(&self.settings.output));
        let mut waiting = Waiting { shared: &shared, given_up: &self.given_up, is_answered: false };
        let job = Job {
            request: request.clone(),
            settings: self.settings.clone(),
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            runtime: Handle::current(),
            deadline,
            shared: Arc::clone(&shared),
            patience: Arc::clone(&app.patience),
            turns: Arc::clone(&self.turns),
        };
        let (sender, receiver) = oneshot::channel();
        let started = self.threads.start(Box::new(move || {
            // Nobody there any more: then nobody wants to know.
            run::run(&job, |ending| drop(sender.send(ending)));
            // The runtime is gone by now, and with it the memory.
            drop(slot);
        }));
        if started.is_err() {
            return without_a_run("EXECUTOR_BUSY", "no thread could be started");
        }
        let answer = timeout_at(deadline, receiver).await;
        waiting.is_answered = answer.is_ok();
        let (outcome, effects) = match answer {
            Ok(Ok(ending)) => ending,
            Ok(Err(_panicked)) => {
                let problem = "the run broke off: see the log of the process";
                (failed("EXECUTOR_ERROR", problem, true), Vec::new())
            }
            Err(_elapsed) => (Outcome::TimedOut, Vec::new()),
        };
        Execution { outcome, logs: shared.take_logs(), effects }
    }
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

fn without_a_run(code: &'static str, message: &str) -> Execution {
    Execution { outcome: failed(code, message, true), logs: Vec::new(), effects: Vec::new() }
}
