//! Scripts: JavaScript in QuickJS, in this process, one fresh runtime and context per run.
//!
//! - [`settings`]: the limits.
//! - `prelude.js` and `host`: the two sides of the host API; only strings pass between them.
//! - `run`: one run, from source to answer.
//! - `shared`: what a run's thread and whoever waits for it both see.
//!
//! **Time.** The engine asks every few thousand steps, also within regular expressions, whether the time is up. Some of
//! its own functions do not ask (a search for a very long text in a very long text, for one).
//! So whoever waits does not wait for the thread: at the deadline the answer is `TimedOut`, and the thread is given up.
//! It keeps its slot until it ends, an app has only so many slots, and [`ScriptExecutor::overdue`] counts such threads.
//!
//! **Threads.** Each run has a thread of its own and not one of tokio's: a runtime that is shut down waits for its
//! blocking threads, and a given-up script would keep the process from ending. It also sizes its own stack.

mod host;
mod prelude;
mod run;
pub mod settings;
mod shared;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;

use async_trait::async_trait;
use symphony::lanes::triggers::executor::{Execution, Executor, Outcome, Request, ScriptStore};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use self::run::Job;
use self::shared::Shared;
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
    slots: Arc<Semaphore>,
    slots_by_app: Mutex<HashMap<Uuid, Arc<Semaphore>>>,
    /// Runs nobody waits for any more; their threads hold them.
    given_up: Mutex<Vec<Weak<Shared>>>,
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
        Ok(Self {
            slots: Arc::new(Semaphore::new(settings.concurrency_max)),
            slots_by_app: Mutex::new(HashMap::new()),
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
    async fn slot(&self, app_id: Uuid) -> Option<Slot> {
        let of_the_app = self.slots_of(app_id).acquire_owned().await.ok()?;
        let of_all = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        Some(Slot { _of_the_app: of_the_app, _of_all: of_all })
    }

    fn slots_of(&self, app_id: Uuid) -> Arc<Semaphore> {
        let mut apps = self.slots_by_app.lock().unwrap_or_else(PoisonError::into_inner);
        if apps.len() >= APPS_REMEMBERED_MAX && !apps.contains_key(&app_id) {
            // A permit and whoever waits for one hold the semaphore too.
            apps.retain(|_, slots| Arc::strong_count(slots) > 1);
        }
        let new = || Arc::new(Semaphore::new(self.settings.concurrency_max_per_app));
        Arc::clone(apps.entry(app_id).or_insert_with(new))
    }
}

#[async_trait]
impl Executor for ScriptExecutor {
    async fn run(&self, request: &Request) -> Execution {
        let deadline = Instant::now() + request.timeout;
        let Ok(Some(slot)) = timeout_at(deadline, self.slot(request.app_id)).await else {
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
        };
        let (sender, receiver) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("script".to_owned())
            .stack_size(self.settings.stack_max_bytes.saturating_add(STACK_BESIDES_BYTES));
        let started = thread.spawn(move || {
            // Nobody there any more: then nobody wants to know.
            run::run(&job, |ending| drop(sender.send(ending)));
            // The runtime is gone by now, and with it the memory.
            drop(slot);
        });
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
