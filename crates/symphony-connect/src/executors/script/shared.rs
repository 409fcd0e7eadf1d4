//! What a run's thread and whoever waits for it both see.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use symphony::lanes::triggers::executor::LogLine;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::executors::output::{Logs, OutputLimits};

pub(super) struct Shared {
    started: Instant,
    logs: Mutex<Logs>,
    is_given_up: AtomicBool,
    gave_up: Notify,
}

impl Shared {
    pub(super) fn new(limits: &OutputLimits) -> Self {
        Self {
            started: Instant::now(),
            logs: Mutex::new(Logs::new(limits)),
            is_given_up: AtomicBool::new(false),
            gave_up: Notify::new(),
        }
    }

    pub(super) fn log(&self, level: &str, message: &str) {
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).push(level, at_ms, message);
    }

    /// What was logged so far. What comes later is not kept.
    pub(super) fn take_logs(&self) -> Vec<LogLine> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Nobody waits any more.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
        self.gave_up.notify_one();
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    /// Ends when nobody waits any more. For one waiter, the run's thread.
    pub(super) async fn given_up(&self) {
        self.gave_up.notified().await;
    }
}
