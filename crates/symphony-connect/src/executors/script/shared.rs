//! What a run's thread and whoever waits for it both see.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, setpriority_process};
use symphony::lanes::triggers::executor::{LogLine, Slot};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::secrets::Secrets;
use super::threads::current_thread;

use crate::executors::output::{Logs, OutputLimits};

/// As nice as can be.
const LOWEST_PRIORITY: i32 = 19;

pub(super) struct Shared {
    pub(super) app_id: Uuid,
    started: Instant,
    logs: Mutex<Logs>,
    secrets: Mutex<Secrets>,
    is_given_up: AtomicBool,
    gave_up: Notify,
    /// Its place among the runs there may be at once.
    slot: Mutex<Option<Slot>>,
    thread: OnceLock<Pid>,
    was_stuck: AtomicBool,
}

impl Shared {
    pub(super) fn new(limits: &OutputLimits, app_id: Uuid, slot: Slot) -> Self {
        Self {
            app_id,
            started: Instant::now(),
            logs: Mutex::new(Logs::new(limits)),
            secrets: Mutex::default(),
            is_given_up: AtomicBool::new(false),
            gave_up: Notify::new(),
            slot: Mutex::new(Some(slot)),
            thread: OnceLock::new(),
            was_stuck: AtomicBool::new(false),
        }
    }

    /// The run is on the calling thread.
    pub(super) fn runs_here(&self) {
        if let Some(thread) = current_thread() {
            let _set_once = self.thread.set(thread);
        }
    }

    /// It does not come back: others get its slot, and nearly all of its CPU time.
    pub(super) fn is_stuck(&self) {
        self.was_stuck.store(true, Ordering::Release);
        drop(self.slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        if let Some(thread) = self.thread.get() {
            // Without it, neighbours have less of the cores, and that is all.
            let _best_effort = setpriority_process(Some(*thread), LOWEST_PRIORITY);
        }
    }

    pub(super) fn was_stuck(&self) -> bool {
        self.was_stuck.load(Ordering::Acquire)
    }

    /// Whether its thread can be used again: a priority that was lowered stays so.
    pub(super) fn has_ended(&self) -> bool {
        drop(self.slot.lock().unwrap_or_else(PoisonError::into_inner).take());
        !self.was_stuck()
    }

    pub(super) fn log(&self, level: &str, message: &str) {
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let message = self.redacted(message);
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).push(level, at_ms, &message);
    }

    /// A text without the secrets that the run has read.
    pub(super) fn redacted(&self, text: &str) -> String {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).redacted(text)
    }

    pub(super) fn keep_secret(&self, name: &str, value: &str) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).keep(name, value);
    }

    /// A header that is never stored.
    pub(super) fn keep_header(&self, name: &str, value: &str) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).keep_header(name, value);
    }

    /// A cookie of one.
    pub(super) fn keep_cookie(&self, name: &str, value: &str) {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).keep_cookie(name, value);
    }

    /// One that the run has read already.
    pub(super) fn secret_named(&self, name: &str) -> Option<String> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).named(name)
    }

    pub(super) fn has_secrets(&self) -> bool {
        !self.secrets.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The name of a secret that this text has.
    pub(super) fn secret_in(&self, text: &str) -> Option<String> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner).found_in(text)
    }

    /// Where an error was thrown: kept however much was logged before.
    pub(super) fn log_stack(&self, stack: &str) {
        let at_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.logs.lock().unwrap_or_else(PoisonError::into_inner).push_stack(at_ms, stack);
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
