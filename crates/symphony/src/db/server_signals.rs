//! What the tasks of one process tell each other about the server.

#[cfg(feature = "worker")]
use chrono::{DateTime, Utc};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
#[cfg(feature = "worker")]
use tokio::sync::Notify;
use tokio::sync::watch;

/// What the workers of one process tell each other about the server.
#[derive(Debug)]
pub(crate) struct ServerSignals {
    /// A claim was refused because of the server.
    #[cfg(feature = "worker")]
    pub(crate) refused: Notify,
    /// Counts the decisions after which work goes on.
    #[cfg(feature = "worker")]
    pub(crate) decided: watch::Sender<u64>,
    /// Counts how often another host was found to take writes.
    pub(crate) moved: watch::Sender<u64>,
    moved_at: Mutex<Option<Instant>>,
    /// The last payment claim that was committed.
    #[cfg(feature = "worker")]
    pub(super) claimed_at: Mutex<Option<DateTime<Utc>>>,
}

impl Default for ServerSignals {
    fn default() -> Self {
        Self {
            #[cfg(feature = "worker")]
            refused: Notify::new(),
            #[cfg(feature = "worker")]
            decided: watch::channel(0).0,
            moved: watch::channel(0).0,
            moved_at: Mutex::default(),
            #[cfg(feature = "worker")]
            claimed_at: Mutex::default(),
        }
    }
}

impl ServerSignals {
    /// Another host takes writes now: calls under way elsewhere will not be answered.
    pub(super) fn server_moved(&self) {
        *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        self.moved.send_modify(|count| *count += 1);
    }

    /// Whether that happened since a connection of this age was made.
    pub(super) fn moved_within(&self, age: Duration) -> bool {
        let moved_at = *self.moved_at.lock().unwrap_or_else(PoisonError::into_inner);
        moved_at.is_some_and(|moved_at| moved_at.elapsed() < age)
    }
}
